"""A GGUF file of any cut: llama.cpp computes what the carved parent computes, or the cut is refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changed_folders import configured
from hypothesis import given
from hypothesis import strategies as st
from tiny import DECODER, logits_of, saved
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from zerolm.checkpoints import Checkpoint
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.pieces import in_turn
from zerolm.children.verify import Verified
from zerolm.networks.opener import open_model
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import Repaired, apply_in_memory

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.checkpoints.gguf.names import neighbouring  # noqa: E402
from zerolm.children.gguf import write as gguf_write  # noqa: E402
from zerolm.children.gguf.check import check  # noqa: E402
from zerolm.children.gguf.tokenizer import opened  # noqa: E402
from zerolm.children.gguf.write import expressible, write  # noqa: E402

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip

UNSEEN_WINDOWS: dict[str, dict[str, Any]] = {
    "mistral": {"max_position_embeddings": 8},
    "mistral_odd": {"sliding_window": None},
}
"""Settings with which windows of a tiny model do nothing, being as long as its texts, or are none."""


def some_cut(checkpoint: Checkpoint, layers: Sequence[int] = (0, 1, 2), seed: int = 0) -> Cut:
    """Other groups and neurons in every layer."""
    sizes, generator = dimensions(checkpoint), np.random.default_rng(seed)

    def some(count: int) -> Any:
        return np.sort(generator.choice(count, generator.integers(1, count + 1), replace=False))

    return Cut(sizes, tuple(LayerCut.of(layer, some(sizes.kv_heads), some(sizes.ffn)) for layer in layers))


def carved(folder: Path, cut: Cut, file: Path, repaired: Repaired | None = None) -> Verified:
    checkpoint = Checkpoint.open(folder)
    write(Child(checkpoint, cut, repaired), file)
    return check(file, logits_of(apply_in_memory(open_model(checkpoint), cut, repaired)), opened(checkpoint))


def changed(folder: Path, **settings: Any) -> Checkpoint:
    """The checkpoint with other settings in its configuration."""
    return Checkpoint.open(configured(folder, **settings))


@pytest.mark.parametrize("layers", [(0, 1, 2), (0, 2)])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("llama", "float32"), ("llama", "float16"), ("llama", "bfloat16"), ("llama_tied", "float32"),
        ("llama_tied", "bfloat16"), ("llama_biased", "float32"), ("mistral", "float32"),
        ("mistral_odd", "float32"),
    ],
)  # fmt: skip
def test_llama_cpp_computes_as_torch(name: str, dtype: str, layers: tuple[int, ...], tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", name, dtype=dtype)
    changed(folder, **UNSEEN_WINDOWS.get(name, {}))
    cut = some_cut(Checkpoint.open(folder), layers)
    assert len({(len(layer["groups"]), len(layer["ffn"])) for layer in cut.layers}) == len(layers)
    found = carved(folder, cut, tmp_path / "child.gguf")
    assert found.difference < (1e-4 if dtype == "float32" else 5e-3)


@pytest.mark.parametrize("layers", [(0, 1, 2), (0, 2)])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("qwen2", "float32"), ("qwen2_tied", "bfloat16"), ("qwen3", "float32"), ("qwen3", "bfloat16")],
)
def test_architectures_of_like_layers(name: str, dtype: str, layers: tuple[int, ...], tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", name, dtype=dtype)
    checkpoint = Checkpoint.open(folder)
    groups = 2 if name.startswith("qwen2") else 1
    cut = Cut.of(dimensions(checkpoint), layers, lambda layer: (groups, 24))
    found = carved(folder, cut, tmp_path / "child.gguf")
    assert found.difference < (1e-4 if dtype == "float32" else 5e-3)
    with pytest.raises(ValueError, match=r"one size for all layers in its architecture qwen\d: give --shape"):
        write(Child(checkpoint, some_cut(checkpoint)), tmp_path / "uneven.gguf")
    if groups == 2:
        narrower = Cut.of(dimensions(checkpoint), layers, lambda layer: (1, 24))
        words = "queries have the hidden size .* in gguf's architecture qwen2, not 3"
        with pytest.raises(ValueError, match=words):
            write(Child(checkpoint, narrower), tmp_path / "narrower.gguf")


def test_a_cut_without_grouped_queries_has_other_heads_in_every_layer(tmp_path: Path) -> None:
    settings = DECODER | {"num_attention_heads": 10, "num_key_value_heads": 10, "head_dim": 6}
    settings |= {"sliding_window": None}
    MistralForCausalLM(MistralConfig(**settings)).save_pretrained(tmp_path / "parent")
    checkpoint = Checkpoint.open(tmp_path / "parent")
    whole = Cut.whole(dimensions(checkpoint))
    kept = [np.array([3]), np.array([0, 2, 3, 5, 6, 8, 9]), np.arange(10)]
    pairs = zip(whole.layers, kept, strict=True)
    layers = tuple(LayerCut(layer.layer, {**layer.kept, "groups": groups}) for layer, groups in pairs)
    assert carved(checkpoint.folder, replace(whole, layers=layers), tmp_path / "x.gguf").difference < 1e-4


@pytest.mark.parametrize("layers", [range(8), (1, 2, 5)])
def test_a_trained_model_with_its_tokenizer(models_folder: Path, layers: range, tmp_path: Path) -> None:
    folder = models_folder / "pydec"
    checkpoint = Checkpoint.open(folder)
    assert opened(checkpoint) is not None
    assert carved(folder, some_cut(checkpoint, layers), tmp_path / "child.gguf").difference < 5e-3


@pytest.mark.parametrize("scaling", [LLAMA3, {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}])
def test_scaled_positions(scaling: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(**DECODER | {"rope_parameters": scaling, "initializer_range": 0.3}))
    made.save_pretrained(tmp_path / "scaled")
    checkpoint = Checkpoint.open(tmp_path / "scaled")
    cut = some_cut(checkpoint)
    assert carved(checkpoint.folder, cut, tmp_path / "child.gguf").difference < 1e-4
    plain = {"rope_type": "default", "rope_theta": scaling["rope_theta"]}
    unscaled = changed(tmp_path / "scaled", rope_parameters=plain)
    with pytest.raises(ValueError, match="logits differ"):
        check(tmp_path / "child.gguf", logits_of(apply_in_memory(open_model(unscaled), cut)), None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_repaired_matrices_are_written(dtype: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", "llama_biased", dtype=dtype))
    cut, generator = some_cut(checkpoint), np.random.default_rng(0)
    arrays = {}
    for layer in cut.layers[1:]:
        inner = {"o": len(layer["groups"]) * 24, "down": len(layer["ffn"]), "o_bias": 0, "down_bias": 0}
        for role, width in inner.items():
            shape = (48, width) if width else (48,)
            arrays[layer.layer, role] = generator.normal(0, 0.2, shape).astype(np.float32)
    file = tmp_path / "child.gguf"
    assert carved(checkpoint.folder, cut, file, Repaired(arrays)).difference < 5e-3
    with pytest.raises(ValueError, match="logits differ"):
        check(file, logits_of(apply_in_memory(open_model(checkpoint), cut)), None)


def test_the_head_of_a_file(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "mistral", dtype="bfloat16")
    checkpoint = changed(parent, **UNSEEN_WINDOWS["mistral"])
    cut, told = some_cut(checkpoint, (0, 2)), []
    file = tmp_path / "child.gguf"
    write(Child(checkpoint, cut), file, progress=lambda text, done, of: told.append((done, of)))
    read = gguf.GGUFReader(tmp_path / "child.gguf")
    fields = {name.removeprefix("deci."): field.contents() for name, field in read.fields.items()}
    assert fields["attention.head_count"] == [3 * len(layer["groups"]) for layer in cut.layers]
    assert fields["attention.head_count_kv"] == [len(layer["groups"]) for layer in cut.layers]
    assert fields["feed_forward_length"] == [len(layer["ffn"]) for layer in cut.layers]
    assert fields["general.architecture"] == "deci"
    assert fields["general.file_type"] == gguf.LlamaFileType.MOSTLY_BF16
    assert fields["context_length"] == 8
    types = {tensor.name: tensor.tensor_type.name for tensor in read.tensors}
    assert types["blk.1.attn_norm.weight"] == types["output_norm.weight"] == "F32"
    assert types["blk.1.ffn_up.weight"] == types["output.weight"] == "BF16"
    assert [done for done, _ in told] == np.cumsum([tensor.n_bytes for tensor in read.tensors]).tolist()
    assert {of for _, of in told} == {told[-1][0]}


def test_a_reader_of_deci_attends_to_all_whatever_window_the_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is why a window is refused: with all positions seen, the file is the model without one."""
    parent = saved(tmp_path / "parent", "mistral")
    described = gguf_write._described

    def named(checkpoint: Checkpoint, cut: Cut, name: str) -> Any:
        writer = described(checkpoint, cut, name)
        writer.add_sliding_window(8)
        return writer

    monkeypatch.setattr(gguf_write, "_described", named)
    monkeypatch.setattr(gguf_write, "_check", lambda *_: None)
    checkpoint, file = Checkpoint.open(parent), tmp_path / "child.gguf"
    cut = some_cut(checkpoint)
    with pytest.raises(ValueError, match="logits differ"):
        carved(parent, cut, file)
    open_wide = apply_in_memory(open_model(changed(parent, sliding_window=None)), cut)
    assert check(file, logits_of(open_wide), None).difference < 1e-4


