"""Families that a document says are written as GGUF: llama.cpp computes what the carved parent does."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from changed_folders import configured
from covering import chosen, in_gguf
from tiny import logits_of
from tiny_families import AS_E2B, PLAIN_GEMMA4, saved
from tiny_seeing import saved_seeing
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.families.family import Family
from zerolm.networks.opener import open_model
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import apply_in_memory

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_parents import CHANGES, DELTA, LAYERS, SECTIONED, WRITTEN, parent_of, tiny_changes

from zerolm.children.child_tensors import Child
from zerolm.children.gguf.check import check
from zerolm.children.gguf.network import is_read_back, network_in
from zerolm.children.gguf.write import expressible, write
from zerolm.children.verify import outputs


def sent_by(network: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """A network as a function from token ids to logits, of an encoder to the states of its tokens."""
    return lambda ids: outputs(network(input_ids=ids))


def child_of(checkpoint: Checkpoint) -> Cut:
    """Return a cut by layers, and by neurons where they are cut."""
    whole = dimensions(checkpoint)
    return Cut.of(
        whole,
        LAYERS.get(checkpoint.family.name, (0, 2)),
        lambda layer: (whole.kv_heads, 24 if checkpoint.family.cut.ffn else whole.ffn),
    )


def rounded_to_16_bits(model: nn.Module) -> float:
    """Return the error, of the largest logit, of the network itself where it rounds what it multiplies."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(64, size=(1, 32)))
    with torch.no_grad():
        exact = outputs(model(ids))
        hooks = [
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16().float(), *inputs[1:]))
            for module in model.modules()
            if isinstance(module, nn.Linear)
        ]
        rounded = outputs(model(ids))
    for hook in hooks:
        hook.remove()
    return float((exact - rounded).abs().max() / exact.abs().max())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", chosen(WRITTEN, in_gguf))
def test_llama_cpp_computes_what_the_child_does(name: str, dtype: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name, dtype))
    cut, file = child_of(checkpoint), tmp_path / "child.gguf"
    write(Child(checkpoint, cut), file)
    carved = apply_in_memory(open_model(checkpoint), cut)
    if checkpoint.family.task == "masked":
        sent = sent_by(carved)(torch.arange(16)[None])[0].detach()
        assert float(sent.std(0).mean()) > 0.05 * float(sent.abs().max())  # tokens are not all alike
    rounding = 2e-3 if dtype == "float32" else max(2e-2, 2 * rounded_to_16_bits(carved))
    assert check(file, sent_by(carved), None, tolerance=1e9).relative < rounding
    if not is_read_back(checkpoint.family):
        with pytest.raises(ValueError, match="is not read back"):
            network_in(file, checkpoint)
        return
    assert check(file, sent_by(network_in(file, checkpoint)), None, tolerance=1e9).relative < rounding


def check_written(checkpoint: Checkpoint, cut: Cut, file: Path) -> None:
    """Write a cut, and compare what llama.cpp computes with the parent that is cut in memory."""
    write(Child(checkpoint, cut), file)
    carved = apply_in_memory(open_model(checkpoint), cut)
    assert check(file, logits_of(carved), None, tolerance=1e9).relative < 2e-3


