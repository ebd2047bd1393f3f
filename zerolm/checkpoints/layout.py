"""What each tensor of a concrete checkpoint is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerolm.checkpoints.families import Family
from zerolm.checkpoints.tensors import TensorInfo


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor: its layer (None outside the layers), its role, its axes by label.

    Roles in a layer: ``q k v o`` (``qkv`` where fused), ``gate up down``, each with ``_bias``, ``q_norm
    k_norm``, ``attention_norm ffn_norm`` (before), ``attention_post_norm ffn_post_norm`` (after), each with
    ``_bias``. Outside: ``embedding positions types embedding_norm final_norm head`` ...

    Axes: ``q`` (heads x head size), ``kv``, ``qkv``, ``ffn``, ``hidden``, ``head`` (one head's size), ``vocab``,
    ``positions``, ``types``, ``labels``. ``transposed``: stored as (inputs, outputs).
    """

    layer: int | None
    role: str
    axes: tuple[str, ...]
    transposed: bool = False


@dataclass(frozen=True)
class Layout:
    """The sizes of a checkpoint and the place of each of its tensors.

    ``gated``: the FFN has a gate beside ``up``. ``tied``: the head is the embedding (and not stored, or ignored).
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
    slots: dict[str, Slot]

    @classmethod
    def of(cls, family: Family, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> Layout:
        """Place all tensors; ``ValueError`` names the first that is missing, misshapen or not known."""
        raise NotImplementedError

    def name(self, role: str, layer: int | None = None) -> str | None:
        """The tensor in this place, None where the checkpoint has none."""
        raise NotImplementedError

    def layer(self, layer: int) -> dict[str, str]:
        """The tensors of one layer by role."""
        raise NotImplementedError

    def size(self, label: str) -> int | None:
        """How long an axis with this label is; None where it is free (``labels``)."""
        raise NotImplementedError

    def fused(self) -> dict[str, slice]:
        """Where ``q``, ``k`` and ``v`` lie along an axis ``qkv``."""
        raise NotImplementedError
