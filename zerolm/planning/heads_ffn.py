"""The space ``heads-ffn`` of any parent: any number of KV groups, and 64 FFN widths, in each layer."""

from __future__ import annotations

from typing import Final

from zerolm.checkpoints import Checkpoint
from zerolm.planning.part_costs import Choices
from zerolm.planning.size_space import SIZE_SPACES, SizeSpace
from zerolm.registry import Entry
from zerolm.spaces.subnetworks import ffn_sizes
from zerolm.units.kept_units import dimensions
from zerolm.units.within_layers import LayerSizes

SLICED_HEADS: Final = ("bert", "camembert", "electra", "ernie", "roberta", "xlm-roberta")
"""Families whose stock classes do not support fewer heads, but a network in memory does."""


class HeadsFfn(SizeSpace):
    """All numbers of KV groups where heads can be cut, and FFN widths in steps of 1/64 where neurons can."""

    def choices(self, checkpoint: Checkpoint) -> Choices:
        parent, family = dimensions(checkpoint), checkpoint.family
        cuts_heads = family.cut.heads or family.name in SLICED_HEADS
        groups = tuple(range(1, parent.kv_heads + 1)) if cuts_heads else (parent.kv_heads,)
        ffn = tuple(ffn_sizes(parent.ffn)) if family.cut.ffn else (parent.ffn,)
        if len(groups) == len(ffn) == 1:
            raise ValueError(f"neither heads nor FFN of this {family.name} can be cut: {family.cut.note}")
        return Choices((groups, ffn), (parent.depth,))

    def heuristic(self, choices: Choices) -> list[LayerSizes]:
        return [tuple(counts[len(counts) // 2] for counts in choices.units)] * choices.depth[0]


SIZE_SPACES.add(Entry("heads-ffn", HeadsFfn(), "heads and FFN of any parent"))
