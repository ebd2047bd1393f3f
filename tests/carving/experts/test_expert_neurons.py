"""Neurons leave experts byte for byte, and the child is the parent in which they are silent."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from covering import chosen
from hypothesis import given
from hypothesis import strategies as st
from packed_mixtures import packed_mixture
from safetensors.torch import load_file
from saved_mixtures import mixture
from tiny_mixtures import MIXTURES
from transformers import AutoModelForCausalLM

from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.experts.masked_parent import compare_with_masked, masked
from zerolm.carving.recipe_fields import from_hex, to_hex
from zerolm.checkpoints import Checkpoint
from zerolm.networks.roles import layer_list

FILE = "model.safetensors"
SHARED = ("llama4_text", "jamba", "hunyuan_v1_moe")
"""Types whose dense layers or shared expert are as wide as experts, by the same field."""
KINDS = [kind for kind in (*MIXTURES, "gemma4_text") if kind not in SHARED]
BY_CHANCE: dict[str, Any] = {"criterion": "random", "seed": 3}


def whole_of(folder: Path) -> int:
    return Checkpoint.open(folder).layout.sizes["expert_ffn"]


def kept_in(child: Path, whole: int) -> dict[int, dict[int, list[int]]]:
    """Return the neurons that stay of each expert that does, by layer, as the recipe says: bit by bit."""
    recipe = json.loads((child / "recipe.json").read_text())
    return {
        row["layer"]: {
            expert: [n for n in range(whole) if f"{int(text, 16):0{4 * len(text)}b}"[n] == "1"]
            for expert, text in zip(row["kept"], row["neurons"], strict=True)
        }
        for row in recipe["experts"]
    }


@torch.no_grad()
@pytest.mark.parametrize("kind", chosen(KINDS))
def test_a_child_sends_what_the_silenced_parent_sends(kind: str, tmp_path: Path) -> None:
    """In the stock class: what neurons that left send is multiplied by zero in the parent."""
    folder = mixture(tmp_path / "parent", kind)
    carved = carve(folder, tmp_path / "child", keep_experts="6", keep_expert_ffn="8", **BY_CHANCE)
    assert carved.verified.by == "outputs"
    kept = kept_in(tmp_path / "child", whole_of(folder))
    assert {len(neurons) for experts in kept.values() for neurons in experts.values()} == {8}
    assert len({tuple(neurons) for experts in kept.values() for neurons in experts.values()}) > 1
    fewer = FewerExperts(Checkpoint.open(folder), {layer: np.array([*e]) for layer, e in kept.items()})
    child, parent = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).eval() for name in ("child", "parent")
    )
    ids = torch.arange(1, 25)[None]
    with masked({layer: layer_list(parent)[layer] for layer in kept}, fewer):
        without = parent(input_ids=ids, use_cache=False).logits
        for layer, experts in kept.items():
            weights = dict(layer_list(parent)[layer].named_parameters())
            down = next(weight for name, weight in weights.items() if name.endswith("experts.down_proj"))
            columns = down if kind == "gpt_oss" else down.mT  # (e, m, d)
            for expert, neurons in experts.items():
                columns[expert, [n for n in range(columns.shape[1]) if n not in neurons]] = 0.0
        wanted = parent(input_ids=ids, use_cache=False).logits
    sent = child(input_ids=ids, use_cache=False).logits
    scale = float(wanted.abs().max())
    assert float((sent - wanted).abs().max()) <= 1e-5 * scale
    assert float((without - wanted).abs().max()) > 1e-5 * scale, "silencing does something"


@pytest.mark.parametrize("kind", SHARED)
def test_where_something_else_is_as_wide_by_the_same_field_none_leave(kind: str, tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", kind)
    with pytest.raises(ValueError, match="have their width in common with"):
        carve(folder, tmp_path / "child", keep_expert_ffn="8")
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss", "granitemoe", "nemotron_h"])
def test_what_stays_has_the_parents_bytes(kind: str, tmp_path: Path) -> None:
    """Rows and columns of tensors of one expert, or of all; halves, or gates and ups in turn; biases."""
    wide = {} if kind in ("gpt_oss", "granitemoe") else {"moe_intermediate_size": 32}
    folder = mixture(tmp_path / "parent", kind, "bfloat16", **wide)
    carve(folder, tmp_path / "child", keep_experts="4", keep_expert_ffn="16", **BY_CHANCE)
    parent, child = (load_file(place / FILE) for place in (folder, tmp_path / "child"))
    whole, compared = whole_of(folder), 0
    for layer, experts in kept_in(tmp_path / "child", whole).items():
        for name, theirs in parent.items():
            if f"layers.{layer}." not in name or ("experts." not in name and "linear" not in name):
                continue
            for place, (expert, neurons) in enumerate(experts.items()):
                wanted = theirs
                if f"experts.{expert}." in name:
                    ours = child[name.replace(f"experts.{expert}.", f"experts.{place}.")]
                elif theirs.shape[0] == 8 and "shared" not in name:
                    ours, wanted = child[name][place], theirs[expert]
                else:
                    continue
                both = [n + half for half in (0, whole) for n in neurons]
                if kind == "gpt_oss":
                    both = [2 * n + part for n in neurons for part in (0, 1)]
                for axis, size in enumerate(wanted.shape):
                    if size in (whole, 2 * whole):
                        rows = neurons if size == whole else both
                        wanted = wanted.index_select(axis, torch.tensor(rows))
                assert ours.dtype == wanted.dtype
                assert torch.equal(ours, wanted), name
                compared += 1
    assert compared


def test_shared_experts_stay_as_wide_where_their_number_can_say_so(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "deepseek_v3")
    carve(folder, tmp_path / "child", keep_expert_ffn="16")
    sizes = json.loads((tmp_path / "child" / "config.json").read_text())
    assert (sizes["moe_intermediate_size"], sizes["n_shared_experts"]) == (16, 3)
    parent, child = (load_file(place / FILE) for place in (folder, tmp_path / "child"))
    shared = [name for name in parent if "shared_experts" in name]
    assert shared
    assert all(torch.equal(parent[name], child[name]) for name in shared)
    one = mixture(tmp_path / "one", "deepseek_v3", n_shared_experts=1)
    with pytest.raises(ValueError, match="leaves shared experts unchanged; the nearest that can be is 24"):
        carve(one, tmp_path / "other", keep_expert_ffn="16")
    assert carve(one, keep_expert_ffn="0.5").notes == ["0.5 of 24 neurons of an expert is 12: 8 are kept"]


def test_a_recipe_lists_neurons_and_refuses_others(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "mixtral")
    first = carve(folder, tmp_path / "first", keep_experts="4", keep_expert_ffn="16", **BY_CHANCE)
    recipe = json.loads((tmp_path / "first" / "recipe.json").read_text())
    assert [row.neurons.kept for row in first.experts.layers] == [row["neurons"] for row in recipe["experts"]]
    assert "neurons: 16 of each expert are kept" in (tmp_path / "first" / "README.md").read_text()
    assert rebuild(tmp_path / "first" / "recipe.json", folder, tmp_path / "again").costs == first.costs
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "first" / FILE).read_bytes()
    sound = recipe["experts"][0]["neurons"]
    faults: list[tuple[Any, str]] = [
        (sound[:-1], "not those of each expert"),
        (None, "not those of each expert"),
        ([*sound[:-1], "ff" * 4], "as 10 digits"),
        ([*sound[:-1], "zz" * 5], "as 10 digits"),
        ([*sound[:-1], 7], "neurons.3 must be text, not 7"),
        ([*sound[:-1], "00" * 5], "as 10 digits"),
        ([*sound[:-1], "ff" * 5], "different numbers of neurons"),
        ([to_hex(np.arange(24), 40)] * 4, "other numbers of neurons"),
        ([to_hex(np.arange(12), 40)] * 4, "ffn of layer 0 must ascend within 0 to 11"),
    ]
    for neurons, message in faults:
        recipe["experts"][0]["neurons"] = neurons
        (tmp_path / "wrong.json").write_text(json.dumps(recipe))
        with pytest.raises(ValueError, match=message):
            rebuild(tmp_path / "wrong.json", folder, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_other_neurons_are_seen(tmp_path: Path) -> None:
    """The proof fails where another neuron is silent than the one that left."""
    folder = mixture(tmp_path / "parent", "mixtral")
    carve(folder, tmp_path / "child", keep_expert_ffn="32", **BY_CHANCE)
    checkpoint, layers = Checkpoint.open(folder), kept_in(tmp_path / "child", 40)
    neurons = {layer: np.array([*experts.values()]) for layer, experts in layers.items()}
    fewer = FewerExperts(checkpoint, {layer: np.arange(8) for layer in layers}, neurons=neurons)
    child = Checkpoint.open(tmp_path / "child")
    assert compare_with_masked(child, fewer).relative < 1e-5
    neurons[2] = np.tile(np.arange(32), (8, 1))
    with pytest.raises(ValueError, match="differs from the carved parent"):
        compare_with_masked(child, fewer)


@pytest.mark.parametrize("kind", ["qwen3_moe fp8", "gpt_oss mxfp4", "deepseek_v3 int4"])
def test_parents_that_are_stored_quantised_keep_all_neurons(kind: str, tmp_path: Path) -> None:
    folder = packed_mixture(tmp_path / "parent", kind)
    with pytest.raises(ValueError, match="blocks of several neurons: give no --keep-expert-ffn"):
        carve(folder, tmp_path / "child", keep_experts="4", keep_expert_ffn="8", **BY_CHANCE)
    assert not (tmp_path / "child").exists()


@given(st.integers(1, 70), st.data())
def test_digits_say_which_neurons_stay(whole: int, data: st.DataObject) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, whole - 1), min_size=1)))
    text = to_hex(np.array(kept), whole)
    assert from_hex(text, whole, "its neurons").tolist() == kept
    assert bin(int(text, 16)).count("1") == len(kept)
