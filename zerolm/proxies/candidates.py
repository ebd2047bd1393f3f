"""The networks that proxies are computed of: architectures that are built, or a checkpoint that is opened."""

from __future__ import annotations

import hashlib
import json
import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from zerolm.architecture import Architecture
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.networks.opener import load_network
from zerolm.scores import make_score
from zerolm.spaces import SearchSpace

PATIENCE: Final = 5000
"""Draws in a row that may all be too large."""


@dataclass(frozen=True)
class Candidate:
    """One network to be: an architecture, or the folder of a checkpoint.

    ``identity`` is canonical text, equal for what is the same network.
    """

    name: str
    identity: str
    architecture: Architecture | None = None
    folder: Path | None = None

    @classmethod
    def of(cls, architecture: Architecture, name: str) -> Candidate:
        choices = json.dumps(architecture.choices, sort_keys=True)
        shapes = repr((architecture.layers, architecture.ends))
        digest = hashlib.sha256(f"{choices}\n{shapes}".encode()).hexdigest()
        return cls(name, f"{architecture.space}:{digest}", architecture)

    @classmethod
    def opened(cls, folder: Path) -> Candidate:
        """A folder with a ``config.json``, by the bytes of its configuration and its files of weights."""
        content = hashlib.sha256()
        for file in sorted((folder / "config.json", *folder.glob("*.safetensors"))):
            content.update(file.name.encode())
            if file.is_file():
                with file.open("rb") as opened:
                    content.update(hashlib.file_digest(opened, "sha256").digest())
        return cls(str(folder), f"folder:{content.hexdigest()}", folder=folder)

    def network(self, seed: int) -> Network:
        """The network, its weights drawn under the seed unless the folder holds them."""
        if self.architecture is not None:
            return build(self.architecture, seed)
        assert self.folder is not None
        return load_network(self.folder, seed)[0]


def drawn(space: SearchSpace, count: int, seed: int, max_params: int | None = None) -> list[Architecture]:
    """``count`` architectures, each of the space equally likely, drawn with replacement.

    With ``max_params`` only those of at most so many parameters; ``ValueError`` where they are too rare.
    """
    generator = random.Random(seed)
    backbones = list(space.backbones())
    below = list(accumulate(backbone.size for backbone in backbones))
    params, architectures = make_score("params"), list[Architecture]()
    smallest, since = math.inf, 0
    while since < PATIENCE:
        ticket = generator.randrange(below[-1])  # integers: the sizes are beyond floats
        backbone = backbones[bisect_right(below, ticket)]
        layers: list[dict[str, Any]] = []
        for block in backbone.blocks:
            ways = [way for ways in block.candidates.alternatives for way in ways]
            chosen = generator.choices(ways, k=1 if block.tied else block.count)
            layers += chosen * block.count if block.tied else chosen
        one = space.read(space.join(backbone, layers))
        size = params.of(one)
        smallest = min(smallest, size)
        since += 1
        if max_params is None or size <= max_params:
            architectures.append(one)
            since = 0
        if len(architectures) == count:
            return architectures
    raise ValueError(
        f"{PATIENCE:,} architectures drawn from {space.name!r} in a row have more than {max_params:,} "
        f"parameters, the smallest of all {smallest:,.0f}: allow more"
    )
