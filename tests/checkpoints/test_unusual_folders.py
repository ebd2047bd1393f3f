"""Folders as people have them: read rightly, or refused in one line that names the cause and the remedy."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from carvings import BY_WEIGHTS, carve, refused
from changed_folders import configured, replaced
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_folders import sentence_folder
from tiny import DECODER, MODELS, saved, word_tokenizer
from tiny_families import saved as saved_family

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.wrappers import WRAPPERS, wrapper_of
from zerolm.diagnosis.evidence import gather
from zerolm.diagnosis.examine import diagnose
from zerolm.families.known import described
from zerolm.networks.opener import open_model

pytestmark = pytest.mark.usefixtures("opened_here")
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True}


def renamed(folder: Path, wrapper: str) -> Path:
    """The folder with this before the names of all its tensors."""
    file = folder / "model.safetensors"
    tensors = {wrapper + name: value for name, value in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(("task", "name"), [("CAUSAL_LM", "CausalLM"), ("SEQ_CLS", "SequenceClassification")])
def test_an_adapter_names_its_base_and_how_to_merge_it(task: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": "some/base", "task_type": task}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    text = refused(folder, r"holds an adapter of 'some/base' \(adapter_config\.json\).*merge it first")
    assert f"peft.AutoPeftModelFor{name}.from_pretrained({str(folder)!r}).merge_and_unload()" in text
    with pytest.raises(ValueError, match="an adapter of 'some/base'"):
        diagnose(folder)
    refused(saved(folder, "llama"), "holds an adapter")  # next to weights, too
    (folder / "adapter_config.json").write_text("[")
    refused(folder, "cannot be read")


@pytest.mark.skipif(not find_spec("peft"), reason="peft is not installed")
def test_the_remedy_of_an_adapter_merges_it(here: Path) -> None:
    import peft

    base = transformers.AutoModelForCausalLM.from_pretrained(saved(here / "base", "llama"))
    lora = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    peft.get_peft_model(base, lora).save_pretrained(here / "adapter")
    eval(refused(here / "adapter", "merge it first").partition("in Python: ")[2], {"peft": peft})
    merged, whole = (Checkpoint.open(here / name) for name in ("merged", "base"))
    name = "model.layers.1.mlp.up_proj.weight"
    assert merged.layout.slots.keys() == whole.layout.slots.keys()
    assert (merged.read(name) != whole.read(name)).any()


@pytest.mark.parametrize(
    ("name", "wrapper"),
    [
        ("llama", "module._orig_mod."), ("llama_tied", "module.model."), ("gpt2", "_orig_mod."),
        ("bert", "model."), ("bert_masked", "module."),
    ],
)  # fmt: skip
def test_the_names_of_wrappers_are_removed(name: str, wrapper: str, tmp_path: Path) -> None:
    clean = Checkpoint.open(saved(tmp_path / "clean", name))
    shutil.copytree(clean.folder, tmp_path / "parent")
    parent = Checkpoint.open(renamed(tmp_path / "parent", wrapper))
    assert (parent.wrapper, clean.wrapper) == (wrapper, "")
    assert replace(parent.layout, notes=()) == clean.layout
    assert fingerprint(parent) == fingerprint(clean)
    ours, theirs = (open_model(one).state_dict() for one in (parent, clean))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours if "pooler" not in key or name == "bert")
    for folder in ("parent", "clean"):
        carved = carve(tmp_path / folder, tmp_path / f"{folder}-child", keep_ffn=0.5)
        assert (f"begin with {wrapper!r}" in " ".join(carved.notes)) == (folder == "parent")
    files = [tmp_path / f"{folder}-child" / "model.safetensors" for folder in ("parent", "clean")]
    assert files[0].read_bytes() == files[1].read_bytes()
    reasons = {verdict.reasons[0] for verdict in diagnose(tmp_path / "parent").runtimes}
    told = [reason for reason in reasons if f"begin with {wrapper!r}" in reason]
    assert any("stock software does not" in reason for reason in told)


@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss"])
def test_a_mixture_in_a_wrapper(kind: str, tmp_path: Path) -> None:
    """Stock software joins its experts: by their clean names."""
    clean = Checkpoint.open(saved_family(tmp_path / "clean", kind))
    shutil.copytree(clean.folder, tmp_path / "parent")
    parent = Checkpoint.open(renamed(tmp_path / "parent", "module."))
    ours, theirs = (open_model(one).state_dict() for one in (parent, clean))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert "begin with 'module.'" in carve(parent.folder, tmp_path / "child", keep_experts=0.5).notes[0]
    assert Checkpoint.open(tmp_path / "child").wrapper == ""


@given(st.sampled_from(sorted(described())), st.lists(st.sampled_from(WRAPPERS), max_size=4), st.booleans())
def test_a_wrapper_is_before_all_names_or_none(kind: str, parts: list[str], mixed: bool) -> None:
    family = described()[kind]
    prefix = family.tensors.prefixes[0].body
    names = [prefix + pattern.name for pattern in family.tensors.body]
    wrapper = "".join(parts)
    stored = {wrapper + name for name in names} | ({"other"} if mixed else set())
    assert wrapper_of(family, {*names, "other"}) == ""
    assert wrapper_of(family, set()) == ""
    if mixed or not wrapper:
        assert wrapper_of(family, stored) == ""
        return
    removed = wrapper_of(family, stored)
    bodies = {each.body + family.tensors.body[0].name for each in family.tensors.prefixes}
    assert wrapper.startswith(removed)
    assert bodies & {name.removeprefix(removed) for name in stored}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("packed", [False, True])
def test_dense_weights_whose_configuration_quantises_them(dtype: str, packed: bool, tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", "llama", dtype=dtype)
    configured(folder, quantization_config=BITSANDBYTES)
    stored = {"float32": "F32", "bfloat16": "BF16"}[dtype]
    words = rf"asks for 'bitsandbytes' when it is loaded, but its weights are stored in {stored}: remove"
    refused(folder, words)
    with pytest.raises(ValueError, match=words):
        Checkpoint.open(folder, packed=packed)


@pytest.mark.parametrize("ending", [".absmax", ".SCB"])
@pytest.mark.parametrize("name", ["llama", "bert_masked"])
def test_weights_packed_by_bitsandbytes(name: str, ending: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "parent", name)
    tensors = load_file(folder / "model.safetensors")
    matrix = next(key for key in tensors if key.endswith(("up_proj.weight", "intermediate.dense.weight")))
    packed = torch.zeros(len(tensors[matrix]), 1, dtype=torch.uint8)
    replaced(folder, {matrix: packed, matrix + ending: torch.ones(4)})
    configured(folder, quantization_config=BITSANDBYTES)
    text = refused(folder, "packed by bitsandbytes; dequantise them first, in Python: transformers")
    kind = {"llama": "LlamaForCausalLM", "bert_masked": "BertForMaskedLM"}[name]
    assert f"transformers.{kind}.from_pretrained({str(folder)!r}).dequantize()" in text


@pytest.mark.parametrize(("kind", "advised"), [("llama", False), ("mixtral", True)])
def test_experts_alone_are_advised_where_there_are_any(kind: str, advised: bool, tmp_path: Path) -> None:
    folder = saved_family(tmp_path / "parent", kind)
    replaced(folder, {"model.layers.0.other.qweight": torch.zeros(2, 2, dtype=torch.int32)})
    configured(folder, quantization_config={"quant_method": "gptq"})
    assert ("--keep-experts" in refused(folder, "its weights are quantized")) == advised


def test_the_remedy_of_a_pickle_converts_it(here: Path) -> None:
    folder = saved(here / "parent", "bert_masked")
    clean = load_file(folder / "model.safetensors")
    torch.save(clean, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    text = refused(folder, r"a pickle \(pytorch_model\.bin\), which is not opened")
    eval(text.partition("in Python: ")[2], {"transformers": transformers})
    assert load_file(here / "converted" / "model.safetensors").keys() == clean.keys()


def test_the_remedy_of_a_pickle_in_a_sentence_folder(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "parent")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert f"sentence_transformers.SentenceTransformer({str(folder)!r})" in refused(folder, "are a pickle")


@pytest.mark.parametrize("classes", [["os.system"], ["a" * 99], "x", [3], None])
def test_no_class_of_a_pickle_is_code(classes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "parent"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": classes}))
    with pytest.raises(ValueError, match=r"transformers\.AutoModel\.|not a list of names"):
        Checkpoint.open(folder)


def test_an_empty_folder_is_no_checkpoint(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in (("carve", "--keep-ffn", ".5", *BY_WEIGHTS), ("doctor",), ("ledger",)):
        ran = zerolm(command[0], str(tmp_path / "empty"), *command[1:])
        ran.refused("is an empty folder; a checkpoint has config.json and safetensors")


CLASSES = {
    "LlamaForSequenceClassification": "without a language-model head cannot be compared",
    "Qwen3ForSequenceClassification": "without a language-model head cannot be compared",
    "GemmaForSequenceClassification": r"a gemma with a classification head \(score\.weight\)",
    "Qwen2ForTokenClassification": "'Qwen2ForTokenClassification' has another head",
    "LlamaForQuestionAnswering": "'LlamaForQuestionAnswering' has another head",
}


@pytest.mark.parametrize("name", CLASSES)
def test_decoders_with_another_head_are_refused(name: str, tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    config = kind.config_class(**DECODER | {"pad_token_id": 0, "num_labels": 3})
    kind(config).save_pretrained(tmp_path / "parent")
    refused(tmp_path / "parent", CLASSES[name])


def test_a_reranker_of_sentence_transformers_keeps_its_head(tmp_path: Path) -> None:
    """As the package saves one since its version 6: with a modules.json that names a transformer alone."""
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    config = transformers.BertConfig(**MODELS["bert"][1], num_labels=1)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "plain")
    word_tokenizer(tmp_path / "plain", "w0")
    package.CrossEncoder(str(tmp_path / "plain"), device="cpu").save_pretrained(str(tmp_path / "parent"))
    assert (tmp_path / "parent" / "modules.json").exists()
    assert Checkpoint.open(tmp_path / "parent").sentences is None
    carve(tmp_path / "parent", tmp_path / "child", keep_ffn=0.5)
    pairs = [("w1 w2", "w3"), ("w4", "w5 w6 w7")]
    folders = tmp_path / "parent", tmp_path / "child"
    scores = [package.CrossEncoder(str(folder), device="cpu").predict(pairs) for folder in folders]
    assert scores[0].shape == scores[1].shape == (2,)
    heads = [load_file(folder / "model.safetensors")["classifier.weight"] for folder in folders]
    assert torch.equal(*heads)
    assert gather(tmp_path / "child").flaws.layout == ""
