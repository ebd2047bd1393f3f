"""How much memory the passes through a network take, before it is built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from zerolm.architecture import Architecture
from zerolm.memory import free_memory
from zerolm.proxies.registry import Proxy
from zerolm.scores import make_score

if TYPE_CHECKING:
    from zerolm.proxies.candidates import Candidate
    from zerolm.proxies.evaluate import Settings

TOKENS: Final = {"autoformer": 197, "pit": 730}
"""What an image is cut into: patches of 16 pixels every 16 or 8, and the class token."""
IMAGE: Final = 4 * 3 * 224 * 224


def bytes_needed(architecture: Architecture, passes: Collection[str], settings: Settings) -> int:
    """A rough upper bound: batch, weights, gradients and their moments, activations of a micro-batch."""
    params = int(make_score("params").of(architecture))
    body = sum(layer.weights for layer in architecture.layers)
    tokens = TOKENS.get(architecture.space, settings.length)
    rows = settings.batch // settings.parts * tokens
    outputs = sum(m.rows + m.cols for layer in architecture.layers for m in layer.matrices)
    heads = sum(max(8, layer.query_width // 64) for layer in architecture.layers)
    kept = 4 * rows * (3 * outputs + 4 * heads * tokens)
    sample = IMAGE if architecture.space in TOKENS else 16 * (tokens + 1)
    most = 4 * params + sample * settings.batch
    if not {"backward", "curvature", "transfer"}.isdisjoint(passes):
        most += kept
    if not {"backward", "curvature"}.isdisjoint(passes):
        most += 4 * 6 * body
    if "curvature" in passes:
        most += 8 * body + 2 * kept
    if "flow" in passes:
        most += 8 * params + 16 * body
    return most


def check_memory(candidate: Candidate, proxies: Sequence[Proxy], settings: Settings, workers: int) -> None:
    """``ValueError`` where the passes would not fit into the memory that is free for one of the workers."""
    if candidate.architecture is None or settings.device != "cpu":
        return
    needed = bytes_needed(candidate.architecture, {n for p in proxies for n in p.passes}, settings)
    free = free_memory() // workers
    if needed > free:
        share = "" if workers == 1 else f" for each of {workers} jobs"
        raise ValueError(
            f"the passes take about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free{share}: take a "
            f"smaller network, a smaller --batch or --length, more --micro-batches, or fewer --jobs"
        )
