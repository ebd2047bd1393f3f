"""Sentences and numbers that the terminal and the page share."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from zerolm.costs import LATENCY
from zerolm.solvers import SearchResult
from zerolm.solvers.result import Choice, Expected
from zerolm.spaces import shape_text

LABELS: Final = {
    "params": "parameters",
    "body_params": "body parameters",
    "macs": "MACs a token",
    "kv_bytes": "KV cache",
    "weight_bytes": "weights",
    LATENCY: "latency",
}


def cost_label(name: str) -> str:
    return LABELS[name]


def show_cost(name: str, value: int) -> str:
    return f"{value:,} us" if name == LATENCY else show_amount(value, name.endswith("bytes"))


def show_amount(value: int, size: bool = False) -> str:
    """Three digits and a unit: 39.7M, or 13.4 MB of a size."""
    units = ("", "k", "M", "G", "T", "P", "E")
    scaled, place = float(value), 0
    while abs(scaled) >= 999.5 and place < len(units) - 1:
        scaled, place = scaled / 1000, place + 1
    digits = f"{scaled:.3g}" if place else str(value)
    return f"{digits} {units[place]}B" if size else f"{digits}{units[place]}"


def show_score(value: float) -> str:
    """Enough digits to tell near-ties apart."""
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.7g}"


def show_count(value: int) -> str:
    """Exact up to ten millions, then the power of ten."""
    return f"{value:,}" if value < 10**7 else f"{Decimal(value):.3e}".replace("e+", "e")


def show_expected(expected: Expected) -> str:
    """The expected result with its interval, and whether it goes beyond the labels."""
    beyond = ", beyond all labels" if expected.extrapolated else ""
    return f"{expected.mean:.4g} (90 %: {expected.low:.4g} to {expected.high:.4g}{beyond})"


def expectation_lines(result: SearchResult) -> list[str]:
    """Return what labels say of the pick and of their own best; nothing where no labels were given."""
    about, expected = result.calibration, result.pick.expected
    if about is None:
        return []
    lines = [f"score fitted to {about['labels']} trained architectures ({about['method']})"]
    if expected:
        lines.append(f"expected {about['metric']} {show_expected(expected)}")
    label = result.best_label
    if label:
        shape, score = shape_text(label.choice.architecture), show_score(label.choice.score)
        reached = f"{about['metric']} {label.result:.4g}, score {score}"
        lines.append(f"best of the labels within the budgets: {shape} ({reached})")
    else:
        lines.append("no labelled architecture lies within the budgets")
    return lines


def latency_lines(result: SearchResult) -> list[str]:
    """Return what the latency of the pick adds up to, and what the whole took; nothing where none is."""
    table = result.latency
    if table is None:
        return []
    total, most = result.pick.costs[LATENCY], result.question.budgets.get(f"max_{LATENCY}")
    whole = "not measured" if table.whole is None else f"{table.whole:,} us measured"
    if table.whole is not None and most is not None and table.whole > most:
        whole += f", beyond the limit of {most:,} us"
    run = (
        f"{table.batch} x {table.tokens} tokens, float32, threads: {table.threads}, fastest of {table.rounds}"
    )
    return [f"latency adds up to {total:,} us, as a whole {whole} ({run})"]


def baseline_sentence(result: SearchResult) -> str:
    """Return how the pick does against the model that it was to better; nothing where there was none."""
    baseline = result.baseline
    if baseline is None:
        return ""
    own, pick, score = baseline.choice, result.pick, result.question.score
    name = f"{baseline.name} ({shape_text(own.architecture)})"
    if pick.architecture.choices == own.architecture.choices:
        said = f"The pick is the baseline {name} itself."
    else:
        change = 100 * (pick.score - own.score) / abs(own.score or 1.0)
        shares = [
            f"{100 * pick.costs[cost] / own.costs[cost]:.4g} % of its {cost_label(cost)}"
            for cost in ("params", "macs", "kv_bytes")
        ]
        said = f"Against the baseline {name} the pick has {change:+.2f} % {score}, {', '.join(shares)}."
    if baseline.exclusions:
        said += f" The baseline lies outside the space: {', '.join(baseline.exclusions)}."
    return said


def vocabularies_sentence(result: SearchResult) -> str:
    """Return which vocabulary was chosen, and what a token of it is; nothing where none were listed."""
    every = result.vocabularies
    if not every:
        return ""
    own = next(one for one in every if one.vocab == result.space.settings["vocab"])
    said = (
        f"Of {len(every)} vocabularies {own.vocab} leaves the best body within the budgets; a token of it is "
        f"{own.bytes_per_token:.2f} bytes of the text, of {every[0].vocab} {every[0].bytes_per_token:.2f}."
    )
    if not any(name.endswith(("macs", "kv_bytes")) for name in result.question.budgets):
        said += " No limit of MACs or KV cache holds the length of the text against a small one."
    return said


def certificate_sentence(result: SearchResult) -> str:
    """Return what is proven; of latencies that is about those that were measured."""
    told = _proven(result)
    if result.latency and result.certificate.gap is not None:
        told += " Latencies are taken as they were measured on this machine; another run may measure others."
    return told


def _proven(result: SearchResult) -> str:
    certificate, size = result.certificate, show_count(result.space.size())
    if certificate.optimal:
        return (
            f"Proven: none of the {size} architectures of {result.space.name} within the budgets scores "
            f"higher than the first of the list ({certificate.method}, {certificate.seconds:.2f} s)."
        )
    if certificate.gap is not None:
        return (
            f"None of the {size} architectures of {result.space.name} within the budgets scores more than "
            f"{100 * certificate.gap:.3g} % above the first of the list ({certificate.method})."
        )
    if certificate.method == "exhaustive":
        return (
            f"Every shape of the {size} architectures of {result.space.name} was looked at once; a score "
            "that sees more than shapes may prefer another order of layers."
        )
    return (
        f"Nothing is proven: {certificate.method} looked at a sample of the {size} architectures of "
        f"{result.space.name}."
    )


CHEAPER: Final = {"kv_bytes": "a KV cache of", "macs": "MACs a token of", "params": "parameters of"}
"""What decides among near ties, in this order, in words."""


def against_counting(result: SearchResult) -> str:
    """Return how the pick differs from what counting parameters picks within the same budgets."""
    said = []
    for name, words in (("params", "Counting parameters"), ("body_params", "Counting body parameters")):
        baseline = next((b for b in result.baselines if b.name == name), None)
        if baseline is not None:
            said.append(f"{words} {_differs(result, baseline.choice)}")
    return " ".join(said) or "No baseline was asked for."


def _differs(result: SearchResult, other: Choice) -> str:
    pick, best, score = result.pick, result.best[0], result.question.score
    if other.architecture.choices == pick.architecture.choices:
        return f"picks the very same network within these budgets: here {score} adds nothing to it."
    if other.architecture.choices == best.architecture.choices:
        cost = next((name for name in CHEAPER if pick.costs[name] != other.costs[name]), "params")
        ours, theirs = (show_cost(cost, choice.costs[cost]) for choice in (pick, other))
        return (
            "picks the network with the highest score, too; the pick is one within 1 % of it with "
            f"{CHEAPER[cost]} {ours} in place of {theirs}."
        )
    change = 100 * (other.score - pick.score) / abs(pick.score or 1.0)
    params, cache = (show_cost(name, other.costs[name]) for name in ("params", "kv_bytes"))
    return (
        f"picks another network: {shape_text(other.architecture)}. It has {abs(change):.1f} % "
        f"{'more' if change > 0 else 'less'} {score}, {params} parameters and a KV cache of {cache}."
    )
