"""The claims of blocks: each network of ``blocks`` against the llama of as many parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llama_small import BLOCKS
from llama_small_law import Measured, margin, measured, seed_deviation, two_errors
from timing import table

from zerolm.costs import CostModel
from zerolm.scores import make_score
from zerolm.spaces import shape_text


@dataclass(frozen=True, eq=False)
class Pair:
    """A block and the llama of as many parameters."""

    block: Measured
    llama: Measured

    @property
    def difference(self) -> float:
        """Return the nats that the block loses more."""
        return self.block.mean - self.llama.mean

    @property
    def geo(self) -> float:
        """Return the block's geo as a multiple of the llama's."""
        score = make_score("geo", CostModel())
        ours, theirs = (score.of(one.planned.architecture) for one in (self.block, self.llama))
        return ours / theirs


def pairs_of(blocks: Sequence[Measured], llamas: Sequence[Measured]) -> list[Pair]:
    """Return blocks with their llamas, without those whose llama has no runs."""
    by_id = {one.planned.id: one for one in llamas}
    return [Pair(one, by_id[one.planned.against]) for one in blocks if one.planned.against in by_id]


def contrast(pairs: Sequence[Pair], deviation: float) -> tuple[float, float]:
    """Return the mean difference of pairs, and two standard errors of it; a llama may stand in several."""
    weights, runs = Counter[str](), {}
    for pair in pairs:
        for one, sign in ((pair.block, 1), (pair.llama, -1)):
            weights[one.planned.id] += sign
            runs[one.planned.id] = len(one.losses)
    alike = (runs[name] * (len(pairs) / weight) ** 2 for name, weight in weights.items())
    return float(np.mean([pair.difference for pair in pairs])), two_errors(deviation, *alike)


def verdict(difference: float, error: float) -> str:
    """Return what the block is, nothing where no network is repeated."""
    if np.isnan(error):
        return ""
    return "level" if abs(difference) <= error else "better" if difference < 0 else "worse"


def groups_of(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Return pairs by claim, and by what is shared or stacked."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        line, choices = pair.block.planned.line, pair.block.planned.architecture.choices
        names = [line]
        if line.startswith("sharing, saved"):
            names.append(f"shared: {choices['share']}")
            names += ["shared: two of q, k and v"] * (choices["share"] != "qkv")
        if line == "narrow FFNs for one":
            names.append(f"FFNs a layer: {choices['ffn_stack']}")
        for name in names:
            groups.setdefault(name, []).append(pair)
    return dict(sorted(groups.items(), key=lambda group: ":" in group[0]))


def show_blocks() -> None:
    print("## Blocks at equal parameters\n")
    plan, blocks, llamas = BLOCKS.planned(), measured(BLOCKS), measured()
    pairs, size = pairs_of(blocks, llamas), plan[0].size
    deviation = seed_deviation([one for one in (*blocks, *llamas) if one.planned.size == size])
    print(
        "Shared projections, layers without FFN and narrow FFNs one after the other, each against the llama "
        f"of as many body parameters ({size}, within 2 %) that it was made from: "
        f"{sum(len(pair.block.losses) for pair in pairs)} of {sum(one.seeds for one in plan)} runs. The "
        "difference is that of the means, below 0 where the block is better; ± is two standard errors of it, "
        f"by the deviation of a run about its network's mean, {deviation:.4f} nats, pooled over all networks "
        "of the size. All are judged on one text, whose choice is not in it. MACs, of a token at the length "
        "trained at, and geo are multiples of the llama's.\n"
    )
    cells = []
    for pair in pairs:
        difference, error = contrast([pair], deviation)
        seeds = [" ".join(f"{loss:.4f}" for loss in one.losses[:, -1]) for one in (pair.block, pair.llama)]
        shapes = [shape_text(one.planned.architecture) for one in (pair.block, pair.llama)]
        ratios = [f"{pair.block.macs / pair.llama.macs:.2f}", f"{pair.geo:.2f}"]
        told = [f"{difference:+.4f} {margin(error)}", verdict(difference, error)]
        cells.append([pair.block.planned.line, *shapes, *ratios, *seeds, *told])
    heads = ["claim", "block", "llama", "MACs", "geo", "block's loss", "llama's loss"]
    table([*heads, "difference", "the block is"], cells)
    print("\nThe same, over all networks of a claim, and over all that share or stack alike.\n")
    cells = []
    for name, group in groups_of(pairs).items():
        difference, error = contrast(group, deviation)
        told = [verdict(*contrast([pair], deviation)) for pair in group]
        counts = " / ".join(str(told.count(word)) for word in ("better", "level", "worse"))
        cells.append([name, counts, f"{difference:+.4f} {margin(error)}", verdict(difference, error)])
    table(["claim", "better / level / worse", "mean difference", "all in all"], cells)
