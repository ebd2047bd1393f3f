"""Every proxy on networks whose trained results are published: ``python benchmarks/proxies.py``.

Writes ``proxies.md`` from the benchmarks in ``ZEROLM_DATA`` (or --data): in sane mode on one batch of real
text, the standard library's docstrings; in faithful mode beside the values that papers report; and what
sharing passes is worth. With the usual 100 networks of each benchmark it takes about two hours on two cores;
values and times are kept (--store), so that a second run, or one with ``--networks 500``, goes on from there.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core, one thread a process

import numpy as np
import torch
from corpus import docstrings, seen_files
from timing import machine, note

from zerolm.architecture import MAX_WIDTH, Architecture
from zerolm.comparison.results import ScoreRow, by_tau
from zerolm.groundtruth.reader import locate, read, views
from zerolm.groundtruth.truth import thinned
from zerolm.io.files import cache_folder
from zerolm.lab.zero_cost import Proxy, find_proxy, proxy_names
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.job import compute
from zerolm.lab.zero_cost.measure import ProxyRequest, Selection, measure
from zerolm.lab.zero_cost.passes import NEEDS, Protocol
from zerolm.lab.zero_cost.result import RankedProxies
from zerolm.lab.zero_cost.settings import Settings, TokenSource
from zerolm.networks.batch import Batch
from zerolm.networks.network import Network
from zerolm.statistics import within_budget
from zerolm.verbs.comparison_sheets import remark

PLACE = Path(__file__).with_suffix(".md")
SHARED = ("forward", "jacobian", "backward", "flow")
"""The passes of the loss and its derivatives, and that of absolute weights."""
PUBLISHED = {
    "flexibert_glue": {
        "params": 0.454,
        "head_confidence": 0.479,
        "softmax_confidence": 0.216,
        "activation_distance": 0.480,
        "synflow": 0.322,
        "log_synflow": 0.334,
        "fisher": 0.139,
        "grad_norm": 0.133,
        "snip": 0.119,
        "jacobian_cosine": 0.116,
        "synaptic_saliency": 0.188,
        "synaptic_diversity": 0.156,
        "dss": 0.192,
        "head_importance": 0.164,
        "eznas": 0.483,
        "lpzero_bert": 0.511,
        "w_pca": 0.526,
    },
    "gpt2_wt103": {
        "params": 0.582,
        "decoder_params": 0.847,
        "lpzero_surrogate": 0.891,
        "lpzero_gpt2": 0.886,
        "synflow": 0.565,
        "log_synflow": 0.753,
        "fisher": 0.510,
        "grad_norm": 0.493,
        "snip": 0.506,
        "jacobian_cosine": 0.532,
        "synaptic_saliency": 0.861,
        "synaptic_diversity": 0.841,
        "dss": 0.841,
        "head_importance": 0.862,
        "head_confidence": 0.677,
        "activation_distance": 0.644,
        "eznas": 0.439,
    },
}
"""|tau| as the papers have it: LPZero (arXiv 2410.04808) and its data, ZeroLM (arXiv 2503.18646) for DSS,
W-PCA (arXiv 2504.15983); activation distance as recomputed from the released values without their repeated
hooks; the surrogate is a closed form of LPZero's formula."""
QUICK = (
    "params",
    "decoder_params",
    "lpzero_surrogate",
    "head_confidence",
    "softmax_confidence",
    "activation_distance",
    "lpzero_bert",
)
"""Those that are computed of all networks of a benchmark: a forward pass at most."""
READING = """\
Agreement with quality (perplexity negated); intervals are 95 % percentiles of 1000 bootstrap draws, those of
differences paired. *Random ties*: the expected tau when a score's ties are broken at random. *In budget*:
tau-b among networks of about as many body parameters; *in shape*: among those of the same depth and width.
*Seconds*: processor seconds, a network's mean, one thread, as if the proxy ran alone: what it needs of the
passes and its own sums. Where a fused matrix is several (GPT-2's queries, keys and values), so it is here; in
faithful mode it is one, as in released code.
"""
SANE = """\
## One batch of real text, sane mode

64 sequences of 128 tokens of the standard library's docstrings (byte-level BPE of 8192 tokens), 8
micro-batches, evaluation mode; next-token loss for GPT-2, 15 % masked tokens for FlexiBERT.
"""
FAITHFUL = """\
## What papers print, faithful mode

The formulas of released code, dropout and the gradient of ones through FlexiBERT's final norm included;
FlexiBERT in the published view. The tokens are those above, not the released batches. Behind that norm
gradients are nothing but rounding, so what gradient proxies say on FlexiBERT is no more than how large a
network's rounding is. GraSP, which needs a second derivative of that rounding, is left out. A dash: ones
alone vanish in GPT-2's first norm (released code adds positions to them). Where 50 networks are taken, chance
alone moves tau by about .07.
"""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    data: str | None
    store: Path
    text: Path
    networks: int
    jobs: int

    def run(
        self, benchmark: str, names: Sequence[str] | None, mode: str, view: str | None, limit: int | None
    ) -> RankedProxies:
        """The proxies of a benchmark, as ``zerolm lab proxies`` gives them."""
        request = ProxyRequest(
            names=names,
            text=str(self.text),
            settings=Settings(mode=mode),
            networks=Selection(limit=limit, view=view, data=self.data),
            jobs=self.jobs,
            store=self.store,
        )
        note(f"== {benchmark}, {mode} mode" + (f", view {view}" if view else ""))
        return measure(benchmark, request, progress=note)


