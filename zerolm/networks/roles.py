"""The roles of the modules of a stock model: attention in and out, FFN in and out, in every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from zerolm.families.family import Modules, Norm
from zerolm.families.known import family_named


@dataclass(frozen=True)
class StockLayer:
    """One layer and its modules by what they do.

    ``attention_in`` are q, k and v, or fewer modules with fused outputs; ``ffn_in`` are gate and up, or the
    one module. ``axes`` has the axis of the outputs of each of these, first of attention, then of the FFN:
    ``q``, ``kv``, ``ffn``, joined by ``+`` in their order where they are fused; none where the family says
    none. ``attention_out`` reads the heads' outputs, ``ffn_out`` the neurons'. ``norm`` is where the norms
    stand: before each sub-block (``pre``), after its sum with what it was given (``post``), or before it and
    on its output (``sandwich``).
    """

    module: nn.Module
    attention: nn.Module
    attention_in: tuple[nn.Module, ...]
    attention_out: nn.Module
    ffn_in: tuple[nn.Module, ...]
    ffn_out: nn.Module
    axes: tuple[str, ...]
    norm: Norm
    resized: Mapping[str, str]

    @property
    def factor(self) -> float:
        """Return what the outputs of attention and FFN are multiplied by when they join the stream."""
        return float(getattr(self.module, "residual_multiplier", 1.0))

    def resize(self, lengths: Mapping[str, int]) -> None:
        """Tell the attention module its sizes after a cut: ``q``, ``kv``, ``heads``, ``kv_heads``.

        A configuration is the layer's own then.
        """
        for name, label in self.resized.items():
            holder: object = self.attention
            if name.startswith("config."):
                holder = copy(self.attention.config)
                self.attention.__dict__["config"] = holder
            holder.__dict__[name.removeprefix("config.")] = lengths[label]


@dataclass(frozen=True)
class Places:
    """Where the modules of a family are, and where its norms stand."""

    modules: Modules
    norm: Norm


def places_of(model: PreTrainedModel) -> Places:
    """Return the places in a model; ``ValueError`` for a family whose layers are not known."""
    return places_in(str(model.config.model_type))


def places_in(kind: str) -> Places:
    """Return the places in models of this type."""
    family = family_named(kind)
    if family.has_experts:
        raise ValueError(f"{kind} is a mixture of experts, whose layers cannot be run one by one yet")
    return Places(family.modules, family.norm)


def layer_list(model: PreTrainedModel) -> nn.ModuleList:
    """Return the list that holds a model's layers."""
    layers = model.base_model.get_submodule(places_of(model).modules.layers)
    assert isinstance(layers, nn.ModuleList)
    return layers


def layers_of(model: PreTrainedModel) -> list[StockLayer]:
    """Return the layers of a model, in order."""
    places = places_of(model)
    return [layer_of(places, module) for module in layer_list(model)]


def final_norm(model: PreTrainedModel) -> nn.Module:
    """Return the norm that the head reads; ``ValueError`` where it reads the last layer."""
    name = places_of(model).modules.final
    if name is None:
        raise ValueError(f"a {model.config.model_type} has no norm before its head")
    return model.base_model.get_submodule(name)


def norm_gain(model: PreTrainedModel, norm: str, layer: int | None) -> Tensor:
    """Return the gain (d,) of a layer's ``attention_norm`` or ``ffn_norm``, or of ``final_norm``, float32."""
    names = places_of(model).modules
    if layer is None:
        return final_norm(model).get_parameter("weight").detach().float()
    module = names.before if norm == "attention_norm" else names.between
    assert module is not None
    return layer_list(model)[layer].get_submodule(module).get_parameter("weight").detach().float()


def layer_of(places: Places, module: nn.Module) -> StockLayer:
    """Return one layer, also one that stands outside its model."""
    names, get = places.modules, module.get_submodule
    roles = names.projections
    inputs = [role for role in roles if role not in ("o", "down")]
    ffn = [role for role in inputs if role.split("+")[0] in ("gate", "up")]
    attention = [role for role in inputs if role not in ffn]
    return StockLayer(
        module=module,
        attention=get(names.attention),
        attention_in=tuple(get(roles[role]) for role in attention),
        attention_out=get(roles["o"]),
        ffn_in=tuple(get(roles[role]) for role in ffn),
        ffn_out=get(roles["down"]),
        axes=tuple(names.outputs[role] for role in (*attention, *ffn) if role in names.outputs),
        norm=places.norm,
        resized=names.resized,
    )


def matrix(module: nn.Module) -> Tensor:
    """Return the weights (outputs, inputs) of a linear module; GPT-2's Conv1D stores them transposed."""
    return as_stored(module, module.get_parameter("weight").detach())


def as_stored(module: nn.Module, weight: Tensor) -> Tensor:
    """Return a matrix (outputs, inputs) as a linear module stores it, Conv1D as (inputs, outputs)."""
    return weight.T if isinstance(module, Conv1D) else weight


def bias(module: nn.Module) -> Tensor | None:
    """Return the bias (outputs,), or None."""
    offset = getattr(module, "bias", None)
    return offset.detach() if isinstance(offset, Tensor) else None


def set_matrix(module: nn.Module, weight: Tensor, offset: Tensor | None) -> None:
    """Give a linear module these weights (outputs, inputs) and bias (outputs,), of any size."""
    transposed, old = isinstance(module, Conv1D), module.get_parameter("weight")
    module.weight = nn.Parameter(as_stored(module, weight).to(old).contiguous().clone(), requires_grad=False)
    if offset is not None:
        module.bias = nn.Parameter(offset.to(old).contiguous().clone(), requires_grad=False)
    outputs, inputs = weight.shape
    sizes = {"nf": outputs, "nx": inputs} if transposed else {"out_features": outputs, "in_features": inputs}
    for name, size in sizes.items():
        setattr(module, name, size)


def keep_outputs(module: nn.Module, kept: Sequence[int] | Tensor) -> None:
    """Keep these outputs of a linear module."""
    index = torch.as_tensor(kept)
    offset = bias(module)
    set_matrix(module, matrix(module)[index], None if offset is None else offset[index])


def keep_inputs(module: nn.Module, kept: Sequence[int] | Tensor) -> None:
    """Keep these inputs of a linear module."""
    set_matrix(module, matrix(module)[:, torch.as_tensor(kept)], None)
