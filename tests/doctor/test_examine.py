"""Which runtimes open a checkpoint: rules agree with what opening shows, and nothing harmful is opened."""

import json
import pickle
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from carvings import carve
from changed_folders import Evil, configured, cut_off, replaced, with_a_shard_outside, without_a_shard
from hypothesis import given
from hypothesis import strategies as st
from published_rules import save_published
from safetensors.torch import load_file, save_file
from tiny import DECODER, MODELS, saved, word_tokenizer

from zerolm.checkpoints.gguf.same_tokens import opened_by_llama_cpp
from zerolm.cli import main
from zerolm.diagnosis import examine, opening
from zerolm.diagnosis.evidence import gather
from zerolm.diagnosis.examine import diagnose, ways
from zerolm.diagnosis.opening import Opened, attempt, judged, opened
from zerolm.diagnosis.result import OPENS, REFUSES, UNKNOWN, RuntimeVerdict
from zerolm.diagnosis.rules import by_rules
from zerolm.diagnosis.runtimes import TRANSFORMERS

pytestmark = pytest.mark.usefixtures("opened_here")


def verdicts(folder: Path) -> dict[str, RuntimeVerdict]:
    return {verdict.runtime: verdict for verdict in diagnose(folder).runtimes}


@pytest.mark.parametrize("name", MODELS)
def test_sound_checkpoints_open(name: str, tmp_path: Path) -> None:
    """By rules, and really."""
    folder = saved(tmp_path, name)
    found = verdicts(folder)
    assert (found["transformers"].verdict, found["transformers"].known) == (OPENS, "opened")
    assert by_rules(TRANSFORMERS, gather(folder)).verdict == OPENS
    assert REFUSES not in {found[server].verdict for server in ("vLLM", "SGLang")}


