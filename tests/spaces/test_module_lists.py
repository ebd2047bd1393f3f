"""The weight matrices of a layer in each space, written out once more (rows x columns)."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Layer
from zerolm.spaces import make_space

Shapes = list[tuple[int, int]]
OPERATIONS = [("SA", "SDP"), ("SA", "WMA"), ("LT", "DFT"), ("LT", "DCT"), ("DSC", 5), ("DSC", 9)]

ATTENTION_NAMES = {
    ("SA", "SDP"): "q k v o",
    ("SA", "WMA"): "q k v o weight",
    **{("LT", kind): "mix" for kind in ("DFT", "DCT")},
    **{("DSC", kernel): "q k v depthwise pointwise kernel conv o" for kernel in (5, 9)},
}


def shapes(layer: Layer, role: str) -> Counter[tuple[int, int]]:
    return Counter((matrix.rows, matrix.cols) for matrix in layer.matrices if matrix.role == role)


def names(layer: Layer) -> str:
    return " ".join(matrix.name for matrix in layer.matrices)


def flexibert_attention(operation: str, parameter: Any, h: int, heads: int) -> Shapes:
    """Declared: q, k, v, o (and one more); one; or a span-based dynamic convolution."""
    if operation == "SA":
        return [(h, h)] * (5 if parameter == "WMA" else 4)
    if operation == "LT":
        return [(h, h)]
    n = max(1, heads // 2)
    a = n * (h // heads)
    q, k, v, depthwise, pointwise = (a, h), (a, h), (a, h), (h, parameter), (a, h)
    kernel, out, o = (n * parameter, a), (a, h), (h, h)
    return [q, k, v, depthwise, pointwise, kernel, out, o]


def stacked(h: int, f: int, stacks: int) -> Shapes:
    return [(f, h), *[(f, f)] * (stacks - 1), (h, f)]


def trained_ffn(h: int, f: int, stacks: int) -> Shapes:
    """4h x h, then (stacks - 1) times f x previous, at last h x previous."""
    found, previous = [(4 * h, h)], 4 * h
    for _ in range(stacks - 1):
        found.append((f, previous))
        previous = f
    return [*found, (h, previous)]


@given(
    operation=st.sampled_from(OPERATIONS), hidden=st.sampled_from((128, 256)),
    heads=st.sampled_from((1, 2, 4, 8)), ffn=st.sampled_from((512, 1024)), stacks=st.integers(1, 4),
)  # fmt: skip
def test_flexibert_in_its_three_views(
    operation: tuple[str, Any], hidden: int, heads: int, ffn: int, stacks: int
) -> None:
    kind, parameter = operation
    choice = {
        "operation_type": kind, "operation_parameter": parameter, "num_operation_heads": heads,
        "feed_forward_dimension": ffn, "num_feed_forward": stacks,
    }  # fmt: skip
    expected = {
        "declared": (flexibert_attention(kind, parameter, hidden, heads), stacked(hidden, ffn, stacks)),
        "published": (flexibert_attention(kind, parameter, 256, heads), stacked(256, 1024, stacks)),
        "trained": ([(hidden, hidden)] * 4, trained_ffn(hidden, ffn, stacks)),
    }
    for view, (attention, feed_forward) in expected.items():
        space = make_space("flexibert", view=view)
        (layer,) = space.read({"hidden_size": hidden, "encoder_layers": [choice]}).layers
        assert shapes(layer, "attention") == Counter(attention)
        assert shapes(layer, "ffn") == Counter(feed_forward)
        assert len(layer.matrices) == len(attention) + len(feed_forward)
        assert not any(matrix.scaled or matrix.parts > 1 for matrix in layer.matrices)
        mixing = "q k v o" if view == "trained" else ATTENTION_NAMES[kind, parameter]
        assert names(layer) == " ".join([mixing, "up", *["middle"] * (stacks - 1), "down"])


@given(d=st.integers(1, 8).map(lambda n: 64 * n), f=st.integers(1, 4096))
@pytest.mark.parametrize("name", ["gpt2", "transformer_xl"])
def test_table_vii_layers(name: str, d: int, f: int) -> None:
    choices = {"n_layer": 1, "d_model": d, "d_inner": f, "n_head": 2, "d_embed": 64, "div_val": 1}
    (layer,) = make_space(name).read(choices).layers
    relative = [(d, d)] if name == "transformer_xl" else []
    assert shapes(layer, "attention") == Counter([(3 * d, d), (d, d), *relative])
    assert shapes(layer, "ffn") == Counter([(f, d), (d, f)])
    assert [matrix.parts for matrix in layer.matrices] == [3] + [1] * (len(layer.matrices) - 1)
    scaled = [layer.matrices[1], layer.matrices[-1]] if name == "gpt2" else []
    assert [matrix for matrix in layer.matrices if matrix.scaled] == scaled
    assert (layer.width, layer.query_width, layer.kv_width) == (d, d, d)
    assert names(layer) == ("qkv o up down" if name == "gpt2" else "qkv o relative up down")


@given(
    size=st.sampled_from((16, 64)), heads=st.integers(1, 16), group=st.integers(1, 4), f=st.integers(1, 4096)
)
def test_uniform_layers(size: int, heads: int, group: int, f: int) -> None:
    heads *= group
    d, kv = heads * size, heads // group
    choices = {"depth": 1, "hidden": d, "head_size": size, "heads": heads, "ffn": f}
    (llama,) = make_space("llama").read({**choices, "kv_heads": kv}).layers
    assert shapes(llama, "attention") == Counter([(d, d), (kv * size, d), (kv * size, d), (d, d)])
    assert shapes(llama, "ffn") == Counter([(f, d), (f, d), (d, f)])
    assert (llama.query_width, llama.kv_width) == (d, kv * size)
    (gpt2,) = make_space("gpt2-uniform").read(choices).layers
    assert shapes(gpt2, "attention") == Counter([(3 * d, d), (d, d)])
    assert shapes(gpt2, "ffn") == Counter([(f, d), (d, f)])
    assert [matrix.scaled for matrix in gpt2.matrices] == [False, True, False, True]
    (bert,) = make_space("bert").read(choices).layers
    assert shapes(bert, "attention") == Counter([(d, d)] * 4)
    assert shapes(bert, "ffn") == Counter([(f, d), (d, f)])
    assert (bert.kv_width, gpt2.kv_width) == (d, d)
    assert names(llama) == "q k v o gate up down"
    assert (names(gpt2), names(bert)) == ("qkv o up down", "q k v o up down")


@given(
    d=st.integers(1, 16).map(lambda n: 24 * n),
    drawn=st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from((2, 3.0, 3.5, 4.0))), min_size=1, max_size=4
    ),
)
def test_autoformer_layers(d: int, drawn: list[tuple[int, float]]) -> None:
    heads, ratios = [h for h, _ in drawn], [r for _, r in drawn]
    choices = {"hidden_dim": d, "mlp_ratio": ratios, "depth": len(drawn), "num_heads": heads}
    layers = make_space("autoformer").read(choices).layers
    assert len(layers) == len(drawn)
    for layer, (count, ratio) in zip(layers, drawn, strict=True):
        w, f = 64 * count, int(ratio * d)
        assert shapes(layer, "attention") == Counter([(3 * w, d), (d, w)])
        assert shapes(layer, "ffn") == Counter([(f, d), (d, f)])
        assert (layer.width, layer.query_width, layer.kv_width) == (d, w, w)
        assert [matrix.parts for matrix in layer.matrices] == [3, 1, 1, 1]
        assert (names(layer), layer.body_vectors) == ("qkv o up down", 0)


@given(
    base=st.sampled_from((16, 24, 40)),
    ratio=st.sampled_from((2, 4, 6.0, 2.5)),
    stages=st.tuples(*[st.integers(1, 4)] * 3),
    heads=st.sampled_from(((2, 2, 2), (2, 4, 8), (3, 3, 12))),
)
def test_pit_layers(base: int, ratio: float, stages: tuple[int, ...], heads: tuple[int, ...]) -> None:
    choices = {"base_dim": base, "mlp_ratio": ratio, "depth": list(stages), "num_heads": list(heads)}
    layers = make_space("pit").read(choices).layers
    widths = [base * count for count, depth in zip(heads, stages, strict=True) for _ in range(depth)]
    assert [layer.width for layer in layers] == widths
    for layer, d in zip(layers, widths, strict=True):
        f = int(ratio * d)
        assert shapes(layer, "attention") == Counter([(3 * d, d), (d, d)])
        assert shapes(layer, "ffn") == Counter([(f, d), (d, f)])
        assert (layer.query_width, layer.kv_width) == (d, d)
        assert [matrix.parts for matrix in layer.matrices] == [3, 1, 1, 1]
        assert (names(layer), layer.body_vectors) == ("qkv o up down", 0)


def test_the_matrices_of_heads_are_named() -> None:
    llama = make_space("llama", tied=False)
    for space in (llama, make_space("bert"), make_space("autoformer"), make_space("pit")):
        assert {matrix.name for matrix in next(space.backbones()).ends.head_matrices} == {"head"}
