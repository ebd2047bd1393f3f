"""The proof layer by layer: it holds for every family and format, and finds one weight that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import saved

from zerolm.checkpoints import Checkpoint, write_shards
from zerolm.children import verify
from zerolm.children.child_tensors import Child
from zerolm.children.folder import configuration, tensors
from zerolm.children.verify import compare_blocks, fits
from zerolm.networks.opener import mapped_model
from zerolm.repairing.walk import repair
from zerolm.text.tokens import random_tokens
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import Repaired

NAMES = ("llama", "llama_tied", "mistral", "mistral_odd", "qwen2", "qwen3", "gemma2", "gpt2", "bert")
TOKENS = random_tokens(64, 40, 16, seed=5)


def opened(folder: Path, name: str, dtype: str = "float32", **settings: Any) -> Checkpoint:
    """A parent with some settings changed that change no tensor."""
    file = saved(folder, name, dtype=dtype) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return Checkpoint.open(folder)


def some_cut(parent: Checkpoint, *, uniform: bool) -> Cut:
    """The outer layers, with neurons drawn at random; in the second as many or fewer."""
    sizes, generator = dimensions(parent), np.random.default_rng(0)
    groups = np.arange(sizes.kv_heads - 1 if parent.family.cut.indivisible == "kept" else sizes.kv_heads)
    counts = [sizes.ffn // 2, sizes.ffn // (2 if uniform else 5)]
    ffn = [np.sort(generator.choice(sizes.ffn, count, replace=False)) for count in counts]
    return Cut(
        sizes, (LayerCut.of(0, groups, ffn[0]), LayerCut.of(2, groups if uniform else groups[-1:], ffn[1]))
    )


def written(parent: Checkpoint, cut: Cut, repaired: Repaired, folder: Path) -> Checkpoint:
    folder.mkdir()
    write_shards(folder, tensors(Child(parent, cut, repaired)), max_bytes=30_000)
    (folder / "config.json").write_text(json.dumps(configuration(parent, cut)))
    return Checkpoint.open(folder)


def flip(child: Checkpoint, role: str, layer: int | None) -> None:
    """Turn the sign of one weight around."""
    name = child.layout.name(role, layer)
    assert name
    info = child.tensors[name]
    with info.file.open("r+b") as file:
        file.seek(info.start + 7 * info.item_bytes - 1)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x80]))


@pytest.mark.parametrize(("uniform", "dtype"), [(True, "bfloat16"), (False, "float32")], ids=["hf", "padded"])
@pytest.mark.parametrize("name", NAMES)
def test_repaired_children_of_all_families_are_proven(
    name: str, uniform: bool, dtype: str, tmp_path: Path
) -> None:
    parent = opened(tmp_path / "parent", name, dtype)
    cut = some_cut(parent, uniform=uniform or not parent.family.cut.heads)
    repaired = repair(mapped_model(parent), cut, TOKENS)
    assert repaired.arrays
    child = written(parent, cut, repaired, tmp_path / "child")
    assert compare_blocks(child, parent, cut, repaired).relative <= 1e-6
    with pytest.raises(ValueError, match=r"layer 0 of the written child differs .* in '.*weight'"):
        compare_blocks(child, parent, cut)


@pytest.mark.parametrize(
    ("role", "dtype"),
    [("k", "float32"), ("v", "bfloat16"), ("o", "float16"), ("gate", "float32"), ("down", "bfloat16"),
     ("ffn_norm", "float16")],
)  # fmt: skip
def test_one_wrong_weight_is_found_and_its_layer_named(role: str, dtype: str, tmp_path: Path) -> None:
    parent = opened(tmp_path / "parent", "qwen3", dtype)
    cut = some_cut(parent, uniform=True)
    child = written(parent, cut, Repaired(), tmp_path / "child")
    assert compare_blocks(child, parent, cut).relative <= 1e-6
    flip(child, role, 1)
    with pytest.raises(ValueError, match=r"layer 1 of .* differs from layer 2 of the carved parent in"):
        compare_blocks(child, parent, cut)


@pytest.mark.parametrize("role", ["embedding", "final_norm", "head"])
def test_what_is_outside_the_layers_is_compared_to_the_last_byte(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "COMPARED_BYTES", 10)
    parent = opened(tmp_path / "parent", "llama")
    cut = Cut.whole(dimensions(parent))
    child = written(parent, cut, Repaired(), tmp_path / "child")
    assert compare_blocks(child, parent, cut) == verify.Verified(0.0, 0.0)
    flip(child, role, None)
    name = child.layout.name(role)
    with pytest.raises(ValueError, match=f"^'{name}' of the written child differs from the parent's$"):
        compare_blocks(child, parent, cut)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gemma2", {"layer_types": ["full_attention", "full_attention", "sliding_attention"]}),
        ("qwen2", {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}),
    ],
)
def test_kinds_of_layers_move_with_them(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """A child whose configuration still lists the parent's first layers attends to other tokens."""
    settings |= {"sliding_window": 8, "use_sliding_window": True}
    parent = opened(tmp_path / "parent", name, **settings)
    cut = some_cut(parent, uniform=True)
    child = written(parent, cut, Repaired(), tmp_path / "child")
    assert child.config["layer_types"] == ["full_attention", "sliding_attention"]
    compare_blocks(child, parent, cut)
    file = child.folder / "config.json"
    file.write_text(json.dumps(child.config | {"layer_types": ["full_attention"] * 2}))
    with pytest.raises(ValueError, match="layer_types differ from the parent"):
        compare_blocks(Checkpoint.open(child.folder), parent, cut)


def test_whether_three_copies_fit(tmp_path: Path) -> None:
    parent = opened(tmp_path, "llama_tied", "bfloat16")
    count = sum(tensor.count for tensor in parent.tensors.values())
    assert fits(parent, 12 * count)
    assert not fits(parent, 12 * count - 1)
