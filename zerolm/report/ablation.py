"""The tables of an ablation, as text cells for every way to show them, and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from zerolm.comparison.ablation import Ablation, AblationSection, BorrowedAlpha, Effect
from zerolm.comparison.variants import WITHOUT
from zerolm.report.ablation_conclusions import conclusions
from zerolm.report.ablation_findings import EVEN, column, moved, plain, sentences, signed
from zerolm.report.bars import BarRow, bars, signed_tick
from zerolm.report.chart import LINEAR, axis
from zerolm.report.page import Heading, folded_html, note, page, paragraphs, section, table

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


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table: its title, its head, rows of cells, and the sentences that it supports."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...] = ()


def sheets(ablation: Ablation, section: AblationSection) -> list[Sheet]:
    """The tables of one benchmark in one view."""
    said = sentences(ablation, section)
    return [
        _effects("Which matrices count: zerolm", section.matrices, ("zerolm 0.5", "zerolm best")),
        _effects(
            "Which matrices count: others", section.matrices, ("geo", "stable_rank"), (said["matrices"],)
        ),
        _effects(
            "Initialisation, in closed form",
            section.initialisations,
            ("zerolm 0.5", "zerolm 1", "zerolm best"),
            (said["initialisation"],),
        ),
        _draws(section, (said["seed"],)),
    ]


def transfer_sheets(ablation: Ablation) -> list[Sheet]:
    """The best alpha of each benchmark used on each: a matrix, if there is more than one."""
    if len(ablation.sections) < 2:
        return []
    head = ("best alpha of", "alpha", *(f"on {i}" for i in range(1, len(ablation.sections) + 1)))
    rows = [
        (f"{i} {row[0].alpha_of}", f"{row[0].alpha:g}", *map(_borrowed, row))
        for i, row in enumerate(ablation.transfers, 1)
    ]
    title = (
        "Borrowed alphas: tau-b, and the change against the best alpha of the same data; * is the same data"
    )
    said = tuple(sentences(ablation, section)["transfer"] for section in ablation.sections)
    return [Sheet(title, head, tuple(rows), said)]


def title(section: AblationSection) -> str:
    better = "higher is better" if section.higher_is_better else "lower is better"
    return f"{section.title}: {section.metric} ({better}), {section.n} architectures"


def ablation_page(ablation: Ablation, configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page as HTML; ``configuration`` is what ``run.yaml`` holds."""
    said = conclusions(ablation)
    views = len(ablation.sections)
    heading = Heading(
        "zerolm bench ablate",
        "What does ZeroLM's score hang on?",
        f"{views} view{'s' * (views > 1)} of benchmarks, each change with its paired 95 % interval.",
        said["matrices"],
        said["initialisation"],
        f"{said['seed']} {said['transfer']}",
    )
    return page(heading, [section("All numbers", ablation_section(ablation, said=False))], configuration)


def ablation_section(ablation: Ablation, said: bool = True) -> str:
    """Return charts, tables and, where they are to be ``said``, the conclusions; headings start at h3."""
    parts = [paragraphs(conclusions(ablation).values())] if said else []
    parts += map(note, NOTES)
    parts += [_html(sheet, 3) for sheet in transfer_sheets(ablation)]
    for part in ablation.sections:
        tables = "".join(_html(sheet) for sheet in sheets(ablation, part))
        parts.append(f"<h3>{escape(title(part))}</h3>{_changes(part)}{folded_html('Tables', tables)}")
    return "".join(parts)


def ablation_fragment(ablation: Ablation) -> str:
    """Return the conclusions, and the changes on the first benchmark, without style or script."""
    drawn = _changes(ablation.sections[0], narrow=True) if ablation.sections else ""
    return f'<div style="max-width:720px">{paragraphs(conclusions(ablation).values())}{drawn}</div>'


def _changes(part: AblationSection, narrow: bool = False) -> str:
    """Return a chart of how tau-b changes with the matrices that count."""
    effects = [effect for effect in column(part.matrices, EVEN) if effect.change is not None]
    if not effects:
        return ""
    colours = {-1: "orange", 0: "grey", 1: "green"}
    rows = [
        BarRow(effect.variant, effect.change, signed(effect.change), colours[effect.direction], effect.low,
            effect.high, "dot")
        for effect in effects
    ]  # fmt: skip
    ends = [value for bar in rows for value in (bar.value, bar.low, bar.high) if value is not None]
    name = f"change of tau-b of {EVEN}, paired 95 % interval"
    x = axis([0.0, *ends], name, wide=LINEAR, form=signed_tick)
    label = f"{name}, by the matrices that count, on {part.title}"
    return bars(rows, x, label, [(0.0, "ink")], narrow=narrow)


def _effects(
    title: str, effects: Sequence[Effect], columns: Sequence[str], said: tuple[str, ...] = ()
) -> Sheet:
    """A row for each variant; single matrices whose drop does the same share one."""
    head = [""]
    for name in columns:
        head += [name, *(["alpha"] if name.endswith("best") else []), "change"]
    rows: dict[tuple[str, ...], list[str]] = {}
    for variant in zip(*(column(effects, name) for name in columns), strict=True):
        cells = tuple(cell for effect in variant for cell in _cells(effect))
        name = variant[0].variant
        key = (*cells, "" if name.startswith(WITHOUT) else name)
        rows.setdefault(key, []).append(name)
    shown = [(_together(names), *key[:-1]) for key, names in rows.items()]
    return Sheet(title, tuple(head), tuple(shown), said)


def _cells(effect: Effect) -> Iterable[str]:
    yield f"{plain(effect.tau)}/{plain(effect.tau_random_ties)}" if effect.tau is not None else "-"
    if effect.saw_labels:
        yield f"{effect.alpha:g}"
    yield moved(effect) if effect.change is not None else ""


def _together(names: Sequence[str]) -> str:
    return WITHOUT + " / ".join(name.removeprefix(WITHOUT) for name in names) if len(names) > 1 else names[0]


def _draws(section: AblationSection, said: tuple[str, ...]) -> Sheet:
    head = (
        "drawn, ten seeds",
        "alpha",
        "closed form",
        "mean",
        "least",
        "most",
        "deviation",
        "with closed form",
    )
    rows = [
        (
            draws.init,
            f"{draws.alpha:g}{' best' if draws.saw_labels else ''}",
            f"{plain(draws.closed)}/{plain(draws.closed_random_ties)}",
            plain(draws.mean),
            plain(draws.low),
            plain(draws.high),
            plain(draws.deviation, 4),
            plain(draws.agreement),
        )
        for draws in section.draws
    ]
    title = "Seed: tau-b of drawn networks with the result, and with the closed form"
    return Sheet(title, head, tuple(rows), said)


def _borrowed(transfer: BorrowedAlpha) -> str:
    if transfer.loss is None:
        return "-"
    change = signed(-transfer.loss) if transfer.loss else "0"
    return f"{plain(transfer.tau)} {change}{'*' if transfer.same_data else ''}"


def _html(sheet: Sheet, level: int = 4) -> str:
    head = [name or "variant" for name in sheet.head]
    shown = table(head, sheet.rows, "ablation")
    return f"<h{level}>{escape(sheet.title)}</h{level}>{shown}{paragraphs(sheet.sentences)}"
