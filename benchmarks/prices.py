"""Foretold losses beside measured ones: ``python benchmarks/prices.py --model pydec``.

Writes ``prices.md``. The model is a folder that ``benchmarks/train_models.py`` makes, a llama with a tied
head.
Three tables: single cuts, whole plans, and what both ways cost as a network grows deeper. One thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from carved.parent import Texts
from carving import texts
from parts import Parts
from scipy.stats import spearmanr
from timing import machine, note, one_thread
from transformers import LlamaConfig, LlamaForCausalLM

from zerolm.architecture import Floats
from zerolm.carving.carve import carve
from zerolm.carving.importance.criterion import Additive
from zerolm.carving.importance.token_pass import importances
from zerolm.carving.planning.prices import priced_losses
from zerolm.carving.planning.sensitivity import LOSS_BATCH, Loss, LossTable, measured_losses, stream_losses
from zerolm.carving.request import Methods, SizeRequest
from zerolm.carving.session import Session
from zerolm.carving.width.narrowing import Width
from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.progress import silent
from zerolm.text.tokens import Tokens

PLACE: Final = Path(__file__).with_suffix(".md")
KINDS: Final = ("groups", "ffn")
SMALL: Final = 0.1
"""Nats a token up to which a cut is small."""
BUDGETS: Final = (
    *(("params", share) for share in ("0.8x", "0.6x", "0.7x", "0.5x")),
    *(("body_params", share) for share in ("0.4x", "0.5x", "0.75x")),
)
DEPTHS: Final = (4, 8, 16, 32)
LENGTH: Final = 256
JUDGED: Final = 24

Row = list[str]


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """Return what was made, and the processor seconds that it took."""
    start = time.process_time()
    return make(), time.process_time() - start


def table(head: Row, rows: list[Row]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""


def pairs(priced: LossTable, measured: LossTable, kinds: tuple[str, ...]) -> Floats:
    """Return the foretold and the measured loss of every single cut that was measured, (n, 2)."""
    return np.array(
        [
            (-priced.worth(layer, kind, int(size)), loss)
            for kind in kinds
            for layer, losses in enumerate(measured.losses[kind])
            for size, loss in zip(measured.sizes[kind][:-1], losses[:-1], strict=True)
        ]
    )


def agreement(name: str, both: Floats) -> Row:
    small = both[both[:, 1] < SMALL]
    ratios = small[:, 0] / small[:, 1]
    spread = np.exp(np.std(np.log(ratios)))
    return [
        name,
        str(len(both)),
        f"{spearmanr(*both.T)[0]:.3f}",
        f"{spearmanr(*small.T)[0]:.3f}" if len(small) > 2 else "-",
        f"{np.median(ratios):.2f}",
        f"{spread:.2f}",
    ]


def single_cuts(session: Session) -> Iterator[str]:
    """Yield how foretold and measured losses of single cuts agree, and what each took."""
    model, tokens, by, tied = (
        session.model,
        session.tokens,
        session.importance(),
        session.checkpoint.layout.tied,
    )
    basis, basis_seconds = timed(lambda: session.basis)
    note("pricing")
    priced, priced_seconds = timed(lambda: priced_losses(model, tokens, by, KINDS, basis=basis, tied=tied))
    note("measuring single cuts")
    measured, cut_seconds = timed(lambda: measured_losses(model, tokens, by, KINDS))
    stream, stream_seconds = timed(lambda: stream_losses(model, tokens, basis, tied=tied))
    assert priced.stream is not None
    widths = np.array(
        [
            (priced.stream.loss(Width(int(size), head)), loss)
            for head, losses in stream.losses.items()
            for size, loss in zip(stream.sizes[:-1], losses[:-1], strict=True)
        ]
    )
    layers = np.stack([priced.gone, measured.gone], axis=1)
    yield "## Single cuts"
    yield ""
    yield (
        f"{len(tokens)} sequences of {LENGTH} tokens, nothing repaired. One pass forward and one back: "
        f"**{priced_seconds:.0f} s** for all of it. Measured one by one: {cut_seconds:.0f} s for units and "
        f"layers, {stream_seconds:.0f} s for the stream at {len(stream.sizes) - 1} widths. The basis of the "
        f"stream takes both {basis_seconds:.0f} s more."
    )
    yield ""
    head = [
        "cut",
        "cuts",
        "Spearman",
        f"below {SMALL:g} nats",
        "foretold / measured, median",
        "spread, a factor",
    ]
    rows = [
        agreement("KV groups and neurons of one layer", pairs(priced, measured, KINDS)),
        agreement("KV groups", pairs(priced, measured, ("groups",))),
        agreement("neurons", pairs(priced, measured, ("ffn",))),
        agreement("width of the stream", widths),
    ]
    yield from table(head, rows)
    ratios = layers[:, 0] / layers[:, 1]
    yield (
        f"Whole layers are foretold too low: {ratios.min():.2f} to {ratios.max():.2f} of what they lose, "
        f"Spearman {spearmanr(*layers.T)[0]:.2f} over {len(layers)}."
    )
    yield ""


def plan_row(folder: Path, sources: Texts, sequences: int, cost: str, share: str) -> Row:
    """Return what children lose that were planned either way, repaired, on text that nobody has seen."""
    checkpoint = Checkpoint.open(folder)
    methods = Methods("output_energy", "prices", str(sources.seen), sequences, LENGTH, "least-squares")
    judge = Session(checkpoint, replace(methods, text=str(sources.unseen), sequences=JUDGED), silent)
    loss = Loss(Blocks(judge.model, judge.tokens.batches(LOSS_BATCH)), judge.model.config.num_hidden_layers)
    row = [f"{share} of {cost}"]
    for plan in ("prices", "measured"):
        child = carve(folder, SizeRequest.of(budgets={f"max_{cost}": share}), replace(methods, plan=plan))
        kl = loss.of_cut(child.cut, Session(checkpoint, methods, silent).repaired(child.cut))
        one = child.widths[0]
        shape = f"{len(child.widths)} x {child.cut.hidden}, kv {one['kv_heads']}, ffn {one['ffn']}"
        row += [shape, f"{kl:.4f}"]
    return row


def depth_row(depth: int) -> Row:
    """Return what both ways take of a random llama so deep."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=depth,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    tokens = Tokens(torch.randint(2048, (8, 128)))
    by = Additive(importances(model, tokens, "output_energy"))
    _, priced = timed(lambda: priced_losses(model, tokens, by, KINDS))
    _, measured = timed(lambda: measured_losses(model, tokens, by, KINDS))
    return [
        str(depth),
        f"{priced:.1f}",
        f"{priced / depth:.2f}",
        f"{measured:.0f}",
        f"{measured / priced:.0f}",
    ]


