"""How much memory the passes through a network take, before it is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerolm.architecture import Architecture
from zerolm.memory import free_memory
from zerolm.proxies.registry import Proxy
from zerolm.scores import make_score

if TYPE_CHECKING:
    from zerolm.proxies.candidates import Candidate
    from zerolm.proxies.evaluate import Settings


def bytes_needed(architecture: Architecture, passes: set[str], settings: Settings) -> int:
    """A rough upper bound: weights, gradients and their moments, and the activations of a micro-batch."""
    params = int(make_score("params").of(architecture))
    body = sum(layer.weights for layer in architecture.layers)
    rows = settings.batch // settings.parts * settings.length
    outputs = sum(m.rows + m.cols for layer in architecture.layers for m in layer.matrices)
    heads = sum(max(1, layer.query_width // 64) for layer in architecture.layers)
    kept = 4 * rows * (3 * outputs + 4 * heads * settings.length)
    most = 4 * params
    if passes & {"backward", "curvature"}:
        most += 4 * 6 * body + kept
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
    free = free_memory() // (1 if workers == 1 else 2)
    if needed > free:
        raise ValueError(
            f"the passes take about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free: "
            f"take a smaller network, a smaller --batch or --length, or fewer --jobs"
        )
