"""Sentences and facts of a search that no table has: the pick, what is proven, how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zerolm.cost_columns import LATENCY, cost_label
from zerolm.pretraining import train_flops
from zerolm.scores.shape import (
    RATIOS,
    TOKENS_A_PARAMETER,
    ShapeEstimate,
    best_ratio,
    ratio_worth,
    tokens_a_parameter,
    worth,
)
from zerolm.show.text import show_amount, show_cost, show_count, show_score
from zerolm.solvers.choice import Choice, Expected
from zerolm.solvers.result import SearchResult
from zerolm.spaces import shape_text

COUNTING: Final = {"params": "Counting parameters", "body_params": "Counting body parameters"}
"""Baselines that count, and how a sentence about them begins."""
SHAPE_LAW: Final = "shape_law"
VIEWS: Final = 10
"""Benchmarks of ``benchmarks/leaderboard.md``, each in every view that it has."""
VERDICTS: Final = {
    "geo": (5, 0),
    "geo_saturating": (5, 4),
    "log_complexity": (4, 6),
    "spectral_capacity": (5, 5),
    "stable_rank": (5, 4),
}
"""In how many views a score ranks better than counting parameters, and in how many it does not.

In the others it ranks higher, and is not shown to be better.
"""


def question(result: SearchResult) -> str:
    """Return the score, the budgets and the conditions of the costs."""
    query = result.question
    limits = {name: show_cost(name[4:], value) for name, value in query.budgets.items()}
    settings = {**query.options, **limits, **query.conditions}
    return ", ".join([f"Score {query.score}", *(f"{name} {value}" for name, value in settings.items())]) + "."


def costs(result: SearchResult) -> str:
    """Return the costs of the pick."""
    costs = result.pick.costs
    return ", ".join(f"{cost_label(name)} {show_cost(name, costs[name])}" for name in result.cost_names)


def reason(result: SearchResult) -> str:
    """Return why the pick is the pick."""
    below = max(0.0, -difference(result, result.pick, result.best[0]))
    if below < 0.005 and not result.certificate.optimal:
        return "It is the best by score of all that were looked at."
    return (
        f"Its score is {below:.2f} % below the best: of all within 1 % it has the smallest KV cache, then "
        "the fewest MACs."
    )


def difference(result: SearchResult, choice: Choice, other: Choice | None = None) -> float:
    """Return by how many per cent the score of a choice differs from that of another, or of the pick."""
    score = (other or result.pick).score
    return 100 * (choice.score - score) / abs(score or 1.0)


def show_expected(expected: Expected) -> str:
    """Return the expected result with its interval, and whether it goes beyond the labels."""
    return f"{expected.mean:.4g} (90 %: {expected_range(expected)})"


def expected_range(expected: Expected) -> str:
    """Return the ends of the interval of an expected result, and whether it goes beyond the labels."""
    beyond = ", beyond all labels" if expected.extrapolated else ""
    return f"{expected.low:.4g} to {expected.high:.4g}{beyond}"


def facts(result: SearchResult) -> Iterator[tuple[str, str]]:
    """Yield what is known of the pick beyond its costs, by name."""
    about, pick, label, table = result.calibration, result.pick, result.best_label, result.latency
    if about:
        yield "score", f"fitted to {about['labels']} trained architectures ({about['method']})"
        if pick.expected:
            yield f"expected {about['metric']}", show_expected(pick.expected)
        best = "none" if label is None else (
            f"{shape_text(label.choice.architecture)} ({about['metric']} {label.result:.4g}, score "
            f"{show_score(label.choice.score)})"
        )  # fmt: skip
        yield "best of the labels within the budgets", best
    if table:
        limit = result.question.budgets.get(f"max_{LATENCY}")
        whole = "not measured" if table.whole is None else f"{table.whole:,} us measured"
        beyond = limit is not None and table.whole is not None and table.whole > limit
        more = f", beyond the limit of {limit:,} us" if beyond else ""
        yield "latency", f"{pick.costs[LATENCY]:,} us by its parts, as a whole {whole}{more}"
    if plan := result.question.training:
        each, flops = plan.tokens / pick.costs["params"], train_flops(pick.costs["macs"], plan.tokens)
        law = f", the best by the law of {plan.law}" if plan.law else ""
        text = f"{show_amount(plan.tokens)} tokens{law}, {each:.3g} a parameter, {flops:.3g} operations"
        yield "training", text
    if result.question.score == SHAPE_LAW:
        yield from _shape_facts(result)


def _shape_facts(result: SearchResult) -> Iterator[tuple[str, str]]:
    """Yield the cost of the ratio of hidden to depth, and the pick's equivalent size compared with others."""
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    best, cost = best_ratio(pick, tokens), show_loss(ratio_worth(pick, tokens))
    near = f"best about {best.value:.3g} ({best.low:.3g} to {best.high:.3g})"
    yield "hidden / depth", f"{pick.mean_width / pick.depth:.3g}, {near}: costs {cost} of the parameters"
    others = {f"what {COUNTING[one.name].lower()} picks": one.choice for one in result.baselines
              if one.name in COUNTING}  # fmt: skip
    if result.baseline:
        others = {result.baseline.name: result.baseline.choice}
    for name, choice in others.items():
        if choice.architecture.choices != pick.choices:
            more = worth(pick, choice.architecture, tokens)
            gain = _percent(more.value - 1, more.low - 1, more.high - 1)
            yield f"as good as {name}", f"with {gain} more parameters"


