"""``zerolm eval``: a child compared with its parent, and with other carvings of its size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from zerolm.evaluation.evaluated import Evaluated, JudgedNetwork
from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.compute import RunningRequest
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.charts import Bar, Bars, from_zero
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Cell, Heading, Row, Sheet
from zerolm.show.text import show_amount
from zerolm.text import defaults
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import field_read, like, needing_torch, read_like


@dataclass(frozen=True)
class Measure:
    """A measure on a text: its ``head`` in tables, its ``title``, its ``unit``, which way is better, and its
    digits."""

    head: str
    title: str
    unit: str
    higher_is_better: bool
    form: str

    @property
    def axis(self) -> str:
        return f"{self.unit} ({'higher' if self.higher_is_better else 'lower'} is better)"


MEASURES: Final = {
    "bits": Measure("bits a byte", "Bits a byte of the text", "bits a byte", False, ",.4f"),
    "perplexity": Measure("perplexity", "Perplexity", "perplexity", False, ",.2f"),
    "kl": Measure("KL", "Divergence from the parent", "KL in nats a token", False, "z,.4f"),
    "cosine": Measure("cosine", "Likeness of embeddings", "cosine to the parent's", True, ",.4f"),
    "distance": Measure("1 - cosine", "Distance of embeddings", "1 - cosine to the parent's", False, ".3g"),
    "order": Measure(
        "order", "Order of neighbours", "Spearman's rho of similarities with the parent's", True, ",.4f"
    ),
    "nearest": Measure(
        "nearest", "Nearest neighbours", "share of sentences with the parent's nearest one", True, ",.4f"
    ),
    "loops": Measure("loops", "Looping answers", "share of answers that loop", False, ".1%"),
    "pairs": Measure(
        "pairs", "Pairs with scores", "Spearman's rho of similarities with scores", True, ",.4f"
    ),
}
POSITIONS: Final = {"first": "KL first", "1-15": "KL 1-15", "rest": "KL rest"}
"""Spans of positions in a window, as they head columns."""
BY_POSITION: Final = "KL first, 1-15, rest: of predictions behind the tokens at these positions of a sequence"
WITH_PARENT: Final = ("pairs", "loops")
"""Measures that say little without the parent's."""
COLOURS: Final = {"child": "blue", "parent": "green"}


