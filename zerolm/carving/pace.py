"""The tokens that a carving reads, and its duration, estimated from one second of measurement (torch)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from zerolm.carving.bits.file_moments import DECODER_TOKENS
from zerolm.carving.bits.weighed_child import rows_measured
from zerolm.carving.loss import FINAL_TOKENS, PREDICTED
from zerolm.carving.request import PRICES, Methods
from zerolm.carving.vocabulary.byte_losses import LOSS_TOKENS
from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.passes.loss_moments import MOMENT_TOKENS
from zerolm.passes.token_sums import gram
from zerolm.passes.walk import LARGE, predicted_step
from zerolm.planning.estimates import ESTIMATE_TOKENS
from zerolm.progress import about
from zerolm.settings.domains import domains_of
from zerolm.text.calibration import longest_line, tokens_of
from zerolm.text.defaults import GENERATED, LEAST_SEQUENCES, RANDOM
from zerolm.text.generated import WORDS
from zerolm.text.tokens import HELD_SHARE, HELD_TOKENS
from zerolm.units.importance.criteria import needs_gradients
from zerolm.units.kept_units import Dimensions, dimensions

PER_INPUT: Final = 8
"""Tokens for each input of the widest output matrix: least squares fits noise with fewer."""
LEAST_TOKENS: Final = 1 << 16
MOST_TOKENS: Final = 1 << 18
GENERATED_TOKENS: Final = 1 << 14
"""Tokens that a parent samples without a text: sampling a token takes longer than reading one."""
COUNTED: Final = 256
"""Lines whose tokens are counted to estimate the tokens per line of a text."""
PACED_TOKENS: Final = 1 << 10
PACED_HEAD: Final = 64
PACED_SIZE: Final = 512
LONG: Final = 60.0
"""Seconds from which the duration of a carving is announced."""
PASSES: Final = 2.5
"""Forward passes of a layer that repairing one takes: the parent's, and the child's before and within it, and
that of its FFN behind it."""
BACK_HEAD: Final = 3.0
"""Time of a forward and backward prediction, in units of a forward one."""
WITH_WEIGHTS: Final = 1.5
"""Time of a backward pass that yields gradients of weights, in units of one that does not."""
STEPS: Final = 2.0
"""Time to sample a token, in units of a forward pass of one: few pass at a time."""
ROUNDED: Final = 5e6
"""Approximate number of weights that one thread rounds in a second, over all types."""
ELIMINATED: Final = 1.5
"""Operations, in units of n^3, to invert n x n second moments and to remove units one by one."""
SOLVED: Final = 1.5
"""Operations, in units of n^3, to choose the ridges of a matrix of n inputs, and to solve it."""
CHEAPER: Final = 0.5
"""Operations to solve with fixed ridges, as a share of those with a choice of ridges."""
SCORING: Final = "scoring units"
FISHER: Final = "Fisher information"
MEASURED: Final = "measuring the best plans"
OF_PLANS: Final = (MEASURED, "repair", "losses")
"""The parts of a carving that follow the plans."""


def tokens_wanted(checkpoint: Checkpoint) -> int:
    """Return the number of calibration tokens for the widest output matrix of a parent."""
    return min(MOST_TOKENS, max(LEAST_TOKENS, PER_INPUT * inputs_of(dimensions(checkpoint))))


def loss_by_twice(loss: float, by_fewer: float, fewer: int) -> float:
    """Return the loss with twice the tokens, from that with all and that with one in ``fewer`` of them.

    The loss of a regression is a + b / n for n tokens.
    """
    return loss - max(0.0, by_fewer - loss) / (2 * (fewer - 1))


def inputs_of(parent: Dimensions) -> int:
    """Return the number of inputs of the widest output matrix."""
    return max(parent.ffn, parent.heads * parent.head_size)


def usual_sequences(checkpoint: Checkpoint, methods: Methods) -> int:
    """Return the number of sequences with ``tokens_wanted`` tokens: an encoder's are lines of any length."""
    length = longest_line(checkpoint, methods.length)
    text = methods.text
    if checkpoint.family.task != "next" and text not in (None, RANDOM, GENERATED) and not domains_of(text):
        few = tokens_of(checkpoint, str(text), sequences=COUNTED, length=methods.length)
        length = max(1, few.count // len(few))
    elif checkpoint.family.task != "next" and text == GENERATED:
        length = min(length, sum(WORDS) // 2)
    wanted = GENERATED_TOKENS if text == GENERATED else tokens_wanted(checkpoint)
    return math.ceil(wanted / length)


@dataclass(frozen=True)
class Pace:
    """Seconds of the repeated steps of a carving.

    For one token: in one ``layer`` forward, forward and ``back``, and in the ``head``. For one product of two
    numbers: in second moments (``gram``, of which half are computed), and in a product of float64 matrices
    (``operation``).
    """

    layer: float
    back: float
    head: float
    gram: float
    operation: float


@dataclass(frozen=True)
class CarvingWork:
    """All work of a carving: its parent's sizes, its methods, and whether widths of the stream are tried.

    ``plans`` is the number of best plans; several, or any with types, are measured before the choice.
    ``types`` is the number of quantisation types to choose from, ``with_gradients`` if these need the
    gradients of weights. With a large ``vocab`` only some positions are predicted. ``stored`` are the shares
    of parts, by name, that an earlier run on the same sequences has left in the cache.
    """

    parent: Dimensions
    methods: Methods
    narrows: bool
    plans: int
    is_written: bool
    types: int = 0
    vocab: int = 0
    with_gradients: bool = False
    stored: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, pace: Pace, sequences: int) -> dict[str, float]:
        """Return the seconds of each part of the work, with this number of calibration sequences."""
        methods, depth = self.methods, self.parent.depth
        fitted, held = self._divided(sequences)
        there = depth * pace.layer
        share = 1 / predicted_step(self.vocab)
        back = there + depth * pace.back + share * BACK_HEAD * pace.head
        by_gradients = needs_gradients(methods.criterion)
        parts = {SCORING: fitted * there + by_gradients * self._elimination(pace, fitted)}
        if methods.text == GENERATED:
            parts["sampling a text"] = STEPS * sequences * methods.length * (there + pace.head)
        if self.narrows or by_gradients or self.types:
            parts[FISHER] = min(fitted, MOMENT_TOKENS) * (back + (self.types > 0) * pace.head)
        if self.with_gradients:
            parts["gradients of weights"] = min(fitted, DECODER_TOKENS) * WITH_WEIGHTS * back
        if methods.plan == PRICES:
            parts["predicting cuts"] = min(held, ESTIMATE_TOKENS) * back
        if self.types:
            parts["rounding to types"] = self._rounding()
        judged = self._judged(pace, held)
        if self.plans > 1 or self.types:
            again = 2 if self.types and self.plans > 1 else 1  # types are chosen for repaired weights
            parts[MEASURED] = self.plans * (again * self._few_repaired(pace, fitted) + judged)
            parts[MEASURED] += judged if self.types else 0.0  # a single type
        repairs = self.is_written and methods.repair != "none"
        if repairs:
            parts["repair"] = self._repair(pace, fitted + held, SOLVED)
        parts["losses"] = (1 + repairs) * judged
        stored = self.stored if sequences == methods.count else {}
        return {part: seconds * (1.0 - stored.get(part, 0.0)) for part, seconds in parts.items()}

    def planning(self, pace: Pace) -> float:
        """Return the seconds of planning: all but measuring, repairing and judging plans."""
        parts = self.seconds(pace, self.methods.count)
        return sum(seconds for part, seconds in parts.items() if part not in OF_PLANS)

    def measuring(self, pace: Pace, plans: int) -> float:
        """Return the seconds to repair and measure this number of plans, whose types are known."""
        fitted, held = self._divided(self.methods.count)
        return plans * (self._few_repaired(pace, fitted) + self._judged(pace, held))

    def repairing_fewer(self, pace: Pace, tokens: int) -> float:
        """Return the seconds to repair a plan on fewer tokens, with ridges that are known."""
        return self._repair(pace, tokens, CHEAPER * SOLVED)

    def of_vocabularies(self, pace: Pace, sizes: Sequence[int]) -> float:
        """Return the seconds to measure the losses of vocabularies of these sizes."""
        layers = len(sizes) * self.parent.depth * pace.layer
        return LOSS_TOKENS * (layers + sum(sizes) / max(1, self.vocab) * pace.head)

    def total(self, pace: Pace, sequences: int | None = None) -> float:
        """Return the total seconds, with this number of sequences, by default that of its methods."""
        return sum(self.seconds(pace, sequences or self.methods.count).values())

    @property
    def least(self) -> int:
        """Return the smallest useful number of sequences: one token for each input of the widest matrix."""
        return max(LEAST_SEQUENCES, -(-inputs_of(self.parent) // self.methods.length))

    def _divided(self, sequences: int) -> tuple[int, int]:
        """Return the number of tokens to fit to, and in each of two held-out sets."""
        tokens = sequences * self.methods.length
        held = min(tokens // HELD_SHARE, HELD_TOKENS)
        return max(self.methods.length, tokens - 2 * held), held

    def _judged(self, pace: Pace, held: int) -> float:
        """Return the seconds to measure the loss of a child on held-out tokens."""
        return 2 * held * self.parent.depth * pace.layer + 2 * self._predicted(held) * pace.head

    def _few_repaired(self, pace: Pace, fitted: int) -> float:
        """Return the seconds to repair a plan before the choice."""
        few = min(fitted, max(FINAL_TOKENS, 2 * inputs_of(self.parent)))
        return self._repair(pace, few, CHEAPER * SOLVED)

    def _predicted(self, tokens: int) -> int:
        """Return the number of predicted tokens, of ``tokens``, in the measurement of a loss."""
        return min(tokens, PREDICTED) if self.vocab >= LARGE else tokens

    def _inputs(self) -> list[int]:
        """Return the numbers of inputs of the output matrices of a layer."""
        return [self.parent.ffn, self.parent.heads * self.parent.head_size]

    def _elimination(self, pace: Pace, tokens: int) -> float:
        """Return the seconds of second moments, and of removing units one by one."""
        moments = sum(k * k * tokens for k in self._inputs()) * pace.gram
        solved = sum(k * k * (2 * self.parent.hidden + ELIMINATED * k) for k in self._inputs())
        return self.parent.depth * (moments + solved * pace.operation)

    def _rounding(self) -> float:
        """Return the seconds to round some rows of every matrix to every type."""
        parent = self.parent
        queries, keys = parent.heads * parent.head_size, parent.kv_heads * parent.head_size
        of_stream = [queries, keys, keys, parent.ffn, parent.ffn]
        shapes = [(rows, parent.hidden) for rows in of_stream] + [
            (parent.hidden, k) for k in (queries, parent.ffn)
        ]
        sampled = parent.depth * sum(k * min(rows, rows_measured(k)) for rows, k in shapes)
        return (1 + self.narrows) * self.types * sampled / ROUNDED

    def _repair(self, pace: Pace, tokens: int, solved: float) -> float:
        """Return the seconds of a repair on ``tokens`` tokens, with ``solved`` operations in units of n^3."""
        if self.methods.repair == "none":
            return 0.0
        parent = self.parent
        inputs = self._inputs() + [parent.hidden] * 2 * self.narrows
        moments = sum(tokens * k * (k + 2 * parent.hidden) for k in inputs) * pace.gram
        solves = sum(k * k * (solved * k + 4 * parent.hidden) for k in inputs) * pace.operation
        return parent.depth * (PASSES * tokens * pace.layer + moments + solves)


def measured_pace(blocks: Blocks, inputs: int = PACED_SIZE) -> Pace:
    """Return the times of a layer, the head and sums on this machine; ``inputs`` are of the widest matrix."""
    hidden = blocks.embed(0)
    tokens = hidden.shape[0] * hidden.shape[1]
    blocks.call(0, 0, hidden)  # once to load it
    layer = quickest(lambda: blocks.call(0, 0, hidden), blocks.device) / tokens

    def there_and_back() -> None:
        below = hidden.detach().requires_grad_()
        out = blocks.call(0, 0, below, gradients=True)
        torch.autograd.grad(out, below, torch.ones_like(out))

    back = quickest(there_and_back, blocks.device) / tokens
    some = max(1, PACED_HEAD // len(hidden))
    blocks.finish(0, hidden[:, :1])
    head = quickest(lambda: blocks.finish(0, hidden[:, :some]), blocks.device) / (len(hidden) * some)
    x = torch.ones(PACED_SIZE, inputs, device=blocks.compute.sums)
    moments = quickest(lambda: gram(x), blocks.compute.sums) / (PACED_SIZE * inputs**2)
    square = torch.ones(PACED_SIZE, PACED_SIZE, dtype=torch.float64, device=blocks.compute.sums)
    product = quickest(lambda: square @ square, blocks.compute.sums)
    return Pace(layer, back, head, moments, product / (2 * PACED_SIZE**3))


def quickest(run: Callable[[], object], device: torch.device = torch.device("cpu")) -> float:
    """Return the shorter of two running times of a function on a device, in seconds."""
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - start)
    return min(taken)


def fitting(work: CarvingWork, pace: Pace, limit: float, spent: float) -> int:
    """Return the number of sequences that keeps a limit in seconds; ``ValueError`` where none does."""
    sequences, least = work.methods.count, min(work.least, work.methods.count)
    while spent + work.total(pace, sequences) > limit:
        if sequences == least:
            taken = about(spent + work.total(pace, least))
            raise ValueError(
                f"--for {about(limit)} is too short: {least} sequences of {work.methods.length} tokens are "
                f"the fewest that make sense here, and take about {taken}"
            )
        sequences = max(least, min(sequences - 1, sequences * 7 // 8))
    return sequences


def announcement(work: CarvingWork, pace: Pace) -> str:
    """Return an announcement of the duration, and of that with fewer sequences; empty for a short carving."""
    total, fewer = work.total(pace), max(work.least, work.methods.count // 4)
    if total < LONG:
        return ""
    parts = work.seconds(pace, work.methods.count)
    named = sorted(parts.items(), key=lambda part: -part[1])[:3]
    most = ", ".join(f"{about(seconds)} {name}" for name, seconds in named)
    seconds = work.total(pace, fewer)
    faster = f"; --sequences {fewer} takes {about(seconds)}" if seconds < 0.8 * total else ""
    return f"about {about(total)}: {most}{faster}"