YARN: Final = {
    "rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0, "original_max_position_embeddings": 8,
}  # fmt: skip
LINEAR: Final = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}
WITHOUT_EXPERTS: Final = {"num_local_experts": 0, "position_embedding_type": "rope"}
LATENT: Final = YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}
VARIANTS: Final[dict[str, tuple[str, dict[str, Any], tuple[int, ...]]]] = {
    "a dense gemma4": ("gemma4_text", PLAIN_GEMMA4, (0, 1, 3)),
    "a gemma4 whose last layers share keys": ("gemma4_text", AS_E2B, tuple(range(6))),
    "a falcon with one norm": ("falcon", {"new_decoder_architecture": False}, (0, 2)),
    "a falcon_h1 without a norm of its states": ("falcon_h1", {"mamba_rms_norm": False}, (0, 2)),
    "a granite without experts": ("granitemoehybrid", WITHOUT_EXPERTS, (0, 1, 3)),
    "a nemotron_h without experts": (
        "nemotron_h",
        {"layers_block_type": ["mamba", "attention", "mlp", "mlp"]},
        (0, 1, 3),
    ),
    "as many heads of values": ("qwen3_5_text", {"linear_num_value_heads": 2}, (0, 1, 3)),
    "yarn": ("qwen3", {"rope_parameters": YARN}, (0, 2)),
    "yarn of a llama": ("llama", {"rope_parameters": YARN}, (0, 2)),
    "yarn, damped": ("qwen3", {"rope_parameters": YARN | {"attention_factor": 0.7}}, (0, 2)),
    "yarn of latent keys": ("deepseek_v3", {"rope_parameters": LATENT}, (0, 2)),
    "linear": ("qwen3", {"rope_parameters": LINEAR}, (0, 2)),
}
"""Other models of a family, other rotations, and the layers of a child of each."""


@pytest.mark.parametrize("case", VARIANTS)
def test_other_models_of_a_family_are_written_too(case: str, tmp_path: Path) -> None:
    name, changes, layers = VARIANTS[case]
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name, **tiny_changes(name, "float32") | changes))
    whole = dimensions(checkpoint)
    ffn = 24 if checkpoint.family.cut.ffn else whole.ffn
    check_written(
        checkpoint, Cut.of(whole, layers, lambda layer: (whole.kv_heads, ffn)), tmp_path / "child.gguf"
    )


def with_form(family: Family, role: str, **form: Any) -> Family:
    """Return the family with another form of the tensors of a role in a file."""
    body = tuple(
        replace(each, gguf=replace(each.gguf, **form)) if each.role == role else each
        for each in family.tensors.body
    )
    return replace(family, tensors=replace(family.tensors, body=body))


WRONG_FORMS: Final[dict[str, tuple[str, Callable[[Family], Family]]]] = {
    "heads in another order": (
        "qwen3_5_text",
        lambda family: replace(family, gguf=replace(family.gguf, tiled={})),
    ),
    "a gain of 1 + w": ("qwen3_5_text", lambda family: with_form(family, "linear_norm", values="1+w")),
    "a decay as it is stored": ("nemotron_h", lambda family: with_form(family, "mamba_decay", values="w")),
    "without factors of rows": ("falcon_h1", lambda family: with_form(family, "mamba_in", times=())),
    "without a factor": ("mimo_v2_flash", lambda family: with_form(family, "v", times=())),
}


@pytest.mark.parametrize("case", WRONG_FORMS)
def test_a_wrong_form_is_caught(case: str, tmp_path: Path) -> None:
    """The proof sees each: logits differ by more than any rounding."""
    name, wrong = WRONG_FORMS[case]
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name, **tiny_changes(name, "float32")))
    cut, file = Cut.whole(dimensions(checkpoint)), tmp_path / "child.gguf"
    write(Child(replace(checkpoint, family=wrong(checkpoint.family)), cut), file)
    carved = apply_in_memory(open_model(checkpoint), cut)
    with pytest.raises(ValueError, match=r"llama\.cpp's logits differ from the carved parent's"):
        check(file, logits_of(carved), None)


