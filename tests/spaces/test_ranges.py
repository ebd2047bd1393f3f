"""Ranges and settings of the spaces: what is refused, what is the same, and where they bind."""

from typing import Any

import pytest
from catalogue import SETTINGS, catalogue
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

from zerolm.settings import REQUIRED
from zerolm.spaces import SPACES, make_space, space_names, space_settings
from zerolm.spaces.base import widen, widen_interval
from zerolm.spaces.uniform import UniformSpace

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt3", {}, "'gpt3' is not known; did you mean 'gpt2'"),
    ("gpt2", {"layers": [2]}, "no setting 'layers'; there are .*depth"),
    ("gpt2", {"depth": []}, "range of depth is empty"),
    ("gpt2", {"depth": [0]}, "depth must be an integer from 1"),
    ("gpt2", {"depth": [1 << 20]}, "depth must be an integer from 1"),
    ("gpt2", {"depth": [True]}, "depth must be an integer, not True"),
    ("gpt2", {"hidden": [128.0]}, r"hidden must be an integer, not 128\.0"),
    ("gpt2", {"hidden": [130], "heads": [4]}, "hidden 130 is not divisible by 4 heads"),
    ("gpt2", {"hidden": [1024], "ffn": [256]}, "no FFN width of 256 to 256 lies within"),
    ("gpt2", {"ffn_per_hidden": [4.0, 2.0]}, "ffn_per_hidden must be two positive numbers"),
    ("gpt2", {"ffn_per_hidden": [float("nan"), 2.0]}, "ffn_per_hidden must be two positive numbers"),
    ("gpt2", {"corpus": "c4"}, "corpus 'c4' is not known; there are wt103, lm1b"),
    ("flexibert", {"view": "seen"}, "view 'seen' is not known; there are declared, published, trained"),
    ("flexibert", {"hidden": [129]}, "hidden 129 is not divisible by 2 heads"),
    ("flexibert", {"stacks": [65]}, "stacks must be an integer from 1 to 64"),
    ("llama", {"hidden": [200]}, "no hidden size of 200 is divisible by a head size"),
    ("llama", {"hidden": [256], "heads_per_kv": [5]}, "no number of heads of 2 to 4 is divisible"),
    ("llama", {"hidden": [256], "depth": [32]}, "no depth of 32 keeps hidden / depth within 16 to 128"),
    ("llama", {"hidden": [256], "ffn": [4096]}, "no FFN width of 4096 lies within 1.5 to 6"),
    ("llama", {"ffn_per_hidden": [1, 10**400]}, "ffn_per_hidden must be two positive numbers"),
    ("llama", {"vocab": 0}, "vocab must be an integer from 1"),
    ("llama", {"tied": "no"}, "tied"),
    ("bert", {"tied": False}, "no setting 'tied'"),
    ("gpt2-uniform", {"heads_per_kv": [2]}, "no setting 'heads_per_kv'"),
    ("autoformer", {"size": "huge"}, "size 'huge' is not known; there are tiny, small, base"),
    ("autoformer", {"mlp_ratio": []}, "range of mlp_ratio is empty; give at least one positive number"),
    ("autoformer", {"mlp_ratio": 4.0}, "range of mlp_ratio must be a list of positive numbers, not 4.0"),
    ("autoformer", {"mlp_ratio": [4.0, 0]}, "mlp_ratio must be a positive number up to 1048576, not 0"),
    ("autoformer", {"mlp_ratio": [float("nan")]}, "mlp_ratio must be a positive number .* not nan"),
    ("autoformer", {"mlp_ratio": [10**400]}, "mlp_ratio must be a positive number .* more than 40 digits"),
    ("autoformer", {"mlp_ratio": [1e-9]}, "the FFN width must be an integer from 1 to 1048576, not 0"),
    ("autoformer", {"heads": [1 << 15]}, "heads must be an integer from 1 to 16384"),
    ("pit", {"depth": [2, 6, 4]}, "no setting 'depth'; did you mean 'depth.'.*depth1, depth2, depth3"),
    ("pit", {"base_dim": [1 << 18]}, "base_dim x heads must be an integer from 1"),
    ("blocks", {"shares": ["vk"]}, "shares 'vk' is not known; "),
    ("blocks", {"shares": ["qk", "qk"]}, "shares must list one or more of none, kv, qv, qk, qkv, each once"),
    ("blocks", {"shares": []}, "shares must list one or more"),
    ("blocks", {"ffn_stack": [65]}, "ffn_stack must be an integer from 0 to 64"),
    (
        "blocks",
        {"shares": ["qk", "qkv"], "heads_per_kv": [2, 4]},
        r"queries are shared \(qk, qkv\) only where every head is a KV head; heads_per_kv \[2, 4\] needs 1",
    ),
    ("blocks", {"hidden": [256], "ffn": [64], "ffn_stack": [1]}, "no FFN width of 64 lies within 1.5 to 6 x"),
    ("blocks", {"hidden": [256], "ffn": [256], "ffn_stack": [2]}, "256 lies within 0.25 to 0.75 x hidden"),
    ("blocks", {"hidden": [256], "ffn": [32], "ffn_stack": [1, 2]}, "within 1.5 to 6 or 0.25 to 0.75 x"),
    ("blocks", {"qkv_bias": True}, "no setting 'qkv_bias'"),
    ("elastic", {"hidden": 520}, "width 520 of a bert block is not divisible by 12 heads; 10 divide it"),
    ("elastic", {"hidden": 530, "heads": 10}, "hidden 530 is not divisible by 4, as MobileBERT blocks need"),
    ("elastic", {"blocks": ["bert", "llama"]}, "blocks 'llama' is not known; there are bert, mob"),
    ("elastic", {"blocks": []}, "blocks must list one or more of bert, mobile, each once"),
    ("elastic", {"shares": ["kv", "kv"]}, "shares must list one or more of none, kv, qv, qk, each once"),
    ("elastic", {"depth": 2, "widths": [132] * 11}, "widths lists 11 numbers; 2 layers of 6 kinds have 12"),
    ("elastic", {"depth": 1, "widths": [924] * 6}, "every one of widths must be an integer from 1 to 792"),
    ("elastic", {"depth": 1, "widths": [1.5] * 6}, r"every one of widths must be an integer, not 1\.5"),
    ("elastic", {"step": 1 << 20}, "step x steps must be an integer from 1"),
    ("elastic-causal", {"hidden": 36, "blocks": ["llama"]}, "heads of 3: rotary positions need an even"),
]


