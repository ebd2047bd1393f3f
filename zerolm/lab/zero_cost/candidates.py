"""The networks that proxies are computed of: architectures that are built, or a checkpoint that is opened."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zerolm.architecture import Architecture
from zerolm.io.memory import free_memory
from zerolm.lab.zero_cost.settings import Settings
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.networks.opener import load_network
from zerolm.scores import make_score

AUTOFORMER: Final = 197
PIT: Final = (730, 197, 50)
"""Tokens of an image, of PiT stage by stage, with the class token."""
IMAGE_BYTES: Final = 4 * 3 * 224 * 224


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

    def check_memory(self, passes: Collection[str], settings: Settings, workers: int) -> None:
        """``ValueError`` where the passes would not fit into the memory free for one of the workers."""
        if self.architecture is None or settings.compute.device.type != "cpu":
            return
        needed, free = bytes_needed(self.architecture, passes, settings), free_memory() // workers
        if needed > free:
            share = "" if workers == 1 else f" for each of {workers} jobs"
            raise ValueError(
                f"the passes take about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free{share}: take a "
                f"smaller network, a smaller batch or length, more micro-batches, or fewer --jobs"
            )


def bytes_needed(architecture: Architecture, passes: Collection[str], settings: Settings) -> int:
    """Return a rough upper bound: batch, weights, gradients and moments, activations of a micro-batch."""
    params = int(make_score("params").of(architecture))
    body = sum(layer.weights for layer in architecture.layers)
    kept = 0  # bytes of a sample for a backward pass: outputs of matrices, norms, attention
    for layer, (tokens, heads) in zip(architecture.layers, _attention(architecture, settings), strict=True):
        outputs = sum(matrix.rows + matrix.cols for matrix in layer.matrices)
        kept += 4 * tokens * (3 * outputs + 5 * heads * tokens)
    activations = settings.batch // settings.parts * kept
    images = architecture.space in ("autoformer", "pit")
    most = 4 * params + settings.batch * (IMAGE_BYTES if images else 16 * (settings.length + 1))
    if not {"backward", "curvature", "transfer"}.isdisjoint(passes):
        most += activations
    if not {"backward", "curvature"}.isdisjoint(passes):
        most += 4 * 6 * body
    if "curvature" in passes:
        most += 8 * body + 2 * activations
    return most + (8 * params + 16 * body if "flow" in passes else 0)


def _attention(architecture: Architecture, settings: Settings) -> list[tuple[int, int]]:
    """Return tokens and heads of each layer; where heads are not known, of 64 and at least 8."""
    if architecture.space == "pit":
        choices = architecture.choices
        stages = zip(PIT, choices["num_heads"], choices["depth"], strict=True)
        return [(tokens, heads) for tokens, heads, depth in stages for _ in range(depth)]
    tokens = AUTOFORMER if architecture.space == "autoformer" else settings.length
    return [(tokens, max(8, layer.query_width // 64)) for layer in architecture.layers]
