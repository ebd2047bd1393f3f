"""The tokens of a child as a result: without torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TriedSize:
    """A vocabulary of ``size`` tokens: the ``params`` of the whole child with it, and its losses.

    ``tokens`` is the loss of fewer tokens, ``rest`` the predicted one of all else that is cut or rounded,
    ``measured`` the same after repair, for the best sizes. They are in bits per byte; for an encoder
    1 - cosine. ``bytes`` are those of its weights where they have types.
    """

    size: int
    params: int
    tokens: float
    rest: float
    bytes: int | None = None
    measured: float | None = None

    @property
    def loss(self) -> float:
        """Return the sum of both losses, measured if that is known."""
        return self.tokens + (self.rest if self.measured is None else self.measured)


@dataclass(frozen=True)
class CurveRow:
    """A size of the vocabulary, the parameters with it, and by what share held-out text ``grows``."""

    size: int
    params: int
    grows: float


@dataclass(frozen=True)
class StringsProof:
    """The number of compared strings, of those with the ``same`` tokens, and the distance of kept logits.

    ``difference`` is the largest one, ``relative`` is relative to the largest output of the parent.
    """

    strings: int
    same: int
    difference: float
    relative: float


@dataclass(frozen=True)
class ChildVocabulary:
    """The tokens of the ``parent`` and of the ``child``, and those ``used`` by the text, None without one.

    ``saves`` are the parameters less with these alone. The text has ``tokens``, and ``grows`` by some.
    ``sizes`` were compared within budgets. ``losses`` are of the ``parent`` and with fewer tokens, in bits a
    byte of a part of the text that is ``held_out`` of their choice; of an encoder 1 - cosine. ``curve`` shows
    how that part grows with fewer tokens.
    """

    parent: int
    child: int
    used: int | None = None
    saves: int | None = None
    tokens: int = 0
    grows: int = 0
    sizes: list[TriedSize] = field(default_factory=list)
    losses: dict[str, float] = field(default_factory=dict)
    held_out: bool = False
    curve: list[CurveRow] = field(default_factory=list)
    proof: StringsProof | None = None