@dataclass(frozen=True, kw_only=True)
class EvalSettings(Request):
    """Return measures of a child, compared with its parent and with other carvings of its size.

    On a ``text`` these are perplexity and divergence from the parent, and of encoders how near embeddings are
    to the parent's and whether they have the same neighbours, for each domain where there are several; with
    ``loops`` the share of greedy answers that run in circles; on ``data``, pairs of sentences, how well they
    order as people did; on ``tasks`` the metrics of lm-evaluation-harness. One of them must be given. Raises
    ``ValueError``, in one line, for what cannot be compared, and ``ModuleNotFoundError`` for an extra that is
    not installed.
    """

    name: ClassVar[str] = "eval"
    examples = (
        ("zerolm eval child --parent PARENT --text TEXT", "perplexity and divergence on a text"),
        (
            "zerolm eval healed --parent PARENT --beside repaired,child --text TEXT",
            "what repairing and healing gave back",
        ),
        (
            "zerolm eval child --parent PARENT --text code=CODE,chat=CHAT --loops 64",
            "texts of several domains, and answers that run in circles",
        ),
        ("zerolm eval child --parent PARENT --tasks hellaswag,arc_easy --limit 200", "tasks on both"),
        ("zerolm eval ENCODED --parent ENCODER --text TEXT --data PAIRS.csv", "embeddings of sentences"),
    )
    notes = (
        "Decoders: perplexity and KL divergence from the parent. Encoders, on sentences, one per line: "
        "cosine of embeddings, order of neighbours, share with the parent's nearest neighbour. Baselines "
        "are pruned parents of the same size: random and uniform cuts, for fewer experts random and by "
        "frequency, for fewer bytes the quantised parent. Task data come from the hub."
    )
    child: str = argument("path", REQUIRED, "checkpoint folder or GGUF file", metavar="CHILD")
    parent: str = setting(
        "path", REQUIRED, "checkpoint that the child came from", group="Compared with", metavar="DIR"
    )
    beside: tuple[str, ...] | None = setting(
        "paths",
        None,
        "other children to compare, folders or GGUF files of any vocabulary",
        metavar="DIR,...",
    )
    like: str | None = like()
    text: str | None = setting(
        "texts",
        None,
        "evaluation text that no model was fitted to, or several domains: code=FILE,chat=FOLDER",
        group="Text",
    )
    text_field: str | None = defaults.text_field()
    data: str | None = setting(
        "path",
        None,
        "sentence pairs to score embeddings: .csv, .tsv or .jsonl with sentence1, sentence2, score",
        metavar="PAIRS",
    )
    sequences: int = defaults.sequences()
    length: int = defaults.length()
    loops: int = setting(
        "integer",
        0,
        "decoders: count looping answers to this number of prompts from the text, decoded greedily",
        low=0,
        high=1 << 20,
    )
    tasks: tuple[str, ...] | None = setting(
        "paths",
        None,
        "lm-evaluation-harness tasks, by name or .yaml file (which may run code)",
        group="Tasks",
        metavar="TASKS",
    )
    limit: int | None = setting("integer", None, "maximum samples per task", low=1, high=1 << 40)
    running: RunningRequest = part(RunningRequest, group="Where it runs")

    def run(self, progress: Progress = silent) -> EvaluationReport:
        self._check()
        with read_like(self.like), field_read(self.text_field, self.text):
            return self._judged(progress)

    def _judged(self, progress: Progress) -> EvaluationReport:
        with needing_torch("evaluating runs networks"):
            from zerolm.evaluation import evaluate
            from zerolm.evaluation.tasks import Tasks
        judged = Evaluated()
        tasks = Tasks.of(self.tasks, self.child, self.parent, self.running) if self.tasks else None
        if self.text is not None or self.data is not None:
            judged = evaluate.evaluate(
                self.child,
                self.parent,
                self.text,
                data=self.data,
                sequences=self.sequences,
                length=self.length,
                beside=self.beside or (),
                loops=self.loops,
                request=self.running,
                progress=progress,
            )
        scores = list(tasks.compared(limit=self.limit, progress=progress)) if tasks else []
        return EvaluationReport(**vars(judged) | {"tasks": scores}, run=run_of(self))

    def _check(self) -> None:
        """Refuse settings that do not go together, and names of no checkpoint."""
        from zerolm.checkpoints.folder import check_named

        if self.text is None and self.data is None and not self.tasks:
            raise ValueError("nothing to evaluate on: give --text FILE, --tasks TASKS, or both")
        if self.beside is not None and not self.beside:
            raise ValueError("--beside names no folder: leave it out, or name one")
        if self.beside and self.text is None and self.data is None:
            raise ValueError("--beside compares on a text: give --text FILE too")
        if self.loops and self.text is None:
            raise ValueError("--loops takes its prompts from a text: give --text FILE too")
        if self.limit is not None and not self.tasks:
            raise ValueError("--limit is of samples of tasks: give --tasks TASKS too")
        check_named(self.child, self.parent, *(self.beside or ()))


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class EvaluationReport(Evaluated, Report):
    """The measures of a child, of its parent and of others, and how they are shown."""

    command: ClassVar[str] = "eval"
    rows_field: ClassVar[str] = "networks"

    @property
    def measures(self) -> list[str]:
        """Return the names of what is measured on the text, empty without one."""
        first = self.networks[:1]
        return [name for name in MEASURES for one in first if getattr(one, name) is not None]

    @property
    def positions(self) -> list[str]:
        """Return the spans of positions that the child's KL is split by; none of encoders."""
        return [name for name in POSITIONS for one in self.networks[:1] if name in one.kl_by_position]

    @property
    def remarks(self) -> list[str]:
        return [self.shortened] if self.shortened else []

    def rows(self) -> list[dict[str, Any]]:
        if not self.networks:
            return [asdict(row) for row in self.tasks]
        rows = []
        for one in self.networks:
            row: dict[str, Any] = {"name": one.name, "params": one.params}
            row |= {name: getattr(one, name) for name in self.measures}
            for name in self.measures:
                low, high = one.spread.get(name, (None, None))
                row |= {f"{name}_low": low, f"{name}_high": high}
            for domain, values in one.domains.items():
                row |= {f"{name}_on_{domain}": value for name, value in values.items()}
            row |= {f"kl_at_{span}": value for span, value in one.kl_by_position.items()}
            rows.append(row)
        return rows

    def lines(self) -> list[str]:
        lines = []
        if self.networks:
            child, parent = self._named("child"), self._named("parent")
            texts = [f"{MEASURES[name].head} {shown(child, name)}" for name in self.measures]
            for place, name in enumerate(self.measures):
                if place == 0 or name in WITH_PARENT:
                    texts[place] += f" (parent {shown(parent, name)})"
            lines.append(f"{self._size()}: {', '.join(texts)}")
        if self.tasks:
            lower = sum(row.child < row.parent for row in self.tasks)
            lines.append(f"Of {len(self.tasks)} task metrics the child's is below the parent's in {lower}.")
        return lines

    def _named(self, name: str) -> JudgedNetwork:
        return next(one for one in self.networks if one.name == name)

    def heading(self) -> Heading:
        title = f"{len({row.task for row in self.tasks})} tasks, child against parent"
        if self.measures:
            name = self.measures[0]
            child, parent = (shown(self._named(who), name) for who in ("child", "parent"))
            title = f"{name.capitalize()} {child}; the parent's is {parent}"
        return Heading(title, self._size(), self.finding(), trust=" ".join(self._reservations()))

    def _size(self) -> str:
        sequences = "1 sequence" if self.sequences == 1 else f"{self.sequences:,} sequences"
        return f"{sequences}, {self.tokens:,} tokens" if self.sequences else "Tasks"

    def _reservations(self) -> Iterator[str]:
        """Yield how far the numbers can be trusted."""
        if self.networks:
            yield "No interval: another text may say otherwise. Numbers flatter a child fitted to this text."
        if self.prompts:
            error = 0.5 / math.sqrt(self.prompts)
            yield f"Shares of {self.prompts} looping answers have a standard error of up to {error:.1%}."
        if self.tasks:
            yield "Tasks have standard errors where the harness gives them."

    def sheets(self) -> list[Sheet]:
        charts = [
            Sheet(MEASURES[name].title, charts=[self._bars(name)], on=(PAGE,) if place else (PAGE, NOTEBOOK))
            for place, name in enumerate(self.measures)
        ]
        return [
            *charts,
            *([self._table()] if self.networks else []),
            *([self._domains_sheet()] if self.networks and self.networks[0].domains else []),
            *([self._tasks_sheet()] if self.tasks else []),
        ]

    def _bars(self, name: str) -> Bars:
        rows = []
        for one in self.networks:
            low, high = one.spread.get(name, (None, None))
            colour = COLOURS.get(one.name, "grey")
            rows.append(Bar(one.name, one.values[name], shown(one, name), colour, low, high))
        values = [value for bar in rows for value in (bar.value, bar.low, bar.high) if value is not None]
        measure = MEASURES[name]
        return Bars(f"{measure.title} of child, parent and others", from_zero(values, measure.axis), rows)

    def _table(self) -> Sheet:
        lines: list[Row] = [
            [
                one.name,
                show_amount(one.params),
                *(shown(one, name) for name in self.measures),
                *(
                    show_measure("kl", one.kl_by_position[span]) if one.kl_by_position else ""
                    for span in self.positions
                ),
                Cell(_draws(one), "shape"),
            ]
            for one in self.networks
        ]
        head: list[Cell | str] = ["network", "parameters", *(MEASURES[name].head for name in self.measures)]
        head += [POSITIONS[span] for span in self.positions]
        head.append(Cell("range over draws" * any(one.spread for one in self.networks), "shape"))
        units = "; ".join(
            measure.unit if measure.unit.startswith(measure.head) else f"{measure.head}: {measure.unit}"
            for measure in (MEASURES[name] for name in self.measures if name != "perplexity")
        )
        notes = [units, *([BY_POSITION] if self.positions else []), self.note]
        on = (PAGE, TERMINAL, NOTEBOOK)
        return Sheet("All numbers", head, lines, notes, kind="evaluation", on=on)

    def _domains_sheet(self) -> Sheet:
        of_child = self.networks[0].domains
        places = [(name, domain) for name in self.measures for domain in of_child if name in of_child[domain]]
        lines: list[Row] = [
            [one.name, *(show_measure(name, one.domains[domain][name]) for name, domain in places)]
            for one in self.networks
        ]
        head = ["network", *(f"{MEASURES[name].head} on {domain}" for name, domain in places)]
        return Sheet("By domain", head, lines, kind="evaluation", on=(PAGE, TERMINAL, NOTEBOOK))

    def _tasks_sheet(self) -> Sheet:
        def measured(value: float, error: float | None) -> Cell:
            return Cell(f"{value:.4f}", note="" if error is None else f"± {error:.4f}")

        lines: list[Row] = [
            [
                row.task,
                row.metric,
                str(row.samples or ""),
                measured(row.child, row.child_stderr),
                measured(row.parent, row.parent_stderr),
            ]
            for row in self.tasks
        ]
        head = ["task", "metric", "samples", "child", "parent"]
        title = "Tasks of lm-evaluation-harness"
        return Sheet(title, head, lines, kind="tasks", on=(PAGE, TERMINAL, NOTEBOOK))


def shown(one: JudgedNetwork, name: str) -> str:
    return show_measure(name, one.values[name])


def _draws(one: JudgedNetwork) -> str:
    """Return the ends of the draws by measure, in words; empty of one that was not drawn."""
    return "; ".join(
        " to ".join(show_measure(name, end) for end in ends) for name, ends in one.spread.items()
    )


def show_measure(name: str, value: float) -> str:
    return f"{value:{MEASURES[name].form}}"
