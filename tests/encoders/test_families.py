"""Every family of encoders, and heads: cut, repaired, opened by the package or its stock class."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import carve
from changed_folders import replaced
from covering import chosen, in_folders
from sentence_folders import LINES, lines_file, sentence_folder, write
from tiny import MODELS, word_tokenizer
from tiny_families import saved, stock_config
from transformers import AutoModel

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.folder import read_object
from zerolm.diagnosis.opening import opened
from zerolm.diagnosis.result import OPENS, REFUSES
from zerolm.families.known import described
from zerolm.networks.opener import open_model
from zerolm.networks.roles import layer_list, layer_of, places_of
from zerolm.units.pruning import apply_in_memory, slice_layer

ENCODERS = chosen([name for name, family in described().items() if family.task == "masked"], in_folders)
TASKS = ("SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING", "MULTIPLE_CHOICE")
HEADS = [f"MODEL_FOR_{task}_MAPPING" for task in TASKS]


def parent_of(folder: Path, kind: str) -> Path:
    sentence_folder(folder / "parent")
    return saved(folder / "parent", kind)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_child_encodes_as_its_masked_parent(kind: str, tmp_path: Path) -> None:
    """A repair reads padded sentences, passes through every layer, and lowers what the cut costs."""
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    parent, file = parent_of(tmp_path, kind), lines_file(tmp_path)
    cut: dict[str, Any] = {"keep_layers": 0.67, "keep_ffn": 0.5, "repair": "none"}
    if described()[kind].cut.heads and described()[kind].cut.indivisible == "kept":
        cut["keep_heads"] = 0.5
    carved = carve(parent, tmp_path / "child", text=file, sequences=12, length=12, **cut)
    assert carved.verified.embeddings < 1e-5
    folders = tmp_path / "child", parent
    child, masked = (package.SentenceTransformer(str(folder), device="cpu") for folder in folders)
    before = masked.encode(LINES, show_progress_bar=False)
    masked[0].model = apply_in_memory(open_model(Checkpoint.open(parent)), carved.cut)
    ours, theirs = (model.encode(LINES, show_progress_bar=False) for model in (child, masked))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours - before).max() > 1e-3  # pruning changes the embeddings
    repaired = carve(parent, tmp_path / "other", text=file, sequences=12, length=12, keep_ffn=0.5)
    assert repaired.losses["repaired"] < repaired.losses["measured"]


@pytest.mark.parametrize(
    ("kind", "heads"),
    [(kind, heads) for kind in ENCODERS for heads in HEADS[: 4 if kind == ENCODERS[0] else 2]],
)
def test_heads_go_into_the_child(kind: str, heads: str, tmp_path: Path) -> None:
    """Of each task that the stock classes of a family have."""
    config = stock_config(kind)
    maker = getattr(transformers, heads).get(type(config), None)
    if maker is None:
        return
    maker(config).save_pretrained(tmp_path / "parent")
    carve(tmp_path / "parent", tmp_path / "child", keep_ffn=0.5)
    child, report = maker.from_pretrained(tmp_path / "child", output_loading_info=True)
    odd = {key: report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    assert not any(odd.values()), odd
    whole = dict(maker.from_pretrained(tmp_path / "parent").named_parameters())
    cut = [name for name, weight in child.named_parameters() if weight.shape != whole[name].shape]
    assert cut
    assert all("layer" in name for name in cut)


@pytest.mark.parametrize(
    ("kind", "with_modules"), [*((kind, True) for kind in ENCODERS), (ENCODERS[0], False)]
)
def test_a_head_that_is_not_stored_is_not_needed(kind: str, with_modules: bool, tmp_path: Path) -> None:
    """As all-mpnet-base-v2 is published: a class with a head, and the weights of the body."""
    parent = parent_of(tmp_path, kind)
    AutoModel.from_config(stock_config(kind)).save_pretrained(parent)
    name = described()[kind].head_classes[0]
    write(parent / "config.json", read_object(parent, "config.json") | {"architectures": [name]})
    if not with_modules:
        (parent / "modules.json").unlink()
    carved = carve(parent, tmp_path / "child", keep_ffn=0.5)
    if with_modules and find_spec("sentence_transformers"):
        assert carved.verified.embeddings is not None
    for folder in (parent, tmp_path / "child"):
        _, report = AutoModel.from_pretrained(folder, output_loading_info=True)
        assert not [key for key in report["missing_keys"] if "pooler" not in key]
        assert opened("transformers", folder).verdict == OPENS
    assert read_object(tmp_path / "child", "config.json")["architectures"] == [name]


def test_a_head_that_is_stored_in_part_is_missing(tmp_path: Path) -> None:
    parent = parent_of(tmp_path, "bert")
    transformers.BertForMaskedLM(stock_config("bert")).save_pretrained(parent)
    replaced(parent, {"cls.predictions.transform.dense.weight": None})
    with pytest.raises(ValueError, match=r"'cls\.predictions\.transform\.dense\.weight' is missing"):
        Checkpoint.open(parent)


def test_a_decoder_needs_its_head(tmp_path: Path) -> None:
    config = stock_config("llama")
    config.tie_word_embeddings = False
    transformers.LlamaModel(config).save_pretrained(tmp_path)
    named = {"architectures": ["LlamaForCausalLM"]}
    write(tmp_path / "config.json", read_object(tmp_path, "config.json") | named)
    with pytest.raises(ValueError, match="is missing"):
        Checkpoint.open(tmp_path)
    assert opened("transformers", tmp_path).verdict == REFUSES


@pytest.mark.skipif("ZEROLM_REAL" not in os.environ, reason="ZEROLM_REAL names no folder of real models")
def test_a_published_body_whose_class_has_a_head() -> None:
    folder = Path(os.environ["ZEROLM_REAL"], "mpnet")
    if not folder.is_dir():
        pytest.skip("there is no mpnet among the real models")
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config["architectures"] == ["MPNetForMaskedLM"]
    assert checkpoint.layout.name("head_bias") is None
    assert opened("transformers", folder).verdict == OPENS
    assert carve(folder, keep_ffn=0.5).costs["child"]["params"] < 100_000_000


SIZES = MODELS["bert"][1]
CLASSES = {
    "BertForSequenceClassification": {"id2label": {0: "no", 1: "yes", 2: "maybe"}},
    "BertForTokenClassification": {"num_labels": 5}, "BertForMultipleChoice": {}, "BertForMaskedLM": {},
    "BertForPreTraining": {}, "BertModel": {},
}  # fmt: skip


def masked(folder: Path, kind: Any, carved: Any) -> Any:
    """The parent with what the cut leaves of its layers, by the stock class with its head."""
    network = kind.from_pretrained(folder).eval()
    layers = layer_list(network.base_model)
    for kept in carved.cut.layers:
        slice_layer(layer_of(places_of(network.base_model), layers[kept.layer]), carved.cut, kept)
    network.base_model.encoder.layer = torch.nn.ModuleList(layers[kept.layer] for kept in carved.cut.layers)
    return network


@pytest.mark.parametrize("name", CLASSES)
def test_a_head_survives(name: str, tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    config = transformers.BertConfig(**SIZES, **CLASSES[name])
    torch.manual_seed(0)
    network = kind(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.2)
    network.save_pretrained(tmp_path / "parent")
    word_tokenizer(tmp_path / "parent", "w0")
    cut = {"keep_layers": 0.67, "keep_ffn": 0.5, "repair": "none", "text": lines_file(tmp_path)}
    carved = carve(tmp_path / "parent", tmp_path / "child", sequences=8, length=12, **cut)
    child, report = kind.from_pretrained(tmp_path / "child", output_loading_info=True)
    odd = {key: report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    assert not any(odd.values()), odd
    ids = torch.randint(64, (2, 1, 9) if name == "BertForMultipleChoice" else (2, 9))
    networks = child.eval(), masked(tmp_path / "parent", kind, carved), network.eval()
    with torch.no_grad():
        ours, theirs, whole = (one(input_ids=ids).to_tuple() for one in networks)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours[0], whole[0], atol=1e-3)
    assert (child.config.id2label, child.config.architectures) == (network.config.id2label, [name])
