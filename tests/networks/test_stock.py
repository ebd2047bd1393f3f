"""Stock models are the same network as before; what is tapped is what the stock model computes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_folders import configured
from tiny import model, saved
from tiny_families import random_model
from torch import Tensor
from transformers import (
    AttentionInterface,
    BloomConfig,
    BloomForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from zerolm.checkpoints import Checkpoint
from zerolm.children.verify import outputs
from zerolm.families.config import from_config
from zerolm.networks import opener as load
from zerolm.networks.huggingface import stock_network
from zerolm.networks.network import Network, Tap
from zerolm.networks.opener import load_model, load_network
from zerolm.networks.roles import layers_of
from zerolm.networks.stock_parent import StockParent

VIT = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 40}
VIT |= {"image_size": 32, "patch_size": 8, "num_labels": 7}
NAMES = ["llama", "llama_biased", "mistral", "mistral_odd", "qwen2", "qwen3", "gemma2", "gpt2", "bert_masked"]
NAMES.append("vit")


def made(name: str) -> Any:
    if name != "vit":
        return model(name)
    network = ViTForImageClassification(ViTConfig(**VIT)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return network


def inputs(name: str) -> Tensor:
    if name == "vit":
        return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(1))


def stock_output(name: str, **more: Any) -> Any:
    given = {"pixel_values" if name == "vit" else "input_ids": inputs(name)}
    plain = made(name)
    plain.set_attn_implementation("eager")
    return plain(**given, **more)


@contextmanager
def tapped(*taps: Tap) -> Iterator[list[list[Tensor]]]:
    """What passes each tap, in a list of its own."""
    seen: list[list[Tensor]] = [[] for _ in taps]
    handles = []
    for tap, found in zip(taps, seen, strict=True):
        if tap.side == "input":
            handles.append(tap.module.register_forward_pre_hook(lambda _, x, found=found: found.append(x[0])))
        else:
            handles.append(tap.module.register_forward_hook(lambda _, __, y, found=found: found.append(y)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def one_pass(network: Network, name: str, *taps: Tap) -> tuple[Tensor, list[Tensor]]:
    with tapped(*taps) as seen:
        logits = network.module(inputs(name))
    assert all(len(found) == 1 for found in seen), "every tap is passed once"
    return logits, [found[0] for found in seen]


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_stock_model(name: str) -> None:
    plain = made(name)  # with the attention that it comes with
    wanted = plain(**{"pixel_values" if name == "vit" else "input_ids": inputs(name)}).logits
    network = stock_network(made(name))
    found = network.module(inputs(name))
    assert torch.allclose(found, wanted, atol=1e-6)
    assert found.shape[-1] == network.classes == (7 if name == "vit" else 64)
    assert found.ndim == (2 if name == "vit" else 3)
    assert torch.equal(network.module(inputs(name), 5), found[..., :5])
    assert network.params == sum(parameter.numel() for parameter in plain.parameters())
    assert network.task == {"vit": "image", "bert_masked": "masked"}.get(name, "next")


@pytest.mark.parametrize("name", NAMES)
def test_attention_probabilities_are_those_of_the_stock_model_and_on_the_way(name: str) -> None:
    network = stock_network(stock_network(made(name)).module.model)  # twice must not show them twice
    logits, found = one_pass(network, name, *network.attentions)
    wanted = stock_output(name, output_attentions=True).attentions
    assert len(found) == len(wanted) == 3
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
        assert torch.allclose(ours.sum(-1), torch.ones(()), atol=1e-5)
        future = ours.triu(1).abs().max()
        assert future == 0 if network.task == "next" else future > 0
    for gradient in torch.autograd.grad(logits.square().sum(), found):
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_stream_is_what_each_sub_block_leaves(name: str) -> None:
    network = stock_network(made(name))
    ends = [linear.module for linear in network.linears if linear.name in ("o", "down")]
    entering = [Tap(layer, "input") for layer in network.layers]
    logits, found = one_pass(network, name, *network.stream, *entering, *(Tap(end) for end in ends))
    stream, entered, added = found[:6], found[6:9], found[9:]
    befores = [entered[0], *stream[:-1]]
    for index, (before, after, change) in enumerate(zip(befores, stream, added, strict=True)):
        layer: Any = network.layers[index // 2]
        if name == "bert_masked":
            wanted = (layer.output if index % 2 else layer.attention.output).LayerNorm(before + change)
        elif name == "gemma2":
            norms = (layer.post_attention_layernorm, layer.post_feedforward_layernorm)
            wanted = before + norms[index % 2](change)
        else:
            wanted = before + change
        assert torch.allclose(after, wanted, atol=1e-5)
        assert torch.autograd.grad(after.sum(), before, retain_graph=True)[0].shape == before.shape
    assert torch.equal(stream[1], entered[1])
    assert torch.equal(stream[3], entered[2])
    assert torch.autograd.grad(logits.square().sum(), stream[0])[0].abs().max() > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_head_reads_the_final_states(name: str) -> None:
    network = stock_network(made(name))
    logits, (final,) = one_pass(network, name, network.final)
    stocked: Any = network.module.get_submodule("model")
    if name == "vit":
        wanted = stocked.classifier(final[:, 0])
    elif name == "bert_masked":
        wanted = stocked.cls(final)
    else:
        wanted = stocked.get_output_embeddings()(final)
    if name == "gemma2":
        wanted = 30 * torch.tanh(wanted / 30)
    assert torch.allclose(logits, wanted, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_linears_are_the_matrices_of_the_architecture(name: str) -> None:
    network = stock_network(made(name))
    config = network.module.get_submodule("model").config.to_dict()  # type: ignore[union-attr, operator]
    config |= {"attention_bias": False, "mlp_bias": False, "vocab_size": 64}
    config["model_type"] = {"gemma2": "llama", "vit": "bert"}.get(name, config["model_type"])
    found = [
        [
            (linear.role, *linear.matrix(linear.parameter).shape, linear.name)
            for linear in network.linears
            if linear.layer == index
        ]
        for index in range(3)
    ]
    wanted = [
        [
            (m.role, m.rows // m.parts, m.cols, name)  # of a fused matrix its parts
            for m in layer.matrices
            for name in (m.name if m.parts > 1 else (m.name,))
        ]
        for layer in from_config(config).layers
    ]
    assert found == wanted
    assert [linear.layer for linear in network.linears] == sorted(linear.layer for linear in network.linears)
    matrices = {id(p) for layer in network.layers for p in layer.parameters() if p.ndim == 2}
    assert matrices == {id(linear.parameter) for linear in network.linears}


@pytest.mark.parametrize("name", NAMES)
def test_linears_are_called_in_order_and_the_activated_feed_the_activation(name: str) -> None:
    network = stock_network(made(name))
    order: list[int] = []
    for index, linear in enumerate(network.linears):
        linear.module.register_forward_hook(lambda *_, index=index: order.append(index))
    acts = [m for layer in network.layers for m in layer.modules() if "activation" in type(m).__module__]
    activated = [linear for linear in network.linears if linear.activated]
    assert len(activated) == 3
    with tapped(*(Tap(linear.module) for linear in activated), *(Tap(act, "input") for act in acts)) as seen:
        network.module(inputs(name))
    assert order == list(range(len(network.linears)))
    fed = [tensor for found in seen[3:] for tensor in found]
    assert len(fed) >= 3
    for (output,) in seen[:3]:
        assert any(output is tensor for tensor in fed)


@pytest.mark.parametrize("name", NAMES)
def test_norms_are_all_that_normalise(name: str) -> None:
    network = stock_network(made(name))
    counts = {"gemma2": 4 * 3 + 1, "qwen3": 4 * 3 + 1, "bert_masked": 2 * 3 + 2}
    assert len(set(network.norms)) == len(network.norms) == counts.get(name, 2 * 3 + 1)
    assert len([layer for layer in network.layers if set(layer.modules()) & set(network.norms)]) == 3


def test_other_models_stay_as_they_are() -> None:
    functions = set(AttentionInterface().valid_keys())
    other, ours = made("llama"), made("llama")
    attention, before = layers_of(other)[0].attention, torch.get_rng_state()
    stock_network(ours)
    assert other.config._attn_implementation == "sdpa"
    assert not attention._forward_hooks
    assert not hasattr(attention, "probabilities")
    assert set(AttentionInterface().valid_keys()) == functions
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_no_such_network_is_refused() -> None:
    bloom = BloomForCausalLM(BloomConfig(hidden_size=8, n_head=2, n_layer=1, vocab_size=10))
    with pytest.raises(ValueError, match=r"^model_type 'bloom' is refused: its ALiBi slopes follow .*$"):
        stock_network(bloom)
    for name in ("bert", "bert_classes", "llama_classes", "llama_body", "gpt2_wide"):
        with pytest.raises(ValueError, match=r"predicts no classes; a \w+ does"):
            stock_network(made(name))
    headless = ViTForImageClassification(ViTConfig(**VIT | {"num_labels": 0}))
    with pytest.raises(ValueError, match=r"^ViTForImageClassification predicts no classes"):
        stock_network(headless)


def test_sequences_longer_than_the_positions_are_refused() -> None:
    network = stock_network(made("gpt2"))
    assert network.module(torch.zeros(1, 32, dtype=torch.long)).shape == (1, 32, 64)
    with pytest.raises(ValueError, match=r"^the network reads at most 32 tokens, not 33$"):
        network.module(torch.zeros(1, 33, dtype=torch.long))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_folder_gives_its_weights_in_float32(name: str, dtype: str, tmp_path: Path) -> None:
    original = made(name).to(getattr(torch, dtype))
    original.save_pretrained(tmp_path)
    network, loaded = load_network(tmp_path)
    assert loaded
    assert {(p.dtype, p.requires_grad) for p in network.module.parameters()} == {(torch.float32, True)}
    rounded = made(name)  # a model that was turned back from bfloat16 would have lost its rotary frequencies
    rounded.load_state_dict(original.state_dict())
    wanted = stock_network(rounded).module(inputs(name))
    assert torch.allclose(network.module(inputs(name)), wanted, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_alone_gives_random_weights_under_a_seed(name: str, tmp_path: Path) -> None:
    made(name).config.save_pretrained(tmp_path)
    before = torch.get_rng_state()
    networks = [load_network(str(tmp_path), seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(loaded for _, loaded in networks)
    logits = [network.module(inputs(name)) for network, _ in networks]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])
    for linear in networks[0][0].linears:
        usual = 0.02 / 6**0.5 if name == "gpt2" and linear.name in ("o", "down") else 0.02
        assert float(linear.parameter.detach().std()) == pytest.approx(usual, rel=0.15)


HOSTILE = [
    ("llama", {"num_hidden_layers": 10**9}, "1 to 1024 are possible"),
    ("llama", {"hidden_size": "big"}, "'big'"),
    ("llama", {"hidden_size": 6 * 10**5, "vocab_size": 2**24}, "needs .* GB of memory"),
    ("llama", {"vocab_size": 10**30}, "vocab_size"),
    ("vit", {"num_hidden_layers": 10**9}, "num_hidden_layers 1000000000; 1 to 1024 are"),
    ("vit", {"hidden_size": 3 * 2**18}, "needs .* GB of memory"),
    ("vit", {"hidden_size": []}, r"hidden_size \[\]; 1 to"),
    ("vit", {"image_size": "wide"}, "cannot be read"),
    ("vit", {"quantization_config": {"quant_method": "bitsandbytes"}}, "quantized"),
    ("vit", {"_attn_implementation": "owner/kernel"}, "names code to fetch"),
    ("gpt2", {"_attn_implementation": "owner/kernel"}, "names code to fetch"),
    ("gpt2", {"model_type": "rwkv"}, "there are afmoe, apertus, arcee, bamba, bert, .*, llama, .*, vit"),
    ("gpt2", {"model_type": None}, "there are afmoe, apertus, arcee"),
    ("gpt2", {"model_type": ["gpt2"]}, "there are afmoe, apertus, arcee"),
    ("gpt2", {"n_head": 7}, "not divisible|must be divisible"),
]


@pytest.mark.parametrize(("name", "changes", "message"), HOSTILE)
def test_hostile_configurations(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    made(name).config.save_pretrained(tmp_path)
    configured(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_network(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_hostile_folders(tmp_path: Path) -> None:
    def refused(folder: Path, message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            load_network(folder)
        assert "\n" not in str(caught.value)

    refused(tmp_path / "none", "^there is no folder")
    refused(tmp_path, r"config\.json' cannot be read: there is no such file")
    for text in ("", "{", "[]", "3", '{"model_type": "gpt2", "model_type": "vit"}', "[" * 10_000, "\ud800x"):
        (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        refused(tmp_path, r"config\.json' cannot be read")
    for kind in ("gpt2", "vit"):
        folder = tmp_path / kind
        made(kind).config.save_pretrained(folder)
        torch.save({"x": torch.zeros(1)}, folder / "pytorch_model.bin")
        refused(folder, r"its weights are a pickle \(pytorch_model\.bin\), which is not opened")
        (folder / "pytorch_model.bin").rename(folder / "tf_model.h5")
        refused(folder, r"there is no model\.safetensors")
        made(kind).save_pretrained(folder)
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-8])
        refused(folder, "cut off")
        (folder / "adapter_config.json").write_text("{}")
        refused(folder, "adapter")


def test_weights_that_are_missing_or_misshapen_are_no_random_ones(tmp_path: Path) -> None:
    saved(tmp_path, "bert")  # a body without the head
    with pytest.raises(
        ValueError, match=r"lacks 'cls\.predictions\.[a-zA-Z.]*', which BertForMaskedLM needs: save it with "
    ):
        load_network(tmp_path)
    made("vit").save_pretrained(tmp_path / "vit")
    configured(tmp_path / "vit", intermediate_size=44)
    with pytest.raises(ValueError, match="cannot be read"):
        load_network(tmp_path / "vit")
    configured(tmp_path / "vit", intermediate_size=40, num_hidden_layers=4)
    with pytest.raises(ValueError, match="lacks 'vit"):
        load_network(tmp_path / "vit")


def test_code_of_the_folder_does_not_run(tmp_path: Path) -> None:
    made("gpt2").config.save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    configured(tmp_path, auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    network, _ = load_network(tmp_path)
    assert type(network.module.get_submodule("model")).__module__.startswith("transformers.models.gpt2")


def test_too_little_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, "llama")
    params = sum(parameter.numel() for parameter in made("llama").parameters())
    monkeypatch.setattr(load, "free_memory", lambda: 16 * params)
    load_network(tmp_path)
    monkeypatch.setattr(load, "free_memory", lambda: 16 * params - 1)
    with pytest.raises(ValueError, match=re.escape(f"needs {16 * params / 1e9:.3g} GB of memory (4 times")):
        load_network(tmp_path)


KINDS = ("llama", "gemma2", "gemma4_text", "gpt2", "bert", "deepseek_v3", "qwen3_moe", "falcon_h1", "gpt_oss")


@pytest.mark.parametrize("kind", KINDS)
def test_layer_by_layer_as_from_pretrained(kind: str, tmp_path: Path) -> None:
    random_model(kind, "bfloat16").save_pretrained(tmp_path, max_shard_size="20KB")
    checkpoint = Checkpoint.open(tmp_path)
    ids = torch.randint(2, checkpoint.layout.vocab, (2, 20), generator=torch.Generator().manual_seed(0))
    *states, out = StockParent(checkpoint, {"input_ids": ids}).states()
    assert len(states) == checkpoint.layout.depth + 1
    with torch.no_grad():
        wanted = load_model(tmp_path, checkpoint.family.task == "next")(input_ids=ids)
    torch.testing.assert_close(outputs(out), outputs(wanted), rtol=0, atol=0)


def test_a_weight_that_transformers_does_not_find_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path, "llama"))
    parent = StockParent(checkpoint, {"input_ids": torch.zeros(1, 4, dtype=torch.long)})
    load = parent._load

    def lossy(tensors: dict[str, object]) -> set[str]:
        return load({name: x for name, x in tensors.items() if "layers.1.mlp.down_proj" not in name})

    parent._load = lossy  # type: ignore[method-assign, assignment]
    with pytest.raises(ValueError, match=r"transformers finds no 'layers\.1\.mlp\.down_proj\.weight'"):
        list(parent.states())
