"""zerolm: choose and shrink transformer language models without training them.

The public functions are imported when they are first used, so that ``import zerolm`` stays light.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from zerolm.api.ablate import ablate as ablate
    from zerolm.api.bench import bench as bench
    from zerolm.api.benchmarks import list_benchmarks as list_benchmarks
    from zerolm.api.calibrate import calibrate as calibrate
    from zerolm.api.carve import carve as carve
    from zerolm.api.doctor import diagnose as diagnose
    from zerolm.api.evaluate import evaluate as evaluate
    from zerolm.api.export_path import export_path as export_path
    from zerolm.api.heal import heal as heal
    from zerolm.api.label_training import train_labels as train_labels
    from zerolm.api.ledger import ledger as ledger
    from zerolm.api.load import load as load
    from zerolm.api.measure import list_proxies as list_proxies
    from zerolm.api.measure import measure as measure
    from zerolm.api.score import score as score
    from zerolm.api.search import search as search
    from zerolm.api.search_supernet import search_supernet as search_supernet
    from zerolm.api.spaces import list_spaces as list_spaces
    from zerolm.api.train_supernet import train_supernet as train_supernet
    from zerolm.groundtruth.labels import read_labels as read_labels
    from zerolm.scores.base import make_score as make_score
    from zerolm.spaces.base import make_space as make_space

__version__ = "0.1.0"

_HOMES = {
    "ablate": "zerolm.api.ablate",
    "bench": "zerolm.api.bench",
    "calibrate": "zerolm.api.calibrate",
    "carve": "zerolm.api.carve",
    "diagnose": "zerolm.api.doctor",
    "evaluate": "zerolm.api.evaluate",
    "export_path": "zerolm.api.export_path",
    "heal": "zerolm.api.heal",
    "ledger": "zerolm.api.ledger",
    "list_benchmarks": "zerolm.api.benchmarks",
    "list_proxies": "zerolm.api.measure",
    "list_spaces": "zerolm.api.spaces",
    "load": "zerolm.api.load",
    "make_score": "zerolm.scores",
    "make_space": "zerolm.spaces",
    "measure": "zerolm.api.measure",
    "read_labels": "zerolm.groundtruth.labels",
    "score": "zerolm.api.score",
    "search": "zerolm.api.search",
    "search_supernet": "zerolm.api.search_supernet",
    "train_labels": "zerolm.api.label_training",
    "train_supernet": "zerolm.api.train_supernet",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zerolm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
