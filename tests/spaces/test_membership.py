"""Whether a uniform space holds an architecture: against enumeration; and the ranges around one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.spaces import make_space
from zerolm.spaces.membership import FINER, around, exclusions, steps
from zerolm.spaces.uniform import UniformSpace

THIN: dict[str, Any] = {
    "depth": [4, 6, 9], "hidden": [192, 256, 320, 384], "head_size": [32, 64], "ffn": [384, 512, 640, 960],
    "heads_per_kv": [1, 2, 3], "hidden_per_depth": [30, 70], "ffn_per_hidden": [1.5, 3],
    "query_per_hidden": [0.5, 1.5],
}  # fmt: skip
SPACES: list[dict[str, Any]] = [
    THIN, {**THIN, "multiple_of": 128}, {**THIN, "tensor_parallel": 2},
    {**THIN, "query_width": [200, 400], "kv_width": [100, 200]}, {**THIN, "query_per_hidden": [1.0, 1.0]},
]  # fmt: skip


def thin(settings: dict[str, Any]) -> UniformSpace:
    space = make_space("llama", **settings)
    assert isinstance(space, UniformSpace)
    return space


def every(space: UniformSpace) -> list[dict[str, Any]]:
    """Return the choices of all architectures of a space of layers that are alike."""
    return [
        space.assemble(backbone, [[i]]).choices
        for backbone in space.backbones()
        for i in range(len(backbone.blocks[0].candidates))
    ]


HELD = [{json.dumps(choices, sort_keys=True) for choices in every(thin(settings))} for settings in SPACES]


@given(data=st.data())
def test_excluded_is_what_is_not_enumerated(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(SPACES) - 1))
    kv_heads = data.draw(st.sampled_from([1, 2, 3, 4, 5, 6]))
    choices = {
        "depth": data.draw(st.sampled_from([4, 5, 6, 9])),
        "hidden": data.draw(st.sampled_from([192, 224, 256, 320, 384])),
        "head_size": data.draw(st.sampled_from([32, 48, 64])),
        "heads": kv_heads * data.draw(st.sampled_from([1, 2, 3, 4])),
        "kv_heads": kv_heads,
        "ffn": data.draw(st.sampled_from([384, 512, 576, 640, 960])),
    }
    held = json.dumps(choices, sort_keys=True) in HELD[place]
    assert held == (exclusions(thin(SPACES[place]), choices) == [])


@pytest.mark.parametrize("place", range(len(SPACES)))
def test_nothing_enumerated_is_excluded(place: int) -> None:
    assert len(HELD[place]) > 10
    for text in HELD[place]:
        assert exclusions(thin(SPACES[place]), json.loads(text)) == []


def test_what_excludes_is_named_with_its_value() -> None:
    choices = {"depth": 5, "hidden": 256, "head_size": 48, "heads": 8, "kv_heads": 2, "ffn": 1024}
    assert exclusions(thin(THIN), choices) == [
        "depth 5 (4,6,9)", "head_size 48 (32,64)", "heads_per_kv 4 (1:3)", "ffn 1024 (384,512,640,960)",
        "ffn_per_hidden 4 (1.5:3)",
    ]  # fmt: skip
    layers = {**choices, "ffn": [384, 384, 384, 384, 512], "kv_heads": 8}
    assert "layers differ (per_layer)" in exclusions(thin(THIN), layers)
    free = thin({**THIN, "depth": [5], "head_size": [48], "per_layer": True, "query_per_hidden": [1, 1.5]})
    assert exclusions(free, layers) == []


def widths(choices: dict[str, Any]) -> dict[str, int]:
    size = choices["head_size"]
    names = ("depth", "hidden", "ffn")
    own = {name: choices[name] for name in names}
    return {**own, "query": choices["heads"] * size, "kv": choices["kv_heads"] * size}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("place", [0, 3, 250])
def test_around_is_all_of_the_space_that_lies_so_near(share: float, place: int) -> None:
    space = thin(THIN)
    choices = every(space)
    own = choices[place]

    def near(other: dict[str, Any]) -> bool:
        pairs = zip(widths(own).values(), widths(other).values(), strict=True)
        return all(abs(value - mine) <= share * mine + 1e-6 for mine, value in pairs)

    cut = every(thin(around(space, own, share, ("hidden", "ffn", "query_per_hidden"))))
    inside = {json.dumps(c) for c in choices if near(c)}
    assert {json.dumps(c) for c in cut} == inside
    assert own in cut
    finer = every(thin(around(space, own, share, ())))
    assert {json.dumps(c) for c in finer} >= inside
    assert all(near(c) for c in finer)
    for name, step in FINER.items():
        ends = (own[name] * (1 - share), own[name] * (1 + share))
        between = {value for value in range(0, 2000, step) if ends[0] <= value <= ends[1]}
        assert {c[name] for c in finer} - set(THIN[name]) <= between


def test_around_holds_what_the_space_does_not() -> None:
    own = {"depth": 5, "hidden": 224, "head_size": 56, "heads": 8, "kv_heads": 2, "ffn": 1024}
    cut = thin(around(thin(THIN), own, 0.1, ()))
    assert exclusions(cut, own) == []
    assert thin(around(cut, own, 0.1, cut.settings.keys())).settings == cut.settings


def test_ranges_that_are_given_are_only_cut() -> None:
    own = {"depth": 5, "hidden": 256, "head_size": 64, "heads": 4, "kv_heads": 2, "ffn": 512}
    with pytest.raises(ValueError, match=r"depth 4,6,9 holds nothing within 10% of the baseline's 5"):
        around(thin(THIN), own, 0.1, {"depth"})
    with pytest.raises(ValueError, match=r"kv_width 1:100 holds nothing within 10%"):
        around(thin({**THIN, "kv_width": [1, 100]}), own, 0.1, {"kv_width"})
    assert around(thin(THIN), own, 0.3, {"depth"})["depth"] == [4, 6]


def test_ranges_in_short() -> None:
    assert steps([4]) == "4"
    assert steps([4, 6]) == "4,6"
    assert steps(range(4, 65)) == "4:64"
    assert steps(range(128, 1025, 128)) == "128:1024:128"
    assert steps([1, 2, 4, 8, 16, 32, 64, 128, 256]) == "9 from 1 to 256"
