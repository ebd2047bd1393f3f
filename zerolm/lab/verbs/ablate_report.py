"""The result of ``zerolm lab ablate``: changes of tau-b with their intervals, draws, borrowed alphas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Self

from zerolm.calibration.alpha import GRID
from zerolm.groundtruth.truth import is_line
from zerolm.io.plain import checked
from zerolm.lab.ablation.ablation import Ablation, AblationSection, BorrowedAlpha, Effect
from zerolm.lab.ablation.variants import ATTENTION, EMBEDDED, FFN, FUSED, SPLIT, WITHOUT
from zerolm.show.charts import LINEAR, Bar, Bars, axis, signed_tick
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet, pairs
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
DRAWN: Final = (
    *("drawn, ten seeds", "alpha", "closed form", "mean", "least", "most", "deviation", "with closed form"),
)


@dataclass(frozen=True, repr=False, eq=False)
class AblationReport(Report):
    """The ablation of ZeroLM's score, for each benchmark in each view.

    ``problems`` say which benchmarks are left out, and why.
    """

    command: ClassVar[str] = "lab ablate"
    ablation: Ablation
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return self.ablation.to_json()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        sections = checked(tuple[AblationSection, ...], document["sections"])
        if not sections:
            raise ValueError("sections: there are none")
        for section in sections:
            effects = (*section.matrices, *section.initialisations)
            texts = [section.benchmark, section.view or "-", section.metric]
            texts += [name for effect in effects for name in (effect.variant, effect.score)]
            if len(section.curve) != len(GRID) or not all(map(is_line, texts)):
                raise ValueError("the curve of alphas or a name is not one")
        return cls(Ablation(sections))

    def lines(self) -> list[str]:
        return [f"{one.title}, best alpha {one.best_alpha:g}" for one in self.ablation.sections]

    @property
    def remarks(self) -> list[str]:
        return list(self.problems)

    def heading(self) -> Heading:
        sections = self.ablation.sections
        effects = [each for one in sections for each in (*one.matrices, *one.initialisations)]
        ways = [each.direction for each in effects if each.change is not None]
        return Heading(
            "What does ZeroLM's score hang on?",
            f"{len(sections)} view{'s' * (len(sections) > 1)} of benchmarks: {', '.join(self.lines())}.",
            f"{ways.count(-1)} of {len(ways)} changes are shown to lower tau, {ways.count(1)} to raise it.",
            "Each is against the score as published, with its paired 95 % interval.",
            "The best alphas saw the labels; views of one benchmark share its results.",
        )

    def sheets(self) -> list[Sheet]:
        sections = self.ablation.sections
        return [
            Sheet(charts=changes(sections[0]) if sections else [], on=(NOTEBOOK,)),
            shown_sheet(self.ablation),
            pairs("How to read the tables", NOTES.items()),
            *transfer_sheets(self.ablation),
            *(section_sheet(one, f"s{i}") for i, one in enumerate(sections, 1)),
        ]

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"benchmark": section.benchmark, "view": section.view, "part": part, **asdict(effect)}
            for section in self.ablation.sections
            for part, effects in (
                ("matrices", section.matrices),
                ("initialisation", section.initialisations),
            )
            for effect in effects
        ]


def _changes(ablation: Ablation, of: str, name: str, *variants: str) -> list[Effect]:
    """Return the changes of one score: ``of`` matrices, by variants that begin so, or initialisations."""
    effects = (each for section in ablation.sections for each in column(getattr(section, of), name))
    return [each for each in effects if each.variant.startswith(variants or "") and each.change is not None]


def shown_sheet(ablation: Ablation) -> Sheet:
    """Return in how many cases a change of the score is shown to lower and to raise tau."""
    lines = [
        ("one matrix dropped", "matrices", EVEN, WITHOUT),
        ("one matrix dropped", "matrices", BEST, WITHOUT),
        ("q, k, v split or fused", "matrices", EVEN, SPLIT, FUSED),
        ("attention alone", "matrices", EVEN, ATTENTION),
        ("FFN alone", "matrices", EVEN, FFN),
        ("with embeddings", "matrices", EVEN, EMBEDDED),
        ("another initialisation", "initialisations", EVEN),
        ("another initialisation", "initialisations", BEST),
    ]
    rows: list[Row] = []
    for change, of, name, *variants in lines:
        effects = _changes(ablation, of, name, *variants)
        directions = [each.direction for each in effects]
        moves = [each.change for each in effects if each.change is not None]
        ends = (signed(min(moves)), signed(max(moves))) if moves else ("-", "-")
        rows.append([change, name, *(str(directions.count(way)) for way in (-1, 1)), str(len(moves)), *ends])
    head = ["change", "of", "shown lower", "shown higher", "cases", "least", "most"]
    return Sheet("What is shown to move tau", head, rows, kind="ablation")


def section_sheet(section: AblationSection, mark: str) -> Sheet:
    """Return the changes on one benchmark in one view as a chart, and its tables, which pages fold."""
    tables = section_tables(section)
    return Sheet(
        section.title,
        lead=about(section),
        mark=mark,
        parts=[
            Sheet(charts=changes(section), on=(PAGE,)),
            Sheet("Tables", parts=tables, folded=True, on=(PAGE,)),
            Sheet(parts=tables, on=(TERMINAL,)),
        ],
    )


def about(section: AblationSection) -> str:
    """Return the metric of a section, its direction, and how many architectures it is of."""
    better = "higher is better" if section.higher_is_better else "lower is better"
    return f"{section.metric} ({better}), {section.n} architectures"


def changes(section: AblationSection) -> list[Bars]:
    """Return a chart of how tau-b changes with the matrices that count; none where no change is defined."""
    effects = [effect for effect in column(section.matrices, EVEN) if effect.change is not None]
    if not effects:
        return []
    rows = [
        Bar(
            effect.variant,
            effect.change,
            signed(effect.change),
            COLOURS[effect.direction],
            effect.low,
            effect.high,
            "dot",
        )
        for effect in effects
    ]
    ends = [value for bar in rows for value in (bar.value, bar.low, bar.high) if value is not None]
    name = f"change of tau-b of {EVEN}, paired 95 % interval"
    x = axis([0.0, *ends], name, wide=LINEAR, form=signed_tick)
    return [Bars(f"{name}, by the matrices that count, on {section.title}", x, rows, [(0.0, "ink")])]


def section_tables(section: AblationSection) -> list[Sheet]:
    """Return the tables of one benchmark in one view."""
    matrices, initialisations = section.matrices, section.initialisations
    return [
        _effects("Which matrices count: zerolm", matrices, (EVEN, BEST)),
        _effects("Which matrices count: others", matrices, ("geo", "stable_rank")),
        _effects("Initialisation, in closed form", initialisations, (EVEN, ALL, BEST)),
        _draws(section),
    ]


def transfer_sheets(ablation: Ablation) -> list[Sheet]:
    """Return the best alpha of each benchmark used on each, if there is more than one."""
    if len(ablation.sections) < 2:
        return []
    head = ["best alpha of", "alpha", *(f"on {i}" for i in range(1, len(ablation.sections) + 1))]
    rows = [
        [f"{i} {row[0].alpha_of}", f"{row[0].alpha:g}", *map(_borrowed, row)]
        for i, row in enumerate(ablation.transfers, 1)
    ]
    title = (
        "Borrowed alphas: tau-b, and the change against the best alpha of the same data; * is the same data"
    )
    return [Sheet(title, head, rows, kind="ablation")]


def _borrowed(transfer: BorrowedAlpha) -> str:
    if transfer.loss is None:
        return "-"
    change = signed(-transfer.loss) if transfer.loss else "0"
    return f"{plain(transfer.tau)} {change}{'*' if transfer.same_data else ''}"


def _effects(title: str, effects: Sequence[Effect], names: Sequence[str]) -> Sheet:
    """Return a row for each variant; single matrices whose drop does the same share one."""
    head = ["variant"]
    for name in names:
        head += [name, *(["alpha"] if name.endswith("best") else []), "change"]
    variants: dict[tuple[str, ...], list[str]] = {}
    for columns in zip(*(column(effects, name) for name in names), strict=True):
        cells = [cell for effect in columns for cell in _cells(effect)]
        name = columns[0].variant
        key = (*cells, "" if name.startswith(WITHOUT) else name)
        variants.setdefault(key, []).append(name)
    rows: list[Row] = [[_together(together), *key[:-1]] for key, together in variants.items()]
    return Sheet(title, head, rows, kind="ablation")


def _cells(effect: Effect) -> Iterator[str]:
    yield f"{plain(effect.tau)}/{plain(effect.tau_random_ties)}" if effect.tau is not None else "-"
    if effect.saw_labels:
        yield f"{effect.alpha:g}"
    yield moved(effect) if effect.change is not None else ""


def _together(names: Sequence[str]) -> str:
    return WITHOUT + " / ".join(name.removeprefix(WITHOUT) for name in names) if len(names) > 1 else names[0]


def _draws(section: AblationSection) -> Sheet:
    rows = [
        [
            draws.init,
            f"{draws.alpha:g}{' best' if draws.saw_labels else ''}",
            f"{plain(draws.closed)}/{plain(draws.closed_random_ties)}",
            *(plain(draws.summary[name]) for name in ("mean", "low", "high")),
            plain(draws.summary["deviation"], 4),
            plain(draws.summary["agreement"]),
        ]
        for draws in section.draws
    ]
    title = "Seed: tau-b of drawn networks with the result, and with the closed form"
    return Sheet(title, DRAWN, rows, kind="ablation")


def column(effects: Sequence[Effect], name: str) -> list[Effect]:
    """Return the effects on one score, the first variant first."""
    return [each for each in effects if each.column == name]


def plain(value: float | None, digits: int = 3, sign: str = "") -> str:
    """Return .720, or +.720 with a ``sign``; - where it is not defined."""
    if value is None:
        return "-"
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}".replace("0.", ".", 1)


def signed(value: float | None) -> str:
    return plain(value, sign="+")


def moved(effect: Effect) -> str:
    """Return +.012 [-.001, +.024]; 0 where no resample changes."""
    if effect.change == effect.low == effect.high == 0.0:
        return "0"
    if effect.low is None:
        return signed(effect.change)
    return f"{signed(effect.change)} [{signed(effect.low)}, {signed(effect.high)}]"
