"""Each family is carved and healed for a few steps: python benchmarks/families.py > benchmarks/families.md

Parents are the tiny random models of the tests, and the text is words in an order that is easily learnt. What
is shown is whether a family can be healed, and that what is written is what was trained; not how well. Names
of families after the command choose some.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import machine, note

import zerolm
from zerolm.families.known import families

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from tiny import byte_tokenizer, word_tokenizer
from tiny_families import TINY, saved

STEPS = 4
BYTES = ("qwen2", "qwen3_5_moe_text")
"""Families whose stock tokenizer reads pairs of bytes only."""
SHORT: dict[str, Any] = {"tokens": STEPS * 4 * 12, "batch": 4, "length": 12, "rate": 1e-4}
RANDOM: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}
SHARES = {"ffn": 0.5, "heads": 0.5, "layers": 0.67}


@dataclass(frozen=True)
class Healing:
    """What became of a family: its cut, the losses before and after, the difference of what was written."""

    cut: str
    loss: str
    before: float
    after: float
    written: float


def healed(name: str, folder: Path) -> Healing:
    """Carve a tiny model of a family in all that can be cut but the stream, and heal the child."""
    text = folder / "text.txt"
    steps = np.random.default_rng(0).integers(0, 4, 1500)
    text.write_text(" ".join(f"w{word}" for word in np.cumsum(steps) % 64))
    parent = saved(folder / "parent", name, tie_word_embeddings=False)
    (byte_tokenizer if name in BYTES else word_tokenizer)(parent)
    cuts = [kind for kind in SHARES if getattr(families()[name].cut, kind)]
    shares: dict[str, Any] = {f"keep_{kind}": SHARES[kind] for kind in cuts}
    more = RANDOM if "layers" in cuts else {}
    zerolm.carve(parent, folder / "child", repair="none", **shares, **more)
    report = zerolm.heal(folder / "child", folder / "healed", parent=parent, text=text, **SHORT)
    loss = "cosine" if families()[name].task == "masked" else "kl"
    before, after = (report.losses[time][loss] for time in ("before", "after"))
    return Healing(", ".join(cuts), loss, before, after, report.verified.difference)


def row(name: str) -> str:
    """Return the row of a family."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            one = healed(name, Path(folder))
        except Exception as error:  # whatever keeps a family from being healed is its row
            return f"| {name} | | not healed: {' '.join(str(error).split())[:160]} | | |"
    what = f"{one.loss} {one.before:.4g} -> {one.after:.4g}"
    is_better = one.after > one.before if one.loss == "cosine" else one.after < one.before
    return f"| {name} | {one.cut} | {what} | {'yes' if is_better else 'no'} | {one.written:.1e} |"


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ZEROLM_CACHE"] = cache
        print("# Families that are healed\n")
        print(f"Written by `python benchmarks/families.py`: {STEPS} steps each. Machine: {machine()}.\n")
        print("| family | cut | held-out loss | better | difference of what is written |")
        print("|---|---|---|---|---:|")
        for name in sys.argv[1:] or TINY:
            note(name)
            print(row(name), flush=True)


if __name__ == "__main__":
    main()
