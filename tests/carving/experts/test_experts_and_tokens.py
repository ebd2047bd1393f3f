"""Fewer experts and fewer tokens in one child."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from carvings import carve, rebuild
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import NAMED, ROWS
from saved_mixtures import mixture
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from zerolm.carving.vocabulary import byte_losses
from zerolm.checkpoints import Checkpoint


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 512)
    folder = mixture(tmp_path / "parent", "qwen3_moe", vocab_size=ROWS)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(byte_level()), **NAMED)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> str:
    file = tmp_path / "text.txt"
    file.write_text(CORPUS[0] * 3, "utf-8")
    return str(file)


@torch.no_grad()
def test_a_child_lacks_both_sends_what_its_parent_sends_and_is_built_again(
    parent: Path, text: str, tmp_path: Path
) -> None:
    """With all experts kept the outputs are the parent's for kept tokens; with half, those of half."""
    flags = {"criterion": "random", "seed": 3, "keep_vocab": "used", "text": text, "repair": "none"}
    both = carve(parent, tmp_path / "both", keep_experts="0.5", **flags)
    experts = carve(parent, tmp_path / "experts", keep_experts="0.5", criterion="random", seed=3)
    child = Checkpoint.open(tmp_path / "both")
    assert child.layout.vocab == both.vocabulary.child < ROWS
    assert both.experts.layers == experts.experts.layers
    saved = [carved.costs["parent"]["params"] - carved.costs["child"]["params"] for carved in (both, experts)]
    assert saved[0] - saved[1] == both.vocabulary.saves
    ours, theirs = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("both", "experts"))
    few, many = (torch.tensor([one(CORPUS[0])["input_ids"][:40]]) for one in (ours, theirs))
    kept = torch.tensor(theirs.convert_tokens_to_ids(ours.convert_ids_to_tokens(range(len(ours)))))
    assert kept[few].equal(many)
    sent, wanted = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).eval()(input_ids=ids).logits
        for name, ids in (("both", few), ("experts", many))
    )
    torch.testing.assert_close(sent, wanted[..., kept], rtol=1e-5, atol=1e-5)
    rebuild(tmp_path / "both" / "recipe.json", parent, tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "both" / name).read_bytes()


def test_tokens_are_not_compared_with_experts_in_limited_time_or_of_several_texts(
    parent: Path, text: str
) -> None:
    with pytest.raises(ValueError, match=r"by losses on one --text FILE \(--for\): give numbers"):
        carve(parent, keep_experts="auto", keep_vocab="auto", text=text, max_params="0.9x", for_=60.0)
    several = f"code={text},chat={text}"
    with pytest.raises(ValueError, match="tokens are chosen by one text"):
        carve(parent, keep_experts="2", keep_vocab="used", text=several)
