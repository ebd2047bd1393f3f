"""One forward and one backward pass of the loss, in micro-batches; activations are reduced in hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from torch import Tensor

from zerolm.networks.batch import Batch, loss
from zerolm.networks.network import Linear, Network, Tap
from zerolm.networks.passes.protocol import Protocol
from zerolm.networks.passes.running import as_it_was, entering, looking

FORWARD: Final = ("outputs", "codes", "distances", "covariances", "probabilities")
BACKWARD: Final = ("gradients", "moments", "jacobian", "fisher")
SMALL: Final = 1e-4
"""A gradient of ones below this share of a random one's is nothing but rounding."""


@dataclass
class Moments:
    """Over the gradients g (outputs, inputs) of k micro-batches: mean of |g|, variances of g and of |g|.

    Population variances, by Welford's recurrence.
    """

    count: int = 0
    mean: Tensor | None = None
    mean_abs: Tensor | None = None
    squares: Tensor | None = None
    squares_abs: Tensor | None = None

    def add(self, g: Tensor) -> None:
        self.count += 1
        self.mean, self.squares = _welford(g, self.mean, self.squares, self.count)
        self.mean_abs, self.squares_abs = _welford(g.abs(), self.mean_abs, self.squares_abs, self.count)

    @property
    def variance(self) -> Tensor:
        assert self.squares is not None
        return self.squares / self.count

    @property
    def variance_abs(self) -> Tensor:
        assert self.squares_abs is not None
        return self.squares_abs / self.count

    @property
    def magnitude(self) -> Tensor:
        assert self.mean_abs is not None
        return self.mean_abs


