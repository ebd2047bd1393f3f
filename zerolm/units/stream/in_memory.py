"""The stream of a loaded network: its basis, and the layers and ends of a narrower one (torch)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.families.known import family_named
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import final_norm, layer_list, norm_gain
from zerolm.passes.fisher import Fisher
from zerolm.units.stream.maps import StreamMaps, Values
from zerolm.units.stream.narrowing import Basis, Narrowing, energies, ordered_basis

WIDTHS: Final = {"hidden_dim", "hidden_size", "input_size"}
"""Attributes of stock routers and experts that hold the width of the stream."""


def loss_basis(model: PreTrainedModel, fisher: Fisher) -> Basis:
    """Return the basis with the least loss increase from removed directions, to second order.

    At every norm the removed part of the normalised stream is weighted by the Fisher information there.
    Second moments and Fisher information are both summed over all norms.
    """
    gain = norm_gain(model, "final_norm", None).double().cpu().numpy()
    energy, metric, moments = (fisher.stream[name] for name in ("energy", "metric", "last"))
    vectors = ordered_basis(energy, metric)
    return Basis("loss", vectors, energies(vectors, energy), moments / np.trace(moments), gain)


def maps_of(
    model: PreTrainedModel, narrowing: Narrowing, arrays: Mapping[tuple[int, str], NDArray[np.float32]]
) -> StreamMaps:
    """Return the maps for the tensors of a loaded parent; ``arrays`` holds the fitted ones."""
    family = family_named(str(model.config.model_type))
    return StreamMaps(narrowing, len(layer_list(model)), partial(_gain, model), arrays, family)


def _gain(model: PreTrainedModel, norm: str, layer: int | None) -> Values:
    return norm_gain(model, norm, layer).cpu().numpy()


def narrow_layer(model: PreTrainedModel, module: nn.Module, number: int, maps: StreamMaps) -> None:
    """Narrow a layer of the parent, which may be cut already, in place, rounded to its dtype."""
    patterns = family_named(str(model.config.model_type)).tensors.body
    inside = {p.parameter.partition(".{layer}.")[2]: p for p in patterns if p.in_layer}
    for name, parameter in list(module.named_parameters()):
        if "hidden" in inside[name].axes:
            role, turned = inside[name].role, inside[name].transposed
            put(module, name, _narrowed(parameter, role, number, maps, turned=turned))
    set_width(module, maps.narrowing)


def set_width(module: nn.Module, narrowing: Narrowing) -> None:
    """Set the child's stream width in the modules of a layer of the parent, in place."""
    parent, width = narrowing.basis.shape
    for part in module.modules():
        for name in WIDTHS & part.__dict__.keys():
            part.__dict__[name] = width if part.__dict__[name] == parent else part.__dict__[name]


def _narrowed(
    parameter: Tensor, role: str, layer: int | None, maps: StreamMaps, *, turned: bool = False
) -> Tensor:
    values = maps.whole(role, layer, parameter.detach().float().cpu().numpy(), "F32", turned=turned)
    return torch.from_numpy(values).to(parameter)


def put(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a parameter of a module by one of any size."""
    place, _, leaf = name.rpartition(".")
    owner = module.get_submodule(place)
    setattr(owner, leaf, nn.Parameter(value.contiguous(), requires_grad=False))
    if isinstance(owner, nn.Linear) and leaf == "weight":
        owner.out_features, owner.in_features = value.shape
    if isinstance(owner, nn.Embedding):
        owner.embedding_dim = value.shape[1]


def narrow_ends(child: PreTrainedModel, parent: PreTrainedModel, maps: StreamMaps) -> None:
    """Replace embedding, last norm and head in a copy of the parent by those of a narrower stream."""
    embedding: Any = parent.get_input_embeddings()
    head: Any = parent.get_output_embeddings()  # type: ignore[no-untyped-call]
    put(child.get_input_embeddings(), "weight", _narrowed(embedding.weight, "embedding", None, maps))
    if maps.family.tensors.factors.rooted:
        for scale in child.get_input_embeddings().buffers():
            scale.fill_(maps.narrowing.width.hidden**0.5)
    put(final_norm(child), "weight", _narrowed(final_norm(parent).weight, "final_norm", None, maps))  # type: ignore[arg-type]
    width = maps.narrowing.width
    child_head: Any = child.get_output_embeddings()  # type: ignore[no-untyped-call]
    if width.tied:
        child_head.weight = child.get_input_embeddings().weight
        child_head.in_features = width.hidden
    else:
        put(child_head, "weight", _narrowed(head.weight, "head", None, maps))
    child.config.hidden_size = width.hidden
    child.config.tie_word_embeddings = width.tied


def entered(narrowing: Narrowing, hidden: Tensor) -> Tensor:
    """Return the input of the child's first layer, (b, t, k), from that of the parent's, (b, t, d)."""
    return hidden @ torch.from_numpy(narrowing.embedding).to(hidden)


def narrow_output(blocks: Blocks, index: int, hidden: Tensor, maps: StreamMaps) -> Any:
    """Return the output of a model with a narrower stream from the states behind its last layer, (b, t, k).

    No head is built for the child: its input is mapped to that of the parent's head, which is applied.
    """
    narrowing = maps.narrowing
    norm = copy.deepcopy(final_norm(blocks.model)).float()
    gain = narrowing.final_gain
    size = hidden.shape[-1]
    wanted = torch.ones(size) if gain is None else torch.from_numpy(gain).float()
    put(norm, "weight", wanted - maps.family.tensors.factors.shift)
    behind = maps.input_map("final_norm", None) if gain is None else narrowing.embedding
    with torch.no_grad():
        read = norm.to(hidden.device)(hidden) @ torch.from_numpy(behind.astype(np.float32)).to(hidden).T
    return blocks.head(index, read)
