"""One pass of the tokens through the parent, layer after layer, for a criterion that needs them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.families.family import OUTPUT_ROLES
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import StockLayer, layer_of, places_of
from zerolm.networks.stream import Stream
from zerolm.passes.fisher import Fisher
from zerolm.passes.token_weights import token_weights
from zerolm.passes.walk import BY_WEIGHTS, writers
from zerolm.progress import Progress, silent
from zerolm.registry import is_own, plugged
from zerolm.text.tokens import Tokens
from zerolm.units.importance.activations import OfSequences
from zerolm.units.importance.criteria import CRITERIA, needs_gradients
from zerolm.units.kept_units import Dimensions
from zerolm.units.pruning import dimensions_of
from zerolm.units.within_layers import NAMES, UNITS

TRIED: Final = 4
"""Random tokens that a plug-in's criterion is tried on."""


def importances(
    model: PreTrainedModel,
    tokens: Tokens,
    criterion: str = "output_energy",
    *,
    progress: Progress = silent,
    batch: int = 8,
    fisher: Fisher | None = None,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> dict[str, list[Floats]]:
    """Return the scores of the units of each kind, (units,) per layer.

    A criterion that needs gradients needs ``fisher``. Layers in the ``cache`` are not measured again.
    """
    sizes = dimensions_of(model)
    stream = Stream(Blocks(model, tokens.filled(batch)))
    scores: dict[str, list[Floats]] = {name: [] for name in NAMES}
    for number in range(sizes.depth):
        progress(f"scoring units by {criterion}", number, sizes.depth)
        row = cache.once(f"layer-{number}", partial(_measured, stream, number, criterion, sizes, fisher))
        for kind, layers in scores.items():
            layers.append(row[kind])
    return scores


def _summed(blocks: Blocks, number: int) -> StockLayer:
    """Return a layer on the device where sums are held."""
    layer, sums = blocks.layer(number), blocks.compute.sums
    if sums == blocks.device:
        return layer
    return layer_of(places_of(blocks.model), copy.deepcopy(layer.module).to(sums))


def _with_all(layer: StockLayer, sizes: Dimensions) -> StockLayer:
    """Return a layer with matrices of zeros for those it lacks, so that their units have no output."""
    writers = {role: nn.Linear(count, sizes.hidden, bias=False) for role, count in _inputs(sizes).items()}
    for module in writers.values():
        nn.init.zeros_(module.weight)
    return replace(layer, writers={**writers, **layer.writers})


def _inputs(sizes: Dimensions) -> dict[str, int]:
    return {unit.writer: unit.count(sizes) * unit.row(sizes, unit.writer) for unit in UNITS}


def _measured(
    stream: Stream, number: int, criterion: str, sizes: Dimensions, fisher: Fisher | None
) -> Arrays:
    stream.before(number)
    roots = [] if fisher is None else [{role: fisher.root(number, role) for role in OUTPUT_ROLES}]
    summed, maker = _with_all(_summed(stream.blocks, number), sizes), CRITERIA[criterion]
    with plugged(f"criterion {criterion!r}", maker):
        statistics = maker(sizes, summed, *roots)
    firsts = {role: None if fisher is None else fisher.first_token(number, role) for role in OUTPUT_ROLES}
    layer = stream.blocks.layer(number)
    for i, hidden, seen in stream.through(number, writers):
        mask = stream.blocks.batches[i].get("attention_mask")  # (b, t)
        rows = torch.ones_like(hidden[..., 0]).bool() if mask is None else mask.bool()
        nothing = {
            role: hidden.new_zeros(*rows.shape, length)
            for role, length in _inputs(sizes).items()
            if role not in seen.inputs
        }
        device = stream.blocks.compute.sums
        inputs = {role: x[rows].to(device) for role, x in {**nothing, **seen.inputs}.items()}
        each = (
            token_weights(stream.blocks, i, layer, hidden, seen.outputs.get(role), first)
            for role, first in firsts.items()
        )
        weights = {role: one[rows].to(device) for role, one in zip(firsts, each, strict=True)}
        lengths = rows.sum(1).tolist() if isinstance(statistics, OfSequences) else [int(rows.sum())]
        inputs_of, weights_of = (_split(each, lengths) for each in (inputs, weights))
        for part in zip(inputs_of, weights_of, strict=True):
            with plugged(f"criterion {criterion!r}", maker):
                statistics.add(*part)
    try:
        with plugged(f"criterion {criterion!r}", maker):
            scores = statistics.importance()
            if not is_own(maker):
                _check(scores, sizes)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        raise ValueError(
            f"the activations of layer {number} are too large to score its units by them: {BY_WEIGHTS}"
        ) from None
    return {unit.name: scores[unit.writer] for unit in UNITS}


def check_statistics(model: PreTrainedModel, criterion: str) -> None:
    """Raise ``ValueError`` where a plug-in's criterion fails on a few random tokens of the first layer."""
    sizes, maker, generator = dimensions_of(model), CRITERIA[criterion], torch.Generator().manual_seed(0)
    layer = _with_all(_summed(Blocks(model, []), 0), sizes)
    device = next(layer.module.parameters()).device
    inputs = {
        role: torch.randn(TRIED, length, generator=generator).to(device)
        for role, length in _inputs(sizes).items()
    }
    weights = {role: torch.ones(TRIED, device=device) for role in OUTPUT_ROLES}
    roots = {role: np.eye(sizes.hidden) for role in OUTPUT_ROLES}
    with plugged(f"criterion {criterion!r}", maker):
        statistics = maker(sizes, layer, *([roots] if needs_gradients(criterion) else []))
        statistics.add(inputs, weights)
        _check(statistics.importance(), sizes)


def _check(scores: Mapping[str, Floats], sizes: Dimensions) -> None:
    """Raise ``ValueError`` where there is not a finite score of each unit of a layer."""
    for unit in UNITS:
        of_units, count = np.asarray(scores[unit.writer]), unit.count(sizes)
        if of_units.shape != (count,) or not np.isfinite(of_units).all():
            raise ValueError(f"it does not give a finite score to each of {count} units of {unit.writer!r}")


def _split(tensors: Mapping[str, Tensor], lengths: Sequence[int]) -> list[dict[str, Tensor]]:
    """Return parts of these lengths of all tensors, in order."""
    parts = [torch.split(each, list(lengths)) for each in tensors.values()]
    return [dict(zip(tensors, part, strict=True)) for part in zip(*parts, strict=True)]
