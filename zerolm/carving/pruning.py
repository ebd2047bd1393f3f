"""The carved network in memory: a copy of the loaded parent whose modules are really sliced (torch)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.carving.kept_units import Cut, Dimensions, LayerCut
from zerolm.carving.width.in_memory import entered, maps_of, narrow_ends, narrow_layer, narrow_output
from zerolm.carving.width.narrowing import WRITERS
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import compute_of
from zerolm.networks.mapped import released
from zerolm.networks.roles import (
    StockLayer,
    as_stored,
    bias,
    keep_inputs,
    keep_outputs,
    layer_list,
    layer_of,
    layers_of,
    matrix,
    places_of,
    set_matrix,
)

Place = tuple[int, str]
"""A layer of the parent and a role of the layout: ``o``, ``o_bias``, ``down`` or ``down_bias``.

Of a narrower stream also ``attention_norm``, ``ffn_norm`` and, with the number of layers, ``final_norm``.
"""


@dataclass(frozen=True, eq=False)
class Repaired:
    """Output matrices of a carved network, cut to the kept columns and oriented as the parent stores them.

    ``arrays`` holds ``o`` and ``down`` (d, k), GPT-2's (k, d), and their biases (d,) where the parent has
    them; and for a narrower stream, by their norms, what the matrices that read it are multiplied by
    (parent's d, child's d). ``ridges`` are shares of the mean diagonal. ``note`` says what was done other
    than asked.
    """

    arrays: dict[Place, NDArray[np.float32]] = field(default_factory=dict)
    ridges: dict[Place, float] = field(default_factory=dict)
    note: str = ""

    def named(self, name: Callable[[str, int], str | None]) -> dict[str, NDArray[np.float32]]:
        """Return output matrices by the parent's names of tensors, which ``name(role, layer)`` gives."""
        return {
            name(role, layer) or f"{role} of layer {layer}": x
            for (layer, role), x in self.arrays.items()
            if role in WRITERS
        }


def dimensions_of(model: PreTrainedModel) -> Dimensions:
    """Return the sizes of a loaded model that a cut refers to."""
    config, first = model.config, layers_of(model)[0]
    hidden, inner = matrix(first.attention_out).shape  # d, heads x head size
    heads = int(config.num_attention_heads)
    return Dimensions(
        depth=int(config.num_hidden_layers),
        hidden=hidden,
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_size=inner // heads,
        ffn=matrix(first.ffn_out).shape[1],
    )


def slice_layer(layer: StockLayer, cut: Cut, kept: LayerCut) -> None:
    """Keep these KV groups and neurons of a layer, in place."""
    indices = {label: cut.kept(kept, label) for label in {"q", "kv", "ffn", *layer.axes}}
    index = {label: torch.as_tensor(x) for label, x in indices.items() if x is not None}
    for module, label in zip((*layer.attention_in, *layer.ffn_in), layer.axes, strict=True):
        keep_outputs(module, index[label])
    keep_inputs(layer.attention_out, index["q"])
    keep_inputs(layer.ffn_out, index["ffn"])
    groups = len(kept.groups)
    heads = groups * cut.parent.heads_per_group
    layer.resize({"q": len(index["q"]), "kv": len(index["kv"]), "heads": heads, "kv_heads": groups})


def carved_layer(
    model: PreTrainedModel, cut: Cut, kept: LayerCut, repaired: Repaired | None = None
) -> StockLayer:
    """Return a copy of one of the model's layers, sliced, as it is computed, with what is repaired of it."""
    layer = layer_of(places_of(model), copy.deepcopy(layer_list(model)[kept.layer]))
    arrays = repaired.arrays if repaired else {}
    slice_layer(layer, cut, kept)
    if cut.narrowing:
        narrow_layer(model, layer.module, kept.layer, maps_of(model, cut.narrowing, arrays))
    module = compute_of(model).placed(layer.module, layer.module.parameters(), wide=False)
    released(layer_list(model)[kept.layer].parameters())
    layer = layer_of(places_of(model), module)
    put_repaired(layer, kept.layer, arrays)
    return layer


