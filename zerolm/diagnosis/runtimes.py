"""The runtimes, as data: ``runtimes.json`` has what each lists, as read in a version of its sources.

In part tried: transformers 5.23 refuses a llama or gemma2 whose heads do not divide the hidden size;
llama.cpp takes any number of heads for llama, qwen3 and gemma2, and for qwen2 only if heads x head size is
the hidden size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

from zerolm.families.family import Family
from zerolm.io.files import parse_json

FILE: Final = "runtimes.json"
UNREAD: Final = "not examined"
HEAD: Final = re.compile("(For[A-Z][A-Za-z]*|LMHeadModel)$")
"""The end of the name of a class with a head; that of one without is ``Model``."""


@dataclass(frozen=True)
class ListSource:
    """Where a list was read: a ``version``, ``released`` on a day, and ``files`` in a repository.

    ``released`` is None where the day is not known; it was ``read`` on another.
    """

    version: str
    released: str | None
    read: str
    files: str

    @property
    def dated(self) -> str:
        """Return version and day, as verdicts name them."""
        return f"{self.version} of {self.released}" if self.released else f"{self.version}, read {self.read}"


@dataclass(frozen=True)
class Runtime:
    """How a runtime goes about a folder, and the ``names`` that it lists, read in a ``source``.

    These are classes in ``architectures``, or ``by`` the model type. Of families: ``head_size_read`` where
    the implementation takes the head size as given, ``head_size_derived`` where as hidden size / heads,
    ``ffn_derived`` where the FFN is 4 x hidden; others are not examined. ``checks_heads``: configurations
    pass through transformers, which checks them. ``only_safetensors``: it reads no pickles and no files under
    other names; ``gguf``: some of these, too.
    """

    name: str
    source: ListSource
    by: Literal["class", "model_type"]
    names: frozenset[str]
    head_size_read: frozenset[str] = frozenset()
    head_size_derived: frozenset[str] = frozenset()
    ffn_derived: frozenset[str] = frozenset()
    checks_heads: bool = True
    only_safetensors: bool = False
    gguf: bool = False

    @classmethod
    def of(cls, name: str, document: dict[str, Any]) -> Runtime:
        others: dict[str, Any] = {
            key: frozenset(value) if isinstance(value, list) else value for key, value in document.items()
        }
        source = ListSource(**others.pop("source"))
        return cls(name, source, **others)

    @property
    def dated(self) -> str:
        return self.source.dated

    def lists(self, names: Iterable[str], family: Family | None = None) -> list[str]:
        """Return which of some names it lists, or the document of a family says that it knows."""
        more = family.runtimes[self.name].known if family and self.name in family.runtimes else ()
        return [name for name in names if name in self.names or name in more]

    def of_family(self, family: Family) -> list[str]:
        """Return which classes of a family, with a head or without, or its model type, it lists."""
        if self.by == "model_type":
            return self.lists((family.name,), family)
        bodies = (HEAD.sub("Model", name) for name in family.head_classes)
        return self.lists(dict.fromkeys((*family.head_classes, *bodies)), family)

    def head_size(self, family: Family) -> str:
        """Return how it takes a family's head size: ``read``, ``derived``, ``either``, or ``UNREAD``."""
        if self.name in family.runtimes:
            return family.runtimes[self.name].head_size
        is_read = family.name in self.head_size_read or self.name == TRANSFORMERS.name
        return "read" if is_read else "derived" if family.name in self.head_size_derived else UNREAD

    def derives_ffn(self, family: Family) -> bool:
        """Return whether it takes the FFN of a family as 4 x hidden."""
        if self.name in family.runtimes:
            return family.runtimes[self.name].ffn == "4*hidden"
        return family.name in self.ffn_derived


def _runtimes() -> dict[str, Runtime]:
    document = parse_json(files("zerolm.diagnosis").joinpath(FILE).read_text("utf-8"))
    return {name: Runtime.of(name, entry) for name, entry in document.items()}


RUNTIMES: Final = _runtimes()
TRANSFORMERS: Final = RUNTIMES["transformers"]
LLAMA_CPP: Final = RUNTIMES["llama.cpp"]
SERVERS: Final = tuple(RUNTIMES[name] for name in ("vLLM", "SGLang", "TensorRT-LLM", "MLX"))
