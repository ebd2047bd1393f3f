"""The result of ``zerolm lab ablate``: changes of tau-b with their intervals, draws, borrowed alphas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Self

from zerolm.calibration.alpha import GRID
from zerolm.groundtruth.truth import is_line
from zerolm.io.plain import checked
from zerolm.lab.ablation.ablate import AblationSection, BorrowedAlpha, Effect
from zerolm.lab.ablation.variants import ATTENTION, EMBEDDED, FFN, FUSED, SPLIT, WITHOUT
from zerolm.show.charts import LINEAR, Bar, Bars, axis, signed_tick
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet, pairs
from zerolm.show.text import show_number
from zerolm.verbs.report import Report

EVEN, ALL, BEST = "zerolm 0.5", "zerolm 1", "zerolm best"
"""The columns of ``zerolm``: both kinds of matrices alike, attention alone, and the best alpha."""
NOTES: Final = {
    "cell": "tau-b / tau with the score's ties broken at random",
    "change": "of tau-b against the first row, with its paired 95 % bootstrap interval; 0 is none at all",
    "shown": "the interval lies on one side of 0; views of one benchmark share its results",
    "best": "the best alpha of -1.5, -1.4 ... 1.5: it saw the labels, anew in every row",
    "embeddings": "count by the shapes of their matrices, else as one matrix as wide as the network: zerolm "
    "adds the longer side times 0.02^2 whatever alpha, geo the number of weights, stable_rank its own term; "
    "heads are left out",
    "draws": "ten networks of each architecture; norms are drawn as ||W||_F^2 of k normal weights, their "
    "variance times a chi-square variable with k degrees of freedom",
    "Xavier, Kaiming": "the normal ones; with them and orthogonal a matrix counts by the ratio of its sides",
}
"""How to read the tables."""
COLOURS: Final = {-1: "orange", 0: "grey", 1: "green"}
SHOWN: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("one matrix dropped", EVEN, (WITHOUT,)),
    ("one matrix dropped", BEST, (WITHOUT,)),
    ("q, k, v split or fused", EVEN, (SPLIT, FUSED)),
    ("attention alone", EVEN, (ATTENTION,)),
    ("FFN alone", EVEN, (FFN,)),
    ("with embeddings", EVEN, (EMBEDDED,)),
    ("another initialisation", EVEN, ()),
    ("another initialisation", BEST, ()),
)
"""Changes whose directions are counted: of one score, by variants that begin so, or initialisations."""


@dataclass(frozen=True, repr=False, eq=False)
class AblationReport(Report):
    """The ablation of ZeroLM's score, for each benchmark in each view.

    ``problems`` say which benchmarks are left out, and why.
    """

    command: ClassVar[str] = "lab ablate"
    sections: tuple[AblationSection, ...]
    problems: tuple[str, ...] = ()

    @property
    def transfers(self) -> list[list[BorrowedAlpha]]:
        """Of each section in turn, its alpha used on each section."""
        return [[used_on.borrowed(of) for used_on in self.sections] for of in self.sections]

    def to_json(self) -> dict[str, Any]:
        return {
            "grid": list(GRID),
            "sections": [
                asdict(one)
                | {
                    "draws": [asdict(draws) | draws.summary for draws in one.draws],
                    "best_alpha": one.best_alpha,
                }
                for one in self.sections
            ],
            "transfer": [asdict(borrowed) for row in self.transfers for borrowed in row],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        sections = checked(tuple[AblationSection, ...], document["sections"])
        if not sections:
            raise ValueError("sections: there are none")
        for section in sections:
            texts = [section.benchmark, section.view or "-", section.metric]
            texts += [name for effect in section.effects for name in (effect.variant, effect.score)]
            if len(section.curve) != len(GRID) or not all(map(is_line, texts)):
                raise ValueError("the curve of alphas or a name is not one")
        return cls(sections)

    def lines(self) -> list[str]:
        return [f"{one.title}, best alpha {one.best_alpha:g}" for one in self.sections]

    @property
    def remarks(self) -> list[str]:
        return list(self.problems)

    def heading(self) -> Heading:
        count = len(self.sections)
        effects = (each for one in self.sections for each in one.effects)
        ways = [each.direction for each in effects if each.change is not None]
        return Heading(
            "What does ZeroLM's score hang on?",
            f"{count} view{'s' * (count > 1)} of benchmarks: {', '.join(self.lines())}.",
            f"{ways.count(-1)} of {len(ways)} changes are shown to lower tau, {ways.count(1)} to raise it.",
            "Each is against the score as published, with its paired 95 % interval.",
            "The best alphas saw the labels; views of one benchmark share its results.",
        )

    def sheets(self) -> list[Sheet]:
        return [
            Sheet(charts=changes(self.sections[0]) if self.sections else [], on=(NOTEBOOK,)),
            self.shown(),
            pairs("How to read the tables", NOTES.items()),
            *self.borrowed(),
            *(self._section(one, f"s{i}") for i, one in enumerate(self.sections, 1)),
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"benchmark": section.benchmark, "view": section.view, "part": part, **asdict(effect)}
            for section in self.sections
            for part, effects in (
                ("matrices", section.matrices),
                ("initialisation", section.initialisations),
            )
            for effect in effects
        ]

    def shown(self) -> Sheet:
        """Return in how many cases a change of the score is shown to lower and to raise tau."""
        rows: list[Row] = []
        for change, name, begins in SHOWN:
            effects = [
                each
                for one in self.sections
                for each in column(one.matrices if begins else one.initialisations, name)
                if each.change is not None and each.variant.startswith(begins or "")
            ]
            ways, moves = [each.direction for each in effects], [each.change or 0.0 for each in effects]
            ends = (signed(min(moves, default=None)), signed(max(moves, default=None)))
            rows.append([change, name, str(ways.count(-1)), str(ways.count(1)), str(len(moves)), *ends])
        head = ["change", "of", "shown lower", "shown higher", "cases", "least", "most"]
        return Sheet("What is shown to move tau", head, rows, kind="ablation")

    def borrowed(self) -> list[Sheet]:
        """Return the best alpha of each benchmark used on each, if there is more than one."""
        if len(self.sections) < 2:
            return []
        head = ["best alpha of", "alpha", *(f"on {i}" for i in range(1, len(self.sections) + 1))]
        rows = [
            [f"{i} {row[0].alpha_of}", f"{row[0].alpha:g}", *map(_borrowed, row)]
            for i, row in enumerate(self.transfers, 1)
        ]
        title = "Borrowed alphas: tau-b, and the change against the best alpha of the same data (*)"
        return [Sheet(title, head, rows, kind="ablation")]

    def _section(self, section: AblationSection, mark: str) -> Sheet:
        """Return the changes on one benchmark in one view as a chart, and its tables, which pages fold."""
        tables = section_tables(section)
        parts = [
            Sheet(charts=changes(section), on=(PAGE,)),
            Sheet("Tables", parts=tables, folded=True, on=(PAGE,)),
            Sheet(parts=tables, on=(TERMINAL,)),
        ]
        return Sheet(section.title, lead=about(section), mark=mark, parts=parts)


def about(section: AblationSection) -> str:
    """Return the metric of a section, its direction, and how many architectures it is of."""
    better = "higher is better" if section.higher_is_better else "lower is better"
    return f"{section.metric} ({better}), {section.n} architectures"


def changes(section: AblationSection) -> list[Bars]:
    """Return a chart of how tau-b changes with the matrices that count; none where no change is defined."""
    bars = [
        Bar(one.variant, one.change, signed(one.change), COLOURS[one.direction], one.low, one.high, "dot")
        for one in column(section.matrices, EVEN)
        if one.change is not None
    ]
    ends = [value for bar in bars for value in (bar.value, bar.low, bar.high) if value is not None]
    name = f"change of tau-b of {EVEN}, paired 95 % interval"
    x = axis([0.0, *ends], name, wide=LINEAR, form=signed_tick)
    title = f"{name}, by the matrices that count, on {section.title}"
    return [Bars(title, x, bars, [(0.0, "ink")])] if bars else []


def section_tables(section: AblationSection) -> list[Sheet]:
    """Return the tables of one benchmark in one view."""
    draws: list[Row] = [
        [
            one.init,
            f"{one.alpha:g}{' best' if one.saw_labels else ''}",
            f"{show_number(one.closed)}/{show_number(one.closed_random_ties)}",
            *(show_number(one.summary[name]) for name in ("mean", "low", "high")),
            show_number(one.summary["deviation"], ".4f"),
            show_number(one.summary["agreement"]),
        ]
        for one in section.draws
    ]
    head = [
        "drawn, ten seeds",
        "alpha",
        "closed form",
        "mean",
        "least",
        "most",
        "deviation",
        "with closed form",
    ]
    title = "Seed: tau-b of drawn networks with the result, and with the closed form"
    return [
        _effects("Which matrices count: zerolm", section.matrices, (EVEN, BEST)),
        _effects("Which matrices count: others", section.matrices, ("geo", "stable_rank")),
        _effects("Initialisation, in closed form", section.initialisations, (EVEN, ALL, BEST)),
        Sheet(title, head, draws, kind="ablation"),
    ]


def _borrowed(transfer: BorrowedAlpha) -> str:
    if transfer.loss is None:
        return "-"
    change = signed(-transfer.loss) if transfer.loss else "0"
    return f"{show_number(transfer.tau)} {change}{'*' if transfer.same_data else ''}"


def _effects(title: str, effects: Sequence[Effect], names: Sequence[str]) -> Sheet:
    """Return a row for each variant, with the cells of each score."""
    head = ["variant"]
    for name in names:
        head += [name, *(["alpha"] if name.endswith("best") else []), "change"]
    rows: list[Row] = [
        [columns[0].variant, *(cell for effect in columns for cell in _cells(effect))]
        for columns in zip(*(column(effects, name) for name in names), strict=True)
    ]
    return Sheet(title, head, rows, kind="ablation")


def _cells(effect: Effect) -> Iterator[str]:
    yield (
        f"{show_number(effect.tau)}/{show_number(effect.tau_random_ties)}" if effect.tau is not None else "-"
    )
    if effect.saw_labels:
        yield f"{effect.alpha:g}"
    if effect.change is None:
        yield ""
    elif effect.change == effect.low == effect.high == 0.0:
        yield "0"
    else:
        interval = "" if effect.low is None else f" [{signed(effect.low)}, {signed(effect.high)}]"
        yield f"{signed(effect.change)}{interval}"


def column(effects: Iterable[Effect], name: str) -> list[Effect]:
    """Return the effects on one score, the first variant first."""
    return [each for each in effects if each.column == name]


def signed(value: float | None) -> str:
    """Return +0.012; a dash where it is not defined."""
    return show_number(value, "+.3f")
