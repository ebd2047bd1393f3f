"""``zerolm search``: the best architectures of a space within budgets, with a proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.cost_columns import TRAINING
from zerolm.progress import Progress, silent
from zerolm.settings.request import Request, argument, part, setting
from zerolm.text.defaults import text_field
from zerolm.verbs.shared import Conditions, budgets, field_read

if TYPE_CHECKING:
    from zerolm.costs import CostModel
    from zerolm.pretraining import TrainingPlan
    from zerolm.verbs.search_report import SearchReport

SOURCES: Final = ("score", "labels", "calibration")
"""The settings that name what to maximise."""
CALIBRATION: Final = "output of `zerolm calibrate --out`: the folder or its calibration.json"


@dataclass(frozen=True)
class TrainingBudgets:
    """How long a network is to be trained, within how many operations, and in how much memory."""

    train_tokens: int | None = setting(
        "integer",
        None,
        "training tokens; with --max-train-flops default: the compute-optimal number",
        low=1,
        high=1 << 60,
    )
    max_train_flops: float | None = setting(
        "number",
        None,
        "training compute at most, in FLOPs (6 x MACs per token x tokens): 1e21",
        low=1,
        high=1e40,
    )
    max_train_bytes: int | None = setting(
        "integer",
        None,
        "training memory at most, on one device: AdamW, bfloat16, no gradient checkpointing",
        low=1,
        high=1 << 60,
        metavar="AMOUNT",
    )
    train_batch: int = setting(
        "integer", 1, "sequences per device and step, for training memory", low=1, high=1 << 20
    )

    @property
    def is_bounded(self) -> bool:
        return self.max_train_flops is not None or self.max_train_bytes is not None

    def plan(self) -> TrainingPlan | None:
        """Return the planned training length; None where none is given."""
        from zerolm.pretraining import TrainingPlan, chinchilla

        if self.train_tokens is not None:
            return TrainingPlan(self.train_tokens, self.max_train_flops)
        if self.max_train_flops is None:
            return None
        best = chinchilla(self.max_train_flops)
        return TrainingPlan(max(1, round(best.tokens)), self.max_train_flops, best.law)

    def budgets(self, limits: dict[str, int]) -> dict[str, int]:
        """Return budgets of costs with those of training; ``ValueError`` where no MACs are left."""
        from zerolm.pretraining import OPERATIONS, most_macs

        plan = self.plan()
        if self.max_train_bytes is not None:
            limits = {**limits, f"max_{TRAINING}": self.max_train_bytes}
        if plan is None or plan.max_flops is None:
            return limits
        most = most_macs(plan.max_flops, plan.tokens)
        if most == 0:
            raise ValueError(
                f"max_train_flops {plan.max_flops:.4g} are fewer than {OPERATIONS} for each of "
                f"{plan.tokens:,} tokens; give at least {float(OPERATIONS * plan.tokens):.4g}, or fewer "
                "train_tokens"
            )
        return {**limits, "max_macs": min(most, limits.get("max_macs", most))}

    def costs(self, costs: CostModel, space: str, vocab: Any) -> CostModel:
        """Return costs with the memory of training where that has a budget."""
        from zerolm.pretraining import HELD, TrainedCosts

        if self.max_train_bytes is None:
            return costs
        if space not in HELD:
            raise ValueError(
                f"memory of training is known of {', '.join(HELD)}, not of {space}; leave max_train_bytes out"
            )
        return TrainedCosts(
            **costs.conditions, sequences=self.train_batch, vocab=int(vocab), held=HELD[space]
        )


@dataclass(frozen=True, kw_only=True)
class SearchSettings(Request):
    """Return the highest-scoring architectures of a space within budgets, with a proof.

    ``further`` are settings of the space and of the score (``hidden="512,768"``, ``alpha=1.1``). Raises
    ``Infeasible`` where nothing fits, and ``ValueError`` for a value that makes no sense, in one line.
    """

    name: ClassVar[str] = "search"
    owners = ("spaces", "scores")
    shares = ("train_tokens",)
    examples = (
        ("zerolm search llama --max-params 125M --max-kv-bytes 32MB --context 2048", "two budgets at once"),
        ("zerolm search gpt2 --max-params 40M --score zerolm --alpha 1.1", "another score, with its option"),
        ("zerolm search --baseline SmolLM2-135M --context 2048", "better than a known model, at its costs"),
        (
            "zerolm search llama --max-params 60M --max-macs 60M --vocabularies 8192,16384,32768 --text TEXT",
            "the vocabulary, too",
        ),
        (
            "zerolm search llama --max-train-flops 1e19 --out best",
            "what a budget of training allows, written to a folder",
        ),
    )
    notes = (
        "Every setting of the space and of the score is a flag too: `zerolm search llama --help` lists "
        "those of llama."
    )
    space: str | None = argument("text", None, "search space; `zerolm spaces` lists them", metavar="SPACE")
    baseline: str | None = setting(
        "path",
        None,
        "reference model: a known decoder (`zerolm spaces --known`), config.json, folder, or hub model; "
        "sets vocabulary, tying and any of --max-params, --max-macs, --max-kv-bytes not given",
        group="A model to better",
        metavar="MODEL",
    )
    within: float | None = setting(
        "percent",
        None,
        "search only depths and widths within this share of the baseline's",
        low=0,
        high=0.9,
    )
    vocabularies: tuple[int, ...] | None = setting(
        "integers",
        None,
        "vocabulary sizes to try; budgets are per text, measured in tokens of the smallest vocabulary",
        group="Vocabulary",
        low=257,
        high=1 << 24,
        examples=("8192,16384,32768",),
    )
    text: str | None = setting("path", None, "text to train and compare tokenizers of --vocabularies on")
    text_field: str | None = text_field()
    budgets: Any = part(
        budgets(("max", "min"), "amount", shares=", or 0.8x of the baseline's"), group="Budgets"
    )
    training: TrainingBudgets = part(TrainingBudgets, group="Training")
    conditions: Conditions = part(Conditions, group="Conditions of the costs")
    score: str | None = setting("text", None, "score to maximise; default geo", group="What to maximise")
    labels: str | None = setting(
        "path", None, "trained architectures of this space with results, CSV or JSON"
    )
    metric: str | None = setting("text", None, "which result of --labels to use")
    calibration: Any = setting("path", None, CALIBRATION)
    top: int = setting("integer", 10, "architectures to list", group="Search", low=1, high=1000)
    method: str = setting(
        "text",
        "auto",
        "search method: auto (the cheapest exact method), exhaustive, exact, milp (all with proof), "
        "rerank, nsga2, evolution, random (no proof)",
        metavar="NAME",
    )
    seed: int = setting("integer", 0, "seed of random methods", low=0, high=2**32 - 1)

    @classmethod
    def objects(cls) -> Mapping[str, tuple[type, ...]]:
        from zerolm.verbs.calibrate_report import CalibrationReport

        return {"calibration": (CalibrationReport,)}

    @property
    def score_name(self) -> str | None:
        """Return the score to maximise; None where labels or a calibration say what that is."""
        return None if self.labels is not None or self.calibration is not None else self.score or "geo"

    def run(self, progress: Progress = silent) -> SearchReport:
        self._check()
        from zerolm.verbs.search_run import run_search

        with field_read(self.text_field, self.text):
            return run_search(self, progress)

    def _check(self) -> None:
        """Raise ``ValueError`` where settings contradict each other."""
        if self.space is None and self.baseline is None:
            raise ValueError("no space is named; `zerolm spaces` lists them")
        if self.within is not None and self.baseline is None:
            raise ValueError("--within is a distance from a baseline: give --baseline MODEL too")
        if (self.vocabularies is None) != (self.text is None):
            raise ValueError(
                "--vocabularies are compared on a text: give --vocabularies and --text, or neither"
            )
        if self.vocabularies and (self.baseline is not None or self.further.get("vocab") is not None):
            other = "--baseline" if self.baseline is not None else "--vocab"
            raise ValueError(f"{other} fixes the vocabulary: leave it out, or --vocabularies")
        sources = [name for name in SOURCES if getattr(self, name) is not None]
        if len(sources) > 1:
            raise ValueError(f"--{' and --'.join(sources)} each specify what to maximise: give one of them")
        if self.vocabularies and self.training.is_bounded:
            raise ValueError("budgets of training are for one vocabulary: leave them out, or --vocabularies")
        if self.metric is not None and self.labels is None:
            raise ValueError("--metric names a result of the labels: give --labels FILE too")
