"""Networks of blocks written as stock llamas give the same logits, and have the parameters that are told."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

import zerolm
from zerolm.costs import CostModel
from zerolm.lab.networks.stock_llama import stock_llama
from zerolm.lab.spaces.blocks import SHARES, LlamaBlocks
from zerolm.networks.build import build

LAYER = st.tuples(
    st.sampled_from(list(SHARES)), st.sampled_from((1, 2, 3, 6)), st.integers(0, 3), st.integers(1, 9)
)


def drawn(space: LlamaBlocks, **choices: Any) -> Any:
    """Return an architecture and its network, all weights and gains random and far from small."""
    architecture = space.read(choices)
    network = build(architecture)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return architecture, network


@settings(max_examples=portion(25))
@given(layers=st.lists(LAYER, min_size=1, max_size=3), hidden=st.sampled_from((24, 32)), tied=st.booleans())
def test_the_stock_model_has_the_logits_and_the_promised_parameters(
    layers: list[tuple[str, int, int, int]], hidden: int, tied: bool
) -> None:
    """Heads of 4 that fill the stream (llama), and six of them on a wider one (mistral)."""
    space = LlamaBlocks(vocab=40, positions=20, tied=tied)
    shares, kv_heads, stacks, widths = map(list, zip(*layers, strict=True))
    architecture, network = drawn(
        space, depth=len(layers), hidden=hidden, heads=6, head_size=4, share=shares, ffn_stack=stacks,
        kv_heads=[kv if share in ("none", "kv") else 6 for share, kv in zip(shares, kv_heads, strict=True)],
        ffn=[width if stack else 0 for width, stack in zip(widths, stacks, strict=True)],
    )  # fmt: skip
    model = stock_llama(space, architecture, network.module)
    ids = torch.arange(14).reshape(2, 7) * 5 % 40
    with torch.no_grad():
        ours, theirs = network.module(ids), model(input_ids=ids).logits
    assert float(ours.abs().max()) > 0.1
    assert torch.allclose(ours, theirs, atol=1e-5 * float(ours.abs().max()))
    _, stored = space.llama_form(architecture)
    assert model.num_parameters() == CostModel().of(stored)["params"]
    assert stored.depth == sum(max(1, stack) for stack in stacks)
    assert model.config.model_type == ("llama" if hidden % 6 == 0 else "mistral")


@pytest.mark.parametrize(("ffn", "ffn_stack"), [(9, 2), (0, 0)])
def test_its_checkpoint_is_told_and_cut_like_any_other(tmp_path: Path, ffn: int, ffn_stack: int) -> None:
    """Some of its layers have no attention, or no FFN, but zeros."""
    space = LlamaBlocks(vocab=40, positions=20)
    architecture, network = drawn(
        space, depth=2, hidden=24, heads=6, head_size=4, kv_heads=6, ffn=ffn, ffn_stack=ffn_stack
    )
    stock_llama(space, architecture, network.module).save_pretrained(tmp_path / "parent")
    ledger = zerolm.ledger(tmp_path / "parent").to_json()
    energies = {role: [layer[role]["energy"] for layer in ledger["layers"]] for role in ("attention", "ffn")}
    for role, told in energies.items():
        own = [w for name, w in network.module.named_parameters() if f".{role}." in name and w.dim() == 2]
        assert sum(told) == pytest.approx(
            sum(w.detach().double().square().sum().item() for w in own), rel=1e-6
        )
    assert [energy == 0 for energy in energies["attention"]] == [False, True] * 2 if ffn else [False, False]
    zerolm.carve(tmp_path / "parent", tmp_path / "child", keep_heads=0.5, criterion="capacity")
    child = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "child")
    with torch.no_grad():
        assert torch.isfinite(child(input_ids=torch.arange(10)[None]).logits).all()


def test_a_plain_llama_is_stored_as_it_is_and_other_blocks_have_no_configuration() -> None:
    space = LlamaBlocks(vocab=40, positions=20)
    sizes = {"depth": 2, "hidden": 24, "heads": 6, "head_size": 4, "ffn": 9}
    architecture, network = drawn(space, **sizes, kv_heads=3)
    model = stock_llama(space, architecture, network.module)
    assert model.num_parameters() == network.params == CostModel().of(architecture)["params"]
    config, stored = space.config(architecture), model.config.to_dict()
    shared = config.keys() & stored.keys()
    assert {name: stored[name] for name in shared} == {name: config[name] for name in shared}
    assert {"hidden_size", "intermediate_size", "num_key_value_heads", "head_dim"} <= shared
    for change in ({"share": "qk"}, {"ffn_stack": 2}, {"ffn": 0, "ffn_stack": 0}):
        assert space.config(space.read(sizes | change)) is None
