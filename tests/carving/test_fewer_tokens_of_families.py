"""Tables of tokens wherever a family has them: the child opens in its class, and computes as its parent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_families import TINY, saved
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from zerolm.carving.carve import carve
from zerolm.carving.request import Destination, Methods, SizeRequest, VocabularyRequest
from zerolm.checkpoints import Checkpoint

ROWS = 64
LISTED = [40, 43, 57]
ODD = {
    "bert": "a head with a bias",
    "distilbert": "a head with a bias of another name",
    "deberta-v2": "a head of its own matrix",
    "electra": "an embedding narrower than the stream",
    "gptj": "an untied head with a bias",
    "opt": "tied, positions begin behind two rows",
    "gemma4_text": "embeddings of each layer",
    "qwen3_5_text": "layers without attention",
    "mixtral": "experts",
}


def words(folder: Path) -> None:
    """A WordPiece of characters and pairs of them, with a token for each row but two."""
    letters = "abcdefghijklmnop"
    pieces = ["[UNK]", "[PAD]", *letters, *(f"##{letter}" for letter in letters)]
    pieces += [f"{first}{second}" for first in letters for second in letters][: ROWS - 2 - len(pieces)]
    tokenizer = Tokenizer(models.WordPiece(dict(zip(pieces, range(ROWS), strict=False)), unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    stock = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
    stock.save_pretrained(folder)


@pytest.mark.parametrize("kind", ODD)
def test_every_table_loses_its_rows(kind: str, tmp_path: Path) -> None:
    changes = {"hidden_size_per_layer_input": 8, "enable_moe_block": False} if "gemma4" in kind else {}
    changes |= {"pad_token_id": 1} if "pad_token_id" not in TINY[kind] else {}
    saved(tmp_path / "parent", kind, **changes)
    words(tmp_path / "parent")
    (tmp_path / "ids.json").write_text(json.dumps(LISTED))
    request = SizeRequest.of(vocabulary=VocabularyRequest(None, str(tmp_path / "ids.json")))
    carved = carve(tmp_path / "parent", request, Methods(), Destination(tmp_path / "child"))
    parent, child = (Checkpoint.open(tmp_path / name) for name in ("parent", "child"))
    assert carved.vocabulary is not None
    assert carved.verified is not None
    assert child.layout.vocab == carved.vocabulary["child"] < ROWS
    assert max(carved.vocabulary["proof"]["relative"], carved.verified["relative"]) <= 1e-5
    kept = [*range(34), *LISTED]  # special tokens and characters stay
    for name, slot in parent.layout.slots.items():
        whole, part = parent.read(name), child.read(name)
        for axis, label in enumerate(slot.axes):
            whole = np.take(whole, kept, axis) if label in ("vocab", "layer_vocab") else whole
        np.testing.assert_array_equal(part, whole)
