"""A request to heal: on which texts, for how long, by which losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zerolm.settings import REQUIRED
from zerolm.settings.messages import called, plural
from zerolm.settings.request import part, setting
from zerolm.text import defaults
from zerolm.training.request import Execution, check_one_batch

if TYPE_CHECKING:
    from zerolm.networks.pooling import TokenPooling
    from zerolm.training.learner import Objective

DEFAULT_LOSSES: Final = ("kl", "hidden")
ENCODER_LOSSES: Final = ("mse",)
"""An encoder predicts nothing, and the mean over tokens counts, which ``hidden`` does not see. By ``mse``
a child of a real one is nearer after the same time than by ``embedding``, and than by both together."""
BATCH: Final = 8
SENTENCES: Final = 32
"""Sentences of a step: of fewer, sorted by length, a step computes too little for its fixed work."""
ROUTER: Final = "router"
POSSIBLE: Final = (
    "next-token, kl, reverse-kl, dist (predictions), hidden, mse (states of the layers), embedding (of a "
    "folder of sentence-transformers)"
)


@dataclass(frozen=True)
class Texts:
    """The texts that are trained on, in sequences of ``length`` tokens."""

    sources: tuple[str, ...] = setting(
        "paths",
        REQUIRED,
        "training text: files, folders, hub data sets",
        group="Text",
        name="text",
        metavar="TEXT,...",
    )
    field: str | None = defaults.text_field(name="text_field")
    mix: tuple[float, ...] | None = setting(
        "shares", None, "sampling weight of each text; default: by size", low=0
    )
    length: int = setting("integer", 256, "tokens per sequence", group="Training", low=2, high=1 << 26)

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("no training text: give --text FILE, a folder, or a hub data set (owner/name)")
        if self.mix is not None and len(self.mix) != len(self.sources):
            shares, texts = plural(len(self.mix), "share"), plural(len(self.sources), "text")
            raise ValueError(f"--mix has {shares} for {texts}: give one share for each text")


@dataclass(frozen=True)
class Distillation:
    """The losses by which a child learns from its teacher."""

    losses: tuple[str, ...] | None = setting(
        "names",
        None,
        f"of {POSSIBLE}; else kl and hidden, of encoders mse",
        group="Losses",
        metavar="A,B",
    )
    temperature: float = setting(
        "number", 1.0, "softmax temperature of the distillation loss", low=0, high=100
    )
    top: int | None = setting(
        "integer",
        None,
        "run the teacher once and store this number of its likeliest tokens on disk, so that it need not "
        "stay in memory",
        group="Learning from",
        low=1,
        high=1 << 24,
    )

    def objective(
        self,
        is_decoder: bool,
        layers: tuple[tuple[int, int], ...],
        pooling: TokenPooling | None = None,
        *,
        by_predictions: bool = False,
        every: int = 1,
    ) -> Objective:
        """Return the losses; ``ValueError`` for what is not known, or does not go together.

        With a ``pooling`` sentences are read, whose embeddings can be compared. ``by_predictions`` alone a
        decoder learns unless losses are named. It predicts one position in ``every``.
        """
        from zerolm.training.learner import CACHEABLE, EMBEDDING, OF_STATES, Objective

        usual = DEFAULT_LOSSES if is_decoder else ENCODER_LOSSES
        if (self.top is not None or by_predictions) and is_decoder:
            usual = ("kl",)
        names = self.losses or usual
        objective = Objective(dict.fromkeys(names, 1.0), self.temperature, layers, pooling, every)
        if pooling is None and EMBEDDING in names:
            raise ValueError(
                f"{EMBEDDING} compares embeddings of sentences, and the child has no modules.json of "
                "sentence-transformers: leave it out"
            )
        of_encoders = OF_STATES if pooling is None else (*OF_STATES, EMBEDDING)
        if not is_decoder and not set(names) <= set(of_encoders):
            possible = " and ".join(of_encoders)
            raise ValueError(
                f"an encoder predicts no tokens, so {', '.join(names)} cannot be; {possible} can"
            )
        if self.top is not None and not set(names) <= set(CACHEABLE):
            raise ValueError(
                f"--top keeps the teacher's predictions alone, and {', '.join(names)} need more: "
                "leave --top out, or give --losses kl"
            )
        return objective


@dataclass(frozen=True)
class HealRequest:
    """How a child is healed: ``tokens`` or ``seconds`` say for how long."""

    texts: Texts = part(Texts)
    tokens: int | None = setting(
        "amount",
        None,
        "tokens to train on; a text is repeated when it ends",
        group="Text",
        metavar="AMOUNT",
    )
    seconds: int | None = setting(
        "duration",
        None,
        "time of the run instead of --tokens, opening and checking models included: 90s, 30m, 1.5h",
        name="for_",
        low=1,
        high=10**8,
    )
    distillation: Distillation = part(Distillation)
    lora: int | None = setting(
        "integer",
        None,
        "train LoRA adapters of this rank, merged at the end",
        group="Training",
        low=1,
        high=1 << 16,
    )
    only: str | None = setting(
        "text",
        None,
        "train these weights only: router (the routers of a mixture of experts)",
        choices=(ROUTER,),
    )
    rate: float | None = setting(
        "number", None, "learning rate; default: from the loss of the child", low=0, high=10
    )
    batch: int | None = setting(
        "integer",
        None,
        f"sequences of a step, over all processes; else {BATCH}, of sentences {SENTENCES}",
        low=1,
        high=1 << 20,
    )
    seed: int = setting("integer", 0, "seed of the data order", low=0, high=2**32 - 1)
    execution: Execution = part(Execution)

    def __post_init__(self) -> None:
        if self.only is not None and self.lora is not None:
            raise ValueError(f"--lora is of matrices in all layers, and --only {self.only} trains no others")
        if isinstance(self.tokens, str):
            raise ValueError(f"{called('tokens')} must be a number, not the share {self.tokens}")
        if (self.tokens is None) == (self.seconds is None):
            raise ValueError("give the training length: --tokens 10M or --for 30m, one of them")
        if self.tokens is not None:
            check_one_batch(self.tokens, self.batch or BATCH, self.texts.length)
