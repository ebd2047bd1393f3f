"""The same hidden widths, all heads and neurons: by bases of their own, and by which one basis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from timing import note
from torch import Tensor

from carved.bases import basis, read_grams, written_grams
from carved.bench import Bench
from carved.narrowing import Bases, narrowed
from carved.network import Network
from carved.ours import Calibrated, Shape, ours
from carved.slicegpt import slicegpt
from carved.writing import Line, heading, kl, row

SHARES: Final = (0.875, 0.75, 0.625, 0.5)
NARROW: Final = (0.75,)
JUDGED: Final = 64
CALIBRATED: Final = 64
"""Sequences that bases are from, and that repair."""
REPAIRED: Final = "outputs and reads"


def own_bases(bench: Bench) -> Iterator[Line]:
    """SliceGPT's bases beside one, its extra matrices not counted."""
    tokens = bench.parent.calibration["text"].spread(CALIBRATED)
    parent = Calibrated(bench.parent.model, tokens, bench.learnt.calibrated.by)
    judge = bench.parent.judge_on(bench.parent.unseen.spread(JUDGED))
    widths = [round(share * bench.whole.hidden) for share in SHARES]
    yield from heading("The same hidden width, all heads and neurons: bases of their own beside one")
    yield (
        f"KL to the parent, on {JUDGED} of the unseen sequences, from {CALIBRATED} seen. SliceGPT has a "
        "basis for each norm and, on the residual path, matrices that are not counted here. All have a "
        "head of their own but the one that is said to be tied."
    )
    yield ""
    yield row("method", *map(str, widths))
    yield row("---", *["---:"] * len(widths))

    def sliced(shape: Shape, repair: str = "none") -> Network:
        return slicegpt(parent.seen, parent.cut(shape), shape.hidden, repair)

    methods = {
        "SliceGPT, as the paper has it": sliced,
        "SliceGPT, our least squares of outputs": lambda shape: sliced(shape, "outputs"),
        "ours, nothing repaired": lambda shape: ours(parent, shape, False, "none"),
        "**ours**": lambda shape: ours(parent, shape, False, REPAIRED),
        "**ours, tied**": lambda shape: ours(parent, shape, True, REPAIRED),
    }
    losses: dict[str, list[float]] = {}
    for name, make in methods.items():
        shapes = [Shape(width, bench.whole.ffn, bench.whole.groups) for width in widths]
        losses[name] = [judge.of(make(shape)).loss for shape in shapes]  # type: ignore[arg-type]
        note(f"{name}: {losses[name]}")
        yield row(name, *map(kl, losses[name]))
    yield ""
    theirs = np.min([loss for name, loss in losses.items() if name.startswith("SliceGPT")], axis=0)
    apart = np.array(losses["**ours**"]) - theirs
    yield (
        "Ours, repaired, less the best of SliceGPT's own bases, repaired or not: "
        f"{', '.join(f'{loss:+.4f} at {width}' for loss, width in zip(apart, widths, strict=True))}."
    )


def one_basis(bench: Bench) -> Iterator[Line]:
    """Which basis, from which tokens, nothing repaired and repaired."""
    model, by = bench.parent.model, bench.learnt.calibrated.by
    parents = {
        name: Calibrated(model, tokens.spread(CALIBRATED), by)
        for name, tokens in bench.parent.calibration.items()
    }
    judge = bench.parent.judge_on(bench.parent.unseen.spread(JUDGED))
    widths = [round(share * bench.whole.hidden) for share in NARROW]
    yield from heading("Which basis")
    yield (
        f"KL to the parent, on {JUDGED} of the unseen sequences, of all heads and neurons and a head of its "
        f"own. Bases are from {CALIBRATED} sequences, which also repair."
    )
    yield ""
    yield row("basis", "tokens", *(f"{width}{how}" for width in widths for how in ("", ", repaired")))
    yield row("---", "---", *["---:"] * (2 * len(widths)))
    for tokens, parent in parents.items():
        for name, (directions, energies) in bases_of(parent).items():
            cells = []
            for width in widths:
                cut = parent.cut(Shape(width, bench.whole.ffn, bench.whole.groups))
                bases = Bases.shared(directions[:, :width], energies)
                for repair in ("none", REPAIRED):
                    cells.append(judge.of(narrowed(parent.seen, bases, cut, repair)).loss)
            note(f"{name}, {tokens}: {cells}")
            yield row(name, tokens, *map(kl, cells))


def bases_of(parent: Calibrated) -> dict[str, tuple[Tensor, list[Tensor]]]:
    """Return orthogonal (d, d) by name, and the energies of every site that lengths are known by."""
    network = parent.seen.network
    held, reads, written = torch.stack(parent.energies).sum(0), read_grams(network), written_grams(network)
    sites = len(parent.energies)
    return {
        "energy": (basis(held), parent.energies),
        "read": (basis(held, reads), parent.energies),
        "loss": (parent.basis, parent.energies),
        "weights alone": (basis(written, reads), [written] * sites),
    }
