"""The neurons of the experts of a stock class: their activations and their outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Floats

AT_ONCE: Final = 1 << 24
"""Activations or outputs of experts to compute at a time (64 MiB)."""
APART: Final = 1e-3
"""Largest relative difference between an expert's output and that computed from its weights here."""


def inside(experts: Any, expert: int, hidden: Tensor) -> Tensor:
    """Return the input (n, k) of an expert's down projection for hidden states (n, d)."""
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
    cure: str = "give --repair none",
) -> None:
    """Raise ``ValueError`` for experts whose output differs from that computed from ``inside``.

    ``alone`` is the forward function of the experts' module, ``hidden`` (1, d) a token; ``cure`` is the
    advice in the error.
    """
    is_usual = all(hasattr(experts, name) for name in ("is_transposed", "has_bias", "has_gate", "down_proj"))
    if is_usual:
        weight = experts.down_proj[expert]
        output = inside(experts, expert, hidden) @ (weight if experts.is_transposed else weight.T)
        if experts.has_bias:
            output = output + experts.down_proj_bias[expert]
        expected = alone(hidden, torch.full((1, 1), expert, device=hidden.device), hidden.new_ones(1, 1))
        is_usual = bool((output - expected).norm() <= APART * expected.norm())
    if not is_usual:
        raise ValueError(f"what experts of a {family} do inside is not known: {cure}")


class NeuronSums:
    """For each neuron of each expert (e, m), the sum over its tokens of g^2 h^2 |down|^2.

    g is the gate that the model applies, h the input of the down projection, down the neuron's column there:
    this is the squared norm of the neuron's contribution to the stream.
    """

    def __init__(self, experts: Any, family: str) -> None:
        self.experts, self.family = experts, family
        self.alone: Callable[..., Tensor] = experts.forward
        self.sums: Floats | None = None

    @property
    def scores(self) -> Floats:
        """The sums (e, m)."""
        assert self.sums is not None, "no tokens went through the layer"
        down = self.experts.down_proj.detach()
        lengths = [one.float().square().sum(1 if self.experts.is_transposed else 0).double() for one in down]
        squares: Floats = self.sums * torch.stack(lengths).cpu().numpy()
        return squares

    @torch.no_grad()
    def add(self, hidden: Tensor, numbers: Tensor, gates: Tensor) -> None:
        """Add tokens (t, d) with the numbers (t, k) of their experts, and their gates (t, k)."""
        if not len(hidden):
            return
        if self.sums is None:
            cure = "tokens do not determine the scores of neurons; --criterion aimer uses weights alone"
            check_inside(self.experts, self.family, self.alone, hidden[:1], int(numbers[0, 0]), cure)
            shape = self.experts.down_proj.shape
            self.sums = np.zeros((shape[0], shape[1 if self.experts.is_transposed else 2]))
        step = max(1, AT_ONCE // self.sums.shape[1])
        for expert in np.unique(numbers.cpu().numpy()).tolist():
            routed = numbers == expert  # (t, k)
            for rows in routed.any(1).nonzero()[:, 0].split(step):
                gate = (gates * routed)[rows].sum(1, keepdim=True).double()
                squares = (gate * inside(self.experts, expert, hidden[rows])).square().sum(0)
                self.sums[expert] += squares.cpu().numpy()
