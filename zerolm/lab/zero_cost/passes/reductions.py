"""Activations and their gradients, reduced in hooks while a pass runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.record import WORD, Clock, Look, Need, RowSums
from zerolm.lab.zero_cost.passes.taps import looking, widened
from zerolm.networks.network import Linear, Network, Tap
from zerolm.registry import plugged

Side = Literal["input", "output"]
See = Callable[[Linear, Tensor], None]


def first_ffn(network: Network) -> list[Linear]:
    """Return the first matrix of each FFN: a layer may have several that are gated."""
    firsts, layers = list[Linear](), set[int]()
    for linear in network.linears:
        if linear.role == "ffn" and (linear.name == "gate" or linear.layer not in layers):
            firsts.append(linear)
            layers.add(linear.layer)
    return firsts


@dataclass(eq=False)
class Activations:
    """Reductions of what comes by in a pass of ``parts`` micro-batches, all of one size; only what is needed.

    By matrix: ``outputs``, (mean over samples and outputs of the largest output over tokens, mean square);
    ``fisher``, (by token, by sample): half the mean of (output x its gradient)^2, added over outputs, where a
    sample's tokens are added before squaring in the second. By activated matrix: ``codes``, words
    (ceil(n / 64), t f) whose bit s is whether sample s activates the unit; ``distances`` (n,), for each
    sample the agreements of all pairs of tokens. By first FFN matrix: ``covariances`` (d, d) of inputs,
    float64, summed over ``rows``. ``looks``: the numbers of each that a proxy declares, by tap.

    Seconds go to ``clock`` by need. ``part`` is the number of the micro-batch under way, ``is_backward``
    whether gradients that come by are those of its loss. What micro-batches ``gave``, by need and matrix or
    tap, is put together in the end.
    """

    parts: int
    clock: Clock
    part: int = 0
    is_backward: bool = False
    gave: dict[Need, dict[Any, list[Any]]] = field(default_factory=dict)
    codes: dict[Linear, Tensor] = field(default_factory=dict)
    inputs: dict[Linear, RowSums] = field(default_factory=lambda: defaultdict(RowSums))

    def watch(self, network: Network, stack: ExitStack, needs: Collection[Need]) -> None:
        """Look, until the stack is left, where the needs ask for it."""
        units = [linear for linear in network.linears if linear.activated]  # the nonlinearity acts on them
        places: tuple[tuple[str, Sequence[Linear], Side, See], ...] = (
            ("outputs", network.linears, "output", self._see_output),
            ("fisher", network.linears, "output", self._see_gradient),
            ("codes", units, "output", self._see_code),
            ("distances", units, "output", self._see_distance),
            ("covariances", first_ffn(network), "input", lambda linear, x: self.inputs[linear].add(x)),
        )
        for need, linears, side, see in places:
            self.gave[need] = defaultdict(list)
            if need in needs:
                taps = [Tap(linear.module, side) for linear in linears]
                stack.enter_context(looking(taps, partial(self._timed, need, linears, see)))
        for look in needs:
            if isinstance(look, Look):
                self.gave[look] = defaultdict(list)
                with plugged(f"look {look.name!r}", look.taps):
                    looked = look.taps(network)
                stack.enter_context(looking(looked, partial(self._look, look)))

    def _timed(self, need: str, linears: Sequence[Linear], see: See, index: int, values: Tensor) -> None:
        with self.clock.on(need):
            see(linears[index], values)

    def _look(self, look: Look, index: int, values: Tensor) -> None:
        with self.clock.on(look.name), torch.no_grad(), plugged(f"look {look.name!r}", look.reduce):
            self.gave[look][index].append(look.reduce(widened(values.detach())))

    def _see_output(self, linear: Linear, y: Tensor) -> None:
        y = linear.outputs(widened(y.detach()))
        means = (values.mean(dtype=torch.float64).item() for values in (y.amax(1), y.square()))
        self.gave["outputs"][linear].append(tuple(means))

    def _see_code(self, linear: Linear, y: Tensor) -> None:
        """Bit s of a unit's word is whether sample s activates it."""
        bits = (linear.outputs(y) > 0).flatten(1).long()  # (b, t f)
        words = -(-len(bits) * self.parts // WORD)
        codes = self.codes.setdefault(linear, bits.new_zeros((words, bits.shape[1])))
        for sample, row in enumerate(bits, self.part * len(bits)):
            codes[sample // WORD] |= row << (sample % WORD)

    def _see_distance(self, linear: Linear, y: Tensor) -> None:
        """Pairs of tokens on the same side, unit by unit: c^2 + (t - c)^2 with c tokens active."""
        active = (linear.outputs(y) > 0).sum(1).double()  # (b, f)
        pairs = active.square() + (y.shape[1] - active).square()
        self.gave["distances"][linear].append(pairs.sum(1))

    def _see_gradient(self, linear: Linear, y: Tensor) -> None:
        """The gradient of a micro-batch's loss counts for 1 / parts in the batch's."""
        values = linear.outputs(widened(y.detach()))

        def reduce(gradient: Tensor) -> None:
            if not self.is_backward:
                return
            with self.clock.on("fisher"):
                product = values * linear.outputs(widened(gradient.detach())) / self.parts  # (b, t, c)
                by_token = product.square().sum(-1).mean(dtype=torch.float64)
                by_sample = product.sum(1).square().sum(-1).mean(dtype=torch.float64)
                self.gave["fisher"][linear].append((by_token.item() / 2, by_sample.item() / 2))

        if y.requires_grad:
            y.register_hook(reduce)  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """Complete the activations once all micro-batches have passed."""
        self.outputs, self.fisher = (_means(self.gave[need]) for need in ("outputs", "fisher"))
        taps = {look: _means(rows) for look, rows in self.gave.items() if isinstance(look, Look)}
        self.looks = {look: [means[index] for index in sorted(means)] for look, means in taps.items()}
        self.distances = {x: torch.cat(values) for x, values in self.gave["distances"].items()}
        self.rows = {linear: rows.count for linear, rows in self.inputs.items()}
        self.covariances = {
            linear: (rows.second - torch.outer(rows.total, rows.total) / rows.count) / (rows.count - 1)
            for linear, rows in self.inputs.items()
        }


def _means(rows_of: dict[Any, list[Sequence[float]]]) -> dict[Any, tuple[float, ...]]:
    return {
        key: tuple(math.fsum(column) / len(column) for column in zip(*rows, strict=True))
        for key, rows in rows_of.items()
    }
