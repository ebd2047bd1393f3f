"""What proxies are computed of: architectures that are built, or a checkpoint that is opened."""

from __future__ import annotations

import hashlib
import json
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from zerolm.architecture import Architecture
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.networks.stock import load_network
from zerolm.spaces import SearchSpace


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


def drawn(space: SearchSpace, count: int, seed: int) -> list[Architecture]:
    """``count`` architectures, drawn with replacement.

    Shapes are as likely as the architectures that have them are many; of those it is always the same one.
    """
    generator = random.Random(seed)
    backbones = list(space.backbones())
    below = list(accumulate(backbone.size for backbone in backbones))
    found = []
    for _ in range(count):
        ticket = generator.randrange(below[-1])  # integers: the sizes are beyond floats
        backbone = backbones[bisect_right(below, ticket)]
        picks = []
        for block in backbone.blocks:
            options = range(len(block.candidates.layers))
            number = 1 if block.tied else block.count
            picks.append(generator.choices(options, block.candidates.multiplicity, k=number))
        found.append(space.assemble(backbone, picks))
    return found
