"""The same widths in all layers: every criterion with every repair."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from carved.judging import Quality
from carved.parent import LENGTH, OWN_OUTPUT, RIVAL, Parent, Trial
from carved.writing import Line, compared, heading, row, shown
from timing import note
from transformers import AutoModel, AutoModelForCausalLM

import zerolm
from zerolm.carving.criteria import REPAIRS, WEIGHTS_ONLY, WITH_TOKENS
from zerolm.networks.roles import bias, layers_of

CRITERIA: Final = (*WEIGHTS_ONLY, *WITH_TOKENS)
BY_ENERGY: Final = ("output_energy", "least-squares")
MAIN: Final = "written by `zerolm carve`, opened again"
PARENT_ASKED: Final = 17.67
"""The perplexity of the parent with which the perplexities below were asked for."""
WITHIN: Final = 1.02
DECODER: Final[Mapping[tuple[str, str, str], tuple[Quality, ...]]] = {
    ("capacity", "none", "text"): (Quality(0.29, 23.7), Quality(1.15, 55.0)),
    ("output_energy", "none", "text"): (Quality(0.15, 20.1), Quality(0.53, 28.8)),
    ("output_energy", "least-squares", "text"): (Quality(0.064, 18.7), Quality(0.24, 22.0)),
    ("output_energy", OWN_OUTPUT, "text"): (Quality(0.082, 19.0), Quality(0.33, 24.1)),
    ("output_energy", "least-squares", "random"): (Quality(0.145, 20.2),),
}
"""What is asked for at 3/4 and at 1/2, by criterion, repair and tokens."""
ENCODER: Final = 0.998
"""The mean cosine asked for at half of the FFN, of what is written with the defaults."""


def uniform(parent: Parent) -> Iterator[Line]:
    """The tables of a model."""
    if parent.decoder:
        yield from grid(parent, "KV groups and FFN", [(0.75, 0.75), (0.5, 0.5)])
        yield ""
        yield from narrow(parent, [(1.0, 0.75), (1.0, 0.5)])
    else:
        yield from grid(parent, "FFN", [(1.0, 0.5), (1.0, 0.25), (1.0, 0.125)])


def grid(parent: Parent, what: str, shares: Sequence[tuple[float, float]]) -> Iterator[Line]:
    """All criteria and repairs at these shares of KV groups and neurons."""
    yield from heading(f"The same widths in all layers: {what}")
    if parent.decoder:
        whole = shown(parent.judge.of(parent.model))
        yield f"Perplexity / KL; the parent's own is {whole}. What is asked was with a parent of {PARENT_ASKED}:"
        yield "reached is a perplexity that is in that proportion to the parent's, within 2 %."
        yield ""
    yield from head(parent, shares)
    for name in CRITERIA:
        for how in repairs(parent):
            yield line(parent, Trial(name, 1.0, 1.0, how), shares)
    yield line(parent, Trial("output_energy", 1.0, 1.0, OWN_OUTPUT), shares)
    yield line(parent, Trial(*BY_ENERGY[:1], 1.0, 1.0, BY_ENERGY[1], tokens="random"), shares)
    if not parent.decoder:
        yield from rival(parent, shares)
    yield main_row(parent, shares)


def narrow(parent: Parent, shares: Sequence[tuple[float, float]]) -> Iterator[Line]:
    """A decoder's FFN alone, beside another package."""
    yield from heading("The same widths in all layers: FFN alone, all heads kept")
    yield from head(parent, shares)
    for name in ("capacity", "output_energy"):
        for how in repairs(parent):
            yield line(parent, Trial(name, 1.0, 1.0, how), shares)
    yield from rival(parent, shares)


def repairs(parent: Parent) -> list[str]:
    """Those that do something: a bias is repaired where there is one."""
    biased = any(bias(layer.ffn_out) is not None for layer in layers_of(parent.model))
    return [how for how in REPAIRS if how != "bias" or biased]


def rival(parent: Parent, shares: Sequence[tuple[float, float]]) -> Iterator[Line]:
    """Torch-Pruning's choice as it comes, then with our repair."""
    for how in repairs(parent):
        try:
            yield line(parent, Trial(RIVAL, 1.0, 1.0, how), shares)
        except ImportError:
            yield row(RIVAL, "not installed: pip install torch-pruning", *["", ""] * len(shares))
            return


def head(parent: Parent, shares: Sequence[tuple[float, float]]) -> Iterator[Line]:
    """The shares kept and what is left of the parameters."""
    cells = []
    for groups, ffn in shares:
        cut = parent.uniform(Trial("prefix", groups, ffn))
        left = parent.cost("params", cut) / parent.cost("params")
        body = parent.cost("body_params", cut) / parent.cost("body_params")
        cells += [f"{ffn:g} kept: {left:.1%} of all, {body:.1%} of the layers' parameters", "asked"]
    yield row("criterion", "repair", *cells)
    yield row("---", "---", *["---:", "---:"] * len(shares))


def line(parent: Parent, trial: Trial, shares: Sequence[tuple[float, float]]) -> Line:
    """One criterion and repair at all shares."""
    wanted = DECODER.get((trial.criterion, trial.repair, trial.tokens), ()) if parent.decoder else ()
    wanted = wanted if shares[0][0] < 1.0 else ()
    cells = []
    for place, (groups, ffn) in enumerate(shares):
        quality = parent.average(replace(trial, groups=groups, ffn=ffn))
        cells += [shown(quality), against(parent, quality, wanted[place] if place < len(wanted) else None)]
    name = trial.criterion.replace("_", "\\_") + (", random tokens" if trial.tokens == "random" else "")
    return row(name, trial.repair, *cells)


def against(parent: Parent, quality: Quality, wanted: Quality | None) -> str:
    """What is asked of a perplexity, in proportion to the parent's."""
    if wanted is None or wanted.perplexity is None or quality.perplexity is None:
        return ""
    own = parent.judge.of(parent.model).perplexity
    assert own is not None
    reached = quality.perplexity / own <= WITHIN * wanted.perplexity / PARENT_ASKED
    return f"{shown(wanted)}: {'reached' if reached else 'missed'}"


def main_row(parent: Parent, shares: Sequence[tuple[float, float]]) -> Line:
    """What the command writes with its defaults, opened by stock software."""
    cells = []
    for groups, ffn in shares:
        quality = written(parent, groups, ffn)
        note(f"{parent.folder.name}: {MAIN}, {groups} {ffn}: {shown(quality)}")
        asked = None if parent.decoder or ffn != 0.5 else ENCODER
        cells += [shown(quality), compared(1.0 - quality.loss, asked, more=True)]
    return row(f"**{MAIN}**", "least-squares", *cells)


def written(parent: Parent, groups: float, ffn: float) -> Quality:
    """A child on the disk, opened by ``transformers`` and judged."""
    place = Path(tempfile.mkdtemp())
    try:
        zerolm.carve(
            parent.folder,
            place / "child",
            keep_ffn=ffn,
            keep_heads=groups if groups < 1.0 else None,
            text=parent.texts.seen,
            sequences=parent.scale.calibration,
            length=LENGTH,
        )
        kind = AutoModelForCausalLM if parent.decoder else AutoModel
        return parent.judge.of(kind.from_pretrained(place / "child").eval())
    finally:
        shutil.rmtree(place)
