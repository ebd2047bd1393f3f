"""What the parts of a checkpoint cost at each size that they may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Ends, Ints, Layer, Matrix, Shapes
from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel


@dataclass(frozen=True, eq=False)
class Choices:
    """The numbers of KV groups and of neurons that a layer may keep, ascending; and of layers.

    ``own`` lists (groups, neurons) for each layer where they differ; all of them are in the others.
    """

    groups: tuple[int, ...]
    ffn: tuple[int, ...]
    depth: tuple[int, ...]
    own: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()

    def of(self, layer: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of KV groups and of neurons that this layer may keep."""
        return self.own[layer] if self.own else (self.groups, self.ffn)


@dataclass(frozen=True, eq=False)
class Accounts:
    """What the parts of a checkpoint cost: ``groups[g]`` and ``ffn[f]`` for each size, ``rest`` once a layer.

    All (5,) int64 in the order of ``COSTS``; ``outside`` is everything beside the layers.
    """

    groups: dict[int, Ints]
    ffn: dict[int, Ints]
    rest: Ints
    outside: Ints

    def of(self, sizes: Sequence[tuple[int, int]]) -> Ints:
        """The costs of a network whose layers have these (groups, neurons), (5,)."""
        total = self.outside.copy()
        for groups, ffn in sizes:
            total += self.rest + self.groups[groups] + self.ffn[ffn]
        return total


def accounts(checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> Accounts:
    """Count tensor by tensor what a cut of each size stores and computes."""
    layout = checkpoint.layout
    part = {"q": layout.heads // layout.kv_heads * layout.head_size, "kv": layout.head_size}

    def layer(groups: int, ffn: int) -> Ints:
        matrices, vectors = [], 0
        for name in layout.layer(0).values():
            axes = layout.slots[name].axes
            sizes = {
                **layout.sizes, "q": groups * part["q"], "kv": groups * part["kv"], "ffn": ffn,
            }  # fmt: skip
            shape = [sum(sizes[label] for label in axis.split("+")) for axis in axes]
            if len(shape) == 2:
                matrices.append(
                    Matrix("ffn" if any("ffn" in axis for axis in axes) else "attention", shape[0], shape[1])
                )
            else:
                vectors += int(np.prod(shape))
        one = Layer(tuple(matrices), layout.hidden, groups * part["q"], groups * part["kv"], vectors, vectors)
        return np.asarray(costs.layers(Shapes.of([one]))[0], np.int64)

    least_g, least_f = choices.groups[0], choices.ffn[0]
    rest = layer(least_g, least_f)
    return Accounts(
        {groups: layer(groups, least_f) - rest for groups in choices.groups},
        {ffn: layer(least_g, ffn) - rest for ffn in choices.ffn},
        rest,
        costs.ends(_ends(checkpoint)),
    )


def _ends(checkpoint: Checkpoint) -> Ends:
    """The tensors outside the layers."""
    layout = checkpoint.layout
    embedding = head = 0
    heads: list[Matrix] = []
    vectors = 0
    for role, name in layout.layer(None).items():
        shape = checkpoint.tensors[name].shape
        count = int(np.prod(shape))
        if role in ("embedding", "positions", "types"):
            embedding += count
            head = count if role == "embedding" and layout.tied else head
        elif len(shape) == 2 and not (role == "head" and layout.tied):
            heads.append(Matrix("head", shape[0], shape[1]))
        elif len(shape) == 1:
            vectors += count
    return Ends(embedding, tied_head=head, head_matrices=tuple(heads), vectors=vectors)
