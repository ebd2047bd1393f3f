"""The same widths in all layers: every criterion with every repair."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from timing import note
from transformers import AutoModel, AutoModelForCausalLM

import zerolm
from carved.judging import Quality
from carved.parent import LENGTH, RIVAL, Parent, Trial
from carved.writing import Line, compared, escaped, heading, row, shown
from zerolm.repairing.rules import REPAIRS
from zerolm.units.importance.criteria import WEIGHTS_ONLY, WITH_TOKENS

CRITERIA: Final = (*WEIGHTS_ONLY, *WITH_TOKENS)
MAIN: Final = "written by `zerolm carve`, opened again"
PARENT_ASKED: Final = 17.67
"""The perplexity of the parent with which the perplexities below were asked for."""
WITHIN: Final = 1.02
Shares = tuple[float, float]
"""Of KV groups and of neurons."""
HALVED: Final[list[Shares]] = [(0.75, 0.75), (0.5, 0.5)]
DECODER: Final[Mapping[tuple[str, str, str], tuple[Quality, ...]]] = {
    ("capacity", "none", "text"): (Quality(0.29, 23.7), Quality(1.15, 55.0)),
    ("output_energy", "none", "text"): (Quality(0.15, 20.1), Quality(0.53, 28.8)),
    ("output_energy", "least-squares", "text"): (Quality(0.064, 18.7), Quality(0.24, 22.0)),
    ("output_energy", "least-squares", "random"): (Quality(0.145, 20.2),),
}
"""What is asked for at 3/4 and at 1/2, by criterion, repair and tokens."""
ENCODER: Final = 0.998
"""The mean cosine asked for at half of the FFN, of what is written with the defaults."""


def uniform(parent: Parent) -> Iterator[Line]:
    """The tables of a model."""
    if parent.decoder:
        yield from grid(parent, "KV groups and FFN", HALVED)
        yield ""
        yield from narrow(parent, [(1.0, 0.75), (1.0, 0.5)])
    else:
        yield from grid(parent, "FFN", [(1.0, 0.5), (1.0, 0.25), (1.0, 0.125)])


def grid(parent: Parent, what: str, shares: Sequence[Shares]) -> Iterator[Line]:
    """All criteria and repairs at these shares of KV groups and neurons."""
    yield from heading(f"The same widths in all layers: {what}")
    if parent.decoder:
        yield (
            f"Perplexity / KL. The parent's perplexity is {parent.own.perplexity:.2f}; what is asked was set "
            f"with one of {PARENT_ASKED}, so it counts in proportion to the parent's, and within 2 %."
        )
        yield ""
    yield from head(parent, shares)
    for name in CRITERIA:
        for how in REPAIRS:
            yield line(parent, shares, name, how)
    yield line(parent, shares, "output_energy", "least-squares", "random")
    if not parent.decoder:
        yield from rival(parent, shares)
    yield main_row(parent, shares)


def narrow(parent: Parent, shares: Sequence[Shares]) -> Iterator[Line]:
    """A decoder's FFN alone, beside another package."""
    yield from heading("The same widths in all layers: FFN alone, all heads kept")
    yield from head(parent, shares)
    ways = [(name, how) for name in ("output_energy", "surgeon") for how in ("none", "least-squares")]
    for name, how in [("capacity", "none"), *ways]:
        yield line(parent, shares, name, how)
    yield from rival(parent, shares)


def rival(parent: Parent, shares: Sequence[Shares]) -> Iterator[Line]:
    """Torch-Pruning's choice as it comes, then with our repair."""
    for how in REPAIRS:
        try:
            yield line(parent, shares, RIVAL, how)
        except ImportError:
            yield row(RIVAL, "not installed: pip install torch-pruning", *[""] * len(shares), "")
            return


def head(parent: Parent, shares: Sequence[Shares]) -> Iterator[Line]:
    """The shares kept and what is left of the parameters."""
    cells = []
    for groups, ffn in shares:
        cut = parent.uniform(Trial("prefix", groups, ffn))
        left, body = (parent.cost(name, cut) / parent.cost(name) for name in ("params", "body_params"))
        cells.append(f"{ffn:g} kept ({left:.1%} of the parameters, {body:.1%} of the layers')")
    yield row("criterion", "repair", *cells, "asked")
    yield row("---", "---", *["---:"] * len(shares), "---")


def line(parent: Parent, shares: Sequence[Shares], name: str, how: str, tokens: str = "text") -> Line:
    """One criterion and repair at all shares."""
    found = [parent.average(Trial(name, groups, ffn, how, tokens)) for groups, ffn in shares]
    wanted = DECODER.get((name, how, tokens), ()) if shares is HALVED else ()
    asked = [against(parent, *pair) for pair in zip(found, wanted, strict=False)]
    shown_name = escaped(name) + (", random tokens" if tokens == "random" else "")
    return row(shown_name, how, *map(shown, found), "; ".join(asked))


def against(parent: Parent, found: Quality, wanted: Quality) -> str:
    """What is asked of a perplexity, in proportion to the parent's."""
    assert found.perplexity is not None
    assert wanted.perplexity is not None
    assert parent.own.perplexity is not None
    ratio = found.perplexity / parent.own.perplexity
    reached = ratio <= WITHIN * wanted.perplexity / PARENT_ASKED
    return f"{shown(wanted)}: {'reached' if reached else 'missed'}"


def main_row(parent: Parent, shares: Sequence[Shares]) -> Line:
    """What the command writes with its defaults, opened by stock software."""
    found = [written(parent, groups, ffn) for groups, ffn in shares]
    note(f"{parent.folder.name}: {MAIN}: {'; '.join(map(shown, found))}")
    half = [1.0 - quality.loss for quality, (_, ffn) in zip(found, shares, strict=True) if ffn == 0.5]
    asked = "" if parent.decoder else compared(half[0], ENCODER, more=True)
    return row(f"**{MAIN}**", "least-squares", *map(shown, found), asked)


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