TURNED: Final[dict[str, Any]] = {
    "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [3, 3, 2]},
}
SMALL_EPS: Final[dict[str, Any]] = {"rms_norm_eps": 1e-9}
"""Some readers of qwen2vl take the eps of the norms for 0."""
TEXTS: dict[str, dict[str, Any]] = {
    "gemma3": {}, "mistral3": {"sliding_window": None},
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), DELTA | SECTIONED | {"attention_bias": False}),
    "qwen2_vl": SMALL_EPS, "qwen2_5_vl": SMALL_EPS, "qwen3_vl": TURNED,
    "qwen3_vl_moe": TURNED | {"mlp_only_layers": [], "norm_topk_prob": True},
    "kimi_k25": {"attention_bias": False}, "gemma4": {"attention_bias": False},
}  # fmt: skip
"""The text parts of models that see, with what readers of their architectures take."""


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_part_of_a_model_that_sees_is_written(name: str, tmp_path: Path) -> None:
    """Its layers differ in size where readers of the architecture take that."""
    checkpoint = Checkpoint.open(saved_seeing(tmp_path / "parent", name, **TEXTS[name]))
    whole, described = dimensions(checkpoint), checkpoint.family.gguf
    first = 24 if checkpoint.family.cut.ffn else whole.ffn
    last = first if described.alike else 32
    layers = LAYERS.get(name, (0, 1, 3) if name == "gemma4" else (0, 2))
    cut = Cut.of(whole, layers, lambda layer: (whole.kv_heads, first if layer == 0 else last))
    check_written(checkpoint, cut, tmp_path / "child.gguf")


REFUSED: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "layers without rotation": ("smollm3", {"no_rope_layers": [1, 0, 1]}, r"no_rope_layers \[1, 1, 1, 0\]"),
    "tied": ("olmoe", {"num_key_value_heads": 6, "tie_word_embeddings": True}, "tie_word_embeddings False"),
    "an encoder all of whose layers have windows": (
        "modernbert",
        {"layer_types": ["sliding_attention"] * 3},
        "with a layer that sees all tokens",
    ),
    "fewer keys": ("olmoe", {}, "num_key_value_heads = num_attention_heads"),
    "plain FFNs between": ("qwen3_moe", {"mlp_only_layers": [2]}, "llama.cpp has no gate"),
    "scale of queries": ("gemma2", {"query_pre_attn_scalar": 24}, "query_pre_attn_scalar = head_dim"),
    "activation": ("glm4", {"hidden_act": "gelu"}, "gguf has the activation silu or swish"),
    "heads of two sizes": ("qwen3_5_text", SECTIONED, "gguf has linear_value_head_dim = linear_key_head_dim"),
    "sections": (
        "qwen3_5_text",
        DELTA | {"rope_parameters": SECTIONED["rope_parameters"] | {"mrope_section": [11, 11, 10]}},
        "at most 4 sections, 16 pairs in all in heads of this size",
    ),
    "several groups": ("granitemoehybrid", {"mamba_n_groups": 2}, "mamba_n_groups 1 in"),
    "layers of one kind": ("lfm2", {"layer_types": ["conv"] * 3}, "gguf needs a layer that attends in a"),
    "tied, multiplied": ("falcon_h1", {"tie_word_embeddings": True}, "tie_word_embeddings False"),
    "rope": (
        "qwen3",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}},
        "gguf is written with rope types default, linear, llama3, proportional and yarn, not with 'dynamic'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_readers_would_take_for_another_is_refused(case: str, tmp_path: Path) -> None:
    name, changes, message = REFUSED[case]
    fields = tiny_changes(name, "float32")
    fields = {field: value for field, value in fields.items() if field not in CHANGES.get(name, {})} | changes
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name, **fields))
    with pytest.raises(ValueError, match=message) as caught:
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))
    assert "\n" not in str(caught.value)


def test_a_family_that_no_reader_has_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", "electra"))
    with pytest.raises(ValueError, match=r"gguf is written of .*bert, .*llama, .*not of electra"):
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))


def test_an_attribute_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "families"
    folder.mkdir()
    mine = {"architecture": "qwen3", "activations": ["silu"], "halves": True, "alike": True}
    document = {"model_type": "mine", "like": "qwen3", "head_classes": ["Qwen3ForCausalLM"]}
    keys = {"keys": {"logit_scale": "scaling_of_logits"}}
    (folder / "mine.json").write_text(json.dumps(document | {"gguf": mine | keys}))
    monkeypatch.setenv("ZEROLM_FAMILIES", str(folder))
    parent = saved(tmp_path / "parent", "qwen3", **tiny_changes("qwen3", "float32"))
    checkpoint = Checkpoint.open(configured(parent, model_type="mine"))
    with pytest.raises(ValueError, match="mine"):
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))
