"""Beside a child with fewer experts: the parent with as many, which are children carved so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from divergences import perplexity_and_kl
from saved_mixtures import louder, mixture
from tiny import word_tokenizer

import zerolm
from zerolm.carving.experts.fewer_experts import FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import masked
from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.evaluate import Evaluated, evaluate
from zerolm.evaluation.same_size import DRAW_SEEDS, MASKED, NARROWER, without_experts
from zerolm.networks.opener import open_model
from zerolm.networks.roles import layer_list
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import DividedTokens, Tokens

FEW: dict[str, Any] = {"sequences": 6, "length": 12}


def parent_of(folder: Path, kind: str) -> Path:
    parent = louder(mixture(folder / "parent", kind))
    word_tokenizer(parent)
    (folder / "text.txt").write_text(" ".join(f"w{(i * i + 7 * i) % 61}" for i in range(300)))
    return parent


def rows_of(result: Evaluated) -> dict[str, Any]:
    return {row.name: row for row in result.networks}


@pytest.mark.parametrize("kind", ["deepseek_v3", "gpt_oss"])
def test_rows_are_carved_children(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by frequency on all tokens that are judged: carving takes those that nothing is judged on."""
    monkeypatch.setattr(Tokens, "divided", lambda tokens: DividedTokens(tokens, tokens, tokens))
    parent, text = parent_of(tmp_path, kind), tmp_path / "text.txt"
    flags: dict[str, Any] = {"keep_experts": "4", "repair": "none", **FEW}
    carve(parent, tmp_path / "child", text=text, **flags)
    result = evaluate(tmp_path / "child", parent, text, **FEW)
    rows = rows_of(result)
    assert list(rows)[:4] == ["child", "parent", "random", "frequency"]
    assert result.note.startswith(MASKED)
    checkpoint = Checkpoint.open(parent)
    reference, tokens = open_model(checkpoint), tokens_of(checkpoint, str(text), **FEW)

    def judged(name: str, **more: Any) -> dict[str, float]:
        carve(parent, tmp_path / name, **flags | more)
        return vars(perplexity_and_kl(open_model(Checkpoint.open(tmp_path / name)), reference, tokens))

    draws = [judged(f"random{seed}", criterion="random", seed=seed) for seed in DRAW_SEEDS]
    for measure in ("perplexity", "kl"):
        several = [draw[measure] for draw in draws]
        assert rows["random"].values[measure] == pytest.approx(np.mean(several), rel=1e-4)
        assert rows["random"].spread[measure] == pytest.approx((min(several), max(several)), rel=1e-4)
        assert min(several) < 0.999 * max(several)
    frequent = judged("frequent", criterion="frequency", text=text)
    assert rows["frequency"].values == pytest.approx(frequent, rel=1e-4)
    assert rows["frequency"].values["kl"] != pytest.approx(rows["random"].values["kl"], rel=1e-3)
    assert rows["parent"].values == vars(perplexity_and_kl(reference, reference, tokens))
    child = open_model(Checkpoint.open(tmp_path / "child"))
    assert rows["child"].values == vars(perplexity_and_kl(child, reference, tokens))
    sizes = [sum(tensor.numel() for tensor in one.state_dict().values()) for one in (child, reference)]
    assert {rows[name].params for name in ("child", "random", "frequency")} == {rows["child"].params}
    assert rows["parent"].params - rows["child"].params == sizes[1] - sizes[0]


def test_the_parent_is_as_it_was_behind_a_masked_one(tmp_path: Path) -> None:
    parent = Checkpoint.open(parent_of(tmp_path, "deepseek_v3"))
    model = open_model(parent)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ids = torch.arange(10)[None]
    wanted = model(input_ids=ids).logits
    fewer = FewerExperts(parent, {layer: np.array([0, 1, 4, 5]) for layer in expert_layers(parent)})
    assert not torch.equal(without_experts(model, fewer)(input_ids=ids).logits, wanted)
    assert torch.equal(model(input_ids=ids).logits, wanted)
    modules = {layer: layer_list(model)[layer] for layer in fewer.by_layer}
    with pytest.raises(ValueError, match="as a router"), masked(modules, fewer):
        pass
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_what_lacks_neurons_of_experts_has_its_parent_alone_beside_it(tmp_path: Path) -> None:
    parent = parent_of(tmp_path, "qwen3_moe")
    carve(parent, tmp_path / "child", keep_experts="4", keep_expert_ffn="16", criterion="random")
    result = evaluate(tmp_path / "child", parent, tmp_path / "text.txt", **FEW)
    assert not {"random", "uniform", "frequency"} & rows_of(result).keys()
    assert result.note.startswith(NARROWER)


def test_experts_that_are_not_called_with_gates_have_no_row_by_frequency(tmp_path: Path) -> None:
    parent = parent_of(tmp_path, "llama4_text")
    carve(parent, tmp_path / "child", keep_experts="4", criterion="random", seed=1)
    result = evaluate(tmp_path / "child", parent, tmp_path / "text.txt", **FEW)
    assert [row.name for row in result.networks][:3] == ["child", "parent", "random"]
    assert "frequency" not in rows_of(result)
    assert "no row by frequency: experts of a llama4_text are not called" in result.note


def test_a_file_that_llama_cpp_alone_reads_is_judged_as_its_folder(tmp_path: Path) -> None:
    """Files of a mixtral hold experts otherwise: llama.cpp runs them, and the judge is the same."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    from gguf_files import written
    from gguf_parents import in_blocks
    from typed_models import VOCAB, some_words, words_of_bytes

    parent = mixture(tmp_path / "parent", "mixtral", **in_blocks("mixtral") | {"vocab_size": VOCAB})
    words_of_bytes().save_pretrained(parent)
    file, text = written(parent, tmp_path / "same.gguf"), some_words(tmp_path / "text.txt")
    ours, theirs = zerolm.eval(file, parent=parent, text=text, sequences=4, length=24).rows()
    assert ours["params"] == theirs["params"]
    assert ours["perplexity"] == pytest.approx(theirs["perplexity"], rel=1e-4)
    assert 0 <= ours["kl"] < 1e-5
    with pytest.raises(ValueError, match="answers no prompts here"):
        zerolm.eval(file, parent=parent, text=text, loops=1)
