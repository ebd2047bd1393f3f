"""Activations and their gradients, reduced in hooks while a pass runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.clock import Clock
from zerolm.lab.zero_cost.passes.look import Look, Need
from zerolm.lab.zero_cost.passes.record import WORD, Activations
from zerolm.lab.zero_cost.passes.taps import looking, widened
from zerolm.networks.network import Linear, Network, Tap

Side = Literal["input", "output"]
See = Callable[[Linear, Tensor], None]


def activated(network: Network) -> list[Linear]:
    """Return the matrices whose outputs the nonlinearity acts on."""
    return [linear for linear in network.linears if linear.activated]


def first_ffn(network: Network) -> list[Linear]:
    """Return the first matrix of each FFN: a layer may have several that are gated."""
    firsts, layers = list[Linear](), set[int]()
    for linear in network.linears:
        if linear.role == "ffn" and (linear.name == "gate" or linear.layer not in layers):
            firsts.append(linear)
            layers.add(linear.layer)
    return firsts


class Reductions:
    """The sums of a pass under way; ``part`` counts its micro-batches, all of one size.

    Seconds go to ``clock`` by need.
    """

    def __init__(self, network: Network, parts: int, clock: Clock) -> None:
        self.network, self.parts, self.part, self.clock = network, parts, 0, clock
        self.is_backward = False
        self.peaks: dict[Linear, list[float]] = {}
        self.squares: dict[Linear, list[float]] = {}
        self.fisher: dict[Linear, list[tuple[float, float]]] = {}
        self.codes: dict[Linear, Tensor] = {}
        self.distances: dict[Linear, list[Tensor]] = {}
        self.sums: dict[Linear, tuple[Tensor, Tensor, int]] = {}
        self.looks: dict[Look, dict[int, list[Sequence[float]]]] = {}

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
        self.peaks.setdefault(linear, []).append(y.amax(1).mean(dtype=torch.float64).item())
        self.squares.setdefault(linear, []).append(y.square().mean(dtype=torch.float64).item())

    def see_code(self, linear: Linear, y: Tensor) -> None:
        """Bit s of a unit's word is whether sample s activates it."""
        bits = (linear.outputs(y) > 0).flatten(1).long()  # (b, t f)
        words = -(-len(bits) * self.parts // WORD)
        codes = self.codes.setdefault(linear, bits.new_zeros((words, bits.shape[1])))
        for sample, row in enumerate(bits, self.part * len(bits)):
            codes[sample // WORD] |= row << (sample % WORD)

    def see_distance(self, linear: Linear, y: Tensor) -> None:
        """Pairs of tokens on the same side, unit by unit: c^2 + (t - c)^2 with c tokens active."""
        active = (linear.outputs(y) > 0).sum(1).double()  # (b, f)
        pairs = active.square() + (y.shape[1] - active).square()
        self.distances.setdefault(linear, []).append(pairs.sum(1))

    def see_input(self, linear: Linear, x: Tensor) -> None:
        rows = x.detach().flatten(0, 1).double()  # (b t, d)
        mean, second, count = self.sums.get(linear, (0.0, 0.0, 0))
        self.sums[linear] = (mean + rows.sum(0), second + rows.T @ rows, count + len(rows))

    def see(self, look: Look, index: int, values: Tensor) -> None:
        with self.clock.on(look.name), torch.no_grad():
            numbers = look.reduce(widened(values.detach()))
            self.looks[look].setdefault(index, []).append(numbers)

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
                self.fisher.setdefault(linear, []).append((by_token.item() / 2, by_sample.item() / 2))

        if y.requires_grad:
            y.register_hook(reduce)  # type: ignore[no-untyped-call]

    def watch(self, stack: ExitStack, needs: Collection[Need]) -> None:
        """Look, until the stack is left, where the needs ask for it."""
        everything, units = self.network.linears, activated(self.network)
        inputs = first_ffn(self.network)
        places: tuple[tuple[str, Sequence[Linear], Side, See], ...] = (
            ("outputs", everything, "output", self.see_output),
            ("fisher", everything, "output", self.see_gradient),
            ("codes", units, "output", self.see_code),
            ("distances", units, "output", self.see_distance),
            ("covariances", inputs, "input", self.see_input),
        )
        for need, linears, side, see in places:
            if need in needs:
                taps = [Tap(linear.module, side) for linear in linears]
                stack.enter_context(looking(taps, self._by(linears, see, need)))
        for look in needs:
            if isinstance(look, Look):
                self.looks[look] = {}
                stack.enter_context(looking(look.taps(self.network), partial(self.see, look)))

    def _by(self, linears: Sequence[Linear], see: See, need: str) -> Callable[[int, Tensor], None]:
        """Return the same by number rather than by matrix, with its seconds counted."""

        def timed(index: int, values: Tensor) -> None:
            with self.clock.on(need):
                see(linears[index], values)

        return timed

    def finish(self, activations: Activations) -> None:
        """Put the results where they belong."""
        activations.peaks = {linear: _mean(values) for linear, values in self.peaks.items()}
        activations.squares = {linear: _mean(values) for linear, values in self.squares.items()}
        for linear, halves in self.fisher.items():
            by_token, by_sample = _means(halves)
            activations.fisher[linear] = (by_token, by_sample)
        activations.codes = self.codes
        activations.distances = {linear: torch.cat(values) for linear, values in self.distances.items()}
        for linear, (total, second, count) in self.sums.items():
            activations.rows[linear] = count
            activations.covariances[linear] = (second - torch.outer(total, total) / count) / (count - 1)
        for look, seen in self.looks.items():
            activations.looks[look] = [_means(values) for _, values in sorted(seen.items())]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(_mean(column) for column in zip(*rows, strict=True))
