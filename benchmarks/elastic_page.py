"""The page of ``elastic.py``: what was measured of supernets, and what it says of the paper's claims."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from elastic_runs import (
    ALONE,
    BATCH,
    JUDGED,
    LENGTH,
    PATHS,
    SCHEDULE,
    SEEDS,
    SHAPE,
    SHARE,
    SUPERNET,
    SUPERNETS,
    WORDS,
    Place,
)
from scipy import stats
from timing import machine, note

PLACE: Final = Path(__file__).with_name("elastic.md")
LEVEL: Final = 0.95
BRED: Final = "evolution"
STARTED: Final = "evolution, from the supernet's weights"
LONGER: Final = "evolution, on the supernet's tokens too"
FUSED: Final = "evolution, every two heads fused"
Seen = Mapping[str, Any]
"""Of one seed: ``comparisons``, ``sharing``, ``agreement``, ``supernets``, how ``alike`` heads are."""


@dataclass(frozen=True)
class Claim:
    """A claim with its figure in the paper, and by how much it holds under a seed: above 0 where it does."""

    words: str
    paper: str
    gain: Callable[[Seen], float]


def less(worse: str, better: str = BRED) -> Callable[[Seen], float]:
    """Return by how much lower the loss of one network trained alone is than that of another."""
    return lambda seen: seen["comparisons"][worse]["loss"] - seen["comparisons"][better]["loss"]


def ranks(name: str) -> Callable[[Seen], float]:
    """Return how much better the supernet's loss ranks paths than another score, by tau-b."""
    return lambda seen: seen["agreement"]["tau"]["supernet's loss"] - seen["agreement"]["tau"][name]


def cheaper(seen: Seen) -> float:
    seconds = {name: seen["supernets"][name]["seconds"] for name in ("grown", "fixed")}
    return float(1 - seconds["grown"] / seconds["fixed"])


TAUGHT: Final = "evolution, trained by a teacher, "
CLAIMS: Final = (
    Claim(
        "widths that grow beat fixed ones of as many parameters",
        "15 to 25 % fewer parameters without loss, with fusion",
        less("evolution in the supernet: fixed"),
    ),
    Claim("growing supernets are cheaper to train, share of the time", "7.1 against 8.5 GPU days", cheaper),
    Claim("fused heads gain", "yes", less(BRED, "evolution, heads fused")),
    Claim("every two heads fused, alike or not: what it gains", "", less(BRED, FUSED)),
    Claim("heads can be removed: what it gains", "no loss", less(BRED, "evolution, heads removed")),
    Claim(
        "relational losses beat classical ones, on one path",
        "yes",
        less(f"{TAUGHT}classical", f"{TAUGHT}relational"),
    ),
    Claim(
        "relational losses beat classical ones, by the supernet's pick",
        "yes",
        less("evolution in the supernet: classical", "evolution in the supernet: relational"),
    ),
    Claim(
        "relational losses keep blocks apart: likeness below that of classical ones",
        "yes",
        lambda seen: seen["supernets"]["classical"]["alike"] - seen["supernets"]["relational"]["alike"],
    ),
    Claim("a teacher's relational losses beat none", "", less(BRED, f"{TAUGHT}relational")),
    Claim("kinds that share beat those that do not", "", less("evolution in the supernet: no sharing")),
    *(
        Claim(f"evolution beats {name}", "", less(title))
        for name, title in (
            ("random search", "random"),
            ("W-PCA", "w_pca"),
            ("V-PCA", "v_pca"),
            ("geo", "geo"),
            ("parameters", "params"),
            ("the best uniform block", "uniform block"),
        )
    ),
    Claim(
        "the supernet's weights beat new ones, each then trained on as much",
        "",
        less(BRED, STARTED),
    ),
    Claim(
        "the supernet's weights beat new ones that are trained on its tokens too", "", less(LONGER, STARTED)
    ),
    *(
        Claim(f"the supernet's loss ranks paths better than {name}, tau-b", "", ranks(key))
        for name, key in (("W-PCA", "w_pca"), ("V-PCA", "v_pca"), ("geo", "geo"), ("parameters", "params"))
    ),
)


def write_page(places: Sequence[Place]) -> None:
    """Write the page of what is stored."""
    PLACE.write_text("\n".join(document(places)).rstrip() + "\n", encoding="utf-8")
    note(f"wrote {PLACE.name}")


