"""The LoNAS spaces (LREC-COLING 2024): sizes that the layers of a checkpoint may keep, and LoNAS's own costs.

What LoNAS calls FLOPs are multiply-accumulates of one sequence, with the matmuls of attention and the
low-rank adapters (at their full rank), without the input embedding; its parameters are the weights of linear
layers without adapters. The heuristic subnet takes of each list the entry (n - 1) // 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from zerolm.architecture import Ints
from zerolm.carving.kept_units import dimensions
from zerolm.carving.planning.part_costs import Choices, PartCosts, part_costs
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel

FFN: Final = ("gate", "up", "down")
PARAMS, MACS = COSTS.index("params"), COSTS.index("macs")
Widths = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """The widths of query, key and value, and of the FFN, that each layer may have, largest first.

    ``length`` is that of the counted sequence, ``rank`` that of the adapters on the roles ``adapted``.
    """

    attention: tuple[Widths, ...]
    ffn: tuple[Widths, ...]
    length: int
    rank: int
    adapted: tuple[str, ...]

    @property
    def whole(self) -> tuple[int, int, int]:
        """Layers, and the widths of attention and FFN, of the network that it is a space of."""
        return len(self.ffn), self.attention[0][0], self.ffn[0][0]


def _llama(depth: int, hidden: int, ffn: Widths, adapted: tuple[str, ...]) -> Space:
    return Space(((hidden,),) * depth, (ffn,) * depth, 256, 32, adapted)


BERT_ATTENTION: Final = (384, 320, 256, 512, 512, 704, 576, 576, 640, 192, (704, 192), 320)
BERT_FFN: Final = (
    (2634, 216), (2634, 181), (2627, 208), (2676, 226), (2628, 179), (2662, 175),
    (2706, 182), (2687, 169), (2616, 165), (2400, 160), (2198, 163), (1940, 150),
)  # fmt: skip
SPACES: Final = {
    "lonas-bert": Space(
        tuple((768, *(kept if isinstance(kept, tuple) else (kept,))) for kept in BERT_ATTENTION),
        tuple((3072, *kept) for kept in BERT_FFN),
        128,
        8,
        ("q", "v"),
    ),
    "lonas-llama-7b": _llama(32, 4096, (11008, 9632, 8256, 6880, 5504), ("q", "k", "v", "gate", "up")),
    "lonas-llama-13b": _llama(40, 5120, (13824, 12096, 10368, 8640, 6912), ("q", "k", "v", "up")),
}


def choices_in(name: str, checkpoint: Checkpoint) -> Choices:
    """Return the sizes of each layer; ``ValueError`` where the checkpoint is not one that the space is of."""
    if name not in SPACES:
        raise ValueError(f"space {name!r} is not known; there are {', '.join(SPACES)}")
    space, parent = SPACES[name], dimensions(checkpoint)
    has = (parent.depth, parent.heads * parent.head_size, parent.ffn)
    if has != space.whole or parent.heads_per_group != 1:
        raise ValueError(
            f"{name} is a space of {_shown(space.whole)}; the parent has {_shown(has)}"
            + (" and grouped queries" if parent.heads_per_group != 1 else "")
        )
    own = tuple(
        (tuple(sorted(width // parent.head_size for width in attention)), tuple(sorted(ffn)))
        for attention, ffn in zip(space.attention, space.ffn, strict=True)
    )
    groups, neurons = (
        tuple(sorted({size for sizes in kind for size in sizes})) for kind in zip(*own, strict=True)
    )
    return Choices(groups, neurons, (parent.depth,), own)


def heuristic(choices: Choices) -> list[tuple[int, int]]:
    """Return the (groups, neurons) of each layer of the heuristic subnet."""
    return [(_middle(groups), _middle(ffn)) for groups, ffn in choices.own]


def _middle(ascending: Widths) -> int:
    return ascending[len(ascending) - 1 - (len(ascending) - 1) // 2]


def part_costs_in(name: str, checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> PartCosts:
    """Return the costs of the parts as LoNAS counts ``params`` and ``macs``; other costs as everywhere."""
    space, parent = SPACES[name], dimensions(checkpoint)
    usual = part_costs(checkpoint, choices, replace(costs, context=space.length))
    weights = part_costs(checkpoint, choices, replace(costs, context=0))  # its MACs are linear weights

    def counted(whole: Ints, linear: Ints, adapters: int) -> Ints:
        row = whole.copy()
        row[PARAMS] = linear[MACS]
        row[MACS] = space.length * (whole[MACS] + adapters)
        return row

    def adapters(kind: str, size: int) -> int:
        roles = [role for role in space.adapted if (role in FFN) == (kind == "ffn")]
        outputs = size * (parent.head_size if kind == "groups" else 1)
        return space.rank * len(roles) * (parent.hidden + outputs)

    least = adapters("groups", choices.groups[0]) + adapters("ffn", choices.ffn[0])
    groups, ffn = (
        {
            size: counted(part, getattr(weights, kind)[size], adapters(kind, size) - adapters(kind, sizes[0]))
            for size, part in getattr(usual, kind).items()
        }
        for kind, sizes in (("groups", choices.groups), ("ffn", choices.ffn))
    )
    outside = _outside(checkpoint, usual, weights, space)
    return PartCosts(groups, ffn, counted(usual.rest, weights.rest, least), outside)


def _outside(checkpoint: Checkpoint, usual: PartCosts, weights: PartCosts, space: Space) -> Ints:
    """Return the costs beside the layers: only a language model's head is linear on every token."""
    row = usual.outside.copy()
    head = 0 if checkpoint.family.task == "masked" else weights.outside[MACS]
    row[PARAMS], row[MACS] = head, space.length * head
    return row


def _shown(sizes: tuple[int, int, int]) -> str:
    depth, attention, ffn = sizes
    return f"{depth} layers, attention {attention}, FFN {ffn}"
