"""The verbs: one file each, with its request (settings and how it runs) and its result (sheets and charts).

A verb is listed here in one line. At the top its file imports nothing but dataclasses, settings and sheets,
so that its help is there at once; a result that needs numpy has a file of its own beside it.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, Final

    from zerolm.settings.request import Request
    from zerolm.verbs.report import Shown


class Verb:
    """A verb by the homes of its request and of its result, with the ``panel`` of the help and a sentence.

    ``function`` is its name in Python, that of the command unless it says another.
    """

    def __init__(self, panel: str, request: str, report: str, summary: str, function: str = "") -> None:
        self.panel, self.summary, self.function = panel, summary, function
        self._request, self._report = request, report

    @property
    def request(self) -> type[Request]:
        """Return the type of its request."""
        return _imported(self._request)  # type: ignore[no-any-return]

    @property
    def report(self) -> type[Shown]:
        """Return the type of its result."""
        return _imported(self._report)  # type: ignore[no-any-return]


def _imported(home: str) -> Any:
    module, name = home.split(":")
    return getattr(import_module(f"zerolm.verbs.{module}"), name)


# fmt: off
VERBS: Final[dict[str, Verb]] = {
    "search": Verb("Choose", "search:SearchSettings", "search_report:SearchReport", "Find the best architectures of a space within budgets, with a proof that they are the best."),  # noqa: E501
    "init": Verb("Choose", "init:InitSettings", "init:InitReport", "Write a folder that trains an architecture: configuration, script, rates by published laws."),  # noqa: E501
    "carve": Verb("Shrink", "carve:CarveSettings", "carve:CarvingReport", "Cut a smaller checkpoint out of a larger one, write it, reopen it and compare."),  # noqa: E501
    "heal": Verb("Shrink", "heal:HealSettings", "heal:HealingReport", "Train a carved child to predict what its parent predicts."),  # noqa: E501
    "eval": Verb("Judge", "eval:EvalSettings", "eval:EvaluationReport", "Show what a child has lost beside its parent, and beside other carvings of its size."),  # noqa: E501
    "ledger": Verb("Look", "ledger:LedgerSettings", "ledger:LedgerReport", "Show the energies of the weights of each layer, from one pass over the files."),  # noqa: E501
    "doctor": Verb("Judge", "doctor:DoctorSettings", "doctor:DoctorReport", "Say which runtimes open a checkpoint, and why not."),  # noqa: E501
    "proxies": Verb("Judge", "proxies:ProxiesSettings", "proxies_report:ProxiesReport", "Compute training-free proxies of networks that run, all from a handful of shared passes."),  # noqa: E501
    "proxies ls": Verb("Look", "proxies_ls:ProxyListSettings", "proxies_ls:ProxyListing", "List the proxies: what they need, and where they come from."),  # noqa: E501
    "score": Verb("Choose", "score:ScoreSettings", "score_report:ScoreReport", "Compute the scores and costs of one architecture, or of a Hugging Face configuration."),  # noqa: E501
    "calibrate": Verb("Choose", "calibrate:CalibrateSettings", "calibrate_report:CalibrationReport", "Fit a better ranking to a few trained architectures, judged on those it did not see."),  # noqa: E501
    "bench run": Verb("Judge", "bench:BenchSettings", "bench_report:BenchReport", "Rank trained architectures by every score: is any better than counting parameters?"),  # noqa: E501
    "bench ablate": Verb("Judge", "ablate:AblateSettings", "ablate_report:AblationReport", "Show what ZeroLM's score hangs on: matrices that count, initialisation, seed, borrowed alphas."),  # noqa: E501
    "bench train": Verb("Judge", "bench_train:TrainLabelsSettings", "bench_train:LabelsReport", "Train architectures of a space the same way: labels of your own, to rank and to search by."),  # noqa: E501
    "bench slice": Verb("Judge", "bench_slice:SliceSettings", "bench_slice:SlicesReport", "Judge sub-networks of one trained model: labels without training, clean and under attack."),  # noqa: E501
    "elastic train": Verb("Grow", "elastic_train:TrainSupernetSettings", "elastic_train:SupernetReport", "Train a supernet: all blocks of all layers, with FFN widths that grow where features are rich."),  # noqa: E501
    "elastic search": Verb("Grow", "elastic_search:SupernetSearchSettings", "search_report:SupernetSearchReport", "Find the best path of a trained supernet within budgets."),  # noqa: E501
    "elastic export": Verb("Grow", "elastic_export:ExportPathSettings", "elastic_export:PathReport", "Write a path of a supernet as a model of its own, which transformers opens."),  # noqa: E501
    "spaces": Verb("Look", "spaces:SpacesSettings", "spaces:SpacesReport", "List the search spaces with their exact size, the settings of one, or known decoders.", "list_spaces"),  # noqa: E501
    "families": Verb("Look", "families:FamiliesSettings", "families:FamiliesReport", "List the families of models: what can be cut of each, or the fields, tensors and cuts of one.", "list_families"),  # noqa: E501
    "bench ls": Verb("Look", "bench_ls:BenchListSettings", "bench_ls:BenchmarksReport", "List the benchmarks at hand: where each is from, its licence, its results."),  # noqa: E501
}
# fmt: on
"""All verbs by the names of their commands."""
PANELS: Final = ("Choose", "Shrink", "Grow", "Judge", "Look")
SUMMARY: Final = "Choose and shrink transformer language models without training them."
