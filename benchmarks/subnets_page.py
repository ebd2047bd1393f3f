"""The page of ``subnets.py``: ``subnets.md`` from what was measured."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from subnets_runs import SETS, column
from timing import machine

from zerolm.architecture import Floats
from zerolm.comparison.bench import bench
from zerolm.comparison.results import ScoreRow
from zerolm.scores import make_score
from zerolm.spaces import make_space
from zerolm.statistics import Bootstrap, interval, within_budget

HEAD: Final = (
    "| score | tau-b [95 %] | rho [95 %] | beyond counting [95 %] | within deciles of size | pairs |"
)
DRAWS: Final = 1000


def page(runs: Sequence[tuple[str, str, Sequence[str]]], work: Path) -> str:
    """Return the text of the page, from what is in the work folder; it names what is not there."""
    measured, lacking = _measured(runs, work)
    lines = [
        "# Sub-networks of trained models",
        "",
        f"Written by `python benchmarks/subnets.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}; one thread. Seconds are those that the processor spent.",
        "",
        "Each model is cut to 300 sub-networks, KV heads and FFN width of each layer drawn at random within "
        "a range of MACs (`zerolm bench slice`, space `heads-ffn`), nothing trained or repaired. Units "
        "are the first ones (`prefix`, as LoNAS), or those that send most energy into the stream "
        "(`output_energy`). Every score is compared with what the sub-networks reach. *Beyond counting* "
        "is tau-b beyond that of body parameters, paired. *Within deciles* is the mean tau-b within "
        "tenths of the sub-networks by body parameters. *Pairs* are those within 5 % of total parameters: "
        "the share that is ordered rightly. Intervals are of 1000 bootstrap resamples.",
        "",
        "*kept X* is the sum of criterion X over the units that are kept, *kept share X* the mean over "
        "layers and kinds of the share that is kept, *predicted loss* the sum of a plan's losses of "
        "single cuts: foretold from one pass back (`prices`) or measured one by one (`measured`), on "
        "calibration text that judges nothing. Those see the weights; all other scores see shapes alone.",
        "",
        *([f"Not measured so far: {'; '.join(lacking)}.", ""] if lacking else []),
        *_short(measured),
    ]
    for model, one in measured.items():
        lines += ["", *_model(model, one, work)]
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
        one = measured.setdefault(model, {"runs": {}, "facts": {}, "carved": _read(place / "carved.json")})
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


def _short(measured: Mapping[str, Any]) -> Iterator[str]:
    firsts: list[str] = []
    yield "## In short"
    yield ""
    yield (
        "| model | units | result | body parameters | best of shapes | kept output energy | predicted loss, "
        "prices | measured | best of all | noise |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for model, one in measured.items():
        for criterion, run in one["runs"].items():
            documents, foretold = run["sets"], _columns(run["foretold"])
            for metric in documents["first"]["parent"]:
                if metric == "bits_a_byte":
                    continue
                rows = {row.label: row for row in _rows(documents["first"], metric, foretold)}
                shapes = [row for name, row in rows.items() if name not in foretold and row.rho is not None]
                best = max(shapes, key=lambda row: row.rho or -1.0)
                first = max(rows.values(), key=lambda row: row.rho or -1.0)
                firsts.append(first.label)
                yield (
                    f"| {model} | {criterion} | {metric} | {_rho(rows['body_params'])} | "
                    f"{_rho(best)} ({best.label}) | {_rho(rows['kept output_energy'])} | "
                    f"{_rho(rows['predicted loss, prices'])} | {_rho(rows['predicted loss, measured'])} | "
                    f"{_rho(first)} ({first.label}) | {_noise(documents, metric)} |"
                )
    yield ""
    yield (
        "Spearman with the results on the first judging set. *Best of shapes* is chosen by the results "
        "themselves, of all closed forms and counts, *best of all* of everything. *Noise* is the Spearman "
        "of the same results on two judging sets: no score can agree much better with one of them."
    )
    yield ""
    counts = Counter(firsts).most_common()
    yield f"First in {len(firsts)} rows: " + ", ".join(f"{name} {count}" for name, count in counts) + "."


def _model(model: str, one: Mapping[str, Any], work: Path) -> Iterator[str]:
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
    if "accuracy_under_attack" in first["parent"]:
        yield ""
        yield from _attacked(documents)
    for criterion, run in one["runs"].items():
        for metric in first["parent"]:
            if metric == "perplexity" and criterion != "prefix":
                continue
            if metric == "bits_a_byte":
                continue
            yield ""
            yield f"### {model}, {criterion}: {metric}"
            yield ""
            yield from _table(_rows(run["sets"]["first"], metric, _columns(run["foretold"])))
        kept = _read(work / model / f"{criterion}-proxies.json")
        if kept:
            yield ""
            yield from _proxies(model, criterion, kept, run["sets"]["first"])


def _seconds(one: Mapping[str, Any], documents: Mapping[str, Any]) -> Iterator[str]:
    carved = one["carved"]
    each = [document["processor"] for sets in documents.values() for document in sets.values()]
    yield (
        f"Seconds a sub-network, judged on one set, all beside it included: {np.mean(each):.2f}. Carving one "
        f"of uniform sizes with its proof takes {carved['carve']:.2f}, opening it again "
        f"{carved['open']:.2f}, before it is judged."
        if carved
        else f"Seconds a sub-network, judged on one set, all beside it included: {np.mean(each):.2f}."
    )


def _attacked(documents: Mapping[str, Any]) -> Iterator[str]:
    yield "**Do rankings on clean texts hold under attack?**"
    yield ""
    yield "| units | clean, attacked on | tau-b [95 %] | rho [95 %] | within deciles of size |"
    yield "|---|---|---:|---:|---:|"
    for criterion, sets in documents.items():
        for clean, under in product(sets, sets):
            a, b = column(sets[clean], "accuracy"), column(sets[under], "accuracy_under_attack")
            resampled = Bootstrap(b, DRAWS).resample(a)
            sizes = make_score("body_params").of_many(_networks(sets[clean]))
            yield (
                f"| {criterion} | {clean}, {under} | {_interval(resampled.observed.tau, resampled.tau)} | "
                f"{_interval(resampled.observed.rho, resampled.rho)} | {within_budget(a, b, sizes):.3f} |"
            )
    yield ""
    yield "Accuracy on clean texts against accuracy under attack. The texts of two sets are of other files."


def _table(rows: list[ScoreRow]) -> Iterator[str]:
    yield HEAD
    yield "|---|---:|---:|---:|---:|---:|"
    for row in sorted(rows, key=lambda row: -(row.tau or -2.0)):
        budget = "-" if row.within_budget is None else f"{row.within_budget:.3f}"
        yield (
            f"| {row.label} | {row.tau:.3f} {row.tau_low:.2f}..{row.tau_high:.2f} | "
            f"{row.rho:.3f} {row.rho_low:.2f}..{row.rho_high:.2f} | "
            f"{row.gain:+.3f} {row.gain_low:+.2f}..{row.gain_high:+.2f} | {budget} | {row.pairs_right:.0%} |"
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
        f"Every proxy of `zerolm proxies` on {len(places)} of the sub-networks, evenly spread: networks of "
        f"these shapes with random weights and tokens, 16 sequences of 64. {kept['seconds']:.1f} seconds "
        "each. Spearman with the results on the first set."
    )
    yield ""
    yield f"| proxy | {' | '.join(results)} |"
    yield f"|---|{'---:|' * len(results)}"
    yield from (line for _, line in sorted(rows, key=lambda row: -row[0]))
    if kept["left_out"]:
        yield ""
        yield f"Without a value: {', '.join(sorted(kept['left_out']))}."


def _rows(document: Mapping[str, Any], metric: str, more: Mapping[str, Floats]) -> list[ScoreRow]:
    """Return how every score agrees with a result; those that are the same for all are left out."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "labels.json"
        file.write_text(json.dumps(document["benchmark"]))
        section = bench([str(file)], metric=metric, more=lambda *_: more, draws=DRAWS).sections[0]
    return [row for row in section.rows if row.tau is not None and not row.saw_labels]


def _networks(document: Mapping[str, Any]) -> list[Any]:
    benchmark = document["benchmark"]
    space = make_space(benchmark["space"], **benchmark["settings"])
    return [space.read(entry["architecture"]) for entry in benchmark["architectures"]]


def _columns(foretold: Mapping[str, list[float]]) -> dict[str, Floats]:
    return {name: np.array(values) for name, values in foretold.items() if not name.startswith("seconds")}


def _rho(row: ScoreRow) -> str:
    return f"{row.rho:.3f} {row.rho_low:.2f}..{row.rho_high:.2f}"


def _noise(documents: Mapping[str, Any], metric: str) -> str:
    if len(documents) < len(SETS):
        return "-"
    a, b = (column(documents[name], metric) for name in SETS)
    return f"{Bootstrap(a, 1).resample(b).observed.rho:.3f}"


def _plain(document: Mapping[str, Any], metric: str) -> list[float]:
    return [entry["results"][metric] for entry in document["benchmark"]["architectures"]]


def _interval(value: float, draws: Floats) -> str:
    low, high = interval(draws)
    return f"{value:.3f} {low:.2f}..{high:.2f}"


def _results(results: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in results.items())