def _welford(x: Tensor, mean: Tensor | None, squares: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    if mean is None or squares is None:
        return x.clone(), torch.zeros_like(x)
    step = x - mean
    mean += step / count
    squares += step * (x - mean)
    return mean, squares


@dataclass
class LossPass:
    """What one pass leaves behind; only what was asked for.

    By linear module: ``gradients`` (outputs, inputs) of the batch's loss; ``moments`` over micro-batches;
    ``peaks``, mean over samples and outputs of the largest output over tokens; ``squares``, the mean square
    of the outputs; ``fisher``, (by token, by sample): half the mean of (output x its gradient)^2, added over
    outputs, where a sample's tokens are added before squaring in the second. By activated module:
    ``codes``, words (ceil(n / 64), t f) whose bit s is whether sample s activates the unit; ``distances``
    (n,), for each sample the agreements of all pairs of tokens. By first FFN matrix: ``covariances`` (d, d)
    of what goes in, float64. By attention: ``probabilities``, means of the largest over heads and over keys.
    ``jacobian`` (n, t d): the loss's gradient by what the first layer gets, a row a sample.
    """

    value: float = math.nan
    samples: int = 0
    tokens: int = 0
    gradients: dict[Linear, Tensor] = field(default_factory=dict)
    moments: dict[Linear, Moments] = field(default_factory=dict)
    peaks: dict[Linear, float] = field(default_factory=dict)
    squares: dict[Linear, float] = field(default_factory=dict)
    fisher: dict[Linear, tuple[float, float]] = field(default_factory=dict)
    codes: dict[Linear, Tensor] = field(default_factory=dict)
    distances: dict[Linear, Tensor] = field(default_factory=dict)
    covariances: dict[Linear, Tensor] = field(default_factory=dict)
    probabilities: list[tuple[float, float]] = field(default_factory=list)
    jacobian: Tensor | None = None


WORD: Final = 64
"""Samples whose bits fill one int64."""


def activated(network: Network) -> list[Linear]:
    """The modules whose outputs the nonlinearity acts on."""
    return [linear for linear in network.linears if linear.activated]


def first_ffn(network: Network) -> list[Linear]:
    """The first FFN matrix of each layer."""
    found: dict[int, Linear] = {}
    for linear in network.linears:
        if linear.role == "ffn":
            found.setdefault(linear.layer, linear)
    return list(found.values())


class _Running:
    """The sums of a pass under way."""

    def __init__(self, network: Network, parts: int) -> None:
        self.network, self.parts, self.part, self.size = network, parts, 0, 0
        self.peaks: dict[Linear, list[float]] = {}
        self.squares: dict[Linear, list[float]] = {}
        self.fisher: dict[Linear, list[tuple[float, float]]] = {}
        self.codes: dict[Linear, Tensor] = {}
        self.distances: dict[Linear, list[Tensor]] = {}
        self.sums: dict[Linear, tuple[Tensor, Tensor, int]] = {}
        self.probabilities: dict[int, list[tuple[float, float]]] = {}

    def see_output(self, linear: Linear, y: Tensor) -> None:
        y = y.detach()
        self.peaks.setdefault(linear, []).append(y.amax(1).mean(dtype=torch.float64).item())
        self.squares.setdefault(linear, []).append(y.square().mean(dtype=torch.float64).item())

    def see_code(self, linear: Linear, y: Tensor) -> None:
        """Bit s of a unit's word is whether sample s activates it."""
        bits = (y > 0).flatten(1).long()  # (b, t f)
        words = -(-self.size * self.parts // WORD)
        known = self.codes.setdefault(linear, bits.new_zeros((words, bits.shape[1])))
        for row, sample in enumerate(range(self.part * self.size, (self.part + 1) * self.size)):
            known[sample // WORD] |= bits[row] << (sample % WORD)

    def see_distance(self, linear: Linear, y: Tensor) -> None:
        """Pairs of tokens on the same side, unit by unit: c^2 + (t - c)^2 with c tokens active."""
        active = (y > 0).sum(1).double()  # (b, f)
        pairs = active.square() + (y.shape[1] - active).square()
        self.distances.setdefault(linear, []).append(pairs.sum(1))

    def see_input(self, linear: Linear, x: Tensor) -> None:
        rows = x.detach().flatten(0, 1).double()  # (b t, d)
        mean, second, count = self.sums.get(linear, (0.0, 0.0, 0))
        self.sums[linear] = (mean + rows.sum(0), second + rows.T @ rows, count + len(rows))

    def see_probability(self, index: int, p: Tensor) -> None:
        p = p.detach()
        largest = (p.amax(1).mean().item(), p.amax(-1).mean().item())
        self.probabilities.setdefault(index, []).append(largest)

    def see_gradient(self, linear: Linear, y: Tensor) -> None:
        """The gradient of a micro-batch's loss counts for 1 / parts in the batch's."""
        values = y.detach()

        def reduce(gradient: Tensor) -> None:
            product = values * gradient / self.parts  # (b, t, c)
            by_token = product.square().sum(-1).mean(dtype=torch.float64)
            by_sample = product.sum(1).square().sum(-1).mean(dtype=torch.float64)
            self.fisher.setdefault(linear, []).append((by_token.item() / 2, by_sample.item() / 2))

        if y.requires_grad:
            y.register_hook(reduce)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _means(values: list[tuple[float, float]]) -> tuple[float, float]:
    return _mean([a for a, _ in values]), _mean([b for _, b in values])


def run_loss(network: Network, batch: Batch, protocol: Protocol, needs: Collection[str]) -> LossPass:
    """Run the pass; ``needs`` are names of ``FORWARD`` and ``BACKWARD``.

    ``ValueError`` where the loss is not finite, or where the gradient of ones is nothing but rounding.
    """
    backward = any(need in needs for need in BACKWARD)
    parts, running = batch.micro(protocol.parts), _Running(network, protocol.parts)
    found = LossPass(samples=len(batch))
    losses: list[float] = []
    entry: list[Tensor] = []

    def enter(hidden: Tensor) -> Tensor:
        entry[:] = [hidden.detach().requires_grad_(backward)]
        found.tokens = hidden.shape[1]
        return entry[0]

    jacobian: list[Tensor] = []
    with ExitStack() as stack:
        stack.enter_context(as_it_was(network, protocol, train=protocol.faithful))
        stack.enter_context(torch.set_grad_enabled(backward))
        if backward and protocol.upstream == "ones" and not protocol.faithful:
            _refuse_rounding(network, parts[0])
        stack.enter_context(entering(network, enter))
        outputs = _watch(stack, network, running, needs)
        for number, part in enumerate(parts):
            running.part, running.size = number, len(part)
            logits = network.module(part.inputs, part.classes)
            value = loss(logits, part) if protocol.upstream == "task" else outputs[-1].sum()
            if not torch.isfinite(value):
                raise ValueError(f"the loss is {value.item()}, not finite: no gradient says anything then")
            losses.append(value.item())
            if backward:
                _backward(network, value, entry[0], found, jacobian, needs, number + 1)
    found.value = _mean(losses)
    _finish(found, running, jacobian)
    return found


def _watch(stack: ExitStack, network: Network, running: _Running, needs: Collection[str]) -> list[Tensor]:
    """Look where the needs ask for it; the last final hidden states come into the list returned."""
    units = activated(network)
    _look(stack, network.linears if "outputs" in needs else (), "output", running.see_output)
    _look(stack, network.linears if "fisher" in needs else (), "output", running.see_gradient)
    _look(stack, units if "codes" in needs else (), "output", running.see_code)
    _look(stack, units if "distances" in needs else (), "output", running.see_distance)
    _look(stack, first_ffn(network) if "covariances" in needs else (), "input", running.see_input)
    if "probabilities" in needs:
        stack.enter_context(looking(network.attentions, running.see_probability))
    return _last(stack, network)


def _look(
    stack: ExitStack,
    linears: Sequence[Linear],
    side: Literal["input", "output"],
    see: Callable[[Linear, Tensor], None],
) -> None:
    taps = [Tap(linear.module, side) for linear in linears]
    stack.enter_context(looking(taps, lambda index, values: see(linears[index], values)))


def _last(stack: ExitStack, network: Network) -> list[Tensor]:
    """A list that always holds the last final hidden states alone."""
    last: list[Tensor] = []
    stack.enter_context(looking([network.final], lambda _, hidden: last.__setitem__(slice(None), [hidden])))
    return last


def _backward(
    network: Network,
    value: Tensor,
    entry: Tensor,
    found: LossPass,
    jacobian: list[Tensor],
    needs: Collection[str],
    count: int,
) -> None:
    weights = [linear.parameter for linear in network.linears]
    *grads, at_entry = torch.autograd.grad(value, [*weights, entry], allow_unused=True)
    if "jacobian" in needs and at_entry is not None:
        jacobian.append(at_entry.flatten(1))
    for linear, raw in zip(network.linears, grads, strict=True):
        grad = linear.matrix(torch.zeros_like(linear.parameter) if raw is None else raw)
        if "moments" in needs:
            found.moments.setdefault(linear, Moments()).add(grad)
        if linear in found.gradients:
            found.gradients[linear] += (grad - found.gradients[linear]) / count
        else:
            found.gradients[linear] = grad.clone()


def _refuse_rounding(network: Network, part: Batch) -> None:
    """``ValueError`` where ones as upstream give gradients that a random upstream shows to be rounding."""
    with ExitStack() as stack:
        last = _last(stack, network)
        network.module(part.inputs, part.classes)
    hidden, weights = last[-1], [linear.parameter for linear in network.linears]
    sizes = []
    for upstream in (torch.ones_like(hidden), torch.randn_like(hidden)):
        grads = torch.autograd.grad(hidden, weights, upstream, retain_graph=True, allow_unused=True)
        sizes.append(math.sqrt(math.fsum(float(g.double().square().sum()) for g in grads if g is not None)))
    if sizes[0] < SMALL * sizes[1]:
        raise ValueError(
            f"the gradient of ones through the final layer norm is zero but for rounding ({sizes[0]:.1e} "
            f"against {sizes[1]:.1e} of a random upstream): take the task's loss, or --mode faithful"
        )


def _finish(found: LossPass, running: _Running, jacobian: list[Tensor]) -> None:
    found.peaks = {linear: _mean(values) for linear, values in running.peaks.items()}
    found.squares = {linear: _mean(values) for linear, values in running.squares.items()}
    found.fisher = {linear: _means(values) for linear, values in running.fisher.items()}
    found.codes = running.codes
    found.distances = {linear: torch.cat(values) for linear, values in running.distances.items()}
    for linear, (total, second, count) in running.sums.items():
        found.covariances[linear] = (second - torch.outer(total, total) / count) / (count - 1)
    found.probabilities = [_means(values) for _, values in sorted(running.probabilities.items())]
    if jacobian:
        found.jacobian = torch.cat(jacobian)
