"""The page of a comparison: the findings, then a section for each benchmark and view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from zerolm.comparison.ablation import Ablation
from zerolm.comparison.results import Comparison, Section
from zerolm.report.ablation import ablation_section
from zerolm.report.comparison_charts import alpha_curve, gains, regrets, scatters
from zerolm.report.facts import facts
from zerolm.report.page import Heading, note, page, pairs, section
from zerolm.report.rows import place, unit
from zerolm.report.summary import sentences
from zerolm.report.tables import HEADS_NOTE, agreement, overview

VIEW_NOTES: Final = {
    "published": "The networks as the published proxies scored them: hidden 256 and FFN 1024, whatever a "
    "configuration says.",
    "declared": "The networks as a user reads their configurations.",
    "trained": "The networks as they were trained: every operation is plain attention, the first FFN matrix "
    "is 4 x hidden, and the configured FFN width enters only layers with several stacks.",
}
OVERVIEW_NOTE: Final = (
    "▴ beats counting parameters: the 95 % interval of the gain over body parameters lies above zero, and "
    "total parameters are beaten too. ▾ does not: one of the two has at least the same tau-b. Unmarked "
    "scores are higher, but not shown to be. Grey: baselines. Italic: the alpha was chosen by the labels "
    "themselves."
)
UNSEEN: Final = (
    "Intervals are 95 % bootstraps over architectures; views of one benchmark share its results and are no "
    "independent evidence. Scores that saw the labels show what tuning could reach, not what a user gets."
)


def comparison_page(
    comparison: Comparison, ablation: Ablation | None = None, configuration: Mapping[str, Any] | None = None
) -> str:
    """Return the page as HTML; the ablation comes last, and ``configuration`` is what ``run.yaml`` holds."""
    said = sentences(comparison)
    findings = said["geo"] or said["best"], said["counts"] or said["never_worse"]
    more = [text for text in said.values() if text and text not in findings]
    heading = Heading(
        "zerolm bench",
        _title(comparison),
        _lead(comparison),
        findings[0] or "No score of these is defined.",
        findings[1] or "No baseline is defined.",
        f"{UNSEEN} {_capital(comparison.note)}{'.' * bool(comparison.note)}".strip(),
    )
    body = [
        _navigation(comparison, ablation is not None),
        section(
            "All scores on all benchmarks",
            f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in more)}</ul>" if more else "",
            overview(comparison),
            note(OVERVIEW_NOTE),
        ),
        *(benchmark(part, number) for number, part in enumerate(comparison.sections, 1)),
    ]
    if ablation is not None:
        body.append(section("What the score hangs on", ablation_section(ablation), mark="ablation"))
    return page(heading, body, configuration)


def comparison_fragment(comparison: Comparison) -> str:
    """Return the table of all scores and, of one benchmark, its gains, without style or script."""
    drawn = gains(comparison.sections[0], narrow=True) if len(comparison.sections) == 1 else ""
    return (
        f'<div style="max-width:900px"><p>{escape(_lead(comparison))}</p>{overview(comparison)}{drawn}</div>'
    )


def benchmark(part: Section, number: int) -> str:
    """Return everything about one benchmark in one view."""
    lead = f"{unit(part)}, {len(part.result)} architectures. {part.truth.task}".strip()
    known = VIEW_NOTES.get(part.view or "") if part.truth.space == "flexibert" else None
    view = f"View {part.view}: {known}" if known else ""
    return (
        f'<section id="s{number}"><h2>{escape(part.title)} <a class="top" href="#top">top</a></h2>'
        f'<p class="lead">{escape(lead)}</p>{note(view)}'
        f"<h3>Gain over counting body parameters</h3>{gains(part)}"
        f"<h3>Result against score</h3>{scatters(part)}"
        f'<div class="pair"><figure><h3>Alpha</h3>{alpha_curve(part)}</figure>'
        f"<figure><h3>Regret against budget</h3>{regrets(part)}</figure></div>"
        f"<h3>All numbers</h3>{agreement(part)}{note(HEADS_NOTE)}"
        f"<h3>Facts</h3>{pairs(_facts(part), 'pairs wide')}</section>"
    )


def _title(comparison: Comparison) -> str:
    names = {part.truth.name for part in comparison.sections}
    ranked = f"{len(names)} benchmarks" if len(names) > 1 else next(iter(names), "nothing")
    return f"Do scores rank {ranked} better than counting parameters?"


def _lead(comparison: Comparison) -> str:
    names = {part.truth.name: len(part.result) for part in comparison.sections}
    views = len(comparison.sections)
    return (
        f"{sum(names.values())} trained architectures of {len(names)} benchmark{'s' * (len(names) > 1)}"
        + (f" in {views} views" if views > len(names) else "")
        + "."
    )


def _navigation(comparison: Comparison, ablation: bool) -> str:
    links = [
        f'<a href="#s{number}">{escape(place(part))}</a>'
        for number, part in enumerate(comparison.sections, 1)
    ]
    links += ['<a href="#ablation">ablation</a>'] * ablation
    return f'<nav aria-label="Sections">{"".join(links)}</nav>'


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _facts(part: Section) -> Iterator[tuple[str, str]]:
    """Yield names, and what is known of each."""
    yield from facts(part)
    yield "task", part.truth.task or "not named"
    yield "space", part.truth.space
    source = dict(part.truth.source)
    yield "licence", str(source.pop("licence", "not named"))
    yield "source", "; ".join(f"{name} {value}" for name, value in source.items()) or "not named"
