"""Facts that belong to every agreement with a benchmark: chance, noise, and what others reached."""

from __future__ import annotations

from collections.abc import Iterator

from zerolm.comparison.results import Section
from zerolm.statistics.bootstrap import FEWEST


def facts(section: Section) -> Iterator[tuple[str, str]]:
    """Return names, and what is known of each."""
    one, five = section.random_regret
    yield "random choice", f"regret at 1 {one:.3g}, at 5 {five:.3g}"
    if len(section.result) < FEWEST:
        yield "intervals", f"none, with fewer than {FEWEST} architectures"
    count = max((row.pairs for row in section.rows), default=0)
    yield "pairs", f"{count} of about equal size, {section.alike}; a coin orders 50 % rightly"
    if section.plateau:
        low, high = section.plateau
        reach = f"alpha {low:g}" if low == high else f"alpha {low:g} to {high:g}"
        yield "alpha plateau", f"{reach}: level with the best alpha by the paired 95 % interval"
    if section.ceiling:
        c = section.ceiling
        yield (
            "noise ceiling",
            f"a perfect predictor reaches about {c.tau:.2f} tau-b, {c.rho:.2f} rho; from {c.runs} runs of "
            f"{c.networks} repeated networks, deviation of a run {c.deviation:.3g}",
        )
    if section.published:
        p = section.published
        numbers = [
            f"{value:.3f} {name}" for name, value in (("tau", p.tau), ("rho", p.rho)) if value is not None
        ]
        yield "best published", f"{', '.join(numbers)}: {p.by}"


def tokens_of(source: str) -> str:
    """Return what the proxies were computed on, in words."""
    if source.startswith("random"):
        return "tokens are drawn at random: give --text FILE for what a proxy says on real text"
    return f"proxies on tokens of the {source}"
