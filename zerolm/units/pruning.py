"""The carved network in memory: a copy of the loaded parent, or one sliced layer at a time (torch)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from zerolm.families.config import sizes_of
from zerolm.families.kinds import by_number, kinds_of
from zerolm.families.known import family_named
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import compute_of
from zerolm.networks.mapped import in_memory, released
from zerolm.networks.roles import (
    StockLayer,
    as_stored,
    bias,
    keep_along,
    layer_list,
    layer_of,
    matrix,
    places_of,
    set_matrix,
)
from zerolm.networks.states import HiddenStates
from zerolm.networks.stream import Stream
from zerolm.units.kept_units import Cut, Dimensions, LayerCut, dimensions_in
from zerolm.units.ridges import Place, Ridges
from zerolm.units.stream.in_memory import entered, maps_of, narrow_ends, narrow_layer, narrow_output
from zerolm.units.stream.narrowing import WRITERS


@dataclass(frozen=True, eq=False)
class Repaired:
    """Output matrices of a carved network, cut to the kept columns and oriented as the parent stores them.

    ``arrays`` holds ``o`` and ``down`` (d, k), GPT-2's (k, d), and their biases (d,) where the parent has
    them. With a narrower stream it also holds, by norm, the factor of the matrices behind that norm (parent's
    d, child's d). ``ridges`` are those of each refitted matrix. ``note`` states any deviation from what was
    requested.
    """

    arrays: dict[Place, NDArray[np.float32]] = field(default_factory=dict)
    ridges: dict[Place, Ridges] = field(default_factory=dict)
    note: str = ""

    def named(self, name: Callable[[str, int], str | None]) -> dict[str, NDArray[np.float32]]:
        """Return output matrices by the parent's tensor names, which ``name(role, layer)`` returns."""
        return {
            name(role, layer) or f"{role} of layer {layer}": x
            for (layer, role), x in self.arrays.items()
            if role in WRITERS
        }


def dimensions_of(model: PreTrainedModel) -> Dimensions:
    """Return the sizes of a loaded model that a cut refers to."""
    family = family_named(str(model.config.model_type))
    return dimensions_in(sizes_of(family, model.config.to_dict()))


def slice_layer(layer: StockLayer, cut: Cut, kept: LayerCut) -> None:
    """Keep only these KV groups and neurons of a layer, in place."""
    for name, labels in labelled(layer, cut.parent).items():
        for axis, label in enumerate(labels):
            if (indices := cut.kept(kept, label)) is not None:
                keep_along(layer.module, name, axis, indices)
    lengths = {label: cut.parent.length(label, kept.sizes) for label in ("q", "kv")}
    layer.resize(lengths | cut.parent.counts(kept.sizes))


def labelled(layer: StockLayer, parent: Dimensions) -> dict[str, tuple[str, ...]]:
    """Return the labels of the axes of a whole layer's parameters, by name, for those that have labels."""
    axes: dict[str, tuple[str, ...]] = {}
    for name, parameter in layer.module.named_parameters():
        for labels in layer.axes.get(name, ()):
            lengths = (parent.length(label, parent.units) for label in labels)
            if all(length in (0, size) for length, size in zip(lengths, parameter.shape, strict=True)):
                axes[name] = labels
                break
    return axes


def carved_layer(
    model: PreTrainedModel, cut: Cut, kept: LayerCut, repaired: Repaired | None = None
) -> StockLayer:
    """Return a sliced copy of one of the model's layers in its compute dtype, with its repaired matrices."""
    layer = layer_of(places_of(model), in_memory(layer_list(model)[kept.layer]))
    arrays = repaired.arrays if repaired else {}
    slice_layer(layer, cut, kept)
    if cut.narrowing:
        narrow_layer(model, layer.module, kept.layer, maps_of(model, cut.narrowing, arrays))
    layer = _placed(model, layer, kept)
    put_repaired(layer, kept.layer, arrays)
    return layer


def _placed(model: PreTrainedModel, layer: StockLayer, kept: LayerCut) -> StockLayer:
    """Return a changed copy of a layer in the model's compute dtype; the layer itself leaves memory."""
    module = compute_of(model).placed(layer.module, layer.module.parameters(), wide=False)
    released(layer_list(model)[kept.layer].parameters())
    return layer_of(places_of(model), module)


def masked_layer(
    model: PreTrainedModel, cut: Cut, kept: LayerCut, repaired: Repaired | None = None
) -> StockLayer:
    """Return a copy of one of the model's layers, not sliced, whose output matrices ignore the removed units.

    It computes the same as the carved layer. Without slicing it does not depend on the order of a matrix's
    rows or of fused matrices.
    """
    arrays = repaired.arrays if repaired else {}
    layer = layer_of(places_of(model), in_memory(layer_list(model)[kept.layer]))
    axes = labelled(layer, cut.parent)
    for role, module in layer.writers.items():
        path = next(name for name, each in layer.module.named_modules() if each is module)
        labels = axes[f"{path}.weight"]
        kept_inputs = next(x for label in labels if (x := cut.kept(kept, label)) is not None)
        index, weight, offset = torch.as_tensor(kept_inputs), matrix(module), bias(module)
        new, shift = arrays.get((kept.layer, role)), arrays.get((kept.layer, f"{role}_bias"))
        masked = torch.zeros_like(weight)
        kept_columns = weight[:, index] if new is None else as_stored(module, torch.from_numpy(new))
        masked[:, index] = kept_columns.to(weight)
        set_matrix(module, masked, offset if shift is None else torch.from_numpy(shift))
    return _placed(model, layer, kept)


def put_repaired(layer: StockLayer, number: int, arrays: Mapping[Place, NDArray[np.float32]]) -> None:
    """Put the repaired matrices of the parent's layer ``number`` into the sliced layer."""
    for role, module in layer.writers.items():
        for name, tensor in (("weight", role), ("bias", f"{role}_bias")):
            if (number, tensor) in arrays:
                module.get_parameter(name).data.copy_(torch.from_numpy(arrays[number, tensor]))


class CarvedNetwork:
    """A carved network on the batches of its parent's ``blocks``, one of its layers in memory at a time."""

    def __init__(self, blocks: Blocks, cut: Cut, repaired: Repaired | None = None) -> None:
        self.blocks, self.cut, self.repaired = blocks, cut, repaired or Repaired()
        self.kept = {kept.layer: kept for kept in cut.layers}

    def embed(self, index: int) -> Tensor:
        """Return the input of the first layer for a batch, (b, t, k)."""
        hidden = self.blocks.embed(index)
        return entered(self.cut.narrowing, hidden) if self.cut.narrowing else hidden

    def layer(self, number: int) -> StockLayer:
        """Return the carved layer with a number of the parent."""
        return carved_layer(self.blocks.model, self.cut, self.kept[number], self.repaired)

    def module(self, number: int) -> nn.Module:
        """Return the module in the place of a layer of the parent."""
        return self.layer(number).module if number in self.kept else Absent()

    def states(self) -> HiddenStates:
        """Return the states behind the last layer for all batches, (b, t, k) each."""
        return Stream(self.blocks, self.module, self.embed).before(self.cut.parent.depth)

    def finish(self, index: int, hidden: Tensor) -> Any:
        """Return the output for a batch from the states behind the last layer."""
        narrowing = self.cut.narrowing
        if narrowing is None:
            return self.blocks.finish(index, hidden)
        maps = maps_of(self.blocks.model, narrowing, self.repaired.arrays)
        return narrow_output(self.blocks, index, hidden, maps)


class Absent(nn.Module):
    """Replaces a layer that was removed."""

    def forward(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        return hidden


def apply_in_memory(model: PreTrainedModel, cut: Cut, repaired: Repaired | None = None) -> PreTrainedModel:
    """Return a copy of the parent with only the units that the cut keeps, and with the repaired matrices.

    Widths may differ between layers, so the configuration keeps the parent's. Its number and lists of layers
    are updated.
    """
    child, arrays = copy.deepcopy(model), repaired.arrays if repaired else {}
    layers = layer_list(child)
    maps = maps_of(model, cut.narrowing, arrays) if cut.narrowing else None
    for place, kept in enumerate(cut.layers):
        layer = layer_of(places_of(child), layers[kept.layer])
        slice_layer(layer, cut, kept)
        if maps:
            narrow_layer(model, layer.module, kept.layer, maps)
        for module in layer.module.modules():
            if "layer_idx" in module.__dict__:
                module.__dict__["layer_idx"] = place
        put_repaired(layer, kept.layer, arrays)
    if maps:
        narrow_ends(child, model, maps)
    wanted = [kept.layer for kept in cut.layers]
    for index in reversed(range(len(layers))):
        if index not in wanted:
            del layers[index]
    list_layers(child.config, wanted)
    return child


def list_layers(config: PreTrainedConfig, wanted: Sequence[int]) -> None:
    """Restrict the layers that a configuration counts and lists to the ``wanted`` ones, in place."""
    family = family_named(str(config.model_type))
    kinds = kinds_of(family, config.to_dict(), int(config.num_hidden_layers))
    config.num_hidden_layers = len(wanted)
    for choice in family.config.kinds:
        for name, value in by_number(choice, [kinds[index] for index in wanted]).items():
            setattr(config, name, value)
    listed = {"layer_types", *(choice.field for choice in family.config.kinds if choice.field)}
    for name in listed & config.__dict__.keys():  # no property derived from the others
        values = config.__dict__[name]
        config.__dict__[name] = None if values is None else [values[index] for index in wanted]
