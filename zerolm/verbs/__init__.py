"""The verbs: one file each, with its request (settings and how it runs) and its result (sheets and charts).

A verb is listed here in one line. At the top its file imports nothing but dataclasses, settings and sheets,
so that its help is there at once; a result that needs numpy has a file of its own.
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

    Homes are ``module:Class`` in the package ``room``. ``function`` is the name in Python, that of the
    command by default.
    """

    def __init__(
        self,
        panel: str,
        request: str,
        report: str,
        summary: str,
        function: str = "",
        room: str = "zerolm.verbs",
    ) -> None:
        self.panel, self.summary, self.function = panel, summary, function
        self._request, self._report = f"{room}.{request}", f"{room}.{report}"

    @property
    def request(self) -> type[Request]:
        return _imported(self._request)  # type: ignore[no-any-return]

    @property
    def report(self) -> type[Shown]:
        return _imported(self._report)  # type: ignore[no-any-return]


def _imported(home: str) -> Any:
    module, name = home.split(":")
    return getattr(import_module(module), name)


# fmt: off
VERBS: Final[dict[str, Verb]] = {
    "search": Verb("Choose", "search:SearchSettings", "search_report:SearchReport",
        "Find the highest-scoring architectures of a space within budgets, with a proof."),
    "init": Verb("Choose", "init:InitSettings", "init:InitReport",
        "Write a folder that trains an architecture: configuration, script, published scaling laws."),
    "carve": Verb("Shrink", "carve:CarveSettings", "carve:CarvingReport",
        "Prune a checkpoint to a budget, write the child, reopen and verify it."),
    "heal": Verb("Shrink", "heal:HealSettings", "heal:HealingReport",
        "Distil the parent into a carved child."),
    "eval": Verb("Judge", "eval:EvalSettings", "eval:EvaluationReport",
        "Compare a child with its parent and with baselines of the same size."),
    "ledger": Verb("Look", "ledger:LedgerSettings", "ledger_report:LedgerReport",
        "Show weight statistics per layer, head and neuron."),
    "doctor": Verb("Judge", "doctor:DoctorSettings", "doctor:DoctorReport",
        "Report which runtimes open a checkpoint, and why others do not."),
    "score": Verb("Choose", "score:ScoreSettings", "score_report:ScoreReport",
        "Compute the scores and costs of one architecture, or of a Hugging Face configuration."),
    "calibrate": Verb("Choose", "calibrate:CalibrateSettings", "calibrate_report:CalibrationReport",
        "Fit a better score to a few trained architectures, with cross-validation."),
    "bench run": Verb("Judge", "bench:BenchSettings", "bench_report:BenchReport",
        "Rank trained architectures by every score: is any better than counting parameters?"),
    "bench train": Verb("Judge", "bench_train:TrainLabelsSettings", "bench_train:LabelsReport",
        "Train sampled architectures to get labels of your own."),
    "spaces": Verb("Look", "spaces:SpacesSettings", "spaces:SpacesReport",
        "List search spaces with exact sizes, one space's settings, or known decoders.", "list_spaces"),
    "families": Verb("Look", "families:FamiliesSettings", "families:FamiliesReport",
        "List supported model families, or one family's fields, tensors and cuts.", "list_families"),
    "bench ls": Verb("Look", "bench:BenchListSettings", "bench:BenchmarksReport",
        "List available benchmarks with source, licence and results."),
}
# fmt: on
"""The verbs of zerolm itself by the names of their commands."""
PANELS: Final = ("Choose", "Shrink", "Judge", "Look")
SUMMARY: Final = "Choose and shrink transformer language models without training them."
MORE: Final = {"lab": "Reproduce research: proxies of running networks, supernets, sub-networks, ablations."}
"""Groups of commands that come with zerolm as plug-ins, in a line each: their own help lists them."""


def commands(first: str | None = None) -> dict[str, Verb]:
    """Return all verbs by the names of their commands, those of plug-ins included.

    Plug-ins are not loaded for a ``first`` word of a command of zerolm itself.
    """
    if first is not None and any(name.split()[0] == first for name in VERBS):
        return VERBS
    from zerolm.verbs.plugins import plugin_verbs

    return VERBS | plugin_verbs()


def verb_of(command: str) -> Verb:
    """Return the verb of a command, also of a plug-in's."""
    return commands(command.split()[0])[command]


def beginning(words: list[str]) -> dict[str, Verb]:
    """Return the verbs whose commands begin with these words."""
    verbs = commands(words[0] if words else None)
    return {name: verb for name, verb in verbs.items() if name.split()[: len(words)] == words}
