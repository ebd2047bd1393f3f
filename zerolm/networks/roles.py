"""The roles of the modules of a stock model: attention in and out, FFN in and out, in every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from zerolm.architecture import Ints
from zerolm.families.family import OUTPUT_ROLES, Family, Modules, Norm
from zerolm.families.known import family_named


@dataclass(frozen=True)
class StockLayer:
    """One layer and its modules by what they do.

    ``attention_in`` are q, k and v, or fewer modules with fused outputs; ``ffn_in`` are gate and up, or the
    one module. ``writers`` are the modules by role (``OUTPUT_ROLES``) that write to the stream and can be
    cut: ``o`` reads the heads' outputs, ``down`` the neurons'; one is absent where tokens are mixed by
    something else, or the FFN is an MoE. ``norms`` are that ``before`` attention, that ``between``
    it and the FFN, and those behind both (``behind_o``, ``behind_down``), if any. ``axes`` has by parameter
    the labels of its axes; several where kinds of layers differ. ``norm`` is where the norms stand: before
    each sub-block (``pre``), after its sum with what it was given (``post``), before it and on its output
    (``sandwich``), or on its output alone (``output``).
    """

    module: nn.Module
    attention: nn.Module | None
    attention_in: tuple[nn.Module, ...]
    ffn_in: tuple[nn.Module, ...]
    writers: Mapping[str, nn.Module]
    norms: Mapping[str, nn.Module]
    axes: Mapping[str, tuple[tuple[str, ...], ...]]
    norm: Norm
    resized: Mapping[str, str]

    @property
    def between(self) -> nn.Module | None:
        return self.norms.get("between")

    @property
    def behind(self) -> dict[str, nn.Module]:
        """The norms of what writers send, or of its sum with the stream: ``behind_o`` and ``behind_down``."""
        return {name: norm for name, norm in self.norms.items() if name.startswith("behind_")}

    @property
    def ffn_out(self) -> nn.Module | None:
        return self.writers.get("down")

    def resize(self, lengths: Mapping[str, int]) -> None:
        """Set the sizes of the attention module after a cut: ``q``, ``kv``, ``heads``, ``kv_heads``.

        A configuration is the layer's own then.
        """
        if self.attention is None:
            return
        for name, label in self.resized.items():
            holder: object = self.attention
            if name.startswith("config."):
                holder = copy(self.attention.config)
                self.attention.__dict__["config"] = holder
            holder.__dict__[name.removeprefix("config.")] = lengths[label]


@dataclass(frozen=True)
class Places:
    """Where the modules of a family are, and where its norms stand.

    ``others`` are the modules by role that kinds of layers have in each other's place; ``writers`` those of
    ``OUTPUT_ROLES`` that only some kinds have. ``behind`` are the norms behind writers, by role: the first
    that a layer has. ``varied``: its layers are of several kinds, and lack some of them.
    """

    modules: Modules
    others: Mapping[str, tuple[str, ...]]
    writers: Mapping[str, tuple[str, ...]]
    norm: Norm
    behind: Mapping[str, tuple[str, ...]]
    axes: Mapping[str, tuple[tuple[str, ...], ...]]
    varied: bool


BEHIND_NORMS: Final = ("sandwich", "output")
"""Where norms stand on the outputs of sublayers, so that what is added to the stream is not the output."""
BEHIND: Final = {"o": ("attention_post_norm",), "down": ("dense_post_norm", "ffn_post_norm")}
"""Roles of norms on outputs to the stream; a dense FFN next to experts may have one of its own."""


def places_of(model: PreTrainedModel) -> Places:
    """Return the places in a model; ``ValueError`` for a family whose layers are not known."""
    return places_in(str(model.config.model_type))


def places_in(kind: str) -> Places:
    return _places(family_named(kind))


def _places(family: Family) -> Places:
    axes: dict[str, tuple[tuple[str, ...], ...]] = {}
    others: dict[str, tuple[str, ...]] = {}
    paths: dict[str, str] = {}
    for pattern in family.tensors.body:
        if not pattern.in_layer or "{expert}" in pattern.name:
            continue
        for parameter, labels in pattern.parameters:
            name = parameter.partition(".{layer}.")[2]
            axes[name] = (*axes.get(name, ()), labels)
            paths[pattern.role] = name.removesuffix(".weight")
            if pattern.kinds and not pattern.of_experts:
                others[pattern.role] = (*others.get(pattern.role, ()), name.removesuffix(".weight"))
    varied = bool(family.config.kinds) or family.has_experts
    behind = {role: tuple(paths[norm] for norm in norms if norm in paths) for role, norms in BEHIND.items()}
    apart = [role for role in OUTPUT_ROLES if role in paths and role not in ("o", "down")]
    writers = {role: others.get(role, (paths[role],)) for role in apart}
    return Places(family.modules, others, writers, family.norm, behind, axes, varied)


def body_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model without its head: it has the layers, and its output is the input of the head.

    Some classes are their own base model. Their body is the part that has the embedding.
    """
    base = cast(PreTrainedModel, model.base_model)
    if base is not model or model.get_output_embeddings() is None:  # type: ignore[no-untyped-call]
        return base
    embedding = model.get_input_embeddings()
    parts = (part for part in model.children() if any(module is embedding for module in part.modules()))
    return cast(PreTrainedModel, next(parts))


