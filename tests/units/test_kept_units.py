"""Axes of fused matrices are walked part by part; one that is not fused is the case of one part."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from zerolm.units.kept_units import Cut, Dimensions, LayerCut

LABELS = ("q", "kv", "ffn", "q+kv+kv", "ffn+ffn", "kv+q", "hidden", "vocab")


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    groups, per_group, size, ffn = (draw(st.integers(1, most)) for most in (4, 3, 3, 5))
    parent = Dimensions(2, 8, groups * per_group, groups, size, ffn)
    kinds = [st.sets(st.integers(0, whole - 1), min_size=1) for whole in (groups, ffn)]
    units = st.lists(st.tuples(*kinds), min_size=2, max_size=2)
    layers = [LayerCut(i, *(np.array(sorted(kind)) for kind in pair)) for i, pair in enumerate(draw(units))]
    return Cut(parent, tuple(layers))


def owners(cut: Cut, groups: int, ffn: int, label: str) -> list[tuple[int, str, int, int]]:
    """Return part, kind, unit and element of each place of an axis, one by one."""
    parent, places = cut.parent, []
    sizes = {"q": parent.heads // parent.kv_heads * parent.head_size, "kv": parent.head_size, "ffn": 1}
    for number, name in enumerate(label.split("+")):
        kind, count = ("ffn", ffn) if name == "ffn" else ("groups", groups)
        places += [(number, kind, u, e) for u in range(count) for e in range(sizes[name])]
    return places


@given(cuts(), st.sampled_from(LABELS))
def test_kept_indices_and_places_are_those_of_a_walk_by_hand(cut: Cut, label: str) -> None:
    for layer in cut.layers:
        kept, places = cut.kept(layer, label), cut.places(layer, label)
        if label in ("hidden", "vocab"):
            assert kept is None
            assert places is None
            assert cut.parent.length(label, 1, 1) == 0
            continue
        assert kept is not None
        assert places is not None
        whole = owners(cut, cut.parent.kv_heads, cut.parent.ffn, label)
        wanted = [i for i, (_, kind, unit, _) in enumerate(whole) if unit in layer.units(kind)]
        assert kept.tolist() == wanted
        largest = owners(cut, *cut.largest, label)
        corner = [i for i, (_, kind, unit, _) in enumerate(largest) if unit < len(layer.units(kind))]
        assert places.tolist() == corner
        assert cut.parent.length(label, *cut.largest) == len(largest)
        assert len(kept) == len(places)
