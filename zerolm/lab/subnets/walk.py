"""Several sub-networks that pass the layers of their parent together (torch)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zerolm.networks.blocks import Blocks
from zerolm.networks.states import HiddenStates
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import Repaired, carved_layer, dimensions_of, masked_layer
from zerolm.units.within_layers import UNITS

PROVEN: Final = 1e-3
"""Largest difference of outputs in the proof of a cut, as a share of the largest output; rounding is far
below."""


@dataclass(frozen=True, eq=False)
class SubNetwork:
    """The ``cut`` of a parent, and its output matrices where they were ``repaired``."""

    cut: Cut
    repaired: Repaired | None = None


def last_states(blocks: Blocks, networks: Sequence[SubNetwork]) -> list[HiddenStates]:
    """Return the states behind the last layer of each network, for all batches, (b, t, d) each.

    All networks pass a layer before any passes the next. Networks with equal cuts of all layers so far share
    their states: the output of the parent's uncut first layers is computed once. Nothing else is shared, so
    this is exact.
    """
    at = [0] * len(networks)
    nodes = {0: blocks.states()}
    for index in range(len(blocks.batches)):
        nodes[0].append(blocks.embed(index))
    for number in range(len(networks[0].cut.layers)):
        ways: dict[object, int] = {}
        following: dict[int, HiddenStates] = {}
        waiting = Counter(_way(at[place], place, each, number) for place, each in enumerate(networks))
        readers = Counter(way[0] for way in waiting)
        for place, each in enumerate(networks):
            way = _way(at[place], place, each, number)
            if way not in ways:
                ways[way] = len(ways)
                readers[way[0]] -= 1
                source = nodes[way[0]] if readers[way[0]] else nodes.pop(way[0])
                following[ways[way]] = _through(blocks, each, number, source)
            at[place] = ways[way]
        nodes = following
    return [nodes[node] for node in at]


def _way(node: int, place: int, network: SubNetwork, number: int) -> tuple[int, object]:
    """Return a key that distinguishes the states behind a layer of one network from those of others."""
    kept = network.cut.layers[number]
    is_repaired = network.repaired is not None and bool(network.repaired.arrays)
    return node, place if is_repaired else tuple(units.tobytes() for units in kept.kept.values())


def _through(blocks: Blocks, network: SubNetwork, number: int, source: HiddenStates) -> HiddenStates:
    kept, sent = network.cut.layers[number], blocks.states()
    module = carved_layer(blocks.model, network.cut, kept, network.repaired).module
    for index, states in enumerate(source):
        sent.append(blocks.call(index, kept.layer, states, module))
    return sent


def check_cut(blocks: Blocks, cuts: Sequence[Cut]) -> None:
    """Raise ``ValueError`` for a parent that cannot be cut in memory: a sliced layer must equal a masked one.

    The first cut layer is tested, on the first batch.
    """
    parent = dimensions_of(blocks.model)
    smaller = [(cut, kept) for cut in cuts for kept in cut.layers if kept.sizes != parent.units]
    if not smaller:
        return
    cut, kept = min(smaller, key=lambda pair: (pair[1].sizes[0] == parent.units[0], pair[1].layer))
    hidden, why = blocks.embed(0), ""
    try:
        modules = [make(blocks.model, cut, kept).module for make in (carved_layer, masked_layer)]
        ours, theirs = (blocks.call(0, kept.layer, hidden, module) for module in modules)
        apart = float((ours - theirs).abs().max() / theirs.abs().max())
        if not apart <= PROVEN:
            why = f"its output differs by {apart:.2g}"
    except (RuntimeError, AttributeError, StopIteration) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
    if why:
        shown = " and ".join(f"{n} {unit.shown}" for unit, n in zip(UNITS, kept.sizes, strict=True))
        raise ValueError(
            f"layer {kept.layer} of this {blocks.model.config.model_type} with {shown} does not compute what "
            f"the whole one does without the others: {why}"
        )
