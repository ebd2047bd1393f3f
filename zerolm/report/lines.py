"""Lines of text that stand around tables of scores."""

from __future__ import annotations

from zerolm.comparison.results import Section
from zerolm.statistics.bootstrap import FEWEST


def tokens_of(source: str) -> str:
    """Return what the proxies were computed on, in words."""
    if source.startswith("random"):
        return "tokens are drawn at random: give --text FILE for what a proxy says on real text"
    return f"proxies on tokens of the {source}"


def facts(section: Section) -> list[str]:
    """Return the lines below a table."""
    one, five = section.random_regret
    lines = [f"a random choice has regret {one:.3g}/{five:.3g}"]
    if len(section.result) < FEWEST:
        lines.append(f"fewer than {FEWEST} architectures: no intervals")
    if section.plateau:
        low, high = section.plateau
        lines.append(f"alphas level with the best (95 %): {low:g} to {high:g}")
    if section.ceiling:
        c = section.ceiling
        lines.append(
            f"noise ceiling: a perfect predictor reaches about {c.tau:.2f}/{c.rho:.2f} (tau/rho), from "
            f"{c.runs} runs of {c.networks} repeated networks"
        )
    if section.published:
        p = section.published
        numbers = "/".join("-" if x is None else f"{x:.3f}" for x in (p.tau, p.rho))
        lines.append(f"best published: {numbers} (tau/rho), {p.by}")
    return lines
