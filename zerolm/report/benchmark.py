"""The page of a comparison: a summary, then a section for each benchmark and view."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from zerolm.comparison.results import Comparison, Section
from zerolm.report.curves import alpha_curve, alpha_keys, regret_figure, regret_keys
from zerolm.report.facts import facts
from zerolm.report.figures import MARKS, forest, scatter
from zerolm.report.page import Cell, page, table
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
STYLE: Final = """
nav { font-size: .92rem; margin: .8rem 0 1.2rem; line-height: 1.9 } nav a { white-space: nowrap }
a { color: #2563a8; text-decoration: none } a:hover { text-decoration: underline }
h2 { border-top: 1px solid #cbd2d9; padding-top: 1.2rem } h3 { font-size: 1rem; margin: 1.4rem 0 .2rem }
h2 a.top { float: right; font-size: .8rem; font-weight: 400 }
ul.card { padding-left: 2rem; font-size: .95rem } ul.card li { margin: .15rem 0 }
h1, h2, p, li, td { overflow-wrap: anywhere } th { overflow-wrap: break-word }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif }
svg.swatch { display: inline-block; width: 24px; height: 12px; margin-right: .35rem; vertical-align: -1px }
.key { margin-right: 1.1rem; font-size: .85rem; color: #52606d; white-space: nowrap; display: inline-block }
figure { margin: .2rem 0 0; break-inside: avoid } .pair { display: flex; gap: 20px; break-inside: avoid }
.pair figure { flex: 1; min-width: 0 } .pair figcaption { min-height: 4.2em }
figcaption { line-height: 1.45 }
table.agreement { font-size: .8rem } table.overview { font-size: .84rem }
table.overview { table-layout: fixed } .overview td { white-space: nowrap }
.overview th:first-child { width: 8.2rem }
.agreement th, .agreement td, .overview th, .overview td { padding: .22rem .4rem }
.agreement td { white-space: nowrap }
.agreement td.shape { white-space: normal; min-width: 12.4rem; font-size: .75rem }
.agreement th { vertical-align: bottom }
.overview th { vertical-align: bottom; line-height: 1.25; font-size: .78rem }
.overview th small { display: block; font-weight: 400 }
table.facts { font-size: .88rem; margin-top: 1rem }
.facts td { text-align: left } .facts td:first-child { width: 11rem }
td small { color: #7b8794; font-size: .88em }
td.better { color: #1d6b41 } td.worse { color: #a8431a } td.base, td.aside { color: #7b8794 }
td.saw { font-style: italic }
.overview td.better { background: #e3f3e9 } .overview td.worse { background: #fbe9e0 }
.overview td.better::after { content: " ▴" } .overview td.worse::after { content: " ▾" }
.agreement td.better:first-child { box-shadow: inset 3px 0 #2f8f5b }
.agreement td.worse:first-child { box-shadow: inset 3px 0 #d9622b }
tr { break-inside: avoid }
@page { size: A4; margin: 10mm }
@media print {
  nav, a.top { display: none !important }
  body { margin: 0; max-width: none; zoom: .68 }
  section { break-before: page }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
"""


def comparison_page(comparison: Comparison, ablation: str = "") -> str:
    """The page as HTML; ``ablation`` is HTML and comes last."""
    body = [
        '<h1 id="top">zerolm bench</h1>',
        f'<p class="lead">{escape(_lead(comparison))}</p>',
        _navigation(comparison, bool(ablation)),
        f'<ul class="card">{"".join(f"<li>{escape(one)}</li>" for one in sentences(comparison))}</ul>',
        overview(comparison),
        f'<p class="note">{escape(OVERVIEW_NOTE)}</p>',
        *(_section(section, number) for number, section in enumerate(comparison.sections, 1)),
    ]
    if ablation:
        body.append(f'<section id="ablation">{ablation}</section>')
    return page("zerolm bench", body, STYLE)


def _lead(comparison: Comparison) -> str:
    names = {section.truth.name: len(section.result) for section in comparison.sections}
    views = len(comparison.sections)
    return (
        f"How well scores rank {sum(names.values())} trained architectures of {len(names)} "
        f"benchmark{'s' * (len(names) > 1)}"
        + (f" in {views} views" if views > len(names) else "")
        + ", and whether they rank better than counting parameters."
        + (f" {comparison.note[0].upper()}{comparison.note[1:]}." if comparison.note else "")
    )


def _navigation(comparison: Comparison, ablation: bool) -> str:
    links = [
        f'<a href="#s{number}">{escape(place(section))}</a>'
        for number, section in enumerate(comparison.sections, 1)
    ]
    links += ['<a href="#ablation">ablation</a>'] * ablation
    return f"<nav>{' &nbsp;·&nbsp; '.join(links)}</nav>"


def _section(section: Section, number: int) -> str:
    lead = f"{unit(section)}, {len(section.result)} architectures. {section.truth.task}".strip()
    note = VIEW_NOTES.get(section.view or "") if section.truth.space == "flexibert" else None
    parts = [
        f'<section id="s{number}"><h2>{escape(section.title)}<a class="top" href="#top">top</a></h2>',
        f'<p class="lead">{escape(lead)}</p>',
        f"<p>View <b>{escape(section.view or '')}</b>: {escape(_lower(note))}</p>" if note else "",
        agreement(section),
        f'<p class="note">{escape(HEADS_NOTE)}</p>' if number == 1 else "",
        _figure("Agreement with the results", MARKS, forest(section)),
        _figure("Result against score", "", scatter(section)),
        '<div class="pair">',
        _figure("Alpha", alpha_keys(section), alpha_curve(section)),
        _figure("Regret against budget", regret_keys(section), regret_figure(section)),
        "</div>",
        table(["facts", Cell("", "shape")], _facts(section), "facts"),
        "</section>",
    ]
    return "".join(parts)


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _figure(title: str, keys: str, picture: str) -> str:
    return f"<figure><h3>{title}</h3><figcaption>{keys}</figcaption>{picture}</figure>"


def _facts(section: Section) -> Iterator[list[Cell | str]]:
    """Return what stands below the drawings: names, and what is known of each."""
    for name, text in facts(section):
        yield [name, text]
    yield ["task", section.truth.task or "not named"]
    yield ["space", section.truth.space]
    source = dict(section.truth.source)
    yield ["licence", str(source.pop("licence", "not named"))]
    yield ["source", "; ".join(f"{name} {value}" for name, value in source.items()) or "not named"]