@pytest.mark.parametrize(("name", "custom", "message"), REFUSED)
def test_ranges_that_make_no_sense_are_refused(name: str, custom: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_space(name, **custom)


@pytest.mark.parametrize("name", space_names())
def test_settings_rebuild_the_space(name: str) -> None:
    original = make_space(name)
    again = type(original)(**original.settings)
    assert again.settings == original.settings
    assert again.size() == original.size()
    assert set(original.settings) == set(space_settings(name))


OPENED = [name for name, (kind, _) in SETTINGS.items() if issubclass(SPACES[kind], UniformSpace)]


@pytest.mark.parametrize("name", OPENED)
def test_every_range_of_a_uniform_space_is_opened_alone(name: str) -> None:
    listed = catalogue(name)
    assert isinstance(listed.space, UniformSpace)
    now, ranges = listed.space.settings, set()
    for bound in listed.space.bounds(listed.architectures[0]):
        (key,) = (key for key, value in bound.wider.settings.items() if value != now[key])
        opened = bound.wider.settings[key]
        assert bound.name.startswith(f"{key} ")
        ranges.add(key)
        if key.endswith(("_per_depth", "_per_hidden")):
            assert opened[0] <= now[key][0]
            assert opened[1] >= now[key][1]
        else:
            assert set(opened) > set(now[key])
        assert bound.wider.size() >= listed.space.size()
        for architecture in listed.architectures[:20]:
            assert bound.wider.read(architecture.choices) == architecture
    limited = {
        key for key in type(listed.space).widest if not key.endswith("_width")
    }  # those have no limit by default
    default = next(s.default for s in listed.space.declared if s.name == "ffn")
    narrower = default is not REQUIRED and bool(set(default) - set(now["ffn"]))
    assert ranges == (limited & now.keys()) | ({"ffn"} if narrower else set())


@pytest.mark.parametrize("name", OPENED)
@settings(max_examples=portion(15))
@given(data=st.data())
def test_what_an_opened_range_shares_with_the_space_is_the_same(name: str, data: st.DataObject) -> None:
    """Candidates that are shared between spaces are those that the space would make by itself."""
    listed = catalogue(name)
    bound = data.draw(st.sampled_from(list(listed.space.bounds(listed.architectures[0]))))
    list(listed.space.backbones())
    alone = type(listed.space)(**bound.wider.settings)
    for shared, own in zip(bound.wider.backbones(), alone.backbones(), strict=True):
        assert (shared.choices, shared.ends, shared.size) == (own.choices, own.ends, own.size)
        ours, theirs = shared.blocks[0].candidates, own.blocks[0].candidates
        assert ours.choices[0] == theirs.choices[0]
        assert ours.choices[len(ours) - 1] == theirs.choices[len(theirs) - 1]


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in OPENED])
@settings(max_examples=portion(40))
@given(data=st.data())
def test_a_bound_is_one_range_that_the_architecture_ends(name: str, data: st.DataObject) -> None:
    listed = catalogue(name)
    uniform = [a for a in listed.architectures if len(set(a.layers)) == 1]  # only they end a range of layers
    architecture = data.draw(st.sampled_from(uniform) | st.sampled_from(listed.architectures))
    for bound in listed.space.bounds(architecture):
        key, side, end = bound.name.split()
        old, new = listed.space.settings[key], bound.wider.settings[key]
        assert {k: v for k, v in bound.wider.settings.items() if v != listed.space.settings[k]} == {key: new}
        assert float(end) == pytest.approx(bound.at, rel=1e-5)
        assert (side, bound.at) in ((">=", min(old)), ("<=", max(old)))
        if side == "<=":
            assert max(new) == bound.wider_to >= 1.099 * bound.at
            assert min(new) == min(old)
        else:
            assert min(new) == bound.wider_to <= 0.901 * bound.at
            assert max(new) == max(old)
        assert bound.wider.size() >= listed.space.size()
        assert bound.wider.read(architecture.choices) == architecture


