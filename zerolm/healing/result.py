"""The result of a healing."""

from __future__ import annotations

from dataclasses import dataclass, field

from zerolm.carving.result import CarvedChild
from zerolm.children.verification import Verification


@dataclass(frozen=True)
class HealedText:
    """A text of a healing by its ``source`` and hash, and how many tokens of it were used for what."""

    source: str
    sha256: str
    tokens: int
    trained_on: int
    held_out: int


@dataclass(frozen=True)
class HealTraining:
    """How a child was trained; ``held_out`` counts the sequences that judge it."""

    tokens: int
    steps: int
    seconds: float
    rate: float
    losses: list[str]
    temperature: float
    top: int | None
    lora: int | None
    only: str | None
    batch: int
    length: int
    bfloat16: bool
    seed: int
    held_out: int


@dataclass(frozen=True, repr=False, eq=False)
class Healed:
    """A healed child: its losses before and after on text that was held out, and how they fell.

    ``losses`` are ``perplexity`` and ``kl`` to the parent in nats a token, or ``cosine``: ``before``,
    ``after`` and of the ``parent``. ``curve`` has them by ``step`` and ``tokens``. ``verified`` is the
    difference of the written child from the trained network.
    """

    child: str
    parent: str
    teacher: str
    family: str
    format: str
    texts: list[HealedText]
    training: HealTraining
    losses: dict[str, dict[str, float]]
    curve: list[dict[str, float]]
    notes: list[str] = field(default_factory=list)
    verified: Verification | None = None


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class CarvedAndHealed(CarvedChild):
    """A child compared with its first parent, and its last ``healing``, None where it was carved alone."""

    healing: Healed | None = None
