"""Words of a comparison: what columns and marks mean, remarks on a score, facts about a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from zerolm.comparison.results import ScoreRow, Section
from zerolm.show.text import short, show_number
from zerolm.statistics.bootstrap import FEWEST

KINDS: Final = {"better": "better", "unclear": "unclear", "not better": "worse", None: ""}
REMARKS: Final = {"not better": "does not beat parameters", "unclear": "not shown to beat parameters"}
VIEW_NOTES: Final = {
    "published": "The networks as the published proxies scored them: hidden 256 and FFN 1024, whatever a "
    "configuration contains.",
    "declared": "The networks as a user reads their configurations.",
    "trained": "The networks as they were trained: every operation is plain attention, the first FFN matrix "
    "is 4 x hidden, and the configured FFN width enters only layers with several stacks.",
}
"""What the views of FlexiBERT are."""
MARKS_NOTE: Final = (
    "▴ beats counting parameters: the 95 % interval of the gain over body parameters lies above zero, and "
    "total parameters are beaten too. ▾ does not: one of the two has at least the same tau-b. Unmarked "
    "scores are higher, but not shown to be. Grey: baselines. Italic: the alpha was chosen by the labels "
    "themselves."
)
HEADS_NOTE: Final = (
    "random ties: the mean of tau over all ways to break a score's ties. over body: tau-b beyond that of "
    "body parameters, with the interval of paired resamples. in budget: tau-b among architectures of similar "
    "numbers of body parameters (deciles). pairs: the share of pairs of about equal size that are ordered as "
    "their results are, ties counted half. top tenth: the share of the best tenth that the highest-scored "
    "tenth finds. regret 1/5: what the best of the 1 or 5 highest-scored lacks to the best, in the unit of "
    "the metric, mean over nineteen budgets."
)
UNSEEN: Final = (
    "Intervals are 95 % bootstraps over architectures; views of one benchmark share its results and are no "
    "independent evidence. Scores that saw the labels show what tuning could reach, not what a user gets."
)


def place(section: Section) -> str:
    """Return the benchmark and its view."""
    return section.truth.name + (f" ({section.view})" if section.view else "")


def unit(section: Section) -> str:
    """Return the metric and its direction."""
    better = "higher" if section.truth.is_higher_better(section.metric) else "lower"
    return f"{short(section.metric, 24)} ({better} is better)"


def kind(row: ScoreRow) -> str:
    """Return how a row is marked."""
    if row.baseline:
        return "base"
    return "saw" if row.saw_labels and row.verdict == "better" else KINDS[row.verdict]


def remark(row: ScoreRow) -> str:
    """Return the reservations that belong to the numbers of a row."""
    notes = ["baseline"] if row.baseline else []
    notes += ["saw the labels"] if row.saw_labels else []
    notes += [REMARKS[row.verdict]] if row.verdict in REMARKS else []
    notes += ["not defined"] if row.tau is None else []
    return ", ".join(notes)


def stretch(low: float, high: float) -> str:
    """Return a stretch of alphas."""
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def facts(section: Section) -> Iterator[tuple[str, str]]:
    """Yield facts that belong to every agreement with a benchmark: chance, noise, what others reached."""
    one, five = section.random_regret
    yield "random choice", f"regret at 1 {one:.3g}, at 5 {five:.3g}"
    if len(section.result) < FEWEST:
        yield "intervals", f"none, with fewer than {FEWEST} architectures"
    count = max((row.pairs for row in section.rows), default=0)
    yield "pairs", f"{count} of about equal size, {section.alike}; a coin orders 50 % rightly"
    if section.plateau:
        reach = f"alpha {stretch(*section.plateau)}"
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
        numbers = {"tau": p.tau, "rho": p.rho}
        texts = [f"{show_number(value)} {name}" for name, value in numbers.items() if value is not None]
        yield "best published", f"{', '.join(texts)}: {p.by}"


def origin(section: Section) -> Iterator[tuple[str, str]]:
    """Yield what a benchmark is of, and where it comes from."""
    source = dict(section.truth.source)
    yield "task", section.truth.task or "not named"
    yield "space", section.truth.space
    yield "licence", _plain(source.pop("licence", "not named"))
    for name, value in source.items():
        if isinstance(value, dict):
            yield from ((f"{name} {part}", _plain(item)) for part, item in value.items())
        else:
            yield name, _plain(value)
    if not source:
        yield "source", "not named"


def _plain(value: Any) -> str:
    """Return a value of JSON in words."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    return ", ".join(map(_plain, value)) if isinstance(value, list) else str(value)


def tokens_of(source: str) -> str:
    """Return the tokens that the proxies were computed on, in words."""
    if source.startswith("random"):
        return "tokens are sampled at random: give --text FILE for what a proxy says on real text"
    return f"proxies on tokens of the {source}"
