"""What the modules of a Hugging Face model do: attention in and out, FFN in and out, in every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from zerolm.families.family import Family, families

Norm = Literal["pre", "post", "sandwich"]


@dataclass(frozen=True)
class Names:
    """Where a family keeps its modules: the layers below the base model, the others below a layer."""

    layers: str
    attention: str
    attention_in: tuple[str, ...]
    attention_out: str
    ffn_in: tuple[str, ...]
    ffn_out: str
    norm: Norm

    @classmethod
    def of(cls, family: Family) -> Names:
        """By the names of the family's tensors."""
        modules = {p.role: p.name.removesuffix(".weight") for p in family.body if p.in_layer}
        layers = modules["o"].partition(".{layer}.")[0]
        inside = {role: name.removeprefix(layers + ".{layer}.") for role, name in modules.items()}
        projections = tuple(inside[role] for role in ("q", "k", "v", "q+k+v") if role in inside)
        return cls(
            layers=layers,
            attention=projections[0].rpartition(".")[0],
            attention_in=projections,
            attention_out=inside["o"],
            ffn_in=tuple(inside[role] for role in ("gate", "up") if role in inside),
            ffn_out=inside["down"],
            norm=family.norm,
        )


@dataclass(frozen=True)
class Layer:
    """One layer and its modules by what they do.

    ``attention_in`` are q, k and v, or one fused module whose outputs lie in this order. ``ffn_in`` are gate
    and up, or the one module. ``attention_out`` reads the heads' outputs, ``ffn_out`` the neurons'.
    ``norm`` is where the norms stand: before each sub-block (``pre``), after its sum with what it was given
    (``post``), or before it and on its output (``sandwich``).
    """

    module: nn.Module
    attention: nn.Module
    attention_in: tuple[nn.Module, ...]
    attention_out: nn.Module
    ffn_in: tuple[nn.Module, ...]
    ffn_out: nn.Module
    norm: Norm

    @property
    def fused(self) -> bool:
        return len(self.attention_in) == 1


def names_of(model: PreTrainedModel) -> Names:
    """The names of a model's family; ``ValueError`` says which families there are."""
    return _names(str(model.config.model_type))


@cache
def _names(kind: str) -> Names:
    known = families()
    if kind not in known:
        raise ValueError(f"the modules of model_type '{kind}' are not known; known are {', '.join(known)}")
    return Names.of(known[kind])


def layer_list(model: PreTrainedModel) -> nn.ModuleList:
    """The list that holds a model's layers."""
    found = model.base_model.get_submodule(names_of(model).layers)
    assert isinstance(found, nn.ModuleList)
    return found


def layers_of(model: PreTrainedModel) -> list[Layer]:
    """The layers of a model, in order."""
    names = names_of(model)
    return [layer_of(names, module) for module in layer_list(model)]


def layer_of(names: Names, module: nn.Module) -> Layer:
    """One layer, also one that stands outside its model."""
    get = module.get_submodule
    return Layer(
        module=module,
        attention=get(names.attention),
        attention_in=tuple(get(name) for name in names.attention_in),
        attention_out=get(names.attention_out),
        ffn_in=tuple(get(name) for name in names.ffn_in),
        ffn_out=get(names.ffn_out),
        norm=names.norm,
    )


def matrix(module: nn.Module) -> Tensor:
    """The weights (outputs, inputs) of a linear module; GPT-2's Conv1D stores them transposed."""
    weight = module.get_parameter("weight").detach()  # (outputs, inputs), Conv1D (inputs, outputs)
    return weight.T if isinstance(module, Conv1D) else weight


def bias(module: nn.Module) -> Tensor | None:
    """The bias (outputs,), or None."""
    found = getattr(module, "bias", None)
    return found.detach() if isinstance(found, Tensor) else None


def set_matrix(module: nn.Module, weight: Tensor, offset: Tensor | None) -> None:
    """Give a linear module these weights (outputs, inputs) and bias (outputs,), of any size."""
    transposed = isinstance(module, Conv1D)
    old = module.get_parameter("weight")
    new = (weight.T if transposed else weight).to(old)  # (outputs, inputs), Conv1D (inputs, outputs)
    module.weight = nn.Parameter(new.contiguous().clone(), requires_grad=False)
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
