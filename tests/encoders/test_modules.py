"""A folder of sentence-transformers in, one out; what its modules may say, and which are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carvings
import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from changed_folders import replaced
from safetensors.torch import save_file
from sentence_folders import CLASSES, LINES, dense, lines_file, sentence_folder, write

from zerolm.checkpoints import Checkpoint
from zerolm.children import encoded
from zerolm.networks.opener import open_model
from zerolm.text.calibration import longest_line
from zerolm.units.pruning import apply_in_memory

Change = Callable[[list[dict[str, Any]]], Any]


def refused(folder: Path, words: str) -> None:
    """Opening says so, and so does a carving."""
    with pytest.raises(ValueError, match=words):
        Checkpoint.open(folder)
    carvings.refused(folder, words)


def set_in(number: int, **values: Any) -> Change:
    return lambda modules: modules[number].update(values)


def kind_of(number: int, name: str) -> Change:
    return set_in(number, type=name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_in(1, path="../1_Pooling"), r"puts a Pooling into '\.\./1_Pooling', which is no folder"),
        (set_in(1, path="/etc"), "puts a Pooling into '/etc', which is no folder"),
        (set_in(1, path=".."), r"puts a Pooling into '\.\.', which is no folder"),
        (set_in(1, path=""), "puts a Pooling into '', which is no folder"),
        (set_in(1, path="a/b"), "puts a Pooling into 'a/b', which is no folder"),
        (set_in(1, path=7), "puts a Pooling into 7, which is no folder"),
        (set_in(1, path="none"), "there is no such file"),
        (set_in(0, path="../parent"), "puts a Transformer into"),
        (set_in(2, path="x\0y"), "puts a Normalize into"),
        (kind_of(1, "custom.Pooling"), "names a module of type 'custom.Pooling'; Transformer, Pooling"),
        (kind_of(1, "sentence_transformersx.Pooling"), "names a module of type"),
        (kind_of(2, CLASSES + "LSTM"), r"names a module of type 'sentence_transformers\.models\.LSTM'"),
        (kind_of(2, None), "names a module of type None"),
        (kind_of(0, CLASSES + "Dropout"), "names Dropout, Pooling, Normalize; a Transformer, a Pooling, and"),
        (kind_of(2, CLASSES + "Transformer"), "names Transformer, Pooling, Transformer"),
        (lambda modules: modules.clear(), "names nothing; a Transformer, a Pooling"),
        (lambda modules: modules.extend(modules[2:] * 20), "names 23 modules; 16 are the most"),
        (lambda modules: modules.append("x"), "is not a list of modules"),
        (lambda modules: modules.pop(1), "names Transformer, Normalize"),
    ],
)
def test_modules_that_are_not_followed(change: Change, words: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent")
    modules = json.loads((folder / "modules.json").read_text())
    change(modules)
    write(folder / "modules.json", modules)
    refused(folder, words)


@pytest.mark.parametrize("content", ["{}", "[" * 100_000, "\0", '"x"', "[1]"])
def test_files_that_are_no_list_of_modules(content: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent")
    (folder / "modules.json").write_text(content)
    refused(folder, r"modules\.json' cannot be used")


@pytest.mark.parametrize("name", ["modules.json", "1_Pooling", "1_Pooling/config.json", "0_Transformer"])
def test_links_out_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", inside="0_Transformer")
    shutil.move(folder / name, tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    refused(folder, "link that leads out of its folder")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"embedding_dimension": 32}, "1_Pooling pools tokens of 32 dimensions, but the hidden size is 48"),
        ({"embedding_dimension": None}, "pools tokens of None dimensions"),
        ({"embedding_dimension": True}, "pools tokens of True dimensions"),
        ({"pooling_mode": "median"}, "1_Pooling pools by 'median'; cls, max, mean"),
        ({"pooling_mode": []}, "1_Pooling pools in 0 ways; 1 to 6 can be"),
        ({"pooling_mode": ["mean"] * 9}, "1_Pooling pools in 9 ways"),
        ({"pooling_mode": None, "pooling_mode_mean_tokens": "no"}, "1_Pooling pools by 'no'"),
        ({"pooling_mode": None, "pooling_mode_new": True}, "1_Pooling pools by 'pooling_mode_new'"),
    ],
)
def test_a_pooling_that_contradicts_the_model(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent")
    write(folder / "1_Pooling" / "config.json", {"embedding_dimension": 48, "pooling_mode": "mean"} | changes)
    refused(folder, words)


@pytest.mark.parametrize(
    ("width", "changes", "words"),
    [
        (32, {}, "2_Dense takes embeddings of 32 dimensions, but those before it have 48"),
        (48, {"out_features": 0}, "2_Dense has out_features 0; 1 to"),
        (48, {"out_features": 12}, r"does not hold linear\.weight \[12, 48\] and linear\.bias \[12\]"),
        (48, {"bias": False}, r"does not hold linear\.weight \[24, 48\], which its config\.json says"),
        (48, {"use_residual": True}, "has a residual connection"),
        (48, {"activation_function": "os.system"}, "2_Dense has activation 'os.system'; Tanh, Identity"),
        (48, {"activation_function": "torch.nn.Softmax"}, "2_Dense has activation Softmax"),
        (48, {"module_input_name": "token_embeddings"}, "module_input_name 'token_embeddings'; sentence_emb"),
    ],
)
def test_a_dense_of_other_sizes(width: int, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", kinds=("Dense",))
    dense(folder / "2_Dense", width, **changes)
    refused(folder, words)


def test_weights_of_a_dense_that_cannot_be_used(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", kinds=("Dense",))
    file = folder / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": torch.ones(24, 48).long(), "linear.bias": torch.ones(24)}, file)
    refused(folder, "2_Dense/model.safetensors holds other types than")
    file.write_bytes(b"\xff" * 64)
    refused(folder, "is not a sound safetensors file")
    file.rename(folder / "2_Dense" / "pytorch_model.bin")
    refused(folder, "2_Dense has no model.safetensors; a pickle is not opened")


def test_joined_poolings_are_as_wide_together(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", mode=["mean", "max"], kinds=("Dense", "Dropout"))
    assert Checkpoint.open(folder).sentences is not None
    dense(folder / "2_Dense", 48)
    refused(folder, "2_Dense takes embeddings of 48 dimensions, but those before it have 96")


def test_the_hidden_size_of_a_decoder_with_modules_stays(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", mode="lasttoken", model="llama")
    with pytest.raises(ValueError, match=r"hidden cannot be cut.*modules\.json puts others behind it"):
        carve(folder, tmp_path / "child", keep_hidden=0.5)
    assert carve(folder, tmp_path / "child", max_params="0.7x").stream is None
    assert Checkpoint.open(tmp_path / "child").sentences == Checkpoint.open(folder).sentences


def test_a_decoder_that_embeds_needs_its_head(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent", mode="lasttoken", model="llama")
    replaced(folder, {"lm_head.weight": None})
    refused(folder, r"'lm_head\.weight' is missing; a decoder that embeds is carved by its predictions")


def test_snapshots_of_the_hub_link_their_modules_to_blobs(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "snapshots" / "abc", inside="0_Transformer", kinds=("Dense",))
    (tmp_path / "blobs").mkdir()
    for number, path in enumerate([path for path in folder.rglob("*") if path.is_file()]):
        path.rename(tmp_path / "blobs" / str(number))
        path.symlink_to(tmp_path / "blobs" / str(number))
    names = {path.as_posix() for path in Checkpoint.open(folder).other_files()}
    assert names >= {"modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"}
    assert names >= {"0_Transformer/tokenizer.json", "0_Transformer/sentence_bert_config.json"}
    assert not names & {"0_Transformer/config.json", "0_Transformer/model.safetensors"}


@pytest.mark.parametrize(
    ("config", "longest"), [({"max_seq_length": 12}, 12), ({"max_seq_length": None}, 32), ({}, 32)]
)
def test_sentences_are_cut_as_by_the_package(config: dict[str, Any], longest: int, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path)
    write(folder / "sentence_bert_config.json", config)
    assert longest_line(Checkpoint.open(folder), 256) == longest
    assert longest_line(Checkpoint.open(folder), 5) == 5
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    write(folder / "tokenizer_config.json", tokenizer | {"model_max_length": 9})
    assert longest_line(Checkpoint.open(folder), 256) == min(longest, 9 if longest == 32 else 12)
    write(folder / "sentence_bert_config.json", {"max_seq_length": "long"})
    with pytest.raises(ValueError, match="max_seq_length 'long'"):
        longest_line(Checkpoint.open(folder), 256)


LAYOUTS = ("", "0_Transformer")
FEW: dict[str, Any] = {"sequences": 12, "length": 12}


def encode(model: Any, **more: Any) -> Any:
    return model.encode(LINES, show_progress_bar=False, **more)


@pytest.mark.parametrize("inside", LAYOUTS)
def test_a_child_has_the_layout_of_its_parent(inside: str, tmp_path: Path) -> None:
    parent = sentence_folder(tmp_path / "parent", inside=inside, kinds=("Dense", "Normalize"))
    (parent / "2_Dense" / "pytorch_model.bin").write_bytes(b"a pickle")
    (parent / "custom.py").write_text("raise SystemExit")
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    child = tmp_path / "child"
    kept = {file.relative_to(parent) for file in parent.rglob("*") if file.is_file()}
    left_out = {Path("2_Dense/pytorch_model.bin"), Path("custom.py"), Path(inside, "generation_config.json")}
    files = {file.relative_to(child) for file in child.rglob("*") if file.is_file()}
    assert files == kept - left_out | {Path("recipe.json"), Path("README.md")}
    for name in files & kept - {Path(inside, name) for name in ("config.json", "model.safetensors")}:
        assert (child / name).read_bytes() == (parent / name).read_bytes(), name
    recipe = json.loads((child / "recipe.json").read_text())
    assert set(recipe["files"]) == {file.as_posix() for file in files}
    assert set(recipe["sha256"]) == {Path(inside, "model.safetensors").as_posix()}
    card = (child / "README.md").read_text()
    assert "library_name: sentence-transformers" in card
    assert 'SentenceTransformer(".")' in card


def test_a_child_is_built_again_from_its_recipe(tmp_path: Path) -> None:
    inside = "0_Transformer"
    parent = sentence_folder(tmp_path / "parent", inside=inside)
    first = carve(parent, tmp_path / "child", keep_ffn=0.5)
    built = rebuild(tmp_path / "child" / "recipe.json", parent, tmp_path / "again")
    assert "differ" not in " ".join(built.notes)
    weights = Path(inside, "model.safetensors")
    assert (tmp_path / "again" / weights).read_bytes() == (tmp_path / "child" / weights).read_bytes()
    second = carve(tmp_path / "child", tmp_path / "smaller", keep_ffn=0.5)
    assert second.costs["parent"] == first.costs["child"]
    assert (tmp_path / "smaller" / weights).is_file()


def test_what_a_child_encodes_is_what_the_masked_parent_does(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    parent = sentence_folder(tmp_path / "parent", inside="0_Transformer", kinds=("Dense", "Normalize"))
    cut = {"keep_layers": 0.67, "keep_ffn": 0.5, "repair": "none"}
    carved = carve(parent, tmp_path / "child", text=lines_file(tmp_path), **cut, **FEW)
    assert carved.verified.embeddings < 1e-5
    child = package.SentenceTransformer(str(tmp_path / "child"), device="cpu")
    masked = package.SentenceTransformer(str(parent), device="cpu")
    before = encode(masked)
    masked[0].model = apply_in_memory(open_model(Checkpoint.open(parent)), carved.cut)
    assert encode(child).shape == (len(LINES), 24)
    np.testing.assert_allclose(encode(child), encode(masked), atol=1e-5)
    assert np.abs(encode(child) - before).max() > 1e-3  # pruning changes the embeddings
    assert child.max_seq_length == 12
    assert (child.prompts, child.default_prompt_name) == (masked.prompts, None)
    assert child.similarity_fn_name == "cosine"
    with_prompt = encode(child, prompt_name="query")
    np.testing.assert_allclose(with_prompt, encode(masked, prompt_name="query"), atol=1e-5)
    assert np.abs(with_prompt - encode(child)).max() > 1e-3


def test_a_child_that_encodes_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    parent = sentence_folder(tmp_path / "parent", mode="max")
    monkeypatch.setattr(encoded, "embeddings", lambda model, inputs, pooling: torch.ones(8, 48))
    with pytest.raises(ValueError, match="written child differs from the carved parent by"):
        carve(parent, tmp_path / "child", keep_ffn=0.5)
    assert not (tmp_path / "child").exists()


def test_without_the_package_the_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "find_spec", lambda name: None)
    carved = carve(sentence_folder(tmp_path / "parent"), tmp_path / "child", keep_ffn=0.5)
    assert carved.verified.embeddings is None
    assert encoded.UNTRIED in " ".join(carved.notes)
