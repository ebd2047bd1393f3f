"""The neurons of the experts of a stock class: what they read, what they send, and the order they lie in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.fewer_experts import BOTH_NAME, DOWN_NAME

AT_ONCE: Final = 1 << 24
"""Numbers that experts send, within or without, at a time (64 MiB)."""
UP_NAME: Final = "up_proj"
BIAS: Final = "_bias"
APART: Final = 1e-3
"""How far, as a share, what an expert sends may be from what it is said to do inside."""


def inside(experts: Any, expert: int, hidden: Tensor) -> Tensor:
    """Return what the down projection of an expert reads (n, k) for hidden states (n, d)."""
    weight = (experts.gate_up_proj if experts.has_gate else experts.up_proj)[expert]
    read = hidden @ (weight if experts.is_transposed else weight.T)
    if experts.has_bias:
        read = read + (experts.gate_up_proj_bias if experts.has_gate else experts.up_proj_bias)[expert]
    gated = experts._apply_gate(read) if experts.has_gate else experts.act_fn(read)
    assert isinstance(gated, Tensor)
    return gated


def check_inside(
    experts: Any,
    family: str,
    alone: Callable[..., Tensor],
    hidden: Tensor,
    expert: int,
    cure: str = "give --repair none, and no --merge",
) -> None:
    """Refuse experts that are not known inside: what ``inside`` says an expert reads is not what it sends.

    ``alone`` is what the experts' module does, ``hidden`` (1, d) a token; ``cure`` is what the user may do.
    """
    is_usual = all(hasattr(experts, name) for name in ("is_transposed", "has_bias", "has_gate", "down_proj"))
    if is_usual:
        weight = experts.down_proj[expert]
        ours = inside(experts, expert, hidden) @ (weight if experts.is_transposed else weight.T)
        if experts.has_bias:
            ours = ours + experts.down_proj_bias[expert]
        theirs = alone(hidden, torch.full((1, 1), expert, device=hidden.device), hidden.new_ones(1, 1))
        is_usual = bool((ours - theirs).norm() <= APART * theirs.norm())
    if not is_usual:
        raise ValueError(f"what experts of a {family} do inside is not known: {cure}")


class NeuronSums:
    """For each neuron of each expert (e, m), the sum over its tokens of g^2 h^2 |down|^2.

    With the gate g that the model applies, h what goes into the down projection, down its column there: the
    squared length of what the neuron adds to the stream.
    """

    def __init__(self, experts: Any, family: str) -> None:
        self.experts, self.family = experts, family
        self.alone: Callable[..., Tensor] = experts.forward
        self.sums: Floats | None = None

    @property
    def worth(self) -> Floats:
        """The sums (e, m)."""
        assert self.sums is not None, "tokens were sent through the layer"
        down = self.experts.down_proj.detach()
        lengths = [one.float().square().sum(1 if self.experts.is_transposed else 0).double() for one in down]
        squares: Floats = self.sums * torch.stack(lengths).cpu().numpy()
        return squares

    @torch.no_grad()
    def add(self, hidden: Tensor, numbers: Tensor, gates: Tensor) -> None:
        """Take in tokens (t, d) by the numbers (t, k) of their experts, and their gates (t, k)."""
        if not len(hidden):
            return
        if self.sums is None:
            cure = "tokens do not tell the worth of neurons; --criterion aimer goes by weights alone"
            check_inside(self.experts, self.family, self.alone, hidden[:1], int(numbers[0, 0]), cure)
            shape = self.experts.down_proj.shape
            self.sums = np.zeros((shape[0], shape[1 if self.experts.is_transposed else 2]))
        step = max(1, AT_ONCE // self.sums.shape[1])
        for expert in np.unique(numbers.cpu().numpy()).tolist():
            sent = numbers == expert  # (t, k)
            for rows in sent.any(1).nonzero()[:, 0].split(step):
                gate = (gates * sent)[rows].sum(1, keepdim=True).double()
                squares = (gate * inside(self.experts, expert, hidden[rows])).square().sum(0)
                self.sums[expert] += squares.cpu().numpy()


class Neurons:
    """The neurons of the experts of a stock module: what each of them is made of, whatever the order.

    ``places`` (p, m) are the p outputs of the matrix before that each of the m neurons has: with a gate two.
    """

    def __init__(self, experts: Any, family: str) -> None:
        self.experts = experts
        self.before = BOTH_NAME if experts.has_gate else UP_NAME
        self.names = [self.before, DOWN_NAME]
        self.names += [name + BIAS for name in self.names] if experts.has_bias else []
        size = experts.down_proj.shape[1 if experts.is_transposed else 2]
        self.places = _places(experts, size, family) if experts.has_gate else np.arange(size)[None]

    def value(self, name: str, expert: int) -> Floats:
        """Return a parameter of an expert as the stock class has it."""
        value: Floats = self.experts.get_parameter(name)[expert].detach().double().cpu().numpy()
        return value

    def ordered(self, name: str, expert: int, order: Ints) -> Floats:
        """Return a parameter of an expert whose neurons (m,) come in this order."""
        value = self.value(name, expert)
        if name == DOWN_NAME + BIAS:
            return value
        is_down = name == DOWN_NAME
        new = order
        if not is_down:
            new = np.empty(self.places.size, np.int64)
            new[self.places] = self.places[:, order]
        axis = 0 if value.ndim == 1 or is_down == self.experts.is_transposed else 1
        return np.take(value, new, axis)

    def weights(self, expert: int) -> Floats:
        """Return rows of gates and ups beside columns of the down projection: (m, 3 d), ungated (m, 2 d)."""
        before, down = self.value(self.before, expert), self.value(DOWN_NAME, expert)
        before, down = (before.T, down) if self.experts.is_transposed else (before, down.T)
        return np.concatenate([*(before[places] for places in self.places), down], 1)

    @torch.no_grad()
    def active(self, expert: int, tokens: Tensor) -> Floats:
        """Return what the neurons of an expert send for tokens (t, d), as (m, t)."""
        sent: Floats = inside(self.experts, expert, tokens).double().cpu().numpy().T
        return sent


def _places(experts: Any, size: int, family: str) -> Ints:
    """Return where gates and ups lie, (2, m): one after the other, or in turn, as the stock class takes them.

    ``ValueError`` where neither is so.
    """
    drawn = torch.randn(4, 2 * size, generator=torch.Generator().manual_seed(0)).to(experts.down_proj)
    moved = np.roll(np.arange(size), 1)
    numbers = np.arange(2 * size)
    for places in (numbers.reshape(2, size), numbers.reshape(size, 2).T):
        new = np.empty_like(numbers)
        new[places] = places[:, moved]
        if torch.allclose(experts._apply_gate(drawn)[:, moved], experts._apply_gate(drawn[:, new])):
            return places
    raise ValueError(f"what experts of a {family} do inside is not known: no --merge")
