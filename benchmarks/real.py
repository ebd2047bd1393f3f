"""Real pretrained models: published ways to prune beside ours, on the same models, tokens and texts.

``ZEROLM_REAL=FOLDER python benchmarks/real.py`` measures what ``real/*.jsonl`` lacks and writes ``real.md``.
``--only peers`` measures published methods, ``--only ours`` what ``zerolm`` makes, ``--only speed`` tokens a
second, ``--only commands`` the children that the documentation shows, ``--only page`` writes the page
alone. ``--models``, ``--shares``, ``--methods`` and ``--texts`` choose rows, separated by commas. After
``--minutes`` no further rows begin; the next run goes on.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

import torch
from parts import Parts
from real_commands import command_rows
from real_judging import is_of, judged, of_peer
from real_models import REAL, TOYS, Parent, Sizes
from real_ours import OURS, ours_row
from real_page import page
from real_peers import METHODS, PCA, TWO_SSP, narrows, params_of, peer_cut, scores_of
from real_speed import speed_row
from real_vocabulary import VOCABULARY, vocabulary_row
from timing import note, one_thread

FOLDER: Final = Path(__file__).with_suffix("")
SHARES: Final = (0.9, 0.8, 0.7, 0.5)
GROUP: Final = 2
"""Children that are judged together."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("commands", "peers", "ours", "speed", "page"))
    parser.add_argument("--models", default=",".join((*REAL, *TOYS)))
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--methods", default=",".join((*METHODS, *OURS)))
    parser.add_argument("--texts", default="python,english,sentences,chat")
    parser.add_argument("--of", choices=("body", "params"), default="body", help="what shares are of")
    parser.add_argument("--calibration", choices=("plain", "chat"), default="plain")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--minutes", type=float, default=1e9)
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    torch.set_num_threads(1)
    if chosen.only != "page":
        last = time.monotonic() + 60 * chosen.minutes
        for name, measure in rows(chosen, lambda: time.monotonic() > last):
            if time.monotonic() > last:
                note(f"stopped before {name}: {chosen.minutes:g} minutes are over")
                break
            measure()
    (FOLDER.with_suffix(".md")).write_text(page(FOLDER), encoding="utf-8")


def rows(chosen: argparse.Namespace, is_over: Callable[[], bool]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what is to be measured, by a name, as functions without arguments."""
    shares, methods = [float(share) for share in chosen.shares.split(",")], chosen.methods.split(",")
    for name in chosen.models.split(","):
        if chosen.only in (None, "commands") and name in REAL:
            parent = Parent(name, chosen.dtype)
            yield f"{name} commands", partial(command_rows, parent, Parts(FOLDER / f"{name}.jsonl"))
        if chosen.only in (None, "peers"):
            for text in chosen.texts.split(","):
                for share in shares:
                    peers = [method for method in METHODS if method in methods]
                    yield (
                        f"{name} {share} {text}",
                        partial(peer_rows, Parent(name, chosen.dtype), share, text, peers, chosen, is_over),
                    )
        if chosen.only in (None, "peers") and chosen.of == "params" and name in REAL:
            for text in chosen.texts.split(","):
                for share in shares:
                    yield (
                        f"{name} {share} {text}",
                        partial(vocabulary_rows, Parent(name, chosen.dtype), share, text),
                    )
        if chosen.only in (None, "ours") and name in REAL:
            for share in shares:
                for method in (method for method in OURS if method in methods):
                    yield (
                        f"{name} {share} {method}",
                        partial(
                            ours_rows, Parent(name, chosen.dtype), share, method, chosen.texts.split(",")
                        ),
                    )
        if chosen.only in (None, "speed") and name in REAL:
            yield f"{name} speed", partial(speed_rows, Parent(name))


def peer_rows(
    parent: Parent,
    share: float,
    text: str,
    methods: Sequence[str],
    chosen: argparse.Namespace,
    is_over: Callable[[], bool],
) -> None:
    """Measure what is missing of a share of the body and a text, several children at a time."""
    if text not in parent.texts or (chosen.calibration == "chat" and "chat" not in parent.texts):
        return
    form = "" if parent.dtype == "bfloat16" else f" in {parent.dtype}"
    by = "chat" if chosen.calibration == "chat" else parent.calibrated
    store = Parts(FOLDER / f"{parent.name}.jsonl")
    store.measured("sizes", lambda: asdict(Sizes.of(parent)))
    every = store.every()
    kind = "" if chosen.of == "body" else "of params "
    names = {method: f"{share} {kind}{method} by {by} on {text}{form}" for method in methods}
    tokens = parent.unseen(text)
    missing = [method for method, name in names.items() if not is_of(every.get(name), tokens)]
    if not parent.is_decoder:
        missing = [method for method in missing if method != TWO_SSP]
    if not narrows(parent):
        missing = [method for method in missing if method != PCA]
    if not missing:
        return
    start = time.process_time()
    scores = scores_of(parent, by)
    passed = time.process_time() - start
    sizes = Sizes.of(parent)
    fewer = (1.0 - share) * (sizes.body if chosen.of == "body" else sizes.params)
    if sizes.width(parent, fewer) < 1:
        note(f"{parent.name}: FFNs do not hold {1 - share:.0%} of all parameters")
        return
    for first in range(0, len(missing), GROUP):
        if is_over():
            return
        group = missing[first : first + GROUP]
        note(f"{parent.name} {share} on {text}: {', '.join(group)}")
        start = time.process_time()
        cuts = [peer_cut(parent, method, fewer, scores) for method in group]
        choosing = time.process_time() - start
        start = time.process_time()
        measured = judged(parent, tokens, [of_peer(parent, cut) for cut in cuts])
        took = time.process_time() - start
        for method, cut, figures in zip(group, cuts, measured, strict=True):
            params, body = params_of(parent, cut)
            result = {
                **figures,
                "params": params,
                "body": body,
                "widths": [len(layer["ffn"]) for layer in cut.cut.layers],
                "layers": len(cut.cut.layers),
                "dtype": parent.dtype,
                "score_seconds": round(passed + choosing / len(group), 2),
                "judge_seconds": round(took / (len(group) + 1), 2),
                "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
            }
            if cut.without_attention:
                result["without_attention"] = sorted(cut.without_attention)
            store.add(names[method], result)


def vocabulary_rows(parent: Parent, share: float, text: str) -> None:
    """Measure COMPACT with its vocabulary, calibrated by a text of the kind that it is judged on."""
    if parent.is_decoder and text in ("python", "english"):
        store = Parts(FOLDER / f"{parent.name}.jsonl")
        name = f"{share} of params {VOCABULARY} by {text} on {text}"
        if not is_of(store.stored(name), parent.unseen(text)):
            note(f"{parent.name}: {name}")
            store.add(name, vocabulary_row(parent, share, text))


def ours_rows(parent: Parent, share: float, method: str, texts: Sequence[str]) -> None:
    """Measure a child that ``zerolm`` writes."""
    store = Parts(FOLDER / f"{parent.name}.jsonl")
    ours_row(parent, share, method, [text for text in texts if text in parent.texts], store)


def speed_rows(parent: Parent) -> None:
    """Measure tokens a second of a parent and its child."""
    speed_row(parent, Parts(FOLDER / f"{parent.name}.jsonl"))


if __name__ == "__main__":
    one_thread()
    sys.path.insert(0, str(Path(__file__).parent))
    main()