def masked_layer(
    model: PreTrainedModel, cut: Cut, kept: LayerCut, repaired: Repaired | None = None
) -> StockLayer:
    """Return a copy of one of the model's layers, whole, whose output matrices do not read what is cut.

    It computes what the carved layer does, and nothing of it was sliced: where the rows of a query or a
    neuron lie, and in what order matrices are fused, is not asked.
    """
    arrays = repaired.arrays if repaired else {}
    layer = layer_of(places_of(model), copy.deepcopy(layer_list(model)[kept.layer]))
    for role, module, label in (("o", layer.attention_out, "q"), ("down", layer.ffn_out, "ffn")):
        index, weight, offset = torch.as_tensor(cut.kept(kept, label)), matrix(module), bias(module)
        new, shift = arrays.get((kept.layer, role)), arrays.get((kept.layer, f"{role}_bias"))
        masked = torch.zeros_like(weight)
        kept_columns = weight[:, index] if new is None else as_stored(module, torch.from_numpy(new))
        masked[:, index] = kept_columns.to(weight)
        set_matrix(module, masked, offset if shift is None else torch.from_numpy(shift))
    module = compute_of(model).placed(layer.module, layer.module.parameters(), wide=False)
    released(layer_list(model)[kept.layer].parameters())
    return layer_of(places_of(model), module)


def put_repaired(layer: StockLayer, number: int, arrays: Mapping[Place, NDArray[np.float32]]) -> None:
    """Put the repaired matrices of the parent's layer ``number`` into the sliced layer."""
    for role, module in (("o", layer.attention_out), ("down", layer.ffn_out)):
        for name, tensor in (("weight", role), ("bias", f"{role}_bias")):
            if (number, tensor) in arrays:
                module.get_parameter(name).data.copy_(torch.from_numpy(arrays[number, tensor]))


def enter(cut: Cut, hidden: Tensor) -> Tensor:
    """Return what the first layer of a carved network gets where the parent's gets this, (b, t, d)."""
    return entered(cut.narrowing, hidden) if cut.narrowing else hidden


def finish(
    blocks: Blocks, index: int, hidden: Tensor, cut: Cut, arrays: Mapping[Place, NDArray[np.float32]]
) -> Any:
    """Return the output of a carved network for a batch whose last layer left these states."""
    if cut.narrowing is None:
        return blocks.finish(index, hidden)
    return narrow_output(blocks, index, hidden, maps_of(blocks.model, cut.narrowing, arrays))


def apply_in_memory(model: PreTrainedModel, cut: Cut, repaired: Repaired | None = None) -> PreTrainedModel:
    """Return a copy of the parent that keeps what the cut keeps, with the repaired matrices in it.

    Widths may differ from layer to layer: the configuration keeps the parent's; its layers are counted and
    listed anew.
    """
    child, arrays = copy.deepcopy(model), repaired.arrays if repaired else {}
    layers = layer_list(child)
    maps = maps_of(model, cut.narrowing, arrays) if cut.narrowing else None
    for place, kept in enumerate(cut.layers):
        layer = layer_of(places_of(child), layers[kept.layer])
        slice_layer(layer, cut, kept)
        if maps:
            narrow_layer(model, layer.module, kept.layer, maps)
        layer.attention.__dict__["layer_idx"] = place
        put_repaired(layer, kept.layer, arrays)
    if maps:
        narrow_ends(child, model, maps)
    wanted = [kept.layer for kept in cut.layers]
    for index in reversed(range(len(layers))):
        if index not in wanted:
            del layers[index]
    kinds = getattr(child.config, "layer_types", None)
    child.config.num_hidden_layers = len(wanted)
    if kinds is not None:
        child.config.layer_types = [kinds[index] for index in wanted]
    return child