def test_what_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", "llama"))
    (tmp_path / "out").mkdir()
    file, written = tmp_path / "out" / "child.gguf", []

    def interrupt(text: str, done: int, of: int) -> None:
        written.append(sum(path.stat().st_size for path in file.parent.iterdir()))
        if done > of / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(Child(checkpoint, some_cut(checkpoint)), file, progress=interrupt)
    assert written[-1] > 0
    assert list(file.parent.iterdir()) == []
    misshapen = Repaired({(0, "o"): np.zeros((48, 5), np.float32)})
    with pytest.raises(ValueError, match=r"repair of .* has shape"):
        write(Child(checkpoint, some_cut(checkpoint), misshapen), file)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bert_classes", {}, "this bert has a classifier, which would be lost; --format hf keeps it"),
        ("mistral", {}, r"has one of 8: --format hf keeps it; .* max_position_embeddings to 8"),
        ("mistral", {"max_position_embeddings": 9}, "has one of 8: "),
        ("llama_body", {}, "of LlamaForCausalLM, with a language-model head, not of LlamaModel"),
        ("llama_classes", {}, "not of LlamaForSequenceClassification"),
        ("llama", {"hidden_act": "gelu"}, "activation silu .* not gelu"),
        ("llama", {"rope_parameters": LLAMA3 | {"rope_type": "dynamic"}}, "and yarn, not with 'dynamic'"),
        ("llama", {"rope_parameters": LLAMA3 | {"partial_rotary_factor": 0.5}}, "with partial_rotary_factor"),
        ("llama", {"rope_parameters": LLAMA3 | {"factor": "x"}}, "rope parameter factor is 'x'"),
        ("llama", {"rms_norm_eps": -1.0}, "rms_norm_eps -1.0; 0 to 1"),
        ("llama", {"rms_norm_eps": "small"}, "configuration of .* cannot be read"),
    ],
)
def test_refusals(name: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    checkpoint = changed(saved(tmp_path / "parent", name), **settings)
    for refuse in (
        lambda cut: expressible(checkpoint, cut),
        lambda cut: write(Child(checkpoint, cut), tmp_path / "x.gguf"),
    ):
        with pytest.raises(ValueError, match=message) as refused:
            refuse(some_cut(checkpoint))
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "x.gguf").exists()


