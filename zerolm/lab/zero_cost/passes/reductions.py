"""Activations and their gradients, reduced in hooks while a pass runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.clock import Clock
from zerolm.lab.zero_cost.passes.record import WORD, Activations, Look, Need, RowSums
from zerolm.lab.zero_cost.passes.taps import looking, widened
from zerolm.networks.network import Linear, Network, Tap

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


class Reductions:
    """The ``activations`` of a pass under way; ``part`` counts its micro-batches, all of one size.

    Seconds go to ``clock`` by need. ``numbers`` of every micro-batch, by need and matrix or tap, are averaged
    in the end.
    """

    def __init__(self, network: Network, parts: int, clock: Clock, activations: Activations) -> None:
        self.network, self.parts, self.part, self.clock = network, parts, 0, clock
        self.activations, self.is_backward = activations, False
        self.numbers: dict[Need, dict[Any, list[Sequence[float]]]] = defaultdict(lambda: defaultdict(list))
        self.distances: dict[Linear, list[Tensor]] = defaultdict(list)
        self.inputs: dict[Linear, RowSums] = defaultdict(RowSums)

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Within, the gradients of outputs that come by are those of the loss."""
        self.is_backward = True
        try:
            yield
        finally:
            self.is_backward = False

    def see_output(self, linear: Linear, y: Tensor) -> None:
        y = linear.outputs(widened(y.detach()))
        means = (values.mean(dtype=torch.float64).item() for values in (y.amax(1), y.square()))
        self.numbers["outputs"][linear].append(tuple(means))

    def see_code(self, linear: Linear, y: Tensor) -> None:
        """Bit s of a unit's word is whether sample s activates it."""
        bits = (linear.outputs(y) > 0).flatten(1).long()  # (b, t f)
        words = -(-len(bits) * self.parts // WORD)
        codes = self.activations.codes.setdefault(linear, bits.new_zeros((words, bits.shape[1])))
        for sample, row in enumerate(bits, self.part * len(bits)):
            codes[sample // WORD] |= row << (sample % WORD)

    def see_distance(self, linear: Linear, y: Tensor) -> None:
        """Pairs of tokens on the same side, unit by unit: c^2 + (t - c)^2 with c tokens active."""
        active = (linear.outputs(y) > 0).sum(1).double()  # (b, f)
        pairs = active.square() + (y.shape[1] - active).square()
        self.distances[linear].append(pairs.sum(1))

    def see_input(self, linear: Linear, x: Tensor) -> None:
        self.inputs[linear].add(x)

    def see(self, look: Look, index: int, values: Tensor) -> None:
        with self.clock.on(look.name), torch.no_grad():
            self.numbers[look][index].append(look.reduce(widened(values.detach())))

    def see_gradient(self, linear: Linear, y: Tensor) -> None:
        """The gradient of a micro-batch's loss counts for 1 / parts in the batch's."""
        values = linear.outputs(widened(y.detach()))

        def reduce(gradient: Tensor) -> None:
            if not self.is_backward:
                return
            with self.clock.on("fisher"):
                product = values * linear.outputs(widened(gradient.detach())) / self.parts  # (b, t, c)
                by_token = product.square().sum(-1).mean(dtype=torch.float64)
                by_sample = product.sum(1).square().sum(-1).mean(dtype=torch.float64)
                self.numbers["fisher"][linear].append((by_token.item() / 2, by_sample.item() / 2))

        if y.requires_grad:
            y.register_hook(reduce)  # type: ignore[no-untyped-call]

    def watch(self, stack: ExitStack, needs: Collection[Need]) -> None:
        """Look, until the stack is left, where the needs ask for it."""
        everything = self.network.linears
        units = [
            linear for linear in everything if linear.activated
        ]  # on whose outputs the nonlinearity acts
        places: tuple[tuple[str, Sequence[Linear], Side, See], ...] = (
            ("outputs", everything, "output", self.see_output),
            ("fisher", everything, "output", self.see_gradient),
            ("codes", units, "output", self.see_code),
            ("distances", units, "output", self.see_distance),
            ("covariances", first_ffn(self.network), "input", self.see_input),
        )
        for need, linears, side, see in places:
            if need in needs:
                taps = [Tap(linear.module, side) for linear in linears]
                stack.enter_context(looking(taps, self._by(linears, see, need)))
        for look in needs:
            if isinstance(look, Look):
                _ = self.numbers[look]  # of one without taps, too
                stack.enter_context(looking(look.taps(self.network), partial(self.see, look)))

    def _by(self, linears: Sequence[Linear], see: See, need: str) -> Callable[[int, Tensor], None]:
        """Return the same by number rather than by matrix, with its seconds counted."""

        def timed(index: int, values: Tensor) -> None:
            with self.clock.on(need):
                see(linears[index], values)

        return timed

    def finish(self) -> None:
        """Complete the activations once all micro-batches have passed."""
        for need, numbers in self.numbers.items():
            means = {key: _means(rows) for key, rows in numbers.items()}
            if isinstance(need, Look):
                self.activations.looks[need] = [means[index] for index in sorted(means)]
            else:
                setattr(self.activations, need, means)
        self.activations.distances = {x: torch.cat(values) for x, values in self.distances.items()}
        for linear, rows in self.inputs.items():
            self.activations.rows[linear] = rows.count
            scatter = rows.second - torch.outer(rows.total, rows.total) / rows.count
            self.activations.covariances[linear] = scatter / (rows.count - 1)


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) / len(column) for column in zip(*rows, strict=True))