Change = Callable[[Path], object]
UP = "model.layers.1.mlp.up_proj.weight"
BROKEN: dict[str, tuple[str, Change, str]] = {
    "no head size": ("mistral_odd", lambda f: configured(f, head_dim=...), "divisible|head_dim"),
    "no head size, though it would divide": (
        "qwen3",
        lambda f: configured(f, head_dim=8),
        "q_proj.weight' has shape",
    ),
    "KV heads that do not divide": ("llama", lambda f: configured(f, num_key_value_heads=4), "divisible"),
    "another FFN": ("qwen2", lambda f: configured(f, intermediate_size=41), "the configuration implies 41"),
    "widths by layer": ("llama", lambda f: configured(f, intermediate_size=[40, 30]), "intermediate_size"),
    "more layers": ("gpt2", lambda f: configured(f, n_layer=4), "is missing"),
    "a tensor less": ("llama", lambda f: replaced(f, {UP: None}), "is missing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_rules_and_opening_agree_on_what_is_broken(case: str, tmp_path: Path) -> None:
    name, change, words = BROKEN[case]
    change(saved(tmp_path, name))
    ruled = by_rules(TRANSFORMERS, gather(tmp_path))
    assert ruled.verdict == REFUSES
    assert any(word in reason for word in words.split("|") for reason in ruled.reasons), ruled.reasons
    found = verdicts(tmp_path)
    assert {verdict.verdict for verdict in found.values()} == {REFUSES}
    assert (found["transformers"].known, found["vLLM"].known) == ("opened", "rules")
    assert found["transformers"].reasons[: len(ruled.reasons)] == ruled.reasons


@pytest.mark.parametrize(
    ("kind", "expected"), [("llama", REFUSES), ("gemma2", REFUSES), ("mistral", OPENS), ("qwen3", OPENS)]
)
def test_heads_that_do_not_divide_the_hidden_size(kind: str, expected: str, tmp_path: Path) -> None:
    """What this transformers does is what the rules say of it."""
    odd = DECODER | {"num_attention_heads": 10, "head_dim": 8}
    made = {"llama": "Llama", "gemma2": "Gemma2", "mistral": "Mistral", "qwen3": "Qwen3"}[kind]
    config = getattr(transformers, f"{made}Config")(
        **(odd if expected == OPENS else DECODER | {"head_dim": 8})
    )
    getattr(transformers, f"{made}ForCausalLM")(config).save_pretrained(tmp_path)
    if expected == REFUSES:
        tensors = load_file(tmp_path / "model.safetensors")
        for name in list(tensors):
            if "q_proj" in name:
                tensors[name] = tensors[name].repeat(2, 1)[:80].contiguous()
            if "o_proj" in name:
                tensors[name] = tensors[name].repeat(1, 2)[:, :80].contiguous()
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        configured(tmp_path, num_attention_heads=10)
    found = verdicts(tmp_path)
    assert (found["transformers"].verdict, found["transformers"].known) == (expected, "opened")
    assert by_rules(TRANSFORMERS, gather(tmp_path)).verdict == expected
    assert found["vLLM"].verdict == expected
    assert found["MLX"].verdict == OPENS  # it reads the configuration without transformers


def test_runtimes_that_derive_the_head_size_of_a_qwen2(tmp_path: Path) -> None:
    config = transformers.Qwen2Config(**DECODER, head_dim=16)
    transformers.Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    found = verdicts(tmp_path)
    expected = {
        "transformers": OPENS, "vLLM": REFUSES, "SGLang": OPENS, "MLX": REFUSES, "llama.cpp": REFUSES,
    }  # fmt: skip
    assert {name: found[name].verdict for name in expected} == expected
    assert "6 heads of 16 are not 48" in found["llama.cpp"].reasons[0]


def test_runtimes_that_take_the_ffn_of_a_gpt2_as_fourfold(tmp_path: Path) -> None:
    saved(tmp_path, "gpt2")
    (tmp_path / "vocab.json").write_text("{}")
    assert verdicts(tmp_path)["llama.cpp"].verdict == UNKNOWN
    config = transformers.GPT2Config(**MODELS["gpt2"][1], n_inner=96)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    found = verdicts(tmp_path)
    assert (found["transformers"].verdict, found["vLLM"].verdict) == (OPENS, OPENS)
    assert (found["llama.cpp"].verdict, found["MLX"].verdict) == (REFUSES, REFUSES)
    assert "as 4 x 48, not 96" in found["llama.cpp"].reasons[0]


def test_a_family_that_is_not_known(tmp_path: Path) -> None:
    """transformers really opens it; of the others nothing is claimed."""
    sizes = {"vocab_size": 64, "hidden_size": 48, "num_layers": 2, "num_heads": 6, "intermediate_size": 40}
    config = transformers.GPTNeoConfig(**sizes, attention_types=[[["global", "local"], 1]])
    transformers.GPTNeoForCausalLM(config).save_pretrained(tmp_path)
    found = diagnose(tmp_path)
    by_name = {verdict.runtime: verdict for verdict in found.runtimes}
    assert (by_name["transformers"].verdict, by_name["transformers"].known) == (OPENS, "opened")
    assert {by_name[name].verdict for name in ("vLLM", "SGLang", "MLX")} == {UNKNOWN}
    assert found.weights == sum(w.numel() for w in load_file(tmp_path / "model.safetensors").values())
    assert found.tied is None


def test_code_of_the_folder_is_not_run(here: Path) -> None:
    folder = saved(here / "model", "llama")
    (folder / "mine.py").write_text("import os; os.mkdir('run')")
    automatic = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    configured(folder, model_type="mine", architectures=["Model"], auto_map=automatic)
    found = verdicts(folder)
    assert found["transformers"].verdict == REFUSES
    assert all("auto_map" in found[name].reasons[0] for name in ("vLLM", "SGLang", "TensorRT-LLM", "MLX"))
    assert not Path("run").exists()


def test_pickles_are_named_and_not_opened(here: Path) -> None:
    saved(here, "llama")
    (here / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    found = diagnose(here)
    assert found.runtimes[0].verdict == OPENS
    assert any("pytorch_model.bin: pickles next to" in line for line in found.advice)
    (here / "model.safetensors").unlink()
    alone = verdicts(here)
    assert (alone["vLLM"].verdict, alone["MLX"].verdict) == (UNKNOWN, REFUSES)
    assert "pytorch_model.bin" in alone["vLLM"].reasons[0]
    assert not Path("opened").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut_off, "cut off"),
        (without_a_shard, "which is missing"),
        (with_a_shard_outside, "no safetensors file next to it"),
        (lambda folder: (folder / "config.json").unlink(), "there is no such file"),
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), "recursion"),
    ],
)
def test_unsound_files_are_given_to_no_library(
    change: Change, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model", "llama", shard="20KB")
    (tmp_path / "outside.safetensors").write_bytes((folder / "config.json").read_bytes())
    change(folder)
    given_away: list[str] = []
    monkeypatch.setattr(examine, "attempt", lambda how, path: given_away.append(how))
    for verdict in diagnose(folder).runtimes:
        assert (verdict.verdict, verdict.known) == (REFUSES, "rules")
        assert words in verdict.reasons[0]
        assert "\n" not in verdict.reasons[0]
    assert not given_away


def test_bottomless_configurations_open_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a known family and of another one, which is otherwise really opened."""
    monkeypatch.setattr(examine, "attempt", lambda how, path: pytest.fail("it was opened"))
    for changes in ({"num_hidden_layers": 10**12}, {"model_type": "opt", "num_layers": 10**12}):
        found = verdicts(configured(saved(tmp_path, "llama"), **changes))["transformers"]
        assert (found.verdict, found.known) == (REFUSES, "rules")
        assert "more layers than there are tensors" in found.reasons[-1]


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is an empty folder; a checkpoint has"):
        diagnose(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="holds no checkpoint: it has no config"):
        diagnose(tmp_path)
    for name in ("file", "absent", "owner/model"):
        with pytest.raises(ValueError, match=f"{name}' (is neither a folder nor a|does not exist)"):
            diagnose(tmp_path / name)


def test_what_does_not_fit_into_memory_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, "llama")
    monkeypatch.setattr(examine, "free_memory", lambda: 1000)
    asked: list[str] = []
    monkeypatch.setattr(examine, "attempt", lambda how, path: asked.append(how) or opened(how, path))
    found = verdicts(tmp_path)["transformers"]
    assert (asked, found.verdict, found.known) == (["configuration"], OPENS, "rules")
    assert "too large" in found.reasons[-1]
    configured(tmp_path, intermediate_size="wide")
    assert verdicts(tmp_path)["transformers"].verdict == REFUSES


def test_without_transformers_the_rules_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, "bert")
    monkeypatch.setattr(examine, "is_installed", lambda how: False)
    found = verdicts(tmp_path)["transformers"]
    assert (found.verdict, found.known) == (OPENS, "rules")


@pytest.mark.parametrize(("kind", "ties"), [("bert", None), ("gpt2", True), ("llama", False)])
def test_encoders_have_no_head_to_tie(kind: str, ties: bool | None, tmp_path: Path) -> None:
    saved(tmp_path, kind)
    found = diagnose(tmp_path)
    assert found.tied == ties
    assert any("tied" in line for line in found.advice) == (ties is not None)


MEAN = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
FIRST = {"type": "sentence_transformers.models.Transformer", "path": ""}
DENSE = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}


@pytest.mark.parametrize(
    ("modules", "expected", "words"),
    [
        (None, OPENS, "no modules.json"),
        ([FIRST, MEAN], OPENS, "modules of modules.json are there"),
        ([FIRST, MEAN, DENSE], UNKNOWN, "2_Dense has no safetensors"),
        ([FIRST, {"type": "os.system", "path": ""}], UNKNOWN, "'os.system'"),
        ([FIRST, MEAN | {"path": "../x"}], REFUSES, "leads out of the folder"),
        ([FIRST, MEAN | {"path": "3_Pooling"}], REFUSES, "there is no such file"),
        ({}, REFUSES, "not a list"),
        ([7], REFUSES, "not a list"),
    ],
)
def test_sentence_encoders(modules: Any, expected: str, words: str, tmp_path: Path) -> None:
    saved(tmp_path, "bert")
    for name in ("1_Pooling", "2_Dense"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    if modules is not None:
        (tmp_path / "modules.json").write_text(json.dumps(modules))
    found = verdicts(tmp_path)["sentence-transformers"]
    assert (found.verdict, found.known) == (expected, "rules")
    assert words in found.reasons[0]


def test_a_missing_pooler_is_no_reason_to_refuse() -> None:
    keys = {"missing_keys": ["pooler.dense.weight"], "mismatched_keys": [], "unexpected_keys": ["more"]}
    found = judged("it", keys)
    assert found.verdict == OPENS
    assert any("1 tensors are left over, such as more" in reason for reason in found.reasons)
    assert judged("it", keys | {"missing_keys": ["a.weight"]}).verdict == REFUSES
    assert judged("it", keys | {"mismatched_keys": [("a", (1,), (2,))]}).verdict == REFUSES


def test_opening_in_a_process_of_its_own(tmp_path: Path) -> None:
    """A tiny model opens there, and a folder is not searched for modules."""
    folder = saved(tmp_path, "llama")
    (folder / "torch.py").write_text("raise SystemExit")
    found = attempt("transformers", folder)
    assert found.verdict == OPENS, found.reasons
    assert "LlamaForCausalLM" in found.reasons[0]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("kill -SEGV $$", Opened("refuses", ("transformers crashed with SIGSEGV",))),
        ("kill -KILL $$", Opened("unknown", ("transformers ended without a word (status -9)",))),
        ("sleep 60", Opened("unknown", ("transformers was still opening it after 0.5 s",))),
        ("echo nothing", Opened("unknown", ("transformers ended without a word (status 0)",))),
    ],
)
def test_opening_that_ends_badly(
    script: str, expected: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec 0<&-\n{'exec ' if 'sleep' in script else ''}{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(opening.sys, "executable", str(program))
    assert attempt("transformers", tmp_path, seconds=0.5) == expected


@given(st.integers(1, 1 << 40))
def test_ways_are_all_powers_of_two_that_divide(number: int) -> None:
    assert ways(number) == [1 << power for power in range(41) if number % (1 << power) == 0]


def test_advice_names_sizes_that_do_not_fit(tmp_path: Path) -> None:
    found = diagnose(saved(tmp_path, "llama"))
    assert found.tensor_parallel == [1, 2]
    assert any("multiples of 256" in line and "FFN 40" in line for line in found.advice)
    (tmp_path / "recipe.json").write_text(json.dumps({"written_as": "padded"}))
    assert any("padded with zeros" in line for line in diagnose(tmp_path).advice)


WHOLE_HEADS = {"vLLM": OPENS, "SGLang": OPENS, "MLX": OPENS, "llama.cpp": UNKNOWN}
NARROWED = {
    **dict.fromkeys(("llama", "mistral", "qwen3"), WHOLE_HEADS),
    "qwen2": {"vLLM": REFUSES, "SGLang": OPENS, "MLX": REFUSES, "llama.cpp": REFUSES},
}


@pytest.mark.parametrize("name", NARROWED)
def test_children_with_a_narrower_stream(name: str, tmp_path: Path) -> None:
    """Their heads keep their size, which is spelt out and no longer the hidden size over their number."""
    parent, child = saved(tmp_path / "parent", name), tmp_path / "child"
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (parent / file).write_text("{}")
    carve(parent, child, keep_hidden=0.75)
    config = json.loads((child / "config.json").read_text())
    size = json.loads((parent / "config.json").read_text()).get("head_dim") or 8
    assert (config["hidden_size"], config["head_dim"]) == (36, size)
    expected = NARROWED[name]
    assert config["model_type"] == name
    diagnosis = diagnose(child)
    verdicts_ = {verdict.runtime: verdict for verdict in diagnosis.runtimes}
    stock = verdicts_["transformers"]
    assert (stock.verdict, stock.known) == (OPENS, "opened")
    assert by_rules(TRANSFORMERS, gather(child)).verdict == OPENS
    assert {runtime: verdicts_[runtime].verdict for runtime in expected} == expected
    for runtime, verdict in expected.items():
        if verdict == REFUSES:
            assert f"6 heads of 8 are not {config['hidden_size']}" in verdicts_[runtime].reasons[0]
    assert f"6 heads in 2 KV groups of {size}, hidden {config['hidden_size']}" in " ".join(diagnosis.advice)


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ("qwen3", "GGUF tokenizer: written as qwen2; llama.cpp does not normalise text to NFC"),
        ("gemma3", "GGUF tokenizer: written as SentencePiece's BPE"),
        (None, "GGUF tokenizer: not written: gguf is written with byte-level BPE, SentencePiece's BPE or"),
    ],
)
def test_it_says_how_a_tokenizer_is_written(rules: str | None, wanted: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER | {"vocab_size": 960})).save_pretrained(
        tmp_path
    )
    if rules is None:
        word_tokenizer(tmp_path, "w1")
    else:
        save_published(rules, tmp_path)
    diagnosis = diagnose(tmp_path)
    (line,) = (line for line in diagnosis.advice if line.startswith("GGUF tokenizer"))
    assert line.startswith(wanted)
    (llama_cpp,) = (verdict for verdict in diagnosis.runtimes if verdict.runtime == "llama.cpp")
    if rules is None:
        assert llama_cpp.verdict == UNKNOWN
        return
    assert llama_cpp.verdict == OPENS
    words = shlex.split(llama_cpp.reasons[0].split("`")[1])
    out = tmp_path.with_name(f"{tmp_path.name}-written")
    assert main([*words[1:-1], str(out)]) == 0
    (file,) = out.glob("*.gguf")
    assert opened_by_llama_cpp(file, vocab_only=True).n_vocab() == 960
