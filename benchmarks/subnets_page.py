"""The page of ``subnets.py``: ``subnets.md`` from what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from subnets_compared import DRAWS, WITHIN_DRAWS, Compared, compared
from subnets_findings import findings
from subnets_runs import SETS, column
from timing import machine

from zerolm.architecture import Floats
from zerolm.statistics import Bootstrap, interval

HEAD: Final = (
    "| score | tau-b [95 %] | rho [95 %] | beyond counting [95 %] | within deciles of size [95 %] | pairs |"
)
HOW: Final = (
    "## How it was measured",
    "",
    "Each model is cut to 300 sub-networks, KV heads and FFN width of each layer drawn at random within a "
    "range of MACs (`zerolm lab slice`, space `heads-ffn`), nothing trained or repaired. Units are the "
    "first ones (`prefix`, as LoNAS), or those that send most energy into the stream (`output_energy`). "
    "Every score is compared with what the sub-networks reach on the first judging set. *Beyond counting* is "
    "tau-b beyond that of body parameters, paired. *Within deciles* is tau-b of the pairs within tenths of "
    "the sub-networks by body parameters. *Pairs* are those within 5 % of total parameters: the share that "
    f"is ordered rightly. Intervals are of {DRAWS} bootstrap resamples of the sub-networks, within deciles "
    f"of {WITHIN_DRAWS}.",
    "",
    "*kept X* is the sum of criterion X over the units that are kept, *kept share X* the mean over layers "
    "and kinds of the share that is kept, *predicted loss* the sum of losses of single cuts: "
    "foretold from one pass back (`prices`, as plans have it) or measured one by one (`measured`), on "
    "calibration text that judges nothing. Those see the weights; all other scores see shapes alone.",
)


def page(runs: Sequence[tuple[str, str, Sequence[str]]], work: Path) -> str:
    """Return the text of the page, from what is in the work folder; it names what is not there."""
    measured, lacking = _measured(runs, work)
    every = [
        each
        for model, one in measured.items()
        for criterion, run in one["runs"].items()
        for each in compared(model, criterion, run)
    ]
    lines = [
        "# Sub-networks of trained models",
        "",
        f"Written by `python benchmarks/subnets.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}; one thread. Seconds are those that the processor spent.",
        "",
        "Two small models of our own, one task each: what holds here need not hold for larger parents. And "
        "it says what is left of one parent after a cut, not what networks of these shapes would learn.",
        "",
        *([f"Not measured so far: {'; '.join(lacking)}.", ""] if lacking else []),
        *findings(measured, every, work),
        "",
        *HOW,
    ]
    for model, one in measured.items():
        lines += ["", *_model(model, one, [each for each in every if each.model == model], work)]
    return "\n".join(lines).rstrip() + "\n"


def _measured(runs: Sequence[tuple[str, str, Sequence[str]]], work: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what is in the work folder by model, and what is lacking."""
    measured: dict[str, Any] = {}
    lacking = []
    for model, criterion, sets in runs:
        place = work / model
        documents = {name: _read(place / f"{criterion}-{name}.json") for name in sets}
        columns = _read(place / f"{criterion}-foretold.json")
        lacking += [f"{model}, {criterion}, {name} set" for name, one in documents.items() if not one]
        if not documents[sets[0]] or not columns:
            continue
        one = measured.setdefault(model, {"runs": {}, "facts": {}, "seconds": _read(place / "seconds.json")})
        one["runs"][criterion] = {
            "sets": {name: document for name, document in documents.items() if document},
            "foretold": columns,
        }
        if model == "pyenc":
            one["facts"] = _read(work / "classifier" / "trained.json")
            one["facts"]["attack"] = _read(work / "classifier" / "attacks.json")
    return measured, lacking


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _model(model: str, one: Mapping[str, Any], every: Sequence[Compared], work: Path) -> Iterator[str]:
    documents = {criterion: run["sets"] for criterion, run in one["runs"].items()}
    first = next(iter(documents.values()))["first"]
    source = first["benchmark"]["source"]
    yield f"## {model}"
    yield ""
    if one["facts"]:
        facts = one["facts"]
        yield (
            f"It learned to tell eight libraries by the first sentences of their docstrings, in "
            f"{facts['seconds'] / 60:.0f} minutes of one thread: {facts['of']}. Accuracy on other rows of "
            f"the same files {facts['accuracy']:.3f}, of the commonest class {facts['commonest class']:.3f}. "
            "The first 60 rows of each judging set of 160 were attacked (`examples/attack_texts.py`): "
            + "; ".join(
                f"{name} set accuracy under attack {rates['accuracy under attack']:.1f} %, success rate "
                f"{rates['attack success rate']:.1f} %"
                for name, rates in facts["attack"].items()
            )
            + ". The attacks are those of the whole parent; sub-networks are shown the same texts. "
            "These were made to fool the parent, so that a network far from it may be right on more of them."
        )
        yield ""
    yield (
        f"{first['benchmark']['count']} sub-networks of {source['min_macs']} to {source['max_macs']} of the "
        f"parent's MACs. Parent: {_results(first['parent'])}."
    )
    yield ""
    yield "| units | result | least | median | most | tau-b of two judging sets | Spearman |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for criterion, sets in documents.items():
        for metric in first["parent"]:
            sizes = " | ".join(
                f"{x:.4g}" for x in np.quantile(_plain(sets["first"], metric), (0.0, 0.5, 1.0))
            )
            both = "- | -"
            if len(sets) == len(SETS):
                a, b = (column(sets[name], metric) for name in SETS)
                taus = Bootstrap(a, 1).resample(b).observed
                both = f"{taus.tau:.3f} | {taus.rho:.3f}"
            yield f"| {criterion} | {metric} | {sizes} | {both} |"
    yield ""
    yield from _seconds(one, documents)
    for criterion, run in one["runs"].items():
        for each in every:
            if each.criterion == criterion:
                yield ""
                yield f"### {model}, {criterion}: {each.metric}"
                yield ""
                yield from _table(each)
        kept = _read(work / model / f"{criterion}-proxies.json")
        if kept:
            yield ""
            yield from _proxies(model, criterion, kept, run["sets"]["first"])


