"""Heads of a path that repeat each other: how alike they are, and the path with fewer of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from zerolm.architecture import Architecture
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.distillation import watched
from zerolm.lab.supernets.fusion import cka, merged_heads, removed
from zerolm.networks.modules.layer import Stack, part

HEAD_MODES: Final = {
    "keep": "as many heads as they are",
    "fuse": "the same width in fewer and wider heads (ELM, algorithm 1); equal parameters",
    "remove": "heads that an earlier one resembles are cut out; fewer parameters",
}


@torch.no_grad()
def head_similarity(
    network: Stack, ids: Tensor, *, tokens: bool = False, unbiased: bool = False
) -> list[Tensor]:
    """Return the CKA of each two heads of every layer, (heads, heads), on token ids (b, t).

    Samples are sequences, all tokens of one in a row, as in ELM, or single ``tokens``.
    """
    modules = [part(layer, "attention").get_submodule("context") for layer in network.layers]
    with watched(modules) as contexts:
        network(ids, 1)
    axes = (1, 2) if tokens else (2, 3)
    heads_first = (x.transpose(0, 1) for x in contexts)  # (heads, b, t, s)
    return [cka(x.flatten(*axes), unbiased) for x in heads_first]


def with_fewer_heads(
    space: Elastic, architecture: Architecture, alike: Sequence[Tensor], mode: str
) -> Architecture:
    """Return the architecture with heads fused or removed where they resemble each other too much."""
    layers = []
    for choice, layer, similarity in zip(
        architecture.choices["layers"], architecture.layers, alike, strict=True
    ):
        width, heads = layer.query_width, int(choice["heads"])
        if mode == "fuse":
            fewer = merged_heads(similarity, width)
            while choice["block"] == "llama" and (width % fewer or width // fewer % 2):
                fewer -= 1  # rotary positions turn pairs
            layers.append({**choice, "heads": fewer})
        else:
            rest = heads - len(removed(similarity))
            layers.append({**choice, "heads": rest, "head_size": width // heads})
    return space.read({"layers": layers})


def without_heads(
    state: Mapping[str, Tensor], architecture: Architecture, alike: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Return the weights of an architecture's network, by name, without the heads that are removed."""
    cut = dict(state)
    for number, similarity in enumerate(alike):
        heads, gone = len(similarity), removed(similarity)
        rest = [head for head in range(heads) if head not in gone]
        for name in (name for name in state if name.startswith(f"layers.{number}.attention.")):
            module, kind = name.split(".")[-2:]
            value = state[name]
            if module in ("q", "k", "v"):
                parts = value.reshape(heads, -1, *value.shape[1:])
                cut[name] = parts[rest].flatten(0, 1)
            elif module == "o" and kind == "weight":
                cut[name] = value.reshape(len(value), heads, -1)[:, rest].flatten(1)
    return cut
