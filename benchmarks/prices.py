"""Plans by prices beside others: ``python benchmarks/prices.py --model pydec --model pydeep``.

Writes ``prices.md``. The models are folders that ``benchmarks/train_models.py`` makes, llamas with a tied
head.
Of each: losses of single and of joint cuts, foretold and measured, and whole plans by prices and by a grid.
Then what a table of prices takes as a network grows deeper. One thread.
What is measured is a line of ``prices/parts.jsonl``, and is not measured again; remove lines to do so.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final

import torch
from carving import texts
from parts import Parts
from prices_page import page
from prices_runs import KINDS, Parent, Scale, timed
from timing import one_thread
from transformers import LlamaConfig, LlamaForCausalLM

from zerolm.planning.estimates import estimated_losses
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Additive
from zerolm.units.importance.token_pass import importances

PLACE: Final = Path(__file__).with_suffix(".md")
PARTS: Final = PLACE.with_suffix("") / "parts.jsonl"
BUDGETS: Final = (
    *(("params", share) for share in ("0.8x", "0.7x", "0.6x", "0.5x")),
    *(("body_params", share) for share in ("0.75x", "0.5x", "0.4x")),
)
DEPTHS: Final = (4, 8, 16, 32)
QUICK: Final = Scale(calibrated=8, judged=4, fitted=4, glanced=2, joint=4)


def parts_of(
    parent: Parent, scale: Scale, budgets: tuple[tuple[str, str], ...]
) -> dict[str, Callable[[], Any]]:
    """Return the parts of a model by their names, in their order."""
    return {
        "sizes": parent.sizes,
        "table by prices": parent.timed_table,
        "single cuts": parent.single_cuts,
        **{f"joint cut {number}": partial(parent.joint_cut, number) for number in range(scale.joint)},
        **{
            f"plan {share} of {cost}, {way}": partial(plan, cost, share)
            for way, plan in (("prices", parent.plan), ("grid", parent.plan_by_grid))
            for cost, share in budgets
        },
    }


def check_model(stored: Parts, folder: Path) -> None:
    """Refuse a model other than that whose parts are stored under its name."""
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if stored.measured(f"{folder.name}: model", lambda: digest) != digest:
        raise SystemExit(
            f"{stored.file} is of another {folder.name}: remove its lines, and all is measured again"
        )


def depth_row(depth: int) -> dict[str, float]:
    """Return the processor seconds that a table takes of a random llama so deep."""
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
    _, priced = timed(lambda: estimated_losses(model, tokens, by, KINDS))
    return {"prices": priced}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--model", type=Path, action="append", required=True, help="a llama's folder; may be given again"
    )
    parser.add_argument("--work", type=Path, help="folder of caches: a part that was killed goes on")
    parser.add_argument("--only", action="append", help="measure only parts with this in their names")
    parser.add_argument(
        "--stored", action="store_true", help="write the page of what is stored, measure nothing"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few sequences, printed and not written: a trial"
    )
    wish = parser.parse_args()
    one_thread()
    torch.set_grad_enabled(False)
    scale, budgets, depths = (QUICK, BUDGETS[:1], DEPTHS[:1]) if wish.quick else (Scale(), BUDGETS, DEPTHS)
    with tempfile.TemporaryDirectory() as scratch:
        work = wish.work or Path(scratch)
        work.mkdir(exist_ok=True)
        os.environ["ZEROLM_CACHE"] = str(work / "cache")
        stored = Parts(Path(scratch) / PARTS.name if wish.quick else PARTS)
        measures, parents = {}, {}
        for folder in wish.model:
            check_model(stored, folder)
            parent = Parent(folder, texts(folder, work), scale, stored)
            parents[parent.name] = parent
            for name, measure in parts_of(parent, scale, budgets).items():
                measures[f"{parent.name}: {name}"] = measure
        measures |= {f"depth {depth}": partial(depth_row, depth) for depth in depths}
        for name, measure in measures.items() if not wish.stored else ():
            if wish.only is None or any(word in name for word in wish.only):
                stored.measured(name, measure)
        text = StringIO()
        with redirect_stdout(text):
            page(stored.every(), list(measures), list(parents), scale)
    content = text.getvalue().strip() + "\n"
    print(content) if wish.quick else PLACE.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
