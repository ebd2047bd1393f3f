"""A head that the file holds beside the embedding that its configuration ties it to: the file decides."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from changed_folders import stored
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tiny_families import saved
from transformers import AutoModelForCausalLM

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.headers import read_shard
from zerolm.checkpoints.tying import same_numbers
from zerolm.costs import CostModel
from zerolm.diagnosis.examine import diagnose
from zerolm.families.config import from_config

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
TOKENS: dict[str, Any] = {"text": "random", "sequences": 8, "length": 12}
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def parent(folder: Path, *, factor: float, kind: str = "llama") -> Path:
    saved(folder, kind, tie_word_embeddings=True)
    return stored(folder, lambda tensors: tensors.update({HEAD: tensors[EMBEDDING] * factor}))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma"])
def test_what_is_counted_is_what_stock_software_runs(kind: str, tmp_path: Path) -> None:
    for factor in (1.0, 1.25):
        folder = parent(tmp_path / str(factor), factor=factor, kind=kind)
        stock = AutoModelForCausalLM.from_pretrained(folder)
        checkpoint = Checkpoint.open(folder)
        assert checkpoint.layout.tied is (factor == 1.0)
        assert bool(checkpoint.layout.notes) is (factor != 1.0)
        count = sum(parameter.numel() for parameter in stock.parameters())
        assert CostModel().of(from_config(checkpoint.config))["params"] == count


@pytest.mark.parametrize(
    "flags", [{"keep_ffn": 0.5}, {"keep_hidden": 0.5}, {"budgets": {"max_params": "0.8x"}}]
)
def test_a_child_keeps_both(flags: dict[str, Any], tmp_path: Path) -> None:
    carved = carve(parent(tmp_path / "parent", factor=1.25), tmp_path / "child", **flags, **TOKENS)
    assert "the head in the file is not the embedding" in " ".join(carved.notes)
    assert carved.verified.parent <= 1e-5
    assert json.loads((tmp_path / "child" / "config.json").read_text())["tie_word_embeddings"] is False
    child = AutoModelForCausalLM.from_pretrained(tmp_path / "child")
    embedding, head = child.get_input_embeddings().weight, child.lm_head.weight
    assert head is not embedding
    assert not torch.equal(head, embedding)
    assert carved.costs["child"]["params"] == sum(weight.numel() for weight in child.parameters())


@pytest.mark.usefixtures("opened_here")
def test_doctor_says_so(tmp_path: Path) -> None:
    diagnosis = diagnose(parent(tmp_path, factor=1.25))
    assert diagnosis.tied is False
    assert any("the head in the file is not the embedding" in line for line in diagnosis.advice)


def test_a_gguf_child_has_both(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="a gguf file is checked with llama-cpp-python (zerolm[gguf])")
    import gguf

    carved = carve(parent(tmp_path / "parent", factor=1.25), tmp_path / "child", form="gguf", keep_ffn=0.5)
    (file,) = (tmp_path / "child").glob("*.gguf")
    assert {"output.weight", "token_embd.weight"} <= {tensor.name for tensor in gguf.GGUFReader(file).tensors}
    assert carved.verified is not None
    again = carve(file, tmp_path / "again", form="gguf", keep_ffn=0.5)
    assert again.verified.parent is not None  # llama.cpp opened the parent


def test_a_gguf_parent_that_is_misread_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp", reason="a gguf file is checked with llama-cpp-python (zerolm[gguf])")
    from zerolm.networks import opener

    carve(parent(tmp_path / "parent", factor=1.25), tmp_path / "file", form="gguf", keep_ffn=0.5)
    (file,) = (tmp_path / "file").glob("*.gguf")
    before = opener.text_config

    def tied(checkpoint: Checkpoint) -> Any:
        config = before(checkpoint)
        config.tie_word_embeddings = True
        return config

    monkeypatch.setattr(opener, "text_config", tied)
    with pytest.raises(ValueError, match=r"llama\.cpp's logits differ from those of the parent"):
        carve(file, tmp_path / "child", keep_ffn=0.5)


@given(
    st.sampled_from(sorted(TYPES)),
    st.sampled_from(sorted(TYPES)),
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 1.0009765625, -2.5]), min_size=2, max_size=6),
    st.integers(0, 5),
)
def test_numbers_are_equal_as_for_torch(ours: str, theirs: str, values: list[float], changed: int) -> None:
    other = [*values]
    other[changed % len(values)] += 0.0 if changed == 5 else 1e-3
    left, right = (torch.tensor(x).to(TYPES[kind]) for x, kind in ((values, ours), (other, theirs)))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file({"a": left, "b": right}, file)
        tensors = read_shard(file).tensors
        same = same_numbers(tensors["a"], tensors["b"])
    assert same is torch.equal(left.float(), right.float())


def test_long_tensors_are_compared_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.checkpoints.tying.COMPARED", 7)
    values = torch.from_numpy(np.arange(20, dtype=np.float32))
    changed = values.clone()
    changed[-1] += 1
    save_file({"a": values, "b": values.clone(), "c": changed}, tmp_path / "model.safetensors")
    tensors = read_shard(tmp_path / "model.safetensors").tensors
    assert same_numbers(tensors["a"], tensors["b"])
    assert not same_numbers(tensors["a"], tensors["c"])
