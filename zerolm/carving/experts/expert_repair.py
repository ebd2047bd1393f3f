"""Repair: the down projections of the kept experts, refitted by least squares, layer after layer.

The parent and the masked parent, whose routers cannot choose removed experts, run in parallel, one layer in
memory. r (t, d) is the error of the second behind a layer, which its experts are to correct. The experts are
refitted one after another: with h the input of the down projection W for a token and g its gate, W becomes
the least-squares fit of r + g W h on g h over the expert's tokens, and r the remaining error. So each expert
corrects the error that the earlier ones left, and earlier layers' errors too. Where a norm stands between the
experts and the stream, r is the error of the experts' own output.

Errors are relative to the parent's stream, which the next norm divides by, so that a few tokens with large
norms do not dominate. A matrix that is no better on held-out sequences is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.carving.experts.expert_use import check_inside, experts_of, inside
from zerolm.carving.experts.fewer_experts import FewerExperts, Matrices
from zerolm.carving.experts.masked_parent import as_child, send_on
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import stand_ins
from zerolm.networks.roles import residual_factor
from zerolm.networks.states import HiddenStates
from zerolm.networks.stream import Stream
from zerolm.progress import Progress, silent
from zerolm.repairing.ridge import Fit
from zerolm.text.tokens import Tokens

SWEEPS: Final = 2
"""Number of times that each expert is refitted."""
EVERY: Final = 5
"""One sequence in ``EVERY`` is held out."""
ALONE: Final = 1e-3
"""Largest relative difference between a layer's update and its experts' output where no norm is between."""

Kept = Tensor | slice
"""The kept neurons of an expert, or all."""


def repaired_experts(
    fewer: FewerExperts,
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
    progress: Progress = silent,
) -> tuple[dict[int, Matrices], dict[int, float]]:
    """Return the new down projections by layer, and the remaining share of each layer's squared error.

    The share is that of held-out sequences. The ``cache`` has the results of an interrupted run. Raises
    ``ValueError`` for experts with unknown activations.
    """
    walk, layers = _Walk(fewer, model, tokens), list(fewer.by_layer)
    changed, error_shares = dict[int, Matrices](), dict[int, float]()
    for layer in layers:
        progress("repairing the kept experts", layer, fewer.parent.layout.depth)
        row = cache.once(f"layer-{layer}", partial(walk.arrays, layer))
        error_shares[layer] = float(row.pop("left"))
        changed[layer] = {int(expert): matrix for expert, matrix in row.items()}
        if layer != layers[-1]:
            send_on(walk.child, replace(fewer, changed={layer: changed[layer]}), layer)
            walk.parent.before(layer + 1)
    return changed, error_shares


class _Walk:
    """The parent and the masked parent, layer after layer: two hidden states of all tokens, and one layer."""

    def __init__(self, fewer: FewerExperts, model: PreTrainedModel, tokens: Tokens) -> None:
        self.fewer, self.factor = fewer, residual_factor(model)
        self.blocks = Blocks(model, tokens.batches())
        self.parent, self.child = Stream(self.blocks), Stream(self.blocks)
        sizes = [len(each["input_ids"]) for each in self.blocks.batches]
        self.firsts = np.cumsum([0, *sizes])[:-1].tolist()

    def arrays(self, layer: int) -> Arrays:
        """Return the new down projections of a layer by expert, and the share of error ``left``."""
        self.parent.before(layer), self.child.before(layer)
        module = self.blocks.layer(layer).module
        experts: Any = experts_of(self.fewer.parent, module, layer)
        use, matrices = self._use(layer, module, experts), Matrices()
        before = use.error()
        for _ in range(SWEEPS):
            for expert in self.fewer.by_layer[layer].tolist():
                parents = experts.down_proj[expert].detach().float()
                weight = torch.from_numpy(matrices[expert]).to(parents) if expert in matrices else parents
                whole = (weight if experts.is_transposed else weight.T).double()  # (k, d)
                kept = self.fewer.neurons_of(layer, expert)
                neurons = slice(None) if kept is None else torch.from_numpy(kept).to(whole.device)
                columns = whole[neurons]
                better = _better(use.fit(experts, expert, columns, neurons), columns)
                if better is None:
                    continue
                solved = torch.zeros_like(whole)
                solved[neurons] = better.to(whole)
                stored = (solved if experts.is_transposed else solved.T).float().cpu().numpy()
                matrices[expert] = self.fewer.as_stored(layer, stored)
                new = torch.from_numpy(matrices[expert]).to(columns)
                change = (new if experts.is_transposed else new.T)[neurons] - columns
                use.take(experts, expert, change, neurons)
        left = np.array(use.error() / before if before else 1.0)
        return {str(expert): matrix for expert, matrix in matrices.items()} | {"left": left}

    def _use(self, layer: int, module: nn.Module, experts: nn.Module) -> _Use:
        """Return the inputs of a layer's experts in the child, and the error behind the layer."""
        seen, use = _Seen(experts), _Use(self)
        parent_states, child_states = self.parent.before(layer), self.child.before(layer)
        is_alone = self._is_alone(layer, module, experts)
        for index in range(len(self.blocks.batches)):
            with stand_ins([experts], [seen.forward]):
                wanted = self.blocks.call(index, layer, parent_states[index], module)
                parent_output = seen.out
                with as_child(module, self.fewer, layer):
                    out = self.blocks.call(index, layer, child_states[index], module)
            lacking = (
                (wanted - out) / self.factor if is_alone else (parent_output - seen.out).reshape(out.shape)
            )
            if not index:
                first = seen.hidden[:1], int(seen.numbers[0, 0])
                check_inside(experts, self.fewer.parent.family.name, seen.alone, *first)
            use.add(index, seen, lacking.flatten(0, -2), wanted.flatten(0, -2))
        return use

    def _is_alone(self, layer: int, module: nn.Module, experts: nn.Module) -> bool:
        """Return whether the experts' output is added to the stream without a norm between."""
        hidden, seen = self.parent.before(layer)[0], _Seen(experts)
        with stand_ins([experts], [seen.forward]):
            out = self.blocks.call(0, layer, hidden, module)
        with stand_ins([experts], [lambda states, *_: torch.zeros_like(states)]):
            without = self.blocks.call(0, layer, hidden, module)
        added = self.factor * seen.out.reshape(out.shape)
        return bool((out - without - added).norm() <= ALONE * added.norm())


