"""A path whose heads that repeat each other are fused into wider ones, or cut out (ELM, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.elastic.fusion import THRESHOLD, cka, merged_heads, removed
from zerolm.networks.build import network_function
from zerolm.networks.hooks import watching
from zerolm.networks.modules.elastic import SharedAttention
from zerolm.networks.modules.layer import Stack
from zerolm.spaces import SearchSpace

Fusion = Literal["fuse", "remove"]
FUSIONS: Final[tuple[Fusion, ...]] = ("fuse", "remove")


def attentions(stack: Stack) -> list[SharedAttention]:
    """Return the attention of every layer."""
    parts = (
        next(part for part in layer.modules() if isinstance(part, SharedAttention)) for layer in stack.layers
    )
    return list(parts)


@torch.no_grad()
def similarities(stack: Stack, ids: Tensor, unbiased: bool = False) -> list[Tensor]:
    """Return the CKA (heads, heads) of every layer's heads on sequences (b, t).

    As in the authors' code samples are sequences, all tokens of one in a row; ``unbiased`` estimates from
    tokens, which are more than the features are.
    """
    watched = {str(place): part.context for place, part in enumerate(attentions(stack))}
    with watching(watched) as seen:
        stack.train(False)(ids)
    contexts = [seen.outputs[name] for name in watched]  # (b, heads, t, s) each
    if unbiased:
        return [cka(context.transpose(0, 1).flatten(1, 2), unbiased=True) for context in contexts]
    return [cka(context.transpose(0, 1).flatten(2)) for context in contexts]


def fused(
    space: SearchSpace,
    architecture: Architecture,
    stack: Stack,
    similarity: Sequence[Tensor],
    mode: Fusion = "fuse",
    threshold: float = THRESHOLD,
) -> tuple[Architecture, Stack]:
    """Return the architecture with fewer heads, and its network with the weights that are left.

    ``fuse`` divides the attention's width among the heads that stay: every weight stays. ``remove`` cuts the
    others out of q, k, v and o.
    """
    choices, kept = [], []
    for choice, part, alike in zip(
        architecture.choices["layers"], attentions(stack), similarity, strict=True
    ):
        heads, width = part.heads, part.o.in_features
        size = width // heads
        if mode == "fuse":
            fewer = _rotatable(merged_heads(alike, width, threshold), width, choice["block"])
            places = list(range(width))
            size = width // fewer
        else:
            gone = set(removed(alike, threshold))
            stay = [head for head in range(heads) if head not in gone]
            fewer, places = len(stay), [size * head + place for head in stay for place in range(size)]
        choices.append({**choice, "heads": fewer, "head_size": size})
        kept.append(torch.tensor(places))
    made = space.read({"layers": choices})
    smaller = network_function(made.space)(made)
    smaller.load_state_dict(dict(_sliced(stack, kept)))
    return made, smaller


def _rotatable(heads: int, width: int, block: str) -> int:
    """Return so many heads or fewer, whose size is even where they are rotated."""
    while width % heads or (block == "llama" and width // heads % 2):
        heads -= 1
    return heads


def _sliced(stack: Stack, kept: Sequence[Tensor]) -> Iterator[tuple[str, Any]]:
    """Yield the weights of a network, those of its attentions at the channels that are kept."""
    owners: dict[int, tuple[str, Tensor]] = {}
    for part, places in zip(attentions(stack), kept, strict=True):
        names = [*dict.fromkeys(part.uses), "o"]
        for name in names:
            module = part.get_submodule(name)
            owners |= {id(parameter): (name, places) for parameter in module.parameters()}
    tensors: dict[str, nn.Parameter] = dict(stack.named_parameters(remove_duplicate=False))
    for key, value in stack.state_dict().items():
        name, places = owners.get(id(tensors.get(key)), ("", torch.empty(0)))
        if not name or (name == "o" and value.ndim == 1):
            yield key, value
        else:
            yield key, value[:, places] if name == "o" else value[places]