def document(parts: dict[str, Any], names: list[str], sequences: int) -> Iterator[str]:
    """Yield the lines of the page, of what was measured."""
    yield "# Prices: foretold losses beside measured ones"
    yield ""
    yield (
        f"Written by `python benchmarks/prices.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}; one thread, processor seconds."
    )
    yield ""
    missing = [name for name in names if name not in parts]
    if missing:
        yield f"Not measured so far: {', '.join(missing)}. `--work` with the same folder goes on."
        yield ""
    yield from parts.get("single cuts", [])
    yield "## Deeper networks"
    yield ""
    yield "Random llamas 128 wide, 1,024 tokens; processor seconds."
    yield ""
    rows = [parts[name] for name in names if name.startswith("depth") and name in parts]
    yield from table(["layers", "prices", "a layer", "measured", "times as long"], rows)
    yield "## Whole plans"
    yield ""
    yield (
        f"Calibrated on {sequences} sequences that the model has seen, repaired by least squares; KL to the "
        f"parent in nats a token on {JUDGED} sequences of unseen text. The best plans beside each width of "
        "the stream are repaired and measured either way."
    )
    yield ""
    rows = [parts[name] for name in names if name.startswith("plan") and name in parts]
    yield from table(["budget", "by prices", "KL", "by measuring", "KL"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True, help="folder of a llama with a tied head")
    parser.add_argument("--work", type=Path, help="folder of what is measured: a run that was killed goes on")
    parser.add_argument(
        "--stored", action="store_true", help="write the page from that folder, measure nothing"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few sequences, printed and not written: a trial"
    )
    wish = parser.parse_args()
    one_thread()
    torch.set_grad_enabled(False)
    single, planned = (4, 8) if wish.quick else (48, 96)
    with tempfile.TemporaryDirectory() as scratch:
        work = wish.work or Path(scratch)
        work.mkdir(exist_ok=True)
        os.environ["ZEROLM_CACHE"] = str(work / "cache")
        sources, stored = texts(wish.model, work), Parts(work / "parts.jsonl")
        methods = Methods("output_energy", "prices", str(sources.seen), single, LENGTH, "least-squares")
        parts: dict[str, Callable[[], Any]] = {
            "single cuts": lambda: list(single_cuts(Session(Checkpoint.open(wish.model), methods, silent))),
            **{f"depth {depth}": partial(depth_row, depth) for depth in DEPTHS},
            **{
                f"plan {share} of {cost}": partial(plan_row, wish.model, sources, planned, cost, share)
                for cost, share in BUDGETS
            },
        }
        for name, measure in parts.items() if not wish.stored else ():
            stored.measured(name, measure)
        text = "\n".join(document(stored.every(), list(parts), planned)).strip() + "\n"
    print(text) if wish.quick else PLACE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
