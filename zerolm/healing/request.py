"""A request to heal: on which texts, for how long, by which losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zerolm.training.learner import OF_STATES, Objective
from zerolm.training.request import Execution

DEFAULT_LOSSES: Final = ("kl", "hidden")
ENCODER_LOSSES: Final = ("mse",)
"""An encoder predicts nothing, and the mean over tokens counts, which ``hidden`` does not see."""
HEAL_BATCH: Final = 8
HEAL_LENGTH: Final = 256


@dataclass(frozen=True)
class Texts:
    """Files, folders or data sets of the hub, how often each is drawn from (None: by size), and the
    ``length`` of sequences in tokens."""

    sources: tuple[str, ...]
    mix: tuple[float, ...] | None = None
    length: int = HEAL_LENGTH

    def check(self) -> None:
        if not self.sources:
            raise ValueError(
                "nothing says what to train on: give --text FILE, a folder, or owner/name of the hub"
            )
        if self.mix is not None and len(self.mix) != len(self.sources):
            raise ValueError(f"--mix has {len(self.mix)} shares for {len(self.sources)} texts; one a text")


@dataclass(frozen=True)
class Distillation:
    """The ``losses`` by name (None: the usual ones), the ``temperature`` of predictions, and how many of the
    teacher's likeliest tokens are kept on the disk instead of running it beside the child (``top``)."""

    losses: tuple[str, ...] | None = None
    temperature: float = 1.0
    top: int | None = None

    def objective(self, is_decoder: bool, layers: tuple[tuple[int, int], ...]) -> Objective:
        """Return the losses; ``ValueError`` for what is not known, or does not go together."""
        usual = DEFAULT_LOSSES if is_decoder else ENCODER_LOSSES
        if self.top is not None and is_decoder:
            usual = ("kl",)
        names = self.losses or usual
        objective = Objective(dict.fromkeys(names, 1.0), self.temperature, layers)
        if not is_decoder and not set(names) <= set(OF_STATES):
            possible = " and ".join(OF_STATES)
            raise ValueError(
                f"an encoder predicts no tokens, so {', '.join(names)} cannot be; {possible} can"
            )
        if self.top is not None and not objective.cacheable:
            raise ValueError(
                f"--top keeps the teacher's predictions alone, and {', '.join(names)} need more: "
                "leave --top out, or give --losses kl"
            )
        return objective


@dataclass(frozen=True)
class HealRequest:
    """How a child is healed.

    ``tokens`` or ``seconds`` say for how long; ``rate`` None follows the damage; ``lora`` is the rank of
    adapters in place of all weights.
    """

    texts: Texts
    tokens: int | None = None
    seconds: int | None = None
    distillation: Distillation = Distillation()
    lora: int | None = None
    rate: float | None = None
    batch: int = HEAL_BATCH
    seed: int = 0
    execution: Execution = field(default_factory=Execution)

    def check(self) -> None:
        """Raise ``ValueError`` for what cannot be."""
        self.texts.check()
        if (self.tokens is None) == (self.seconds is None):
            raise ValueError("say for how long to train: --tokens 10M or --for 30m, one of them")
        least = self.batch * self.texts.length
        if self.tokens is not None and self.tokens < least:
            size = f"{self.batch} x {self.texts.length}"
            raise ValueError(f"{self.tokens} tokens are less than one batch of {size}; {least} are the least")
