"""Sentences about a search: what is proven, and how the pick does against counting, a model, and labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zerolm.cost_columns import LATENCY, cost_label
from zerolm.show.text import show_amount, show_cost, show_count, show_score
from zerolm.solvers.result import Choice, Expected, SearchResult
from zerolm.spaces import shape_text
from zerolm.verbs.search_evidence import record_of

COUNTING: Final = {"params": "Counting parameters", "body_params": "Counting body parameters"}
"""Baselines that count, and how a sentence about them begins."""
CHEAPER: Final = {"kv_bytes": "a KV cache of", "macs": "MACs a token of", "params": "parameters of"}
"""What decides among near ties, in this order, in words."""
NEGLIGIBLE: Final = -1e-7
"""A difference in per cent from which on a score counts as the best."""


def question(result: SearchResult) -> str:
    """Return the score, the budgets and the conditions of the costs."""
    query, conditions = result.question, result.question.conditions
    limits = ", ".join(f"{name} {show_cost(name[4:], value)}" for name, value in query.budgets.items())
    options = "".join(f", {name} {value}" for name, value in query.options.items())
    return (
        f"Score {query.score}{options}; {limits or 'no budget'}; costs at a context of "
        f"{conditions['context']}, batch {conditions['batch']}, {conditions['bits']}-bit weights, "
        f"{conditions['kv_bits']}-bit cache."
    )


def costs(result: SearchResult) -> str:
    """Return the costs of the pick."""
    values = {name: show_cost(name, result.pick.costs[name]) for name in result.cost_names}
    return (
        f"{values['params']} parameters ({values['body_params']} in the body), {values['macs']} MACs a "
        f"token, {values['kv_bytes']} of KV cache and {values['weight_bytes']} of weights."
    )


def reason(result: SearchResult) -> str:
    """Return why the pick is the pick."""
    pick, best = result.pick.score, result.best[0].score
    relative = 100.0 * (pick - best) / abs(best) if best else 0.0
    if relative >= NEGLIGIBLE and not result.certificate.optimal:
        return "It is the best by score of all that were looked at."
    if relative >= NEGLIGIBLE:
        return "It is the best by score, and of all within 1 % of it the one with the smallest KV cache."
    return (
        f"Its score is {-relative:.2f} % below the best; of all within 1 % it has the smallest KV cache, "
        "then the fewest MACs."
    )


def show_expected(expected: Expected) -> str:
    """Return the expected result with its interval, and whether it goes beyond the labels."""
    return f"{expected.mean:.4g} (90 %: {expected_range(expected)})"


def expected_range(expected: Expected) -> str:
    """Return the ends of the interval of an expected result, and whether it goes beyond the labels."""
    beyond = ", beyond all labels" if expected.extrapolated else ""
    return f"{expected.low:.4g} to {expected.high:.4g}{beyond}"


def expectation_lines(result: SearchResult) -> Iterator[str]:
    """Yield the expectations of labels for the pick and for their own best; none without labels."""
    about, expected, label = result.calibration, result.pick.expected, result.best_label
    if about is None:
        return
    yield f"score fitted to {about['labels']} trained architectures ({about['method']})"
    if expected:
        yield f"expected {about['metric']} {show_expected(expected)}"
    if label is None:
        yield "no labelled architecture lies within the budgets"
        return
    shape, score = shape_text(label.choice.architecture), show_score(label.choice.score)
    reached = f"{about['metric']} {label.result:.4g}, score {score}"
    yield f"best of the labels within the budgets: {shape} ({reached})"


def latency_lines(result: SearchResult) -> Iterator[str]:
    """Yield what the latency of the pick adds up to, and what the whole took; nothing where none is."""
    table = result.latency
    if table is None:
        return
    total, limit = result.pick.costs[LATENCY], result.question.budgets.get(f"max_{LATENCY}")
    whole = "not measured" if table.whole is None else f"{table.whole:,} us measured"
    if table.whole is not None and limit is not None and table.whole > limit:
        whole += f", beyond the limit of {limit:,} us"
    run = (
        f"{table.batch} x {table.tokens} tokens, float32, threads: {table.threads}, fastest of {table.rounds}"
    )
    yield f"latency adds up to {total:,} us, as a whole {whole} ({run})"


def baseline_sentence(result: SearchResult) -> str:
    """Return how the pick does against the model that it was to better; nothing where there was none."""
    reference = result.baseline
    if reference is None:
        return ""
    model, pick = reference.choice, result.pick
    name = f"{reference.name} ({shape_text(model.architecture)})"
    text = f"The pick is the baseline {name} itself."
    if pick.architecture.choices != model.architecture.choices:
        change = 100 * (pick.score - model.score) / abs(model.score or 1.0)
        shares = ", ".join(
            f"{100 * pick.costs[cost] / model.costs[cost]:.4g} % of its {cost_label(cost)}"
            for cost in ("params", "macs", "kv_bytes")
        )
        text = f"Against the baseline {name} the pick has {change:+.2f} % {result.question.score}, {shares}."
    if reference.exclusions:
        text += f" The baseline lies outside the space: {', '.join(reference.exclusions)}."
    return text


def vocabularies_sentence(result: SearchResult) -> str:
    """Return which vocabulary was chosen, and what a token of it is; nothing where none were listed."""
    choices = result.vocabularies
    if not choices:
        return ""
    chosen = next(one for one in choices if one.vocab == result.space.settings["vocab"])
    text = (
        f"Of {len(choices)} vocabularies {chosen.vocab} leaves the best body within the budgets; a token of "
        f"it is {chosen.bytes_per_token:.2f} bytes of the text, of {choices[0].vocab} "
        f"{choices[0].bytes_per_token:.2f}."
    )
    if not any(name.endswith(("macs", "kv_bytes")) for name in result.question.budgets):
        text += " No limit of MACs or KV cache holds the length of the text against a small one."
    return text


def certificate_sentence(result: SearchResult) -> str:
    """Return the proven statement; for latencies it holds for the measured ones."""
    text = _proof(result)
    if result.latency and result.certificate.gap is not None:
        text += " Latencies are taken as they were measured on this machine; another run may measure others."
    return text


def _proof(result: SearchResult) -> str:
    certificate, name = result.certificate, result.space.name
    size = f"{show_count(result.space.size())} architectures of {name}"
    if certificate.optimal:
        return (
            f"Proven: of the {size} none within the budgets scores higher than the first of the list "
            f"({certificate.method}, {certificate.seconds:.2f} s)."
        )
    if certificate.gap is not None:
        return (
            f"Of the {size} none within the budgets scores more than {100 * certificate.gap:.3g} % above "
            f"the first of the list ({certificate.method})."
        )
    if certificate.method == "exhaustive":
        return (
            f"Every shape of the {size} was looked at once; a score that sees more than shapes may prefer "
            "another order of layers."
        )
    return f"Nothing is proven: {certificate.method} looked at a sample of the {size}."


def difference(result: SearchResult, choice: Choice) -> float:
    """Return by how many per cent the score of a choice differs from that of the pick."""
    return 100 * (choice.score - result.pick.score) / abs(result.pick.score or 1.0)


def against_counting(result: SearchResult) -> str:
    """Return how the pick differs from what counting parameters picks within the same budgets."""
    parts = [
        f"{COUNTING[baseline.name]} {_differs(result, baseline.choice)}"
        for baseline in result.baselines
        if baseline.name in COUNTING
    ]
    return " ".join(parts) or "No baseline was asked for."


def _differs(result: SearchResult, other: Choice) -> str:
    pick, best, score = result.pick, result.best[0], result.question.score
    if other.architecture.choices == pick.architecture.choices:
        return f"picks the very same network within these budgets: here {score} adds nothing to it."
    if other.architecture.choices == best.architecture.choices:
        cost = next((name for name in CHEAPER if pick.costs[name] != other.costs[name]), "params")
        picked, theirs = (show_cost(cost, choice.costs[cost]) for choice in (pick, other))
        return (
            "picks the network with the highest score, too; the pick is one within 1 % of it with "
            f"{CHEAPER[cost]} {picked} in place of {theirs}."
        )
    change = difference(result, other)
    side = "more" if change > 0 else "less"
    return (
        f"picks another network: {shape_text(other.architecture)}. It has {abs(change):.2f} % {side} {score} "
        f"than the pick, {show_amount(other.costs['params'])} parameters and a KV cache of "
        f"{show_cost('kv_bytes', other.costs['kv_bytes'])}."
    )


def ties(result: SearchResult) -> str:
    """Return the numbers of architectures that tie with the best, or nearly."""
    more = "" if result.certificate.counts == "exact" else "at least "
    equal, near = show_count(result.plateau.ties.value), show_count(result.plateau.near_ties.value)
    return f"{more}{equal} with the best score, {more}{near} within 1 % of it"


def front_note(result: SearchResult) -> str:
    """Return a note on the points of the front, and how to look at them."""
    kind = "Every" if result.front.complete else "Each drawn"
    verb = "can buy" if result.certificate.optimal else "bought among the architectures looked at"
    return (
        f"{kind} point of the line is the best score that its {cost_label(result.front.cost)} {verb} "
        f"({len(result.front.points)} points). Pick a point to see its layers, costs and files; arrow keys "
        "move along the points."
    )


def flatness_note(result: SearchResult, least: float) -> str:
    """Return a note on the points of the landscape; those below ``least`` per cent are not drawn."""
    kind = "the best" if result.front.complete else "an upper bound of the best"
    kind = kind if result.certificate.optimal else "the best that was seen"
    return (
        f"Each point is {kind} at one depth and width; those below {least:g} % are not drawn. Architectures: "
        f"{ties(result)} (orders of layers and unseen choices counted). The wider this plateau, the less the "
        "score says of depth against width."
    )


def caution(result: SearchResult) -> str:
    """Return how far the score is to be trusted."""
    if result.calibration:
        return "A score fitted to few labels ranks what lies near them: train several of the best, not one."
    return f"{record_of(result.question.score)} It has seen no training: train several of the best, not one."


def blindness(result: SearchResult) -> str:
    """Return a note on the choices that the score cannot judge."""
    spots, about = result.space.blind_spots(), result.calibration
    if about and about["method"] in ("stack", "gp", "blend"):
        return (
            f"The score was fitted to {about['labels']} trained architectures and knows no others: expect "
            "little of it beyond their range, and train several of the best, not one. Only some of the space "
            "was looked at, and of equal shapes only one choice of what the shape leaves open."
        )
    alpha = (
        " A fixed alpha suits no two spaces: on published results the useful one runs from 0 to 1.1."
        if "alpha" in result.question.options
        else ""
    )
    return (
        f"The score reads shapes at random initialisation. It does not see {spots or 'anything but shapes'}, "
        "nor data, nor training; left alone it runs into the corners of a space, which is why the bounds "
        f"above matter.{alpha}"
    )