def document(places: Sequence[Place]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Elastic supernets", "")
    yield "`python benchmarks/elastic.py WORK`."
    yield from (f"{machine()}; torch {torch.__version__}, one thread.", "")
    shape = f"{SHAPE['depth']} layers, hidden {SHAPE['hidden']}, {SHAPE['heads']} heads"
    yield (
        f"Supernets of {shape}, FFNs of {SHAPE['step']} to {SHAPE['step'] * SHAPE['steps']}, a vocabulary of "
        f"{WORDS}: encoders on docstrings, decoders on code of the standard library, {SUPERNET:,} tokens "
        f"in steps of {BATCH} x {LENGTH} at a rate of {SCHEDULE.rate:g}. Every pick keeps a limit of "
        f"{SHARE:.0%} of the largest path's parameters and is trained alone on {ALONE['encoder']:,} tokens "
        f"(encoders, which learn from the 15 % that are masked) or {ALONE['decoder']:,}, from new weights "
        f"unless the row says other. Losses are in nats a predicted token, on {JUDGED} sequences of modules "
        "held out; mean and deviation over seeds."
    )
    for place in places:
        yield from _of_kind(place)


def _of_kind(place: Place) -> Iterator[str]:
    """Yield the section of a kind of network."""
    seen = _every(place)
    compared = [one["comparisons"] for one in seen]
    if not compared:
        return
    yield from ("", f"## {place.kind.capitalize()}s", "")
    yield from _claimed(seen)
    yield from ("", "Supernets:", "")
    yield from (
        "| supernet | seeds | mean parameters | loss of drawn paths | likeness of blocks | seconds |",
        "|---|---:|---:|---:|---:|---:|",
    )
    for name in SUPERNETS:
        stored = _stored(place, told_part(name))
        spread = {key: _spread([one[key] for one in stored]) for key in ("paths", "alike")}
        params, seconds = (statistics.mean(one[key] for one in stored) for key in ("params", "seconds"))
        yield (
            f"| {name} | {len(stored)} | {params:,.0f} | {spread['paths']} | {spread['alike']} "
            f"| {seconds:.0f} |"
        )
    yield from ("", "Picks, trained alone:", "")
    yield from _compared(compared, "supernet", "loss in its supernet")
    alike = [one["alike"] for one in seen if "alike" in one]
    for samples in alike[0] if alike else ():
        largest = [one[samples] for one in alike]
        yield ""
        yield (
            f"Of all two heads of a layer of the picks, those most alike have a CKA of {_spread(largest)} "
            f"({samples})."
        )
    if kinds := [one["sharing"] for one in seen if "sharing" in one]:
        yield from ("", "One kind of block in all layers, what is shared given to the FFN:", "")
        yield from _compared(kinds, "ffn", "FFN")
    if agreed := [one["agreement"] for one in seen if "agreement" in one]:
        yield from ("", f"tau-b with the losses of {PATHS} paths trained alone (seeds: {len(agreed)}):", "")
        yield from ("| score | tau-b |", "|---|---:|")
        for name in agreed[0]["tau"]:
            yield f"| {name} | {_spread([row['tau'][name] for row in agreed])} |"
        slopes = [_slope(row["paths"]) for row in agreed]
        yield from ("", f"Over these paths the loss falls by {_spread(slopes)} for 10 % more parameters.")
    if cost := place.parts.stored("costs"):
        yield from (
            "",
            f"A step of the supernet takes {cost['step']:.2f} times that of the same path alone; it holds "
            f"{cost['params']:,} parameters, the path {cost['path']:,}.",
        )


def _claimed(seen: Sequence[Seen]) -> Iterator[str]:
    """Yield what becomes of each claim: its gain, in nats unless it says other, and if it is told from 0.

    The interval is Student's, over the seeds, whose networks are trained anew.
    """
    yield (
        "Differences are in nats unless the claim says other, each between networks of one seed, with "
        "Student's interval over seeds. Of twenty claims that are wrong, one would be told apart by chance."
    )
    yield from ("", "| claim | the paper | here, mean and 95 % interval | |", "|---|---|---:|---|")
    for claim in CLAIMS:
        gains = []
        for one in seen:
            try:
                gains.append(claim.gain(one))
            except KeyError:  # this part is not measured yet
                continue
        if len(gains) > 1:
            mean, low, high = student(gains)
            verdict = "holds" if low > 0 else "the reverse" if high < 0 else "not told apart"
            verdict = verdict if any(gains) else "the same networks"
            yield f"| {claim.words} | {claim.paper} | {mean:+.3f} ({low:+.3f} to {high:+.3f}) | {verdict} |"
        elif gains:
            yield f"| {claim.words} | {claim.paper} | {gains[0]:+.3f} | one seed |"


def student(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of two or more values, and Student's interval of it."""
    mean = statistics.mean(values)
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def _every(place: Place) -> list[dict[str, Any]]:
    """Return what is stored of each seed whose networks are compared."""
    every, seen = place.parts.every(), []
    for seed in SEEDS:
        parts = {name: every.get(f"{name}-{seed}") for name in ("comparisons", "sharing", "agreement")}
        own = {name: part for name, part in parts.items() if part}
        if "comparisons" not in own:
            continue
        if heads := every.get(f"heads-{seed}"):
            own["comparisons"][FUSED], own["alike"] = heads["fused"], heads["alike"]
        if row := every.get(f"longer-{seed}"):
            own["comparisons"][LONGER] = row
        own["supernets"] = {name: every[told_part(name).format(seed)] for name in SUPERNETS}
        seen.append(own)
    return seen


def told_part(name: str) -> str:
    """Return the name of the part that tells of a supernet, with a place for the seed."""
    return f"net-{name.replace(' ', '-')}-{{}}-told"


def _stored(place: Place, part: str) -> list[Any]:
    stored = [place.parts.stored(part.format(seed)) for seed in SEEDS]
    return [one for one in stored if one]


def _compared(every: Sequence[Mapping[str, Any]], last: str, title: str) -> Iterator[str]:
    """Yield a table of losses of networks that were trained alone, and of their difference from the first."""
    yield f"| network | seeds | parameters | loss alone | more than the first | {title} |"
    yield "|---|---:|---:|---:|---:|---:|"
    first = next(iter(every[0]))
    for name in every[0]:
        results = [result[name] for result in every if name in result]
        params = statistics.mean(result["params"] for result in results)
        more = [one[name]["loss"] - one[first]["loss"] for one in every if name in one]
        spread = [_spread([one["loss"] for one in results]), _spread(more) if name != first else ""]
        own = _spread([one[last] for one in results]) if last == "supernet" else f"{results[0][last]}"
        yield f"| {name} | {len(results)} | {params:,.0f} | {spread[0]} | {spread[1]} | {own} |"


def _slope(paths: Sequence[Mapping[str, float]]) -> float:
    """Return by how much the loss falls for 10 % more parameters, by least squares over their logarithm."""
    params, losses = ([one[key] for one in paths] for key in ("params", "loss"))
    return float(-np.polyfit(np.log(params), losses, 1)[0] * np.log(1.1))


def _spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{deviation}"
