"""zerolm: choose and shrink transformer language models without training them.

The public functions are imported when they are first used, so that ``import zerolm`` stays light.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from zerolm.api.calibrate import calibrate
    from zerolm.api.carve import carve
    from zerolm.api.doctor import diagnose
    from zerolm.api.evaluate import evaluate
    from zerolm.api.ledger import ledger
    from zerolm.api.score import score
    from zerolm.api.search import search
    from zerolm.comparison.bench import bench
    from zerolm.groundtruth.labels import read_labels
    from zerolm.proxies.measure import measure
    from zerolm.scores.base import make_score
    from zerolm.spaces.base import make_space

__version__ = "0.1.0"

_HOMES = {
    "bench": "zerolm.comparison.bench",
    "calibrate": "zerolm.api.calibrate",
    "carve": "zerolm.api.carve",
    "diagnose": "zerolm.api.doctor",
    "evaluate": "zerolm.api.evaluate",
    "ledger": "zerolm.api.ledger",
    "make_score": "zerolm.scores",
    "make_space": "zerolm.spaces",
    "measure": "zerolm.proxies.measure",
    "read_labels": "zerolm.groundtruth.labels",
    "score": "zerolm.api.score",
    "search": "zerolm.api.search",
}
__all__ = [
    "__version__",
    "bench",
    "calibrate",
    "carve",
    "diagnose",
    "evaluate",
    "ledger",
    "make_score",
    "make_space",
    "measure",
    "read_labels",
    "score",
    "search",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zerolm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
