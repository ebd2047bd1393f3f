"""Networks that memory does not hold: what they lose is what they lose in memory."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carvings import carve
from gguf_files import quantised, written
from made_tokenizers import byte_level
from packed_mixtures import packed_mixture, plain_twin
from saved_mixtures import louder, mixture
from tiny import saved, word_tokenizer
from tiny_families import random_model
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from zerolm.evaluation import by_layers, comparable, evaluate
from zerolm.evaluation.evaluated import Evaluated

FEW: dict[str, Any] = {"sequences": 5, "length": 12}
QWEN: dict[str, Any] = {
    "hidden_size": 96, "moe_intermediate_size": 32, "mlp_only_layers": [], "attention_bias": False,
    "norm_topk_prob": True,
}  # fmt: skip


def texts(folder: Path) -> str:
    for name, count, step in (("code", 9, 7), ("chat", 2, 3)):
        lines = [" ".join(f"w{(i * i + step * j) % 61}" for i in range(20)) for j in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return f"code={folder}/code.txt,chat={folder}/chat.txt"


def judged(folder: Path, text: str, *, beside: tuple[str, ...] = ()) -> Evaluated:
    others = [folder / name for name in beside]
    return evaluate.evaluate(folder / "child", folder / "parent", text, beside=others, **FEW)


def same(ours: Evaluated, theirs: Evaluated) -> None:
    """Rows that both have; those of one domain, too."""
    wanted = {row.name: row for row in theirs.networks}
    assert [row.name for row in ours.networks][:2] == ["child", "parent"]
    for row in ours.networks:
        other = wanted[row.name]
        assert row.params == other.params
        if row.name == "random":  # one draw of several
            low, high = other.spread["kl"]
            assert low * (1 - 1e-4) <= row.values["kl"] <= high * (1 + 1e-4)
            continue
        assert row.values == pytest.approx(other.values, rel=1e-5, abs=1e-6)
        assert row.domains.keys() == other.domains.keys() == {"code", "chat"}
        for domain, values in row.domains.items():
            assert values == pytest.approx(other.domains[domain], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "gemma3_text", "qwen3_moe"])
def test_memory_makes_no_difference(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "qwen3_moe":
        louder(mixture(tmp_path / "parent", name))
        flags: dict[str, Any] = {"keep_experts": "4", "criterion": "random"}
    else:
        random_model(name, "float32").save_pretrained(tmp_path / "parent")
        flags = {"keep_ffn": 0.5, "criterion": "capacity"}
    word_tokenizer(tmp_path / "parent")
    carve(tmp_path / "parent", tmp_path / "child", **flags)
    carve(tmp_path / "parent", tmp_path / "other", **flags | {"criterion": "random", "seed": 2})
    text = texts(tmp_path)
    theirs = judged(tmp_path, text, beside=("other",))
    monkeypatch.setattr(comparable, "free_memory", lambda: 0)
    monkeypatch.setattr(by_layers, "tokens_at_once", lambda blocks, sequences: 5)
    ours = judged(tmp_path, text, beside=("other",))
    beside = ["random", "frequency"] if name == "qwen3_moe" else []
    assert [row.name for row in ours.networks] == ["child", "parent", *beside, "other/"]
    same(ours, theirs)
    assert ours.note.startswith("layer by layer: all of them would take")
    assert ours.networks[0].values["kl"] > 1e-4


@pytest.mark.parametrize("way", ["deepseek_v3 int4", "gpt_oss mxfp4"])
def test_what_is_stored_quantised_loses_what_its_numbers_lose(way: str, tmp_path: Path) -> None:
    parent = packed_mixture(tmp_path / "parent", way)
    word_tokenizer(parent)
    carve(parent, tmp_path / "child", keep_experts="4", criterion="random", seed=1)
    ours = judged(tmp_path, texts(tmp_path))
    assert f"{str(tmp_path / 'child')!r} is stored quantised" in ours.note
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("parent", "child"):
        plain_twin(plain / name, tmp_path / name)
        word_tokenizer(plain / name)
    same(ours, judged(plain, texts(plain)))


def test_a_gguf_mixture_and_its_child(tmp_path: Path) -> None:
    """The child in its folder; a quantised file beside the one that it was made of."""
    folder = louder(mixture(tmp_path / "folder", "qwen3_moe", vocab_size=900, **QWEN))
    tokenizer = Tokenizer.from_str(byte_level("qwen2"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(folder)
    file = quantised(written(folder, tmp_path / "x.gguf"), "Q4_0", tmp_path / "parent.gguf")
    carve(file, tmp_path / "child", form="gguf", keep_experts="4", criterion="random")
    text = texts(tmp_path)
    result = evaluate.evaluate(tmp_path / "child", file, text, **FEW)
    rows = {row.name: row.values for row in result.networks}
    assert list(rows) == ["child", "parent", "random", "frequency"]
    child = rows["child"]
    assert (rows["parent"]["kl"], child["kl"] > 1e-4) == (0.0, True)
    assert rows["random"] == pytest.approx(child, rel=1e-4), "the child has the experts of that draw"
    rounded = evaluate.evaluate(file, tmp_path / "x.gguf", text, **FEW).networks[0].values
    exact = evaluate.evaluate(tmp_path / "x.gguf", tmp_path / "x.gguf", text, **FEW).networks[0].values
    assert 0 < rounded["kl"] < child["kl"]
    assert exact["kl"] == 0
    assert math.isfinite(exact["perplexity"])


def test_what_whole_networks_tell_is_refused(
    tmp_path: Path, zerolm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to prompts, and embeddings."""
    monkeypatch.setattr(comparable, "free_memory", lambda: 0)
    for name in ("llama", "bert"):
        word_tokenizer(saved(tmp_path / name, name))
        carve(tmp_path / name, tmp_path / f"{name}-child", keep_ffn=0.5, criterion="capacity")
    text = texts(tmp_path)
    llama = [f"{tmp_path}/llama-child", "--parent", f"{tmp_path}/llama", "--text", text, "--length", "12"]
    zerolm("eval", *llama, "--loops", "2", "-q").refused("so that no prompts are answered: leave --loops out")
    bert = [f"{tmp_path}/bert-child", "--parent", f"{tmp_path}/bert", "--text", text]
    zerolm("eval", *bert, "-q").refused("and embeddings are compared in memory")
