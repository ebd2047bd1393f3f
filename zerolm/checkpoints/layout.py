"""What each tensor of a concrete checkpoint is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from zerolm.checkpoints.headers import FLOATS, TensorInfo
from zerolm.families.family import Family

SIZES: Final = ("depth", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocab")


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor: its layer (None outside the layers), its role, its axes by label.

    Roles in a layer: ``q k v o`` (``qkv`` where fused), ``gate up down``, each with ``_bias``; ``q_norm
    k_norm``; ``attention_norm ffn_norm`` (before), ``attention_post_norm ffn_post_norm`` (after), each with
    ``_bias``. Outside: ``embedding positions types embedding_norm final_norm head pooler classifier`` ...

    Axes: ``q`` (heads x head size), ``kv``, ``qkv``, ``ffn``, ``hidden``, ``head`` (the size of one head),
    ``vocab``, ``positions``, ``types``, ``labels``. ``transposed``: stored as (inputs, outputs).
    """

    layer: int | None
    role: str
    axes: tuple[str, ...]
    transposed: bool = False


@dataclass(frozen=True)
class Layout:
    """The sizes of a checkpoint and the place of each of its tensors.

    ``gated``: the FFN has a gate beside ``up``. ``tied``: the head is the embedding; what is stored as
    ``head`` beside it is then not used.
    """

    depth: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    gated: bool
    tied: bool
    sizes: dict[str, int]  # the length of each axis by its label, but of free ones (labels)
    slots: dict[str, Slot]

    @classmethod
    def of(cls, family: Family, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> Layout:
        """Place all tensors; ``ValueError`` names the first that is missing, misshapen or not known."""
        given = {label: family.size(config, label) for label in SIZES}
        if given["heads"] % given["kv_heads"]:
            raise ValueError(f"{given['heads']} heads are not divisible by {given['kv_heads']} KV heads")
        axes = _axes(family, config, given)
        slots = dict(_placed(family, config, tensors, given["depth"]))
        for name, slot in slots.items():
            _check(tensors[name], slot, axes)
        for name in tensors:
            if name not in slots and not any(fnmatchcase(name, pattern) for pattern in family.ignored):
                raise ValueError(f"tensor {name!r} is none of a {family.name} model with this configuration")
        return cls(**given, gated=family.gated, tied=family.is_tied(config), sizes=axes, slots=slots)

    def name(self, role: str, layer: int | None = None) -> str | None:
        """The tensor in this place, None where the checkpoint has none."""
        return self._places.get(layer, {}).get(role)

    def layer(self, layer: int | None) -> dict[str, str]:
        """The tensors of one layer by role; with None, those outside the layers."""
        return dict(self._places.get(layer, {}))

    def fused(self) -> dict[str, slice]:
        """Where ``q``, ``k`` and ``v`` lie along an axis ``qkv``."""
        q, kv = self.sizes["q"], self.sizes["kv"]
        return {"q": slice(0, q), "k": slice(q, q + kv), "v": slice(q + kv, q + 2 * kv)}

    @cached_property
    def _places(self) -> dict[int | None, dict[str, str]]:
        places: dict[int | None, dict[str, str]] = {}
        for name, slot in self.slots.items():
            places.setdefault(slot.layer, {})[slot.role] = name
        return places


def _axes(family: Family, config: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, int]:
    q, kv = (given[heads] * given["head_size"] for heads in ("heads", "kv_heads"))
    axes = {"q": q, "kv": kv, "q+kv+kv": q + 2 * kv, "head": given["head_size"]}
    axes |= {label: given[label] for label in ("ffn", "hidden", "vocab")}
    used = {label for pattern in family.body for label in pattern.axes}
    return axes | {label: family.size(config, label) for label in ("positions", "types") if label in used}


def _placed(
    family: Family, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo], depth: int
) -> Iterator[tuple[str, Slot]]:
    """The tensors by name, with their slots, from the first layer to the last."""
    first = family.body[0].name
    prefix = next((p for p in family.prefixes if p + first in tensors), family.prefixes[0])
    outside = [(prefix + p.name, p) for p in family.body if not p.in_layer]
    outside += [(p.name, p) for p in family.head]
    inside = [(prefix + p.name, p) for p in family.body if p.in_layer]
    for layer in (None, *range(depth)):
        for template, pattern in outside if layer is None else inside:
            name = _present(template.replace("{layer}", str(layer)), family, tensors)
            required = family.is_required(pattern, config)
            if required and name not in tensors:
                raise ValueError(f"tensor {name!r} is missing")
            if name in tensors and (required or pattern.when in ("optional", "untied")):
                yield name, Slot(layer, pattern.role, pattern.axes, pattern.transposed)


def _present(name: str, family: Family, tensors: Mapping[str, TensorInfo]) -> str:
    """The name, or an older one under which the tensor is stored."""
    for new, old in family.aliases.items():
        if name not in tensors and name.endswith(new) and name.removesuffix(new) + old in tensors:
            return name.removesuffix(new) + old
    return name


def _check(tensor: TensorInfo, slot: Slot, axes: Mapping[str, int]) -> None:
    if tensor.dtype not in FLOATS:
        raise ValueError(
            f"tensor {tensor.name!r} is {tensor.dtype}; read are {', '.join(FLOATS)}, nothing quantised"
        )
    wanted = [axes.get(label) for label in slot.axes]
    fits = len(tensor.shape) == len(wanted) and all(
        size in (None, found) for size, found in zip(wanted, tensor.shape, strict=True)
    )
    if not fits:
        meant = " x ".join(f"{axes.get(label, 'any')} ({label})" for label in slot.axes)
        raise ValueError(
            f"tensor {tensor.name!r} has shape {list(tensor.shape)}, the configuration says {meant}"
        )
