"""Settings that several verbs declare: budgets, how a network is run, tokens of a text, a parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerolm.settings import REQUIRED
from zerolm.settings.budgets import budgets as budgets
from zerolm.settings.budgets import limits as limits
from zerolm.settings.request import argument, setting, values_of
from zerolm.settings.setting import absolute
from zerolm.text.defaults import NO_FILES

if TYPE_CHECKING:
    from zerolm.costs import CostModel


@dataclass(frozen=True)
class Conditions:
    """How a network is run, which its costs depend on."""

    context: int = setting("integer", 1024, "context length in tokens", low=1, high=1 << 24)
    batch: int = setting("integer", 1, "concurrent sequences", low=1, high=1 << 10)
    kv_bits: float = setting(
        "cache bits",
        16,
        "bits per KV cache value, or a llama.cpp cache type: q8_0, q4_0",
        low=1,
        high=32,
    )
    bits: int = setting("integer", 16, "bits per weight of layers and head", low=1, high=32)
    group_size: int = setting("integer", 128, "weights per quantisation scale", low=1, high=1 << 20)

    def model(self) -> CostModel:
        from zerolm.costs import CostModel

        return CostModel(**values_of(self))


def backend(**more: Any) -> Any:
    """Return a field for where networks are computed, several at a time."""
    help_ = "local processes (loky) or a Ray cluster (ray)"
    return setting("text", "loky", help_, choices=("loky", "ray"), **more)


def parent(by_place: bool = True, **more: Any) -> Any:
    """Return a field for a checkpoint to read."""
    help_ = "checkpoint folder, GGUF file, or hub model (owner/name)"
    return setting("path", REQUIRED, help_, by_place=by_place, metavar="PARENT", **more)


def like(**more: Any) -> Any:
    """Return a field for the family that a model of another type is read like."""
    help_ = (
        "read a model of an unknown model_type as this family; a child is written only if its outputs "
        "match the parent's"
    )
    return setting("text", None, help_, metavar="FAMILY", **more)


@contextmanager
def read_like(name: str | None) -> Iterator[None]:
    """Within, models of other types are read like a family; ``ValueError`` for one that is not known."""
    from zerolm.families.known import described_family
    from zerolm.families.reading import others_like

    if name is not None:
        described_family(name)
    with others_like(name):
        yield


@contextmanager
def field_read(name: str | None, *texts: str | None, has_another: bool = False) -> Iterator[None]:
    """Within, the records of texts are read by this field.

    Raises ``ValueError`` for a text that does not exist, and for a field where no text is given, unless the
    command ``has_another``.
    """
    from zerolm.settings.domains import domains_of
    from zerolm.text.documents import check_exists
    from zerolm.text.record_texts import reading_field

    for text in texts:
        for source in domains_of(text).values() or [text]:
            if source not in NO_FILES:
                check_exists(str(source))
    if name is not None and not has_another and all(text in NO_FILES for text in texts):
        raise ValueError("--text-field names a field of the records of a text: give --text FILE too")
    with reading_field(name):
        yield


def metric(**more: Any) -> Any:
    """Return a field for the result of a benchmark or label file that counts."""
    help_ = "result of the file to use; default: its named or only metric"
    return setting("text", None, help_, metavar="NAME", **more)


def data(**more: Any) -> Any:
    """Return a field for the folders in which benchmarks are looked up by name."""
    help_ = (
        "folders of benchmark files, separated as in PATH; default: ZEROLM_DATA, else the cache and the "
        "package"
    )
    return setting("path", None, help_, metavar="DIR", **more)


@contextmanager
def needing_torch(what: str = "proxies run networks", extra: str = "torch") -> Iterator[None]:
    """Within, what an import lacks is said by the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None:  # said already
            raise
        message = f"{what}, which needs {missing.name}: pip install 'zerolm[{extra}]'"
        raise ModuleNotFoundError(message) from missing


@dataclass(frozen=True)
class Benchmarks:
    """Benchmarks by name or file, or all at hand, and the result that counts."""

    names: tuple[str, ...] | None = argument("names", None, "benchmarks, by name or file", metavar="NAME")
    all: bool = setting(
        "flag",
        False,
        "use every benchmark of the data folders; unreadable ones are skipped",
        group="Benchmarks",
    )
    data: str | None = data()
    metric: str | None = metric()

    def chosen(self) -> tuple[list[str], dict[str, Any]]:
        """Return the benchmarks that are meant, and the settings that repeat the run anywhere."""
        from zerolm.groundtruth.reader import chosen, is_file_name, same_folders

        names = chosen(self.names or (), self.data, every=self.all)
        is_looked_up = any(not is_file_name(name) for name in names)
        folders = same_folders(self.data) if is_looked_up or self.data else None
        files = [absolute(name) if is_file_name(name) else name for name in self.names or ()]
        return names, {"names": files or None, "data": folders}

    def noting(self, problems: list[str]) -> Callable[[ValueError], None] | None:
        """Return a function that notes why a benchmark is left out; None where none may be."""
        return (lambda error: problems.append(f"left out: {error}")) if self.all else None
