"""The result of ``zerolm lab ablate``: changes of tau-b with their intervals, draws, borrowed alphas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Self

from zerolm.calibration.alpha import GRID
from zerolm.groundtruth.truth import is_line
from zerolm.io.plain import checked
from zerolm.lab.ablation.ablation import Ablation, AblationSection, BorrowedAlpha, Effect
from zerolm.lab.ablation.variants import WITHOUT
from zerolm.lab.verbs.ablation_conclusions import conclusions
from zerolm.lab.verbs.ablation_findings import ALL, BEST, EVEN, column, moved, plain, sentences, signed
from zerolm.show.charts import LINEAR, Bar, Bars, axis, signed_tick
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet
from zerolm.verbs.report import Report

NOTES: Final = (
    "A cell is tau-b / tau with the score's ties broken at random; a change of tau-b is against the first "
    "row, with its paired 95 % bootstrap interval; 0 is no change at all. 'best' is the best alpha of "
    "-1.5, -1.4 ... 1.5: it saw the labels, anew in every row.",
    "Embeddings count by the shapes of their matrices (FlexiBERT's and adaptive ones are factorised), else "
    "as one matrix as wide as the network: zerolm adds the longer side times 0.02^2 whatever alpha, geo the "
    "number of weights, stable_rank its own term; heads are left out.",
    "Draws: ten networks of each architecture. ||W||_F^2 of k normal weights is their variance times a "
    "chi-square variable with k degrees of freedom, so norms are drawn and no weights. Xavier and Kaiming "
    "are the normal ones (uniform ones have the same mean, and less noise); orthogonal has nothing to draw.",
)
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
        """Return the numbers, the sentences about each section, and the conclusions."""
        document = self.ablation.to_json()
        for section, numbers in zip(self.ablation.sections, document["sections"], strict=True):
            numbers["sentences"] = sentences(self.ablation, section)
        return {**document, "conclusions": conclusions(self.ablation)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        sections = checked(tuple[AblationSection, ...], document["sections"])
        for section in sections:
            effects = (*section.matrices, *section.initialisations)
            texts = [section.benchmark, section.view or "-", section.metric]
            texts += [name for effect in effects for name in (effect.variant, effect.score)]
            if len(section.curve) != len(GRID) or not all(map(is_line, texts)):
                raise ValueError("the curve of alphas or a name is not one")
        report = cls(Ablation(sections))
        report.to_json()  # an effect that a sentence is about may not be there
        return report

    def lines(self) -> list[str]:
        sections = self.ablation.sections
        best = [f"{section.title}, best alpha {section.best_alpha:g}" for section in sections]
        return [*best, *conclusions(self.ablation).values()]

    @property
    def remarks(self) -> list[str]:
        return list(self.problems)

    def heading(self) -> Heading:
        texts, views = conclusions(self.ablation), len(self.ablation.sections)
        return Heading(
            "What does ZeroLM's score hang on?",
            f"{views} view{'s' * (views > 1)} of benchmarks, each change with its paired 95 % interval.",
            texts["matrices"],
            texts["initialisation"],
            f"{texts['seed']} {texts['transfer']}",
        )

    def sheets(self) -> list[Sheet]:
        sections = self.ablation.sections
        return [
            Sheet(charts=changes(sections[0]) if sections else [], on=(NOTEBOOK,)),
            Sheet("How to read the tables", sentences=NOTES),
            *transfer_sheets(self.ablation),
            *(section_sheet(self.ablation, one, f"s{i}") for i, one in enumerate(sections, 1)),
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


def ablation_sheet(ablation: Ablation) -> Sheet:
    """Return all of an ablation as one part of another page."""
    parts = [*transfer_sheets(ablation), *(section_sheet(ablation, one) for one in ablation.sections)]
    texts = list(conclusions(ablation).values())
    return Sheet(
        "What the score hangs on", sentences=texts, notes=NOTES, parts=parts, on=(PAGE,), mark="ablation"
    )


def section_sheet(ablation: Ablation, section: AblationSection, mark: str = "") -> Sheet:
    """Return the changes on one benchmark in one view as a chart, and its tables, which pages fold."""
    tables = section_tables(ablation, section)
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


def section_tables(ablation: Ablation, section: AblationSection) -> list[Sheet]:
    """Return the tables of one benchmark in one view."""
    texts = sentences(ablation, section)
    matrices, initialisations = section.matrices, section.initialisations
    return [
        _effects("Which matrices count: zerolm", matrices, (EVEN, BEST)),
        _effects("Which matrices count: others", matrices, ("geo", "stable_rank"), texts["matrices"]),
        _effects(
            "Initialisation, in closed form", initialisations, (EVEN, ALL, BEST), texts["initialisation"]
        ),
        _draws(section, texts["seed"]),
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
    texts = [sentences(ablation, section)["transfer"] for section in ablation.sections]
    return [Sheet(title, head, rows, texts, kind="ablation")]


def _borrowed(transfer: BorrowedAlpha) -> str:
    if transfer.loss is None:
        return "-"
    change = signed(-transfer.loss) if transfer.loss else "0"
    return f"{plain(transfer.tau)} {change}{'*' if transfer.same_data else ''}"


def _effects(title: str, effects: Sequence[Effect], names: Sequence[str], sentence: str = "") -> Sheet:
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
    return Sheet(title, head, rows, [sentence] if sentence else [], kind="ablation")


def _cells(effect: Effect) -> Iterator[str]:
    yield f"{plain(effect.tau)}/{plain(effect.tau_random_ties)}" if effect.tau is not None else "-"
    if effect.saw_labels:
        yield f"{effect.alpha:g}"
    yield moved(effect) if effect.change is not None else ""


def _together(names: Sequence[str]) -> str:
    return WITHOUT + " / ".join(name.removeprefix(WITHOUT) for name in names) if len(names) > 1 else names[0]


def _draws(section: AblationSection, sentence: str) -> Sheet:
    rows = [
        [
            draws.init,
            f"{draws.alpha:g}{' best' if draws.saw_labels else ''}",
            f"{plain(draws.closed)}/{plain(draws.closed_random_ties)}",
            *map(plain, (draws.mean, draws.low, draws.high)),
            plain(draws.deviation, 4),
            plain(draws.agreement),
        ]
        for draws in section.draws
    ]
    title = "Seed: tau-b of drawn networks with the result, and with the closed form"
    return Sheet(title, DRAWN, rows, [sentence], kind="ablation")
