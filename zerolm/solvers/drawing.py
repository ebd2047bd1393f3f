"""Architectures of a space, each equally likely, within budgets of size."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.scores import make_score
from zerolm.spaces import SearchSpace

USELESS_DRAWS: Final = 5000
"""Draws in a row that may all be of no use."""
SIZE_WORDS: Final = {"params": "parameters", "body_params": "parameters without embeddings and head"}


def drawn(
    space: SearchSpace,
    count: int,
    seed: int,
    *,
    budgets: Mapping[str, int] | None = None,
    distinct: bool = False,
) -> list[Architecture]:
    """Return ``count`` architectures, each of the space equally likely, drawn with replacement.

    ``budgets`` are ``max_params``, ``min_params``, ``max_body_params`` and ``min_body_params``; with
    ``distinct`` none comes twice. ``ValueError`` where what is asked for is too rare.
    """
    generator = random.Random(seed)
    backbones = list(space.backbones())
    below = list(accumulate(backbone.size for backbone in backbones))
    limits = {name: make_score(name.partition("_")[2]) for name in budgets or {}}
    nearest: dict[str, float] = {}
    architectures, seen = list[Architecture](), set[str]()
    since = 0
    while since < USELESS_DRAWS:
        ticket = generator.randrange(below[-1])  # integers: the sizes are beyond floats
        backbone = backbones[bisect_right(below, ticket)]
        layers: list[dict[str, Any]] = []
        for block in backbone.blocks:
            ways = [way for ways in block.candidates.alternatives for way in ways]
            chosen = generator.choices(ways, k=1 if block.tied else block.count)
            layers += chosen * block.count if block.tied else chosen
        architecture = space.read(space.join(backbone, layers))
        sizes = {name: score.of(architecture) for name, score in limits.items()}
        for name, size in sizes.items():
            best = min if name.startswith("max") else max
            nearest[name] = best(size, nearest.get(name, size))
        since += 1
        key = json.dumps(architecture.choices, sort_keys=True) if distinct else ""
        if _within(sizes, budgets or {}) and not (distinct and key in seen):
            seen.add(key)
            architectures.append(architecture)
            since = 0
        if len(architectures) == count:
            return architectures
    raise ValueError(_rare(space.name, budgets or {}, nearest, len(architectures)))


def _within(sizes: Mapping[str, float], budgets: Mapping[str, int]) -> bool:
    """Return whether an architecture of these sizes keeps to the budgets."""
    return all(
        sizes[name] <= limit if name.startswith("max") else sizes[name] >= limit
        for name, limit in budgets.items()
    )


def _rare(space: str, budgets: Mapping[str, int], nearest: Mapping[str, float], count: int) -> str:
    """Return why no more architectures come, and what would let them."""
    for name, limit in budgets.items():
        side, _, cost = name.partition("_")
        if not _within({name: nearest[name]}, {name: limit}):
            more, end, advice = (
                ("more than", "smallest", "more") if side == "max" else ("fewer than", "largest", "fewer")
            )
            return (
                f"{USELESS_DRAWS:,} architectures sampled from {space!r} in a row have {more} {limit:,} "
                f"{SIZE_WORDS[cost]}, the {end} of all {nearest[name]:,.0f}: allow {advice}"
            )
    within = " within the budgets" if budgets else ""
    return f"only {count} different architectures of {space!r}{within} were sampled; ask for {count} at most"