def text_file(folder: Path) -> Path:
    """All docstrings of the standard library of this Python, as one file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "docstrings.txt"
    file.write_text("\n".join(one.docstring for one in docstrings(seen_files())), encoding="utf-8")
    return file


def digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{digits(low)}, {digits(high)}]"


def line(row: ScoreRow, seconds: dict[str, float], drawn: set[str], in_shape: float | None) -> str:
    known = row.gain is not None and row.score != "body_params"
    gain = digits(row.gain) + span(row.gain_low, row.gain_high) if known else ""
    cells = (
        row.label,
        "proxy" if row.label in drawn else "baseline" if row.baseline else "closed form",
        digits(row.tau) + span(row.tau_low, row.tau_high),
        digits(row.tau_random_ties),
        digits(row.rho) + span(row.rho_low, row.rho_high),
        gain,
        digits(row.within_budget),
        digits(in_shape),
        f"{seconds[row.label]:.2f}" if row.label in seconds else "",
        remark(row),
    )
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| score | kind | tau-b [95 %] | random ties | rho [95 %] | over body parameters [95 %] | in budget "
    "| in shape | seconds | |\n|---|---|---|---|---|---|---|---|---:|---|"
)


def table(found: RankedProxies) -> str:
    """Every score on one benchmark, best first; closed forms beside the proxies."""
    assert found.section is not None
    measured, section = found.table, found.section
    drawn = set(measured.proxies)
    lines = [f"### {measured.title}\n", HEAD]
    shape = section.scores["depth"] * MAX_WIDTH + section.scores["width"]
    for row in by_tau(section):
        inside = within_budget(section.scores[row.label], section.result, shape, len(shape))
        lines.append(line(row, measured.seconds, drawn, None if np.isnan(inside) else inside))
    lines += [f"\nLeft out: {name}: {reason}." for name, reason in measured.left_out.items()]
    if found.libra:
        v = found.libra
        lines.append(
            f"\nLIBRA, chosen by {v.calibration} labels: {', '.join(v.chosen)}. On the other {v.test} "
            f"networks tau-b {digits(v.tau)}, rho {digits(v.rho)}; "
            f"body parameters {digits(v.tau_body_params)}."
        )
    return "\n".join(lines) + "\n"


def faithful(options: Options) -> str:
    """|tau| of released code's formulas against what papers print."""
    lines = [
        "| benchmark | proxy | networks | here | printed | difference |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for benchmark, values in PUBLISHED.items():
        view = "published" if benchmark == "flexibert_glue" else None
        quick = [name for name in values if name in QUICK]
        if benchmark == "gpt2_wt103":
            quick = [name for name in quick if not find_proxy(name).needs]
        slow = [name for name in values if name not in quick]
        for names, limit in ((quick, None), (slow, options.networks // 2)):
            found = options.run(benchmark, names, "faithful", view, limit)
            for name in names:
                lines.append(compared(found, benchmark, name, values[name]))
    return "\n".join(lines) + "\n"


def compared(found: RankedProxies, benchmark: str, name: str, printed: float) -> str:
    assert found.section is not None
    row = next((row for row in found.section.rows if row.label == name), None)
    here = None if row is None or row.tau is None else abs(row.tau)
    difference = "-" if here is None else f"{here - printed:+.3f}"
    networks = len(found.table.networks)
    return f"| {benchmark} | {name} | {networks} | {digits(here)} | {digits(printed)} | {difference} |"


def sharing(options: Options, source: TokenSource, sequences: int, networks: int = 20) -> str:
    """Processor seconds of all proxies of the shared passes together, over those one after the other."""
    names = [name for name in proxy_names() if find_proxy(name).needs]
    every = [find_proxy(name) for name in names]
    few = [p for p in every if {NEEDS[need] for need in p.needs} <= set(SHARED)]
    torch.set_num_threads(1)
    chosen = shared_batches(options, source, sequences, networks)
    return ratio("these passes", few, chosen) + ratio("all passes", every, chosen[:: networks // 4 or 1])


def shared_batches(
    options: Options, source: TokenSource, sequences: int, networks: int
) -> list[tuple[Architecture, Callable[[Network], Batch]]]:
    def batch(network: Network) -> Batch:
        return source.batch(network.task, network.classes, sequences, 128, 0)

    truths = (thinned(read(locate(name, options.data)), networks // 2) for name in PUBLISHED)
    return [(each, batch) for truth in truths for each in views(truth)[0].architectures]


def ratio(
    passes: str, proxies: list[Proxy], chosen: list[tuple[Architecture, Callable[[Network], Batch]]]
) -> str:
    ratios, together, apart = [], 0.0, 0.0
    for architecture, batch_of in chosen:
        network = Candidate.of(architecture, "").network(0)
        batch = batch_of(network)
        compute(network, proxies[:1], batch, Protocol())  # warm
        spent = []
        for group in ([proxies], [[p] for p in proxies]):
            start = time.process_time()
            for some in group:
                compute(network, some, batch, Protocol())
            spent.append(time.process_time() - start)
        ratios.append(spent[1] / spent[0])
        together, apart = together + spent[0], apart + spent[1]
        note(f"{len(ratios)} of {len(chosen)}: {ratios[-1]:.1f} times")
    return (
        f"{len(proxies)} proxies of {passes} on {len(ratios)} networks, built and warm, in one process of "
        f"one thread, {len(batch)} sequences of 128 tokens: together {together:.0f} processor seconds, "
        f"one after the other {apart:.0f}: **{apart / together:.1f} times** (by network from "
        f"{min(ratios):.1f} to {max(ratios):.1f}, median {float(np.median(ratios)):.1f}).\n\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None)
    parser.add_argument("--networks", type=int, default=100, help="of each benchmark, evenly spread")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--store", type=Path, default=cache_folder("proxies") / "benchmark.jsonl")
    parser.add_argument("--sharing", type=int, default=16, help="sequences for the comparison of times")
    given = parser.parse_args()
    folder = cache_folder("proxies")
    options = Options(given.data, given.store, text_file(folder), given.networks, given.jobs)
    kept = given.store.with_suffix(".sharing.md")  # beside the values, for it takes a quarter of an hour
    if not kept.is_file():
        source = ProxyRequest(text=str(options.text)).source()
        kept.write_text(sharing(options, source, given.sharing), encoding="utf-8")
    shared = kept.read_text(encoding="utf-8")
    tables = [
        table(options.run(benchmark, None, "sane", view, options.networks))
        for benchmark, view in (("flexibert_glue", "declared"), ("gpt2_wt103", None))
    ]
    parts = [
        "# Proxies\n\nWritten by `python benchmarks/proxies.py`. "
        f"Machine: {machine()}, torch {torch.__version__}.\n\n{READING}",
        SANE,
        *tables,
        FAITHFUL,
        faithful(options),
        "## Shared passes\n",
        shared,
    ]
    unfinished = PLACE.with_suffix(".md.part")
    unfinished.write_text("\n".join(parts), encoding="utf-8")
    unfinished.replace(PLACE)


if __name__ == "__main__":
    main()