@given(heads=st.integers(1, 4), half=st.integers(1, 6), angle=st.floats(0.1, 3.0))
def test_rotating_halves_is_rotating_neighbours_in_their_order(heads: int, half: int, angle: float) -> None:
    order = neighbouring(heads * 2 * half, 2 * half)
    vector = np.random.default_rng(heads).normal(size=heads * 2 * half)
    angles = angle * 10.0 ** -np.arange(half)
    first, second = np.moveaxis(vector.reshape(heads, 2, half), 1, 0)
    turned = first + 1j * second
    halves = turned * np.exp(1j * angles)
    halved = np.stack([halves.real, halves.imag], 1).ravel()  # as transformers rotates
    pairs = vector[order].reshape(heads, half, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    neighboured = np.stack([turned.real, turned.imag], -1).ravel()  # as llama.cpp does
    assert np.allclose(halved[order], neighboured)


@given(groups=st.integers(1, 5), each=st.integers(1, 5), unit=st.integers(1, 4))
def test_units_lie_in_turn(groups: int, each: int, unit: int) -> None:
    """Unit u of group g is number u x groups + g, and its elements stay in order."""
    order = in_turn(groups * each * unit, groups, unit).tolist()
    plain = [(g * each + u) * unit + e for u in range(each) for g in range(groups) for e in range(unit)]
    assert order == plain
    assert sorted(order) == list(range(len(order)))


def test_units_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="10 is not divisible by 2 groups of units of 3"):
        in_turn(10, 2, 3)
