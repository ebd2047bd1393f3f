"""Keys and values that later layers read of earlier ones, as a part of the states between layers (gemma4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

ARGUMENT: Final = "shared_kv_states"
"""What such layers are called with: by the kind of attention, keys and values (b, heads, t, head size)."""
Shared = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SharedKeys:
    """The heads and the head size of what is shared, by the kind of attention; most models share nothing.

    Behind the hidden state of each token (d,) lie its keys and values of each kind, or zeros before the layer
    that makes them. So whatever is done to states, on disk, side by side, or back with gradients, is done to
    these too.
    """

    heads: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, layers: nn.ModuleList) -> SharedKeys:
        heads: dict[str, tuple[int, int]] = {}
        for layer in layers:
            attention: Any = getattr(layer, "self_attn", None)
            if getattr(attention, "store_full_length_kv", False):
                size = int(attention.head_dim)
                heads[attention.layer_type] = (attention.k_proj.out_features // size, size)
        return cls(heads)

    @property
    def width(self) -> int:
        """Return the number of values after the hidden state of a token."""
        return sum(2 * heads * size for heads, size in self.heads.values())

    def behind(self, hidden: Tensor) -> Tensor:
        """Return the states (b, t, d + width) of hidden states (b, t, d), where nothing is shared yet."""
        if not self.heads:
            return hidden
        return torch.cat([hidden, hidden.new_zeros(*hidden.shape[:-1], self.width)], -1)

    def alone(self, states: Tensor) -> Tensor:
        """Return the hidden states (b, t, d) of states (b, t, d + width)."""
        return states[..., : states.shape[-1] - self.width]

    def shared(self, states: Tensor) -> Shared:
        """Return the keys and values of states, as layers are called with them."""
        kinds: Shared = {}
        start = states.shape[-1] - self.width
        for kind, (heads, size) in self.heads.items():
            both = []
            for _ in range(2):
                part = states[..., start : start + heads * size]
                both.append(part.reshape(*part.shape[:-1], heads, size).transpose(1, 2))  # (b, h, t, e)
                start += heads * size
            kinds[kind] = (both[0], both[1])
        return kinds

    def together(self, hidden: Tensor, shared: Shared) -> Tensor:
        """Return states of hidden states and of what is shared behind a layer."""
        parts = [x.transpose(1, 2).flatten(2) for kind in self.heads for x in shared[kind]]
        return torch.cat([hidden, *(x.to(hidden.dtype) for x in parts)], -1)