def test_an_architecture_inside_all_ranges_touches_no_bound() -> None:
    middle = make_space("gpt2", depth=[2, 3, 4], hidden=[128, 192, 256])
    choices = {
        "n_layer": 3, "d_model": 192, "d_inner": [512, 1024, 2048], "n_head": [2, 2, 2],
        "d_embed": 128, "div_val": 1,
    }  # fmt: skip
    assert list(middle.bounds(middle.read(choices))) == []
    deepest = middle.read({**choices, "n_layer": 4, "d_inner": [512] * 4, "n_head": [2] * 4})
    assert [bound.name for bound in middle.bounds(deepest)] == ["depth <= 4"]


@pytest.mark.parametrize(
    ("values", "side", "wider"),
    [
        (range(64, 2049, 64), 1, [*range(64, 2241, 64)]),  # 10 % of 2048 are three steps of 64
        ([64, 128], 1, [64, 128, 192]),  # one step at least
        ([100], 1, [100, 110]),
        ([1], 1, [1, 2]),
        ([1000, 1040], -1, [920, 960, 1000, 1040]),
        ([2, 3], -1, [1, 2, 3]),
    ],
)
def test_a_range_is_continued_by_a_tenth_in_its_steps(values: list[int], side: int, wider: list[int]) -> None:
    assert widen(values, side) == wider


@pytest.mark.parametrize("values", [[1], [1, 2], [64, 128]])
def test_nothing_lies_below_the_first_step(values: list[int]) -> None:
    with pytest.raises(ValueError, match="nothing below"):
        widen(values, -1)


@pytest.mark.parametrize(("side", "wider"), [(-1, [3.0, 3.5, 4.0]), (1, [3.5, 4.0, 4.5])])
def test_listed_ratios_are_continued_and_none_is_lost(side: int, wider: list[float]) -> None:
    space, to = make_space("autoformer").widened("mlp_ratio", side)
    assert space.settings["mlp_ratio"] == wider
    assert to == wider[0 if side < 0 else -1]


@pytest.mark.parametrize(("side", "wider"), [(-1, [1.8, 3.0]), (1, [2.0, 3.3])])
def test_a_ratio_is_widened_by_a_tenth(side: int, wider: list[float]) -> None:
    assert widen_interval([2.0, 3.0], side) == pytest.approx(wider)