def body_prefix(model: PreTrainedModel) -> str:
    """Return the prefix of the body's parameters in a model: empty where it is the model."""
    body = body_of(model)
    return "".join(f"{name}." for name, part in model.named_children() if part is body)


def layer_list(model: PreTrainedModel) -> nn.ModuleList:
    """Return the list that holds a model's layers."""
    layers = body_of(model).get_submodule(places_of(model).modules.layers)
    assert isinstance(layers, nn.ModuleList)
    return layers


def layers_of(model: PreTrainedModel) -> list[StockLayer]:
    places = places_of(model)
    return [layer_of(places, module) for module in layer_list(model)]


def final_norm(model: PreTrainedModel) -> nn.Module:
    """Return the norm that the head reads; ``ValueError`` where it reads the last layer."""
    name = places_of(model).modules.final
    if name is None:
        raise ValueError(f"a {model.config.model_type} has no norm before its head")
    return body_of(model).get_submodule(name)


def norm_gain(model: PreTrainedModel, norm: str, layer: int | None) -> Tensor:
    """Return the gains of an ``attention_norm``, ``ffn_norm`` or ``final_norm``, (d,), float32."""
    if layer is None:
        return gain_of(model, final_norm(model))
    names = places_of(model).modules
    module = names.before if norm == "attention_norm" else names.between
    assert module is not None
    return gain_of(model, layer_list(model)[layer].get_submodule(module))


def gain_of(model: PreTrainedModel, norm: nn.Module) -> Tensor:
    """Return the gains of a norm of a model, (d,), float32; some families store them shifted."""
    shift = family_named(str(model.config.model_type)).tensors.factors.shift
    return norm.get_parameter("weight").detach().float() + shift


def residual_factor(model: PreTrainedModel) -> float:
    """Return the factor of all that is added to the stream."""
    field = family_named(str(model.config.model_type)).tensors.factors.residual
    return 1.0 if field is None else float(getattr(model.config, field))


def layer_of(places: Places, module: nn.Module) -> StockLayer:
    """Return one layer, also one that stands outside its model."""
    names, modules = places.modules, dict(module.named_modules())
    possible = {role: (name, *places.others.get(role, ())) for role, name in names.projections.items()}
    possible = {**places.writers, **possible}
    paths = {role: next((n for n in each if n in modules), None) for role, each in possible.items()}
    inside = {role: modules[path] for role, path in paths.items() if path is not None}
    inputs = [role for role in inside if role not in OUTPUT_ROLES]
    ffn = [role for role in inputs if role.split("+")[0] in ("gate", "up") and "down" in inside]
    attention = [role for role in inputs if role.split("+")[0] not in ("gate", "up") and "o" in inside]
    if set(inside) < set(names.projections) and not places.varied:
        lacking = next(name for name in names.projections.values() if name not in modules)
        raise AttributeError(f"{type(module).__name__} has no module {lacking!r}")
    behind = {
        f"behind_{role}": next((n for n in each if n in modules), None)
        for role, each in places.behind.items()
    }
    norms = {"before": names.before, "between": names.between} | behind
    return StockLayer(
        module=module,
        attention=modules.get(names.attention),
        attention_in=tuple(inside[role] for role in attention),
        ffn_in=tuple(inside[role] for role in ffn),
        writers={role: inside[role] for role in OUTPUT_ROLES if role in inside},
        norms={name: modules[path] for name, path in norms.items() if path in modules},
        axes=places.axes,
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


def keep_along(layer: nn.Module, name: str, axis: int, kept: Sequence[int] | Ints) -> None:
    """Keep these indices along an axis of a layer's parameter, and set their number in its module."""
    place, _, leaf = name.rpartition(".")
    module = layer.get_submodule(place)
    values = module.get_parameter(leaf).detach().index_select(axis, torch.as_tensor(kept))
    setattr(module, leaf, nn.Parameter(values.contiguous(), requires_grad=False))
    if leaf == "weight" and values.dim() == 2:
        sizes = ("nx", "nf") if isinstance(module, Conv1D) else ("out_features", "in_features")
        if hasattr(module, sizes[axis]):
            setattr(module, sizes[axis], len(kept))
