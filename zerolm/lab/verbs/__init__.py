"""The laboratory's verbs: the commands below ``zerolm lab``."""

from __future__ import annotations

from functools import partial

from zerolm.verbs import Verb

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Final

_verb = partial(Verb, room="zerolm.lab.verbs")
# fmt: off
VERBS: Final[dict[str, Verb]] = {
    "proxies": _verb("Proxies", "proxies:ProxiesSettings", "proxies_report:ProxiesReport",
        "Compute training-free proxies on running networks."),
    "proxies ls": _verb("Proxies", "proxies:ProxyListSettings", "proxies:ProxyListing",
        "List the proxies, their needs and sources."),
    "bench": _verb("Proxies", "bench:ProxyBenchSettings", "proxies_report:ProxyBenchReport",
        "Rank trained architectures by proxies and by every score."),
    "ablate": _verb("Labels and scores", "ablate:AblateSettings", "ablate_report:AblationReport",
        "Ablate ZeroLM's score: matrices, initialisation, seed, alpha."),
    "slice": _verb("Labels and scores", "slice:SliceSettings", "slice:SlicesReport",
        "Score sub-networks of one trained model: labels without training."),
    "elastic train": _verb("Supernets", "elastic_train:TrainSupernetSettings", "elastic_train:SupernetReport",
        "Train a supernet (ELM) whose FFN widths grow."),
    "elastic search": _verb("Supernets", "elastic_search:SupernetSearchSettings",
        "elastic_search_report:SupernetSearchReport",
        "Find the best path of a trained supernet within budgets."),
    "elastic export": _verb("Supernets", "elastic_export:ExportPathSettings", "elastic_export:PathReport",
        "Export a path of a supernet as a transformers model."),
}
# fmt: on