def _seconds(one: Mapping[str, Any], documents: Mapping[str, Any]) -> Iterator[str]:
    each = np.mean([document["processor"] for sets in documents.values() for document in sets.values()])
    told = f"Seconds a sub-network, judged on one set, all beside it included: {each:.2f}."
    alone = one["seconds"]
    if alone:
        total = sum(alone.values())
        told += (
            f" One after another: carving one of uniform sizes with its proof {alone['carve']:.2f}, opening "
            f"it {alone['open']:.2f}, judging it {alone['judge']:.2f} (for KL the parent passes, too), "
            f"together {total:.2f}: {total / each:.1f} times as long."
        )
    yield told


def _table(one: Compared) -> Iterator[str]:
    yield HEAD
    yield "|---|---:|---:|---:|---:|---:|"
    for label, row in sorted(one.rows.items(), key=lambda pair: -one.tau(pair[0])):
        yield (
            f"| {label} | {row.tau:.3f} {row.tau_low:.2f}..{row.tau_high:.2f} | "
            f"{row.rho:.3f} {row.rho_low:.2f}..{row.rho_high:.2f} | "
            f"{row.gain:+.3f} {row.gain_low:+.2f}..{row.gain_high:+.2f} | {one.within[label]} | "
            f"{row.pairs_right:.0%} |"
        )


def _proxies(
    model: str, criterion: str, kept: Mapping[str, Any], document: Mapping[str, Any]
) -> Iterator[str]:
    results = [metric for metric in document["parent"] if metric not in ("bits_a_byte", "perplexity")]
    ids = [entry["id"] for entry in document["benchmark"]["architectures"]]
    places = [ids.index(one) for one in kept["ids"]]
    bootstraps = {metric: Bootstrap(column(document, metric)[places], DRAWS) for metric in results}
    rows = []
    for name, values in kept["columns"].items():
        agreed = [each.resample(np.array(values)) for each in bootstraps.values()]
        if not np.isnan(agreed[0].observed.rho):
            cells = " | ".join(_interval(one.observed.rho, one.rho) for one in agreed)
            rows.append((agreed[0].observed.rho, f"| {name} | {cells} |"))
    yield f"### {model}, {criterion}: proxies"
    yield ""
    yield (
        f"Every proxy of `zerolm lab proxies` on {len(places)} of the sub-networks, evenly spread: "
        f"networks of these shapes with random weights and tokens, 16 sequences of 64. "
        f"{kept['seconds']:.1f} seconds each. Spearman with the results on the first set."
    )
    yield ""
    yield f"| proxy | {' | '.join(results)} |"
    yield f"|---|{'---:|' * len(results)}"
    yield from (line for _, line in sorted(rows, key=lambda row: -row[0]))
    if kept["left_out"]:
        yield ""
        yield f"Without a value: {', '.join(sorted(kept['left_out']))}."


def _plain(document: Mapping[str, Any], metric: str) -> list[float]:
    return [entry["results"][metric] for entry in document["benchmark"]["architectures"]]


def _interval(value: float, draws: Floats) -> str:
    low, high = interval(draws)
    return f"{value:.3f} {low:.2f}..{high:.2f}"


def _results(results: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in results.items())