def show_loss(share: ShapeEstimate) -> str:
    """Return the difference of a share of the parameters from all of them."""
    return _percent(1 - share.value, 1 - share.high, 1 - share.low)


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})"


def shape_warnings(result: SearchResult) -> Iterator[str]:
    """Yield where the pick or its training lies beyond what ``shape_law`` was fitted to."""
    tokens, pick = result.question.options.get("train_tokens"), result.pick.architecture
    values = [("hidden / depth", pick.mean_width / pick.depth, RATIOS)]
    if tokens is not None:
        values.append(("tokens a parameter", tokens_a_parameter(pick, tokens), TOKENS_A_PARAMETER))
    for name, value, (low, high) in values if result.question.score == SHAPE_LAW else ():
        if not low <= value <= high:
            yield f"{name} {value:.3g} is beyond {low:g} to {high:,g}, which shape_law was fitted to"


def baseline_sentence(result: SearchResult) -> str:
    """Return how the pick does against the model that it was to better; nothing where there was none."""
    reference = result.baseline
    if reference is None:
        return ""
    change = difference(result, result.pick, reference.choice)
    text = f"Against the baseline {reference.name} the pick has {change:+.2f} % {result.question.score}."
    if result.pick.architecture.choices == reference.choice.architecture.choices:
        text = f"The pick is the baseline {reference.name} itself."
    outside = ", ".join(reference.exclusions)
    return f"{text} The baseline lies outside the space: {outside}." if outside else text


def certificate_sentence(result: SearchResult) -> str:
    """Return the proven statement; for latencies it holds for the measured ones."""
    certificate, gap, method = result.certificate, result.certificate.gap, result.certificate.method
    size = f"{show_count(result.space.size())} architectures of {result.space.name}"
    if certificate.optimal:
        text = (
            f"Proven: of the {size} none within the budgets scores higher than the first of the list "
            f"({method}, {certificate.seconds:.2f} s)."
        )
    elif gap is not None:
        text = (
            f"Of the {size} none within the budgets scores more than {100 * gap:.3g} % above the first of "
            f"the list ({method})."
        )
    elif method == "exhaustive":
        text = f"Every shape of the {size} was looked at, each in one order of layers."
    else:
        text = f"Nothing is proven: {method} looked at a sample of the {size}."
    if result.latency and gap is not None:
        text += " Latencies are taken as they were measured on this machine; another run may measure others."
    return text


def against_counting(result: SearchResult) -> str:
    """Return whether counting parameters picks the same network within the same budgets."""
    parts, score = [], result.question.score
    for name, begin in COUNTING.items():
        for choice in (one.choice for one in result.baselines if one.name == name):
            change = difference(result, choice)
            text = f"a network with {abs(change):.2f} % {'more' if change > 0 else 'less'} {score}."
            if choice.architecture.choices == result.pick.architecture.choices:
                text = f"the very same network: here {score} adds nothing to it."
            elif choice.architecture.choices == result.best[0].architecture.choices:
                text = f"the network with the highest {score}, {change:.2f} % above the cheaper pick."
            parts.append(f"{begin} picks {text}")
    return " ".join(parts) or "No baseline was asked for."


def ties(result: SearchResult) -> str:
    """Return the numbers of architectures that tie with the best, or nearly."""
    more = "" if result.certificate.counts == "exact" else "at least "
    equal, near = show_count(result.plateau.ties.value), show_count(result.plateau.near_ties.value)
    return f"{more}{equal} with the best score, {more}{near} within 1 % of it"


def caution(result: SearchResult) -> str:
    """Return how far the score is to be trusted."""
    score, several = result.question.score, "train several of the best, not one."
    if result.calibration:
        return f"A score fitted to few labels ranks what lies near them: {several}"
    return f"{record_of(score)} It has seen no training: {several}"


def record_of(score: str) -> str:
    """Return a sentence on a score's published results, compared with counting parameters."""
    if score not in VERDICTS:
        return f"How {score} compares with counting parameters is shown by `zerolm bench run --all`."
    better, worse = VERDICTS[score]
    rest = VIEWS - better - worse
    others = [f"does not in {worse}"] * (worse > 0) + [f"is not shown to in {rest}"] * (rest > 0)
    return (
        f"On published results {score} ranks better than counting parameters in {better} of {VIEWS} views, "
        f"and {' and '.join(others)}."
    )


def blindness(result: SearchResult) -> str:
    """Return the limits of the score."""
    if result.calibration and result.calibration["method"] in ("stack", "gp", "blend"):
        return (
            "The score was fitted to the labels alone: expect little of it beyond their range. Only some of "
            "the space was looked at, and of equal shapes only one choice of what the shape leaves open."
        )
    text = (
        "The score reads shapes at random initialisation. It does not see "
        f"{result.space.blind_spots() or 'anything but shapes'}, nor data, nor training; left alone it runs "
        "into the corners of a space, which is why the bounds above matter."
    )
    if "alpha" in result.question.options:
        text += " A fixed alpha suits no two spaces: on published results the useful one runs from 0 to 1.1."
    return text
