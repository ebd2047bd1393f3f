"""The evidence in a folder that is meant to be a checkpoint, sound or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

from zerolm.checkpoints import Layout, TensorInfo
from zerolm.checkpoints.checkpoint import tensors_of
from zerolm.checkpoints.folder import inside, read_object
from zerolm.checkpoints.remedies import check_complete
from zerolm.checkpoints.shards import INDEX, SINGLE, read_shards
from zerolm.checkpoints.tying import as_stored
from zerolm.checkpoints.wrappers import wrapper_note, wrapper_of
from zerolm.families.family import Family
from zerolm.families.known import family_of

PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
T = TypeVar("T")


@dataclass(frozen=True)
class Flaws:
    """The flaws of a configuration, of the weights, and of names and shapes: one line each, or ``""``."""

    config: str
    weights: str
    layout: str


@dataclass(frozen=True)
class Evidence:
    """A folder as it lies there, with its ``flaws``.

    ``config`` and ``tensors`` are empty where they cannot be read. ``pickles``, ``ggufs`` and ``stray``
    (safetensors under names that no stock loader looks for) are names of files, none of them opened.
    ``family`` is None where it is not known, ``layout`` None where names or shapes do not fit it.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, TensorInfo]
    family: Family | None
    layout: Layout | None
    flaws: Flaws
    pickles: tuple[str, ...]
    ggufs: tuple[str, ...]
    stray: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names in ``architectures``."""
        names = self.config.get("architectures")
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()

    @property
    def kind(self) -> str:
        """The ``model_type``, or ``""``."""
        kind = self.config.get("model_type")
        return kind if isinstance(kind, str) else ""

    @property
    def needs_code(self) -> bool:
        """Whether the configuration names code of its own for a model that stock software does not have."""
        return bool(self.config.get("auto_map")) and self.family is None

    @property
    def ties(self) -> bool | None:
        """Whether head and embedding are tied; None for an encoder, and where the layout is not known."""
        predicts_next = self.family is not None and self.family.task == "next"
        return self.layout.tied if self.layout is not None and predicts_next else None

    @property
    def bottomless(self) -> bool:
        """Whether the configuration asks for more layers than there are tensors, or for nonsense."""
        names = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
        parts = [self.config, *(part for part in self.config.values() if isinstance(part, dict))]
        depths = [part[name] for part in parts for name in names if name in part]
        return not all(type(depth) is int and depth <= max(1, len(self.tensors)) for depth in depths)

    @cached_property
    def is_gguf(self) -> bool:
        """Whether GGUF files are all that is there."""
        return bool(self.ggufs) and not (self.tensors or self.stray or self.has("config.json", SINGLE, INDEX))

    @cached_property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(tensor.end - tensor.start for tensor in self.tensors.values())

    def has(self, *names: str) -> bool:
        """Whether the folder has one of these files, and not as a link that leads out of it."""
        return any(tried(partial(inside, self.folder, name))[0] for name in names)


def gather(path: Path) -> Evidence:
    """Look at a folder or a GGUF file, opening no pickle and running no code.

    ``ValueError`` where it is no checkpoint.
    """
    if path.is_file() and path.suffix == ".gguf":
        none = Flaws("", "", "")
        return Evidence(path.parent, {}, {}, None, None, none, pickles=(), ggufs=(path.name,), stray=())
    if not path.is_dir():
        kind = "is neither a folder nor a GGUF file" if path.exists() else "does not exist"
        raise ValueError(f"{str(path)!r} {kind}")
    folder = path
    if not (folder / "config.json").exists():
        check_complete(folder)
        if not _names(folder, "*.safetensors", "*.gguf", INDEX):
            raise ValueError(
                f"{str(folder)!r} holds no checkpoint: it has no config.json, no safetensors and no GGUF file"
            )
    config, config_flaw = tried(partial(read_object, folder, "config.json"))
    shards, weights_flaw = tried(partial(read_shards, folder))
    tensors = tensors_of(shards or ())
    family, family_flaw = tried(partial(family_of, config or {}))
    layout, layout_flaw = None, family_flaw or weights_flaw
    if family and tensors:
        wrapper = wrapper_of(family, tensors)
        tensors = {name.removeprefix(wrapper): tensor for name, tensor in tensors.items()}
        layout, layout_flaw = tried(partial(Layout.of, family, config or {}, tensors))
        if layout is not None:
            config, layout = as_stored(family, config or {}, tensors, layout)
        layout_flaw = layout_flaw or wrapper_note(wrapper)
    named = any((folder / name).exists() for name in (SINGLE, INDEX))
    return Evidence(
        folder,
        config or {},
        tensors,
        family,
        layout,
        Flaws(config_flaw, weights_flaw, layout_flaw),
        pickles=_names(folder, *PICKLES),
        ggufs=_names(folder, "*.gguf"),
        stray=() if named else _names(folder, "*.safetensors"),
    )


def _names(folder: Path, *patterns: str) -> tuple[str, ...]:
    return tuple(sorted({path.name for pattern in patterns for path in folder.glob(pattern)}))


def tried(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return the value that was read, and ``""``; else None, and the reason."""
    try:
        return read(), ""
    except ValueError as error:
        return None, " ".join(str(error).split())
