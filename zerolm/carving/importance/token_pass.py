"""One pass of the tokens through the parent, layer after layer, for a criterion that needs them."""

from __future__ import annotations

import copy

import torch
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.carving.backward import writers
from zerolm.carving.fisher import OUTPUT_ROLES, Fisher
from zerolm.carving.importance.activations import UnitStatistics
from zerolm.carving.importance.criteria import CRITERIA
from zerolm.carving.pruning import dimensions_of
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import StockLayer, layer_of, places_of
from zerolm.networks.stream import Stream
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens


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
    """Return the worth of the KV groups (``groups``, (g,) a layer) and neurons (``ffn``, (f,) a layer).

    A criterion that needs gradients is told by ``fisher`` what the loss feels. Layers that are in the
    ``cache`` are not measured again.
    """
    sizes = dimensions_of(model)
    stream = Stream(Blocks(model, tokens.batches(batch)))
    worth: dict[str, list[Floats]] = {"groups": [], "ffn": []}
    for number in range(sizes.depth):
        progress(f"weighing units by {criterion}", number, sizes.depth)
        row = cache.get(f"layer-{number}")
        if row is None:
            stream.before(number)
            roots = [] if fisher is None else [{role: fisher.root(number, role) for role in OUTPUT_ROLES}]
            statistics = CRITERIA[criterion](sizes, _summed(stream.blocks, number), *roots)
            row = _measured(stream, number, statistics)
            cache.put(f"layer-{number}", row)
        for kind, layers in worth.items():
            layers.append(row[kind])
    return worth


def _summed(blocks: Blocks, number: int) -> StockLayer:
    """Return a layer where sums are held."""
    layer, sums = blocks.layer(number), blocks.compute.sums
    if sums == blocks.device:
        return layer
    return layer_of(places_of(blocks.model), copy.deepcopy(layer.module).to(sums))


def _measured(stream: Stream, number: int, statistics: UnitStatistics) -> Arrays:
    for i, hidden, seen in stream.through(number, writers):
        mask = stream.blocks.batches[i].get("attention_mask")  # (b, t)
        rows = torch.ones_like(hidden[..., 0]).bool() if mask is None else mask.bool()
        heads, neurons = (seen.inputs[role][rows].to(stream.blocks.compute.sums) for role in OUTPUT_ROLES)
        statistics.add(heads, neurons)
    groups, ffn = statistics.importance()
    return {"groups": groups, "ffn": ffn}
