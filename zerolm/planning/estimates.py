"""Predicted losses of single cuts from one backward pass: minutes, where measuring each would take a night.

For the removed part d of an activation the loss is 1/2 E[(G . d)^2] to second order (``zerolm.passes.walk``).
It is summed token by token for a decoder, because products between tokens are mostly noise, and over a
sequence for an encoder, whose tokens become one embedding. So a candidate costs a small product instead of a
run of the network. Each kind of units is a class that defines d; it gets each layer as the pass reaches it.

With a repair by least squares the loss is the part that the repair does not recover. For units the criterion
estimates it (``zerolm.units.importance.surgeon``); for the stream the removed part is predicted from the kept
one.

The second order underestimates large cuts: most of a layer's neurons, or a whole layer. A few layers are
measured, and the others are corrected by these (``calibrated``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.io.cache import ArrayCache
from zerolm.networks.blocks import Blocks
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import StockLayer, bias, matrix
from zerolm.passes.fisher import Fisher
from zerolm.passes.walk import (
    Accumulator,
    LayerGradients,
    NormInput,
    Watched,
    input_norms,
    norm_inputs,
    normalised,
    walk,
    writers,
    writers_and_norms,
)
from zerolm.planning.loss_table import LossTable, StreamLosses, steps, stream_widths
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import spread
from zerolm.units.pruning import dimensions_of
from zerolm.units.stream.narrowing import RIDGE, Basis, Width
from zerolm.units.within_layers import UNITS, LayerUnit

UNIT_STEPS: Final = 64
"""Largest number of sizes of the FFN, and of KV groups, whose losses are predicted."""
ESTIMATE_TOKENS: Final = 1 << 12
"""Tokens of the forward and backward pass, in evenly spread sequences. With more tokens all prices move
together."""
ESTIMATE_BATCH: Final = 2


class CutEstimates(Accumulator):
    """A kind of cut: ``sums`` of (G . d)^2 over tokens, one for each candidate."""

    def __init__(self, *shape: int) -> None:
        self.sums = np.zeros(shape)
        self.arrays = {"sums": self.sums}

    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        return {}


class UnitEstimates(CutEstimates):
    """Losses of the units of one kind in each layer: ``sums`` (layers, sizes).

    ``removed[layer]`` (units, sizes) is 1 where a size lacks a unit. d is the unit's contribution to the
    output of its output matrix. Where a ``watched`` norm stands behind that output, alone or added to the
    stream, d is the change of the norm's output. Otherwise, because the norm rescales a smaller input, the
    second order would predict no loss for removing all units.
    """

    def __init__(
        self, unit: LayerUnit, removed: Sequence[NDArray[np.float32]], watched: Watched, *, by_sequence: bool
    ) -> None:
        self.unit, self.by_sequence, self._watched = unit, by_sequence, watched
        self.removed = [torch.from_numpy(each) for each in removed]
        super().__init__(len(removed), removed[0].shape[1])

    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        return self._watched(layer)

    def layer(self, here: LayerGradients, blocks: Blocks) -> None:
        role = self.unit.writer
        if role not in here.values.inputs:
            return  # the layer has no such units
        change = self._normalised if f"behind_{role}" in here.values.outputs else self._added
        changes = change(here, blocks, role)  # (b, t, s)
        self.sums[here.layer] += squares(changes, here.tokens, by_sequence=self.by_sequence)

    def _added(self, here: LayerGradients, blocks: Blocks, role: str) -> Tensor:
        """Return G . (removed part of an output matrix's output) for each size, (b, t, s)."""
        columns = matrix(here.stock_layer.writers[role])  # (d, k)
        gradients = blocks.compute.product(here.gradients.outputs[role], columns)
        contributions = here.values.inputs[role] * gradients  # (b, t, k)
        removed = self.removed[here.layer].to(contributions)  # (units, s)
        units = contributions.reshape(*contributions.shape[:2], len(removed), -1).sum(-1)  # (b, t, units)
        return units @ removed

    def _normalised(self, here: LayerGradients, blocks: Blocks, role: str) -> Tensor:
        """Return G . (change of the output of the norm behind an output matrix) for each size, (b, t, s)."""
        behind, values = f"behind_{role}", here.values
        writer, norm = here.stock_layer.writers[role], here.stock_layer.behind[behind]
        output, upstream = values.outputs[behind], here.gradients.outputs[behind]
        inputs, columns, offset = values.inputs[role], matrix(writer), bias(writer)
        out = values.inputs[behind] - values.outputs[role]  # the stream, or nothing
        out = out if offset is None else out + offset
        kept = 1 - self.removed[here.layer].T  # (s, units)
        steps = torch.diff(kept, dim=0, prepend=torch.zeros_like(kept[:1]))
        width = inputs.shape[-1] // kept.shape[1]
        changes = output.new_empty(*output.shape[:-1], len(steps))
        with torch.no_grad():
            for size, step in enumerate(steps):
                units = torch.nonzero(step)[:, 0]
                places = torch.as_tensor(spread(units.numpy(), width)).to(inputs.device)
                signed = inputs[..., places] * step[units].repeat_interleave(width).to(inputs)
                out = out + blocks.compute.product(signed, columns[:, places].T)
                with blocks.compute.running():
                    changes[..., size] = ((norm(out) - output) * upstream).sum(-1)
        return changes


class LayerEstimates(CutEstimates):
    """Losses of removing whole layers: ``sums`` (layers,). d is the whole change that a layer makes."""

    def __init__(self, depth: int, *, by_sequence: bool) -> None:
        super().__init__(depth)
        self.by_sequence = by_sequence

    def layer(self, here: LayerGradients, blocks: Blocks) -> None:
        changes = ((here.above - here.below) * here.upstream).sum(-1, keepdim=True)  # (b, t, 1)
        self.sums[here.layer] += squares(changes, here.tokens, by_sequence=self.by_sequence)[0]


class StreamEstimates(CutEstimates):
    """Losses of widths of the stream in a basis: ``sums`` (readings, 2, widths), the head untied or tied.

    d is the removed part of the input of the norms. For each token it is summed over all norms before
    squaring, because all norms lose it together.

    Let y be the coordinates in the basis, with second moments L D L^T. The head lacks the part of the removed
    y that the kept ones do not predict. With k kept ones the loss gradient times this part is the sum over i
    >= k of (L^-1 y)_i (L^T G)_i, so that one cumulative sum from the end gives all widths.

    The first of two readings is as cut: the layers' inputs lack all that is removed. The second is after
    least squares: there the same formula holds with the second moments of the norms' inputs, ``read`` (d, d).
    A tied head changes the embedding too.
    """

    needs_head_input = True

    def __init__(self, basis: Basis, widths: Ints, *, tied: bool, read: Floats | None = None) -> None:
        self.widths = torch.from_numpy(widths - 1)
        vectors = torch.from_numpy(basis.vectors).float()
        self.inside = [(vectors, vectors)]
        if read is not None:
            self.inside.append(_innovations(basis.vectors, read))
        self.last = _innovations(basis.vectors, basis.last)
        super().__init__(len(self.inside), 2, len(widths))
        self.removed: dict[int, list[Tensor]] = {}
        self.embeddings: list[tuple[Tensor, Tensor]] = []
        for width in widths.tolist() if tied else []:
            narrowing = basis.narrowing(Width(width, True))
            moved = narrowing.embedding - narrowing.basis
            maps = (torch.from_numpy(each).float() for each in (moved, narrowing.basis))
            self.embeddings.append((next(maps), next(maps)))

    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        return input_norms(layer)

    def above(self, blocks: Blocks, index: int, last: Tensor, reading: NormInput | None) -> None:
        assert reading is not None
        self.removed[index] = [self._removed_part(reading, *self.last)] * len(self.inside)

    def layer(self, here: LayerGradients, blocks: Blocks) -> None:
        for reading in norm_inputs(here, blocks):
            pairs = zip(self.removed[here.index], self.inside, strict=True)
            self.removed[here.index] = [
                removed + self._removed_part(reading, *inside) for removed, inside in pairs
            ]
        if here.layer > 0:
            return
        changes = None
        if self.embeddings:
            maps = ((a.to(here.below), b.to(here.below)) for a, b in self.embeddings)
            changes = torch.stack([((here.below @ a) * (here.downstream @ b)).sum(-1) for a, b in maps], -1)
        for sums, removed in zip(self.sums, self.removed.pop(here.index), strict=True):
            sums[0] += squares(removed, here.tokens)
            if changes is not None:
                sums[1] += squares(changes - removed, here.tokens)

    def _removed_part(self, reading: NormInput, stream_map: Tensor, gradient_map: Tensor) -> Tensor:
        """Return G . (removed part) for each width, (b, t, widths)."""
        normal = normalised(reading.stream)
        products = (normal @ stream_map.to(normal)) * (
            reading.gradient @ gradient_map.to(normal)
        )  # (b, t, d)
        after: Tensor = products.sum(-1, keepdim=True) - products.cumsum(-1)
        return after[..., self.widths.to(after.device)]


def _innovations(vectors: Floats, moments: Floats) -> tuple[Tensor, Tensor]:
    """Return V L^-T and V L (d, d), where V^T moments V = L D L^T."""
    inside = vectors.T @ moments @ vectors
    lower = np.linalg.cholesky(inside + RIDGE * np.trace(inside) / len(inside) * np.eye(len(inside)))
    lower = lower / lower.diagonal()
    inverse = solve_triangular(lower, np.eye(len(lower)), lower=True, unit_diagonal=True)
    return torch.from_numpy(vectors @ inverse.T).float(), torch.from_numpy(vectors @ lower).float()


def squares(changes: Tensor, tokens: Tensor, *, by_sequence: bool = False) -> Floats:
    """Return the sums of squares over tokens, or over sequences of their sums, (s,) of (b, t, s)."""
    changes = (changes * tokens[..., None]).cpu().double()
    total: Floats = (changes.sum(1) if by_sequence else changes).square().flatten(0, -2).sum(0).numpy()
    return total


def estimated_losses(
    model: PreTrainedModel,
    tokens: Tokens,
    by: Criterion,
    kinds: Sequence[str],
    *,
    basis: Basis | None = None,
    tied: bool = False,
    repaired: Fisher | None = None,
    pooling: TokenPooling = MEAN,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> LossTable:
    """Return the predicted losses of cutting one layer alone, its units chosen by ``by``, without repair.

    ``kinds`` are those of ``UNITS`` that may be cut. With a ``basis`` the table also has the
    losses of a narrower stream, for a tied parent (``tied``) also with a tied head. With the Fisher
    information ``repaired``, and a criterion ``by`` that estimates losses after least squares, the table has
    these losses too; whole layers are always estimated as cut. ``pooling`` makes an encoder's embeddings.
    Sums in the ``cache`` are resumed. Raises ``ValueError`` where a gradient is not finite.
    """
    parent, blocks = dimensions_of(model), Blocks(model, tokens.filled(ESTIMATE_BATCH))
    wholes, layers, by_sequence = parent.wholes, range(parent.depth), not blocks.predicts
    sizes = {
        kind: steps(whole, UNIT_STEPS) if kind in kinds else np.array([whole])
        for kind, whole in wholes.items()
    }
    chosen = {
        kind: [[by.choose(layer, kind, int(count)) for count in counts[:-1]] for layer in layers]
        for kind, counts in sizes.items()
    }
    watched = writers_and_norms if basis is None else writers
    removed = {kind: [_removed(kept, wholes[kind]) for kept in every] for kind, every in chosen.items()}
    estimates: dict[str, CutEstimates] = {
        unit.name: UnitEstimates(unit, removed[unit.name], watched, by_sequence=by_sequence) for unit in UNITS
    }
    estimates["gone"] = LayerEstimates(parent.depth, by_sequence=by_sequence)
    widths = stream_widths(parent.hidden)
    if basis is not None:
        read = repaired.stream["energy"] if repaired else None
        estimates["stream"] = StreamEstimates(basis, widths[:-1], tied=tied, read=read)
    kept = {kind: [[units.tolist() for units in each] for each in every] for kind, every in chosen.items()}
    walk(
        blocks,
        estimates,
        cache,
        "estimating the loss of every cut",
        pooling=pooling,
        progress=progress,
        name="-".join([*estimates, hashlib.sha256(repr(kept).encode()).hexdigest()]),
    )
    batches = [blocks.tokens(index) for index in range(len(blocks.batches))]
    count = sum(int(tokens.any(1).sum() if by_sequence else tokens.sum()) for tokens in batches)
    losses = {name: 0.5 * each.sums / count for name, each in estimates.items()}

    def table(units: Mapping[str, Floats], reading: int) -> LossTable:
        of_units = {kind: [np.append(row, 0.0) for row in units[kind]] for kind in sizes}
        stream = None
        if basis is not None:
            by_head = losses["stream"][reading]
            stream = StreamLosses(
                widths, {head: np.append(by_head[int(head)], 0.0) for head in (False, tied)}
            )
        return LossTable(by, sizes, of_units, losses["gone"], stream)

    as_cut = table(losses, 0)
    if repaired is None:
        return as_cut

    def after_repair(kind: str) -> Floats:
        smaller = sizes[kind][:-1].tolist()
        return np.array([[by.loss_increase(layer, kind, size) for size in smaller] for layer in layers])

    return replace(as_cut, repaired=table({kind: after_repair(kind) for kind in sizes}, 1))


def calibrated(predicted: Floats, measure: Callable[[Sequence[int]], Mapping[int, float]]) -> Floats:
    """Return the losses without each layer, (layers,), from predicted losses and a few measured ones.

    ``measure`` is called with the layers of the smallest, the median and the largest predicted loss.
    The second order ranks layers but underestimates their losses; the factor is interpolated in the
    logarithm.
    """
    order = np.argsort(predicted)
    few = sorted({*order[[0, len(order) // 2, -1]].tolist()})
    losses = measure(few)
    places = np.array(sorted(few, key=predicted.__getitem__))
    measured = np.array([losses[layer] for layer in places.tolist()])
    sound = (predicted[places] > 0.0) & (measured > 0.0)
    if not sound.any():
        return predicted
    tops = np.log(predicted[places][sound])
    shifts = np.log(measured[sound]) - tops
    logs = np.log(np.maximum(predicted, np.finfo(float).tiny))
    return np.where(predicted > 0.0, np.exp(logs + np.interp(logs, tops, shifts)), predicted)


def _removed(kept: Sequence[Ints], whole: int) -> NDArray[np.float32]:
    """Return 1 for each unit that is not kept, (units, sizes)."""
    removed = np.ones((whole, len(kept)), np.float32)
    for place, units in enumerate(kept):
        removed[units, place] = 0.0
    return removed
