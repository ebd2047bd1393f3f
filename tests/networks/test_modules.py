"""The parts of networks compute what their equations say, and can be differentiated twice."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from scipy.fft import dctn, fftn
from torch import Tensor, nn
from transformers.models.convbert.modeling_convbert import ConvBertSelfAttention

from zerolm.architecture import Matrix
from zerolm.lab.networks.vision import GridAttention, GridPositions, Patches, Pooling, VisionEnd
from zerolm.lab.spaces.blocks import SHARES
from zerolm.networks.build import build
from zerolm.networks.modules.attention import FusedAttention, SelfAttention
from zerolm.networks.modules.embeddings import AdaptiveHead, AdaptiveTokens, NormedTokens, TiedHead
from zerolm.networks.modules.flexibert import Depthwise, DynamicConvolution, cosine, fourier
from zerolm.networks.modules.llama import GroupedAttention
from zerolm.networks.modules.transformer_xl import RelativeAttention, sinusoids
from zerolm.spaces import make_space

few = settings(max_examples=portion(15))


def drawn(module: nn.Module, seed: int = 0) -> Any:
    """The module in float64, in evaluation mode, all its parameters drawn."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return module


def states(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@few
@given(st.integers(1, 9), st.integers(1, 9))
def test_transforms_are_those_of_scipy(t: int, h: int) -> None:
    x = states(2, t, h)
    assert np.allclose(cosine(x), dctn(x.numpy(), axes=(1, 2)))
    assert np.allclose(fourier(x), fftn(x.numpy(), axes=(1, 2)).real)


@few
@given(st.integers(1, 8), st.integers(1, 4))
def test_a_depthwise_convolution_is_a_sum_over_windows(kernel: int, h: int) -> None:
    part, x = drawn(Depthwise(h, kernel)), states(2, 6, h)
    wanted = torch.zeros(2, 6, h, dtype=torch.float64)
    for place in range(6):
        for step in range(kernel):
            other = place + step - (kernel - 1) // 2
            if 0 <= other < 6:
                wanted[:, place] += part.weight[:, step].detach() * x[:, other]
    assert torch.allclose(part(x), wanted)


@few
@given(st.sampled_from((1, 3, 5, 9)), st.sampled_from((2, 4)))
def test_dynamic_convolution_is_that_of_convbert(kernel: int, heads: int) -> None:
    part, x = drawn(DynamicConvolution(8, heads, kernel)), states(2, 7, 8)
    config = SimpleNamespace(
        hidden_size=8, num_attention_heads=heads, head_ratio=2, conv_kernel_size=kernel,
        attention_probs_dropout_prob=0.0, initializer_range=0.02,
    )  # fmt: skip
    stock: Any = ConvBertSelfAttention(config).double()  # type: ignore[no-untyped-call]
    separable = stock.key_conv_attn_layer
    pairs = {
        stock.query: part.q, stock.key: part.k, stock.value: part.v,
        stock.conv_kernel_layer: part.kernel, stock.conv_out_layer: part.conv,
    }  # fmt: skip
    with torch.no_grad():
        for theirs, ours in pairs.items():
            theirs.weight.copy_(ours.weight)
            theirs.bias.copy_(ours.bias)
        separable.depthwise.weight.copy_(part.depthwise.weight[:, None])
        separable.pointwise.weight.copy_(part.pointwise.weight[..., None])
        separable.bias.copy_(part.pointwise.bias[:, None])
    assert torch.allclose(part(x), part.o(stock(x)[0]))


def test_dynamic_convolution_halves_the_heads() -> None:
    with pytest.raises(ValueError, match="an even number of heads, not 3; say 4"):
        DynamicConvolution(12, 3, 5)


def test_weighted_attention_multiplies_the_queries() -> None:
    weighted, plain, x = (
        drawn(SelfAttention(6, 2, weighted=True)),
        drawn(SelfAttention(6, 2)),
        states(2, 5, 6),
    )
    plain.load_state_dict({k: v for k, v in weighted.state_dict().items() if "weight." not in k})
    assert not torch.allclose(weighted(x), plain(x))
    with torch.no_grad():
        plain.q.weight.copy_(weighted.weight.weight @ weighted.q.weight)
        plain.q.bias.copy_(weighted.weight.weight @ weighted.q.bias + weighted.weight.bias)
    assert torch.allclose(weighted(x), plain(x))


def test_fused_attention_is_attention() -> None:
    fused, plain, x = drawn(FusedAttention(6, 6, 2)), drawn(SelfAttention(6, 2)), states(2, 5, 6)
    with torch.no_grad():
        for index, one in enumerate((plain.q, plain.k, plain.v)):
            one.weight.copy_(fused.qkv.weight.chunk(3)[index])
            one.bias.copy_(fused.qkv.bias.chunk(3)[index])
        plain.o.load_state_dict(fused.o.state_dict())
    assert torch.allclose(fused(x), plain(x))


def by_hand(scores: Tensor, values: Tensor) -> Tensor:
    """Probabilities of scores (b, heads, t, t), times values; heads side by side."""
    return (scores.softmax(-1) @ values).transpose(1, 2).flatten(2)


def heads_of(x: Tensor, heads: int) -> Tensor:
    return torch.stack(x.chunk(heads, dim=-1), dim=1)


def test_relative_attention_is_its_equation() -> None:
    part, x = drawn(RelativeAttention(6, 2)), states(2, 5, 6)
    q, k, v = (heads_of(y, 2) for y in part.qkv(x).chunk(3, dim=-1))
    back = heads_of(part.relative(sinusoids(5, 6).double())[None], 2)[0]  # (heads, distance, s)
    scores = torch.full((2, 2, 5, 5), -torch.inf, dtype=torch.float64)
    for i in range(5):
        for j in range(i + 1):
            content = ((q[:, :, i] + part.u[:, 0]) * k[:, :, j]).sum(-1)
            place = ((q[:, :, i] + part.v[:, 0]) * back[:, i - j]).sum(-1)
            scores[:, :, i, j] = (content + place) / 3**0.5
    assert torch.allclose(part(x), part.o(by_hand(scores, v)))


def test_grid_attention_is_its_equation() -> None:
    part, x = drawn(GridAttention(4, 6, 2)), states(2, 5, 4)
    q, k, v = (heads_of(y, 2) for y in part.qkv(x).chunk(3, dim=-1))
    keys, values = part.keys(5), part.values(5)
    scores = torch.stack(
        [(q[:, :, i, None] * (k + keys[i])).sum(-1) / 3**0.5 for i in range(5)], dim=2
    )  # (b, heads, t, t)
    seen = by_hand(scores, v) + torch.stack(
        [(scores[:, :, i].softmax(-1) @ values[i]).flatten(1) for i in range(5)], dim=1
    )
    assert torch.allclose(part(x), part.o(seen))


def test_grid_positions_are_clipped_distances() -> None:
    part = GridPositions(1)
    with torch.no_grad():
        part.rows.copy_(torch.arange(30.0)[:, None])
        part.columns.copy_(100 * torch.arange(30.0)[:, None])
    found, side = part(1 + 17 * 17)[..., 0], 17
    assert not found[0].any()
    assert not found[:, 0].any()
    for query, key in [(0, 0), (0, 288), (288, 0), (5, 40), (40, 5), (16, 17), (100, 200)]:
        down, right = key // side - query // side, key % side - query % side
        wanted = 15 + max(-14, min(14, down)) + 100 * (15 + max(-14, min(14, right)))
        assert found[1 + query, 1 + key] == wanted


@few
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 6))
def test_pooled_channels_come_from_one_channel(before: int, times: int, side: int) -> None:
    part = drawn(Pooling(before, before * times))
    x = states(1, 1 + side**2, before).requires_grad_()
    after = part(x)
    assert after.shape == (1, 1 + ((side + 1) // 2) ** 2, before * times)
    assert torch.allclose(after[:, 0], part.token(x[:, 0]))
    for channel in range(before * times):
        (gradient,) = torch.autograd.grad(after[:, 1:, channel].sum(), x, retain_graph=True)
        assert set(gradient.abs().sum((0, 1)).nonzero().flatten().tolist()) == {channel // times}


@pytest.mark.parametrize(("stride", "positions"), [(16, 14 * 14 + 1), (8, 27 * 27)])
def test_patches_are_windows_of_the_image(stride: int, positions: int) -> None:
    part, images, side = drawn(Patches(4, stride, positions)), states(2, 3, 224, 224), 208 // stride + 1
    hidden, kernel = part(images), part.patches.weight.flatten(1)
    assert hidden.shape == (2, 1 + side**2, 4)
    windows = images.unfold(2, 16, stride).unfold(3, 16, stride)  # (b, 3, side, side, 16, 16)
    patches = windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2) @ kernel.T + part.patches.bias
    assert torch.allclose(hidden[:, 1:], patches + part.positions[-(side**2) :])
    extra = part.positions[0] if positions == side**2 + 1 else 0
    assert torch.allclose(hidden[:, 0], (part.token + extra).expand(2, -1))


def test_heads_of_images_read_patches_or_the_class_token() -> None:
    hidden, mean, token = states(2, 5, 4), drawn(VisionEnd(4, 1e-5, mean=True)), drawn(VisionEnd(4, 1e-6))
    assert torch.allclose(mean(hidden), sum(mean.norm(hidden[:, place]) for place in range(1, 5)) / 4)
    assert torch.allclose(token(hidden), token.norm(hidden[:, 0]))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Matrix, ...]:
    """Of one or several clusters with projections, or of one without."""
    d, size = draw(st.integers(1, 4)), st.integers(1, 5)
    if draw(st.booleans()):
        return (Matrix("embedding", draw(size), d),)
    tables = draw(st.lists(st.tuples(size, st.integers(1, 4)), min_size=1, max_size=3))
    return tuple(Matrix("embedding", rows, cols) for n, cols in tables for rows in (n, d))


@few
@given(clusters(), st.data())
def test_adaptive_embeddings_are_one_table(matrices: tuple[Matrix, ...], data: st.DataObject) -> None:
    tokens = drawn(AdaptiveTokens(matrices, scale=3.0))
    table = torch.cat(
        [project(t.weight) for t, project in zip(tokens.tables, tokens.projections, strict=True)]
    )  # (v, d)
    head, v = AdaptiveHead(tokens), len(table)
    ids = torch.tensor(data.draw(st.lists(st.integers(0, v - 1), min_size=2, max_size=2)))[None]
    assert torch.allclose(tokens(ids), 3 * table[ids])
    hidden, wanted = states(1, 2, table.shape[1]), data.draw(st.integers(1, v))
    assert head.classes == v
    assert torch.allclose(head(hidden), hidden @ table.T)
    assert torch.allclose(head(hidden, wanted), head(hidden)[..., :wanted])
    with pytest.raises(ValueError, match=f"token {v} is given; this network has tokens 0 to {v - 1}"):
        tokens(ids + v - int(ids.max()))


def test_a_tied_head_undoes_the_projection() -> None:
    tokens, project = drawn(nn.Embedding(7, 2)), drawn(nn.Linear(2, 3, bias=False))
    hidden = states(1, 4, 3)
    assert torch.allclose(TiedHead(tokens, project)(hidden), hidden @ project(tokens.weight).T)


def test_positions_end() -> None:
    with pytest.raises(ValueError, match="5 tokens are given; this network has positions for 4"):
        NormedTokens(9, 4, 2, 3)(torch.zeros(1, 5, dtype=torch.int64))


def test_blocks_that_share_nothing_are_a_llama() -> None:
    """The same seed gives the same weights, and so the same logits."""
    choices = {"depth": 2, "hidden": 16, "heads": 4, "head_size": 4, "kv_heads": 2, "ffn": 12}
    ids = torch.arange(12).reshape(2, 6)
    logits = [build(make_space(name, vocab=40).read(choices)).module(ids) for name in ("llama", "blocks")]
    assert torch.equal(*logits)


@pytest.mark.parametrize(("share", "stored"), [("kv", "qk"), ("qk", "qv"), ("qv", "qk"), ("qkv", "q")])
def test_what_is_shared_is_one_parameter_in_every_use(share: str, stored: str) -> None:
    """Attention with the shared matrix written into each of its places gives the same, and its gradient."""
    uses = SHARES[share]
    shared, plain = drawn(GroupedAttention(12, 8, 8, 4, uses=uses)), GroupedAttention(12, 8, 8, 4).double()
    assert [name for name, _ in shared.named_children() if len(name) == 1 and name != "o"] == list(stored)
    weights = {
        f"{name}.weight": shared.get_parameter(f"{used}.weight")
        for name, used in zip("qkv", uses, strict=True)
    }
    plain.load_state_dict({**weights, "o.weight": shared.o.weight})
    x = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out, expected = shared(x), plain(x)
    assert torch.allclose(out, expected, atol=1e-12)
    for module, result in ((shared, out), (plain, expected)):
        result.square().sum().backward()
        assert all(parameter.grad is not None for parameter in module.parameters())
    for name in stored:
        places = [
            plain.get_parameter(f"{place}.weight").grad
            for place, used in zip("qkv", uses, strict=True)
            if used == name
        ]
        assert torch.allclose(shared.get_parameter(f"{name}.weight").grad, sum(places), atol=1e-9)


def test_ffns_of_a_layer_follow_each_other_each_with_its_norm() -> None:
    choices = {"depth": 1, "hidden": 8, "heads": 2, "head_size": 4, "ffn": 3, "ffn_stack": 3}
    network = build(make_space("blocks", vocab=40).read(choices))
    ffn, x = network.layers[0].get_submodule("ffn"), torch.randn(1, 4, 8)
    expected = x
    for part in ffn.children():
        expected = expected + part.get_submodule("inner")(part.get_submodule("norm")(expected))
    assert torch.allclose(ffn(x), expected)
    assert len(list(ffn.children())) == 3
