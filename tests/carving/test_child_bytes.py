"""Children of every family: the bytes that were first proven, and what llama.cpp opens."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from carvings import carve
from covering import chosen
from safetensors.torch import load_file, save_file
from tiny import saved
from tiny_families import TINY, random_model

from zerolm.checkpoints import Checkpoint, write_shards
from zerolm.children.child_tensors import Child
from zerolm.children.folder import tensors
from zerolm.children.gguf.file_tensors import entries
from zerolm.families.known import families
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import Repaired
from zerolm.units.stream.narrowing import Width, channel_basis

NAMES: Final = (
    *("llama", "llama_tied", "llama_biased", "mistral", "mistral_odd", "qwen2_tied", "qwen3_biased"),
    *("gemma2", "gpt2", "bert"),
)
KINDS: Final = ("hf", "padded", "gguf", "hf narrowed", "padded narrowed", "gguf narrowed")
HASHES: Final = json.loads((Path(__file__).parent / "child_bytes.json").read_text())


def exact(folder: Path, name: str, dtype: str) -> Checkpoint:
    """A parent of small integers over 64: the same bytes on every machine, and in every type."""
    saved(folder, name, dtype=dtype)
    file, generator = folder / "model.safetensors", np.random.default_rng(0)
    weights = {
        key: torch.from_numpy(generator.integers(-128, 128, tuple(x.shape)) / 64).to(x.dtype)
        for key, x in sorted(load_file(file).items())
    }
    save_file(weights, file, {"format": "pt"})
    return Checkpoint.open(folder)


def some_cut(checkpoint: Checkpoint, kind: str) -> Cut:
    """Two of three layers; where they may differ, each has units of its own."""
    parent, can = dimensions(checkpoint), checkpoint.family.cut
    generator = np.random.default_rng(1)

    def some(count: int, size: int) -> Any:
        return np.sort(generator.choice(count, size, replace=False))

    layers = []
    for place, layer in enumerate((0, 2)):
        uneven = 0 if kind.startswith("hf") else place
        groups = max(1, parent.kv_heads // 2) + uneven if can.heads else parent.kv_heads
        layers.append(LayerCut.of(layer, some(parent.kv_heads, groups), some(parent.ffn, 20 - 7 * uneven)))
    cut = Cut(parent, tuple(layers))
    if "narrowed" not in kind:
        return cut
    gain = checkpoint.read(str(checkpoint.layout.name("final_norm"))).astype(np.float64)
    basis = channel_basis(np.arange(parent.hidden, 0.0, -1.0), np.abs(gain) + 1)
    return replace(cut, narrowing=basis.narrowing(Width(parent.hidden // 2, False)))


def repaired(checkpoint: Checkpoint, cut: Cut) -> Repaired:
    first, generator, arrays = cut.layers[0], np.random.default_rng(2), {}
    inner = len(first["groups"]) * cut.parent.unit_sizes["q"][1]
    for role, width in (("o", inner), ("down", len(first["ffn"]))):
        name = checkpoint.layout.name(role, first.layer)
        shape = (cut.hidden, width)
        transposed = checkpoint.layout.slots[str(name)].axes[-1] == "hidden"
        arrays[first.layer, role] = generator.integers(-99, 99, shape[::-1] if transposed else shape) / 64
    return Repaired({place: x.astype(np.float32) for place, x in arrays.items()})


def parts(checkpoint: Checkpoint, cut: Cut, new: Repaired, kind: str, folder: Path) -> Iterator[bytes]:
    """What is written: the whole file of a folder, or names, types, shapes and numbers of a GGUF."""
    child = Child(checkpoint, cut, new)
    if not kind.startswith("gguf"):
        folder.mkdir(exist_ok=True)
        (file,) = write_shards(folder, tensors(child))
        yield file.read_bytes()
        file.unlink()
        return
    for tensor in entries(child):
        yield repr((tensor.name, tensor.dtype, tensor.shape)).encode() + tensor.values().tobytes()


def digest(name: str, dtype: str, kind: str, folder: Path) -> str:
    checkpoint = exact(folder / "parent", name, dtype)
    cut, sha256 = some_cut(checkpoint, kind), hashlib.sha256()
    for new in (Repaired(), repaired(checkpoint, cut)):
        for part in parts(checkpoint, cut, new, kind, folder / "child"):
            sha256.update(part)
    return sha256.hexdigest()


def cases() -> Iterator[tuple[str, str]]:
    for name in NAMES:
        for kind in KINDS:
            cannot = (kind.startswith("gguf") and not name.startswith(("llama", "mistral"))) or (
                "narrowed" in kind and name in ("gemma2", "gpt2", "bert")
            )
            if not cannot:
                yield name, kind


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_the_bytes_of_a_child_are_what_they_were(name: str, kind: str, dtype: str, tmp_path: Path) -> None:
    assert digest(name, dtype, kind, tmp_path) == HASHES[f"{name} {kind} {dtype}"]


TEXT: dict[str, Any] = {"text": "random", "sequences": 6, "length": 12}
CUTS: dict[str, dict[str, Any]] = {
    "all": {"keep_layers": 0.67, "keep_heads": 0.5, "keep_ffn": 0.5},
    "per layer": {"budgets": {"max_body_params": "0.7x"}, "shape": "per-layer"},
}
AS_GGUF = [n for n, family in families().items() if n in TINY and family.gguf and not family.gguf.alike]
"""Those whose layers may differ there; others, and models that see, are in ``test_gguf_families.py``."""
WITHOUT_WINDOW: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "ministral": {"sliding_window": 32},  # that of the positions: its stock class needs one
}


@pytest.mark.parametrize("name", chosen(AS_GGUF))
@pytest.mark.parametrize("case", CUTS)
def test_every_cut_as_gguf(name: str, case: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    sizes = {"hidden_size": 96, "intermediate_size": 64, "eos_token_id": 0}
    random_model(name, **sizes, **WITHOUT_WINDOW.get(name, {})).save_pretrained(tmp_path / "parent")
    carved = carve(tmp_path / "parent", tmp_path / "child", form="gguf", **CUTS[case], **TEXT)
    assert carved.verified is not None
    assert not carved.cut.is_whole
    assert {file.suffix for file in (tmp_path / "child").iterdir()} == {".gguf", ".md", ".json"}
