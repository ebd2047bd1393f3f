"""Networks of the search spaces have the parameters, the matrices and the places that were promised."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from torch import Tensor, nn

from zerolm.architecture import Architecture, Layer, Matrix
from zerolm.lab.spaces.blocks import SHARES
from zerolm.lab.spaces.elastic import SHARED
from zerolm.networks.build import build
from zerolm.networks.network import Network, Tap
from zerolm.scores import make_score
from zerolm.spaces import SPACES, make_space, space_names
from zerolm.spaces.flexibert import FLEXIBERT_VIEWS, OPERATIONS

ONCE = (nn.GELU, nn.ReLU, nn.SiLU, nn.Softmax, nn.Dropout)


def each(draw: st.DrawFn, depth: int, *values: int) -> list[int]:
    return draw(st.lists(st.sampled_from(values), min_size=depth, max_size=depth))


@st.composite
def small(draw: st.DrawFn, name: str) -> Architecture:
    """A small architecture of a space, settings drawn too."""
    depth = draw(st.integers(1, 2))
    if name == "flexibert":
        layer = st.fixed_dictionaries(
            {"num_operation_heads": st.sampled_from((2, 4)), "num_feed_forward": st.integers(1, 3)}
            | {"feed_forward_dimension": st.integers(3, 9)}
        )
        layers = [
            {**draw(layer), "operation_type": kind, "operation_parameter": parameter}
            for kind, parameter in draw(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3))
        ]
        choices: dict[str, Any] = {"hidden_size": draw(st.sampled_from((8, 12, 128)))}
        choices |= {"encoder_layers": layers}
        return make_space(name, view=draw(st.sampled_from(FLEXIBERT_VIEWS))).read(choices)
    if name in ("gpt2", "transformer_xl"):
        corpus = draw(st.sampled_from(("wt103", "lm1b"))) if name == "gpt2" else "wt103"
        choices = {"n_layer": depth, "d_model": 8, "d_inner": each(draw, depth, 3, 7, 16)}
        choices |= {"n_head": each(draw, depth, 1, 2, 4), "div_val": draw(st.sampled_from((1, 2, 4)))}
        return make_space(name, corpus=corpus).read(choices | {"d_embed": draw(st.sampled_from((-1, 3, 8)))})
    if name == "autoformer":
        choices = {"depth": depth, "hidden_dim": draw(st.sampled_from((8, 12)))}
        choices |= {"num_heads": each(draw, depth, 1, 2), "mlp_ratio": each(draw, depth, 1, 2)}
        return make_space(name, classes=7).read(choices)
    if name == "pit":
        depths, heads = each(draw, 3, 1, 2), draw(st.sampled_from(([1, 1, 2], [1, 2, 2], [2, 2, 2])))
        return make_space(name, classes=7).read(
            {"base_dim": 4, "mlp_ratio": 1.5, "depth": depths, "num_heads": heads}
        )
    if name.startswith("sliced"):
        family = draw(st.sampled_from(("llama", "qwen2", "qwen3"))) if name == "sliced-decoder" else "bert"
        config = {
            "model_type": family, "hidden_size": 16, "num_hidden_layers": depth, "num_attention_heads": 4,
            "intermediate_size": 12, "vocab_size": 40, "max_position_embeddings": 20, "type_vocab_size": 2,
        }  # fmt: skip
        if family != "bert":
            config |= {"num_key_value_heads": 2, "head_dim": 4, "tie_word_embeddings": draw(st.booleans())}
        groups = each(draw, depth, 1, 2) if family != "bert" else each(draw, depth, 1, 2, 3, 4)
        space = make_space(name, parent_config=json.dumps(config))
        return space.read({"kv_heads": groups, "ffn": each(draw, depth, 5, 12)})
    if name.startswith("elastic"):
        space = make_space(name, hidden=16, heads=2, embedding=6, vocab=40, positions=20)
        layer = st.fixed_dictionaries(
            {"block": st.sampled_from(space.settings["blocks"]), "share": st.sampled_from(list(SHARED))}
            | {"ffn": st.sampled_from((3, 8)), "heads": st.sampled_from((1, 2)), "head_size": st.just(2)}
        )
        return space.read({"layers": draw(st.lists(layer, min_size=1, max_size=3))})
    if name == "blocks":
        shares = draw(st.lists(st.sampled_from(list(SHARES)), min_size=depth, max_size=depth))
        kv_heads = [draw(st.sampled_from((1, 2, 4))) if share in ("none", "kv") else 4 for share in shares]
        stacks = each(draw, depth, 0, 1, 2, 3)
        widths = [draw(st.sampled_from((3, 8))) if stack else 0 for stack in stacks]
        choices = {"depth": depth, "hidden": 16, "heads": 4, "head_size": draw(st.sampled_from((4, 6)))}
        choices |= {"share": shares, "kv_heads": kv_heads, "ffn": widths, "ffn_stack": stacks}
        return make_space(name, vocab=40, positions=20, tied=draw(st.booleans())).read(choices)
    shared = {"kv_heads": each(draw, depth, 1, 2, 4)} if name == "llama" else {}
    choices = {"depth": depth, "hidden": 16, "heads": 4, "head_size": 4, "ffn": each(draw, depth, 5, 12)}
    tied = {"tied": draw(st.booleans())} if name == "llama" else {}
    return make_space(name, vocab=40, positions=20, **tied).read(choices | shared)


def batch(network: Network, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if network.task == "image":
        dtype = next(network.module.parameters()).dtype
        return torch.randn(1, 3, 224, 224, generator=generator, dtype=dtype)
    return torch.randint(0, min(network.classes, 1000), (2, 6), generator=generator)


def seen(network: Network, taps: tuple[Tap, ...]) -> list[Tensor]:
    """What passes the taps in one forward pass; every tap is passed once."""
    found: dict[int, list[Tensor]] = {index: [] for index in range(len(taps))}
    handles = [
        tap.module.register_forward_hook(
            lambda _, given, out, index=index, side=tap.side: found[index].append(
                given[0] if side == "input" else out
            )
        )
        for index, tap in enumerate(taps)
    ]
    with torch.no_grad():
        network.module(batch(network), 1)
    for handle in handles:
        handle.remove()
    return [only for (only,) in found.values()]


def randomised(network: Network) -> Network:
    """In float64, biases and gains random too."""
    generator = torch.Generator().manual_seed(5)
    network.module.double()
    with torch.no_grad():
        for parameter in network.module.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.1
            )
    return network


def test_all_spaces_can_be_built() -> None:
    assert all(SPACES[name].network for name in SPACES)
    alien = Architecture("huggingface:llama", {}, (), make_space("pit")._ends([8, 8, 8]))  # type: ignore[attr-defined]
    with pytest.raises(
        ValueError, match="no network is known for 'huggingface:llama'; there are bert, flexibert,"
    ):
        build(alien)


def projections(architecture: Architecture) -> list[tuple[int, Matrix]]:
    """Return the matrices of an architecture with their layers; a fused one is several."""
    return [
        (index, replace(matrix, rows=matrix.rows // matrix.parts, parts=1, name=name))
        for index, layer in enumerate(architecture.layers)
        for matrix in layer.matrices
        for name in (matrix.name if matrix.parts > 1 else (matrix.name,))
    ]


def stream_widths(layer: Layer) -> tuple[int, int]:
    """Behind attention a MobileBERT block has its narrow state beside the residual stream."""
    narrow = sum(matrix.rows for matrix in layer.matrices if matrix.name == "bottleneck")
    return layer.width + narrow, layer.width


@pytest.mark.parametrize("name", space_names())
@settings(max_examples=portion(8))
@given(data=st.data())
def test_a_network_keeps_its_promises(name: str, data: st.DataObject) -> None:
    architecture = data.draw(small(name))
    state = torch.get_rng_state()
    network = build(architecture)
    assert torch.equal(torch.get_rng_state(), state)
    assert network.params == make_score("params").of(architecture)
    for linear, (index, matrix) in zip(network.linears, projections(architecture), strict=True):
        assert (linear.layer, linear.role, linear.name) == (index, matrix.role, matrix.name)
        assert linear.matrix(linear.parameter).shape == (matrix.rows, matrix.cols)
        assert linear.parameter.dtype == torch.float32
    inside = {id(parameter) for layer in network.layers for parameter in layer.parameters()}
    assert {id(linear.parameter) for linear in network.linears} <= inside
    assert not network.module.training

    inputs, depth = batch(network), architecture.depth
    assert len(network.layers) == depth
    with torch.no_grad():
        logits = network.module(inputs)
        assert logits.shape[-1] == network.classes
        assert torch.allclose(network.module(inputs, 5), logits[..., :5], atol=1e-6)
    attentions = seen(network, network.attentions)
    assert len(attentions) == sum(layer.query_width > 0 for layer in architecture.layers)
    assert all(torch.allclose(x.sum(-1), torch.ones(())) and x.shape[-1] == x.shape[-2] for x in attentions)
    stream = seen(network, network.stream)
    widths = [width for layer in architecture.layers for width in stream_widths(layer)]
    assert [x.shape[-1] for x in stream] == widths
    (final,) = seen(network, (network.final,))
    assert final.shape == (*logits.shape[:-1], widths[-1])
    for index, layer in enumerate(network.layers):
        with torch.no_grad():
            between = layer.get_submodule("ffn")(stream[2 * index])
        assert torch.allclose(between, stream[2 * index + 1], atol=1e-6)


@pytest.mark.parametrize("name", space_names())
@settings(max_examples=portion(3))
@given(data=st.data())
def test_no_place_shares_a_module_without_weights(name: str, data: st.DataObject) -> None:
    net = build(data.draw(small(name)))
    calls: Counter[nn.Module] = Counter()
    parts = [part for part in net.module.modules() if isinstance(part, (*ONCE, *map(type, net.norms)))]
    handles = [part.register_forward_hook(lambda part, *_: calls.update([part])) for part in parts]
    net.module(batch(net), 1)
    for handle in handles:
        handle.remove()
    assert calls == Counter(parts)


@pytest.mark.parametrize("name", space_names())
@settings(max_examples=portion(3))
@given(data=st.data())
def test_activated_is_what_a_nonlinearity_reads(name: str, data: st.DataObject) -> None:
    network = build(data.draw(small(name)))
    parts = [part for layer in network.layers for part in layer.modules() if isinstance(part, ONCE[:3])]
    read = seen(network, tuple(Tap(part, "input") for part in parts))
    made = seen(network, tuple(Tap(linear.module) for linear in network.linears if linear.activated))
    assert len(read) == len(made) == sum(linear.activated for linear in network.linears)
    assert all(torch.equal(a, b) for a, b in zip(read, made, strict=True))


@pytest.mark.parametrize("name", space_names())
@settings(max_examples=portion(4))
@given(data=st.data())
def test_second_derivatives_are_differences_of_first_ones(name: str, data: st.DataObject) -> None:
    network = randomised(build(data.draw(small(name))))
    parameters = list(network.module.parameters())
    inputs = batch(network)
    generator = torch.Generator().manual_seed(2)
    along = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]

    def loss() -> Tensor:
        logits: Tensor = network.module(inputs, 3)
        return logits.logsumexp(-1).sum() - logits[..., 0].sum()

    def slopes(graph: bool = False) -> list[Tensor]:
        return list(torch.autograd.grad(loss(), parameters, create_graph=graph, materialize_grads=True))

    def moved(step: float) -> list[Tensor]:
        with torch.no_grad():
            for parameter, direction in zip(parameters, along, strict=True):
                parameter.add_(direction, alpha=step)
        return slopes()

    terms = [(g * v).sum() for g, v in zip(slopes(graph=True), along, strict=True)]
    curved = torch.autograd.grad(torch.stack(terms).sum(), parameters, materialize_grads=True)
    upper, lower = moved(1e-7), moved(-2e-7)
    wanted = [(a - b) / 2e-7 for a, b in zip(upper, lower, strict=True)]
    error = sum(float((a - b).square().sum()) for a, b in zip(curved, wanted, strict=True))
    size = sum(float(a.square().sum()) for a in curved)
    assert 0 < size < torch.inf
    assert error < 1e-8 * size


@pytest.mark.parametrize("name", [name for name in SPACES if SPACES[name].task != "image"])
@settings(max_examples=portion(4))
@given(data=st.data())
def test_only_encoders_see_later_tokens(name: str, data: st.DataObject) -> None:
    network = randomised(build(data.draw(small(name))))
    inputs = batch(network)
    other = inputs.clone()
    other[:, 3:] = (other[:, 3:] + 1) % 40
    with torch.no_grad():
        changed = (network.module(inputs, 9) - network.module(other, 9)).abs().amax((0, 2)) > 1e-9
    assert changed.tolist() == [network.task == "masked"] * 3 + [True] * 3


@pytest.mark.parametrize("name", space_names())
def test_weights_are_normal_with_the_deviations_of_the_scores(name: str) -> None:
    wide: dict[str, Any] = {
        "flexibert": {"hidden_size": 128, "encoder_layers": [
            {"operation_type": "DSC", "operation_parameter": 9, "num_operation_heads": 2}
            | {"feed_forward_dimension": 200, "num_feed_forward": 2}]},
        "autoformer": {"depth": 1, "hidden_dim": 96, "num_heads": [1], "mlp_ratio": [2]},
        "pit": {"base_dim": 64, "mlp_ratio": 2, "depth": [1, 1, 1], "num_heads": [1, 1, 1]},
    }  # fmt: skip
    for one in ("gpt2", "transformer_xl"):
        wide[one] = {"n_layer": 2, "d_model": 96, "d_inner": [200, 100], "n_head": [2, 2]}
        wide[one] |= {"d_embed": 16, "div_val": 2}
    for one in ("elastic", "elastic-causal"):
        blocks = [("bert", "kv"), ("mobile", "none"), ("llama", "qv")][: 2 if one == "elastic" else 3]
        wide[one] = {"layers": [{"block": block, "share": share, "ffn": 200} for block, share in blocks]}
    for one in ("llama", "blocks", "qwen3", "bert", "gpt2-uniform"):
        wide[one] = {"depth": 2, "hidden": 96, "heads": 2, "head_size": 48, "ffn": 200}
    for one in ("sliced-decoder", "sliced-encoder"):
        wide[one] = {"kv_heads": [1, 2, 2, 2, 2, 2, 2, 2][: 8 if one == "sliced-decoder" else 6], "ffn": 200}
    architecture = make_space(name).read(wide[name])
    network, again, other = build(architecture), build(architecture), build(architecture, seed=1)
    for linear, (_, matrix) in zip(network.linears, projections(architecture), strict=True):
        deviation = 0.02 / (2 * architecture.depth) ** 0.5 if matrix.scaled else 0.02
        tolerance = 5 / (2 * matrix.weights) ** 0.5
        assert abs(float(linear.matrix(linear.parameter.detach()).std()) / deviation - 1) < tolerance, matrix
    for one, two, three in zip(*(n.module.named_parameters() for n in (network, again, other)), strict=True):
        assert torch.equal(one[1], two[1])
        assert torch.equal(one[1], three[1]) == (one[1].ndim == 1)


STOCK = {
    "bert": [
        ("embeddings.tokens", "bert.embeddings.word_embeddings"),
        ("embeddings.positions", "bert.embeddings.position_embeddings"),
        ("embeddings.segments", "bert.embeddings.token_type_embeddings"),
        ("embeddings.norm", "bert.embeddings.LayerNorm"), ("layers.", "bert.encoder.layer."),
        ("attention.inner.q.", "attention.self.query."), ("attention.inner.k.", "attention.self.key."),
        ("attention.inner.v.", "attention.self.value."), ("attention.inner.o.", "attention.output.dense."),
        ("attention.norm.", "attention.output.LayerNorm."), ("ffn.inner.up.", "intermediate.dense."),
        ("ffn.inner.down.", "output.dense."), ("ffn.norm.", "output.LayerNorm."),
        ("head.dense", "cls.predictions.transform.dense"),
        ("head.norm", "cls.predictions.transform.LayerNorm"), ("head.bias", "cls.predictions.bias"),
    ],
    "gpt2-uniform": [
        ("embeddings.tokens", "transformer.wte"), ("embeddings.positions", "transformer.wpe"),
        ("final.", "transformer.ln_f."), ("layers.", "transformer.h."),
        ("attention.inner.qkv.", "attn.c_attn."), ("attention.inner.o.", "attn.c_proj."),
        ("attention.norm.", "ln_1."), ("ffn.inner.up.", "mlp.c_fc."), ("ffn.inner.down.", "mlp.c_proj."),
        ("ffn.norm.", "ln_2."),
    ],
    "llama": [
        ("embeddings.", "model.embed_tokens."), ("final.", "model.norm."), ("layers.", "model.layers."),
        *((f"attention.inner.{name}.", f"self_attn.{name}_proj.") for name in "qkvo"),
        *((f"ffn.inner.{name}.", f"mlp.{name}_proj.") for name in ("gate", "up", "down")),
        ("attention.norm.", "input_layernorm."), ("ffn.norm.", "post_attention_layernorm."),
        ("head.linear.", "lm_head."),
    ],
}  # fmt: skip
STOCK["qwen3"] = [
    *STOCK["llama"],
    *((f"attention.inner.{name}_norm.", f"self_attn.{name}_norm.") for name in "qk"),
]


@pytest.mark.parametrize(
    ("name", "more", "heads"),
    [
        ("bert", {}, 4), ("gpt2-uniform", {}, 4), ("llama", {}, 4), ("llama", {"tied": False}, 4),
        ("llama", {"qkv_bias": True}, 4), ("llama", {}, 6), ("qwen3", {}, 6),
    ],
)  # fmt: skip
def test_stock_classes_give_the_same_logits(name: str, more: dict[str, Any], heads: int) -> None:
    space = make_space(name, vocab=50, positions=20, **more)
    choices = {"depth": 2, "hidden": 32, "heads": heads, "head_size": 8, "ffn": 40}
    architecture = space.read(choices | ({"kv_heads": 2} if name in ("llama", "qwen3") else {}))
    network, config = randomised(build(architecture)), space.config(architecture)
    kind = transformers.AutoModelForMaskedLM if name == "bert" else transformers.AutoModelForCausalLM
    sizes = {key: value for key, value in config.items() if key != "model_type"}
    stock: Any = kind.from_config(  # type: ignore[no-untyped-call]
        transformers.AutoConfig.for_model(config["model_type"], **sizes), attn_implementation="eager"
    )
    weights = {}
    for key, value in network.module.state_dict().items():
        if key.startswith("head.tokens"):
            continue
        turned = name == "gpt2-uniform" and ".inner." in key and value.ndim == 2
        for ours, theirs in STOCK[name]:
            key = key.replace(ours, theirs)
        weights[key] = value.T if turned else value
    missing, unknown = stock.load_state_dict(weights, strict=False)
    stock.tie_weights()
    assert not unknown
    assert set(missing) <= {
        "lm_head.weight",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    }
    ids = batch(network)
    with torch.no_grad():
        assert torch.allclose(network.module(ids), stock.double().eval()(input_ids=ids).logits, atol=1e-5)


def test_images_of_another_size_are_refused() -> None:
    choices = {"base_dim": 4, "mlp_ratio": 2, "depth": [1, 1, 1], "num_heads": [1, 1, 1]}
    network = build(make_space("pit").read(choices))
    with pytest.raises(
        ValueError, match=r"images of \(3, 32, 32\) are given; this network takes \(3, 224, 224\)"
    ):
        network.module(torch.zeros(1, 3, 32, 32))
