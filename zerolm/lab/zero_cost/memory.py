"""How much memory the passes through a network take, before it is built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from zerolm.architecture import Architecture
from zerolm.io.memory import free_memory
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.registry import Proxy
from zerolm.lab.zero_cost.settings import Settings
from zerolm.scores import make_score

AUTOFORMER: Final = 197
PIT: Final = (730, 197, 50)
"""Tokens of an image, of PiT stage by stage, with the class token."""
IMAGE_BYTES: Final = 4 * 3 * 224 * 224


def bytes_needed(architecture: Architecture, passes: Collection[str], settings: Settings) -> int:
    """A rough upper bound: batch, weights, gradients and their moments, activations of a micro-batch."""
    params = int(make_score("params").of(architecture))
    body = sum(layer.weights for layer in architecture.layers)
    activations = settings.batch // settings.parts * _kept(architecture, settings.length)
    images = architecture.space in ("autoformer", "pit")
    most = 4 * params + settings.batch * (IMAGE_BYTES if images else 16 * (settings.length + 1))
    if not {"backward", "curvature", "transfer"}.isdisjoint(passes):
        most += activations
    if not {"backward", "curvature"}.isdisjoint(passes):
        most += 4 * 6 * body
    if "curvature" in passes:
        most += 8 * body + 2 * activations
    if "flow" in passes:
        most += 8 * params + 16 * body
    return most


def _kept(architecture: Architecture, length: int) -> int:
    """Return the bytes of a sample for a backward pass: outputs of matrices, norms, attention."""
    total = 0
    for layer, (tokens, heads) in zip(architecture.layers, _attention(architecture, length), strict=True):
        outputs = sum(matrix.rows + matrix.cols for matrix in layer.matrices)
        total += 4 * tokens * (3 * outputs + 5 * heads * tokens)
    return total


def _attention(architecture: Architecture, length: int) -> list[tuple[int, int]]:
    """Tokens and heads of each layer; where heads are not said, of 64 and at least 8."""
    if architecture.space == "pit":
        choices = architecture.choices
        stages = zip(PIT, choices["num_heads"], choices["depth"], strict=True)
        return [(tokens, heads) for tokens, heads, depth in stages for _ in range(depth)]
    tokens = AUTOFORMER if architecture.space == "autoformer" else length
    return [(tokens, max(8, layer.query_width // 64)) for layer in architecture.layers]


def check_memory(candidate: Candidate, proxies: Sequence[Proxy], settings: Settings, workers: int) -> None:
    """``ValueError`` where the passes would not fit into the memory that is free for one of the workers."""
    if candidate.architecture is None or settings.compute.device.type != "cpu":
        return
    needed = bytes_needed(candidate.architecture, {n for p in proxies for n in p.passes}, settings)
    free = free_memory() // workers
    if needed > free:
        share = "" if workers == 1 else f" for each of {workers} jobs"
        raise ValueError(
            f"the passes take about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free{share}: take a "
            f"smaller network, a smaller --batch or --length, more --micro-batches, or fewer --jobs"
        )
