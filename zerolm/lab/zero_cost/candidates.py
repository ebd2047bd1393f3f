"""The networks that proxies are computed of: architectures that are built, or a checkpoint that is opened."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from zerolm.architecture import Architecture
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.networks.opener import load_network


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
        return cls(name, architecture.identity, architecture)

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
        """The network, its weights sampled under the seed unless the folder holds them."""
        if self.architecture is not None:
            return build(self.architecture, seed)
        assert self.folder is not None
        return load_network(self.folder, seed)[0]