class _Seen:
    """The last call of an experts module: hidden states (t, d), numbers and gates (t, k), and the output."""

    def __init__(self, experts: nn.Module) -> None:
        self.alone: Callable[..., Tensor] = experts.forward
        self.hidden = self.numbers = self.gates = self.out = torch.empty(0)

    def forward(self, hidden: Tensor, numbers: Tensor, gates: Tensor) -> Tensor:
        self.hidden, self.numbers, self.gates = hidden, numbers, gates
        self.out = self.alone(hidden, numbers, gates)
        return self.out


class _Use:
    """The inputs of one layer's experts, and the errors behind the layer, batch by batch.

    ``routed`` are the numbers and gates (t, k) of each token; ``held`` is the mask (t,) of held-out tokens,
    ``used`` that of tokens that are not padding.
    """

    def __init__(self, walk: _Walk) -> None:
        self.walk = walk
        self.hidden: HiddenStates = walk.blocks.states()  # (t, d) each
        self.lacking: HiddenStates = walk.blocks.states()
        self.routed: list[tuple[Tensor, Tensor]] = []
        self.held: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.used: list[Tensor] = []

    def add(self, index: int, seen: _Seen, lacking: Tensor, stream: Tensor) -> None:
        """Add a batch, and the parent's ``stream`` (t, d) behind the layer."""
        self.weights.append(1.0 / stream.float().square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6))
        mask = self.walk.blocks.tokens(index)  # (b, t)
        numbers = self.walk.firsts[index] + torch.arange(len(mask), device=mask.device)
        held = (numbers % EVERY == EVERY - 1)[:, None].expand_as(mask)
        self.hidden.append(seen.hidden.float())
        self.lacking.append(lacking.float())
        self.routed.append((seen.numbers, seen.gates))
        self.held.append(held.reshape(-1))
        self.used.append(mask.reshape(-1))

    def _read(self, experts: Any, expert: int, neurons: Kept) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield by batch the tokens (n,) that are routed to an expert, and gate times input (n, k)."""
        for index, (numbers, gates) in enumerate(self.routed):
            routed = (numbers == expert) & self.used[index][:, None]
            rows = routed.any(1).nonzero()[:, 0]
            if len(rows):
                gate = (gates * routed)[rows].sum(1, keepdim=True).float()
                read = gate * inside(experts, expert, self.hidden[index][rows])[:, neurons].float()
                yield index, rows, read

    def fit(self, experts: Any, expert: int, columns: Tensor, neurons: Kept) -> Fit:
        """Return the moments of an expert with these columns (k, d), those of the kept ``neurons`` (k,)."""
        fit = Fit.empty(*columns.shape, bias=False, device=self.walk.blocks.compute.sums)
        for index, rows, read in self._read(experts, expert, neurons):
            wanted = self.lacking[index][rows] + read @ columns.to(read)
            scale = self.weights[index][rows]
            read, wanted = scale * read, scale * wanted
            for moments, some in ((fit.fitted, ~self.held[index][rows]), (fit.held, self.held[index][rows])):
                if some.any():
                    moments.add(read[some], wanted[some])
        return fit

    def take(self, experts: Any, expert: int, change: Tensor, neurons: Kept) -> None:
        """Subtract from the errors the effect of a change (k, d) of some columns of an expert."""
        for index, rows, read in self._read(experts, expert, neurons):
            lacking = self.lacking[index]
            lacking[rows] -= read @ change.to(read)
            self.lacking[index] = lacking

    def error(self) -> float:
        """Return the sum of squared errors of held-out sequences; of all where none are held out."""
        masks = [held & used for held, used in zip(self.held, self.used, strict=True)]
        if not any(mask.any() for mask in masks):
            masks = self.used
        return sum(
            float((weights * x)[mask].double().square().sum())
            for x, weights, mask in zip(self.lacking, self.weights, masks, strict=True)
        )


def _better(fit: Fit, start: Tensor) -> Tensor | None:
    """Return columns (k, d) with a lower loss than ``start`` on held-out tokens; None without any."""
    if not fit.held.count or not fit.fitted.count:
        return None
    start = start.to(fit.fitted.inputs)
    columns, _ = fit.best(start)
    return columns if fit.improves(start, columns) else None
