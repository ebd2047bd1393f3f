"""One pass of the tokens through a mixture of experts: statistics of its experts and their neurons."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.carving.experts.fewer_experts import AXIS, expert_layers
from zerolm.carving.experts.masked_parent import experts_module
from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import stand_ins
from zerolm.networks.stream import Stream
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

SINGLE: Final = ("count", "gate", "share_norm")
PAIRS: Final = "product"
OF_NEURONS: Final = "neurons"
"""The sums of each neuron of each expert (``NeuronSums``), in addition to those of experts."""
ARGUMENTS: Final = 3
"""The number of arguments of an experts module: hidden states, the numbers of experts, their gates."""
AT_ONCE: Final = 1 << 24
"""Activations or outputs of experts to compute at a time (64 MiB)."""
APART: Final = 1e-3
"""Largest relative difference between an expert's output and that computed from its weights here."""


class ExpertSums:
    """Sums over the tokens of a layer that are routed to expert i, or to both i and j.

    g is the gate that the model applies, s its share of the token's gates, and f the output. All (e,):
    ``count`` 1, ``gate`` g, ``share_norm`` s|f|. Of pairs (e, e): ``product`` g_i|f_i| times g_j|f_j|.
    """

    def __init__(self, experts: int) -> None:
        self.arrays: Arrays = {name: np.zeros(experts) for name in SINGLE}
        self.arrays[PAIRS] = np.zeros((experts, experts))

    def add(self, numbers: Tensor, gates: Tensor, outputs: Tensor) -> None:
        """Add tokens with the numbers of their experts, gates (t, k) and outputs (t, k, d)."""
        norms = outputs.float().norm(dim=-1)
        index, gate, norm = numbers.cpu().numpy(), *(x.double().cpu().numpy() for x in (gates, norms))
        total = gate.sum(1, keepdims=True)
        share = np.divide(gate, total, out=np.zeros_like(gate), where=total != 0)
        for name, values in zip(SINGLE, (np.ones_like(gate), gate, share * norm), strict=True):
            np.add.at(self.arrays[name], index.reshape(-1), values.reshape(-1))
        sent = np.zeros((len(index), len(self.arrays["count"])))
        sent[np.arange(len(index))[:, None], index] = gate * norm
        self.arrays[PAIRS] += sent.T @ sent


def expert_use(
    checkpoint: Checkpoint,
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    neurons: bool = False,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
    progress: Progress = silent,
) -> dict[int, Arrays]:
    """Return the sums (``ExpertSums``) of each layer with experts, and with ``neurons`` those of neurons.

    One layer is in memory at a time. Layers in the cache are not measured again, except for results without
    neurons where these are wanted. Raises ``ValueError`` for experts that are not called with their gates.
    """
    stream, use = Stream(Blocks(model, tokens.batches())), dict[int, Arrays]()
    for layer in expert_layers(checkpoint):
        row = cache.get(f"layer-{layer}")
        if row is None or (neurons and OF_NEURONS not in row):
            progress("running tokens through the experts", layer, checkpoint.layout.depth)
            row = _sums(checkpoint, stream, layer, neurons)
            cache.put(f"layer-{layer}", row)
        use[layer] = row
    return use


def _sums(checkpoint: Checkpoint, stream: Stream, layer: int, neurons: bool) -> Arrays:
    """Return the sums of a layer, and pass the stream through it; the layer is released afterwards."""
    stream.before(layer)
    sums, blocks = ExpertSums(checkpoint.layout.sizes[AXIS]), stream.blocks
    experts = experts_of(checkpoint, blocks.layer(layer).module, layer)
    masks = (blocks.tokens(index).reshape(-1) for index in range(len(blocks.batches)))
    inner = NeuronSums(experts, checkpoint.family.name) if neurons else None
    with stand_ins([experts], [summing(experts, sums, inner, masks)]):
        for _ in stream.through(layer):
            pass
    return sums.arrays if inner is None else sums.arrays | {OF_NEURONS: inner.scores}


def experts_of(checkpoint: Checkpoint, module: nn.Module, layer: int) -> nn.Module:
    """Return the module of a layer's experts; ``ValueError`` where it is not called with gates."""
    experts = experts_module(checkpoint, module, layer)
    if len(inspect.signature(experts.forward).parameters) < ARGUMENTS:
        raise ValueError(
            f"the gates of a {checkpoint.family.name} scale the inputs of its experts, so tokens do not "
            "determine their outputs: give --criterion aimer, which uses weights alone"
        )
    return experts


def summing(
    experts: nn.Module, sums: ExpertSums, inner: NeuronSums | None, masks: Iterator[Tensor]
) -> Callable[..., Tensor]:
    """Return a forward function of experts that also adds to ``sums``, and to ``inner`` ones if any.

    Each expert's output is computed once, as for a token with gate 1 that is routed to it alone; then outputs
    are combined with the gates. ``masks`` are the tokens (t,) of each call that count.
    """
    alone = experts.forward

    def forward(hidden: Tensor, numbers: Tensor, gates: Tensor) -> Tensor:
        tokens, active = numbers.shape
        mask, out = next(masks), torch.empty_like(hidden)
        if inner is not None:
            inner.add(hidden[mask], numbers[mask], gates[mask])
        step = max(1, AT_ONCE // (active * hidden.shape[-1]))
        for start in range(0, tokens, step):
            here = slice(start, start + step)
            routed = numbers[here].reshape(-1, 1)
            repeated = hidden[here].repeat_interleave(active, 0)
            outputs = alone(repeated, routed, gates.new_ones(len(routed), 1)).unflatten(
                0, (-1, active)
            )  # (t, k, d)
            out[here] = (outputs * gates[here, :, None]).sum(1)
            used = mask[here]
            sums.add(numbers[here][used], gates[here][used], outputs[used])
        return out

    return forward


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
