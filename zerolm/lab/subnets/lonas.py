"""The LoNAS spaces (LREC-COLING 2024): sizes that the layers of a checkpoint may keep, and LoNAS's own costs.

LoNAS's FLOPs are the multiply-accumulates of one sequence, with the matmuls of attention and the low-rank
adapters (at their full rank), without the input embedding. Its parameters are the weights of linear layers
without adapters. The heuristic subnet uses entry (n - 1) // 2 of each list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.planning.part_costs import PARAMS, Choices, LayerCosts, PartCosts, part_costs
from zerolm.planning.size_spaces import SIZE_SPACES, SizeSpace
from zerolm.registry import Entry
from zerolm.units.kept_units import dimensions
from zerolm.units.within_layers import UNITS, LayerSizes, LayerUnit

MACS: Final = COSTS.index("macs")
Widths = tuple[int, ...]


@dataclass(frozen=True)
class LonasSpace(SizeSpace):
    """The possible widths of query, key and value, and of the FFN, in each layer, largest first.

    ``length`` is that of the counted sequence, ``rank`` that of the adapters on the roles ``adapted``.
    """

    name: str
    attention: tuple[Widths, ...]
    ffn: tuple[Widths, ...]
    length: int
    rank: int
    adapted: tuple[str, ...]

    def choices(self, checkpoint: Checkpoint) -> Choices:
        parent, whole = dimensions(checkpoint), (len(self.ffn), self.attention[0][0], self.ffn[0][0])
        sizes = (parent.depth, parent.heads * parent.head_size, parent.ffn)
        if sizes != whole or parent.heads_per_group != 1:
            theirs, ours = ("{} layers, attention {}, FFN {}".format(*each) for each in (whole, sizes))
            grouped = " and grouped queries" if parent.heads_per_group != 1 else ""
            raise ValueError(f"{self.name} is a space of {theirs}; the parent has {ours}{grouped}")
        by_layer = tuple(
            (tuple(sorted(width // parent.head_size for width in attention)), tuple(sorted(ffn)))
            for attention, ffn in zip(self.attention, self.ffn, strict=True)
        )
        units = tuple(
            tuple(sorted({size for sizes in kind for size in sizes})) for kind in zip(*by_layer, strict=True)
        )
        return Choices(units, (parent.depth,), by_layer)

    def heuristic(self, choices: Choices) -> list[LayerSizes]:
        return [tuple(sizes[::-1][(len(sizes) - 1) // 2] for sizes in units) for units in choices.by_layer]

    def part_costs(self, checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> PartCosts:
        """Return the costs of the parts: ``params`` and ``macs`` as LoNAS counts them, others as usual."""
        parent = dimensions(checkpoint)
        usual = part_costs(checkpoint, choices, replace(costs, context=self.length))
        weights = part_costs(checkpoint, choices, replace(costs, context=0))  # its MACs are linear weights

        def counted(whole: Ints, linear: Ints, adapters: int) -> Ints:
            row = whole.copy()
            row[PARAMS] = linear[MACS]
            row[MACS] = self.length * (whole[MACS] + adapters)
            return row

        def adapters(unit: LayerUnit, size: int) -> int:
            roles = [role for role in self.adapted if role in unit.matrices]
            return self.rank * sum(parent.hidden + size * unit.row(parent, role) for role in roles)

        layer, linear_layer = usual.layers[0], weights.layers[0]

        least = [adapters(unit, counts[0]) for unit, counts in zip(UNITS, choices.units, strict=True)]
        rows = zip(UNITS, layer.units, linear_layer.units, least, strict=True)
        every = LayerCosts(
            tuple(
                {
                    size: counted(cost, linear[size], adapters(unit, size) - first)
                    for size, cost in part.items()
                }
                for unit, part, linear, first in rows
            ),
            counted(layer.rest, linear_layer.rest, sum(least)),
        )
        outside = usual.outside.copy()
        head = 0 if checkpoint.family.task == "masked" else weights.outside[MACS]
        outside[PARAMS], outside[MACS] = head, self.length * head  # no other part is linear on every token
        return PartCosts((every,) * parent.depth, outside)


def _llama(size: str, depth: int, hidden: int, ffn: Widths, adapted: tuple[str, ...]) -> LonasSpace:
    return LonasSpace(f"lonas-llama-{size}", ((hidden,),) * depth, (ffn,) * depth, 256, 32, adapted)


BERT_ATTENTION: Final = (
    (384,), (320,), (256,), (512,), (512,), (704,), (576,), (576,), (640,), (192,), (704, 192), (320,),
)  # fmt: skip
"""Widths of the attention in each layer next to the whole one; the FFN follows."""
BERT_FFN: Final = (
    (2634, 216), (2634, 181), (2627, 208), (2676, 226), (2628, 179), (2662, 175),
    (2706, 182), (2687, 169), (2616, 165), (2400, 160), (2198, 163), (1940, 150),
)  # fmt: skip
BERT_WIDTHS: Final = (
    tuple((768, *smaller) for smaller in BERT_ATTENTION),
    tuple((3072, *smaller) for smaller in BERT_FFN),
)
SPACES: Final = {
    space.name: space
    for space in (
        LonasSpace("lonas-bert", *BERT_WIDTHS, 128, 8, ("q", "v")),
        _llama("7b", 32, 4096, (11008, 9632, 8256, 6880, 5504), ("q", "k", "v", "gate", "up")),
        _llama("13b", 40, 5120, (13824, 12096, 10368, 8640, 6912), ("q", "k", "v", "up")),
    )
}
for _space in SPACES.values():
    SIZE_SPACES.add(Entry(_space.name, _space, "LoNAS (LREC-COLING 2024)"))
