"""How long, how fast and on what a network is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolm.settings.compute import TrainedOn
from zerolm.settings.request import part, setting
from zerolm.text.defaults import HELD

DEPTH_RULES: Final[dict[str, float | None]] = {"none": None, "sqrt": 0.5, "linear": 1.0}
"""By how large a power of the depth residual branches are divided; None leaves them, and their rates."""


ESTIMATES: Final = 16
"""A run by time ends after this multiple of the estimated steps: the machine may have been busy then."""


@dataclass(frozen=True)
class Schedule:
    """The learning ``rate``, and the shares of a run in which it rises linearly and falls to nothing."""

    rate: float
    warmup: float = 0.05
    decay: float = 0.5
    weight_decay: float = 0.0

    def factor(self, share: float) -> float:
        """Return the factor of the rate after this share of a run."""
        rising = share / self.warmup if self.warmup else 1.0
        falling = (1.0 - share) / self.decay if self.decay else 1.0
        return max(0.0, min(1.0, rising, falling))


@dataclass(frozen=True)
class Execution:
    """How a step is computed."""

    compute: TrainedOn = part(TrainedOn)
    accumulate: int = setting("integer", 1, "gradient accumulation steps per batch", low=1, high=1 << 20)
    checkpointing: bool = setting("flag", False, "gradient checkpointing: saves memory, costs time")
    compile: bool = setting(
        "flag", False, "torch.compile the network first; worth a minute only in long runs"
    )

    @property
    def bfloat16(self) -> bool:
        """Whether products are in bfloat16: asked for, or where the device is fast in it."""
        from zerolm.networks.compute import device_of, is_fast_in_bfloat16

        dtype = self.compute.dtype
        return dtype == "bfloat16" or (
            dtype == "auto" and is_fast_in_bfloat16(device_of(self.compute.device))
        )


@dataclass(frozen=True)
class TrainingRequest:
    """``tokens`` to train on in steps of ``batch`` sequences, over all processes, of ``length`` tokens.

    With ``seconds`` training lasts so long, whatever comes of ``tokens``, which are then an estimate.
    """

    tokens: int
    batch: int
    length: int
    schedule: Schedule
    seed: int = 0
    execution: Execution = Execution()
    checkpoints: int = 20
    measured: int = 16
    """How often in a run the state is kept, and the network measured on text that is held out."""
    seconds: float | None = None
    depth_rule: str = "none"
    """How residual branches and rates follow the depth, of networks that are trained from scratch."""

    @property
    def step_tokens(self) -> int:
        return self.batch * self.length

    @property
    def steps(self) -> int:
        """Steps of a whole batch, at least one."""
        return max(1, self.tokens // self.step_tokens)

    @property
    def most_steps(self) -> int:
        """Return the steps that a run has at most: of one by time many more than are estimated."""
        return self.steps if self.seconds is None else ESTIMATES * self.steps

    @property
    def sequences(self) -> int:
        return self.most_steps * self.batch

    @property
    def tokens_read(self) -> int:
        """Return the number of tokens of a text that a run reads: those to train on, and those held out."""
        return (self.sequences + 2 * HELD) * self.length


def check_one_batch(tokens: int, batch: int, length: int) -> None:
    """Raise ``ValueError`` for fewer tokens than those of one step."""
    least = batch * length
    if tokens < least:
        raise ValueError(
            f"{tokens} tokens are less than one batch of {batch} x {length}; {least} are the least"
        )


def micro_batch(batch: int, processes: int, accumulate: int) -> int:
    """Return the number of sequences computed at a time; ``ValueError`` where the parts are unequal."""
    parts = processes * accumulate
    if batch % parts:
        raise ValueError(
            f"a batch of {batch} sequences does not fall into {processes} processes x {accumulate} "
            f"micro-batches; {parts * max(1, batch // parts)} does"
        )
    return batch // parts
