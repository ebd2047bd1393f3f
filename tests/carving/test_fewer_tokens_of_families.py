"""Tables of tokens wherever a family has them: the child opens in its class, and computes as its parent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import TINY, saved
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from zerolm.carving.carve import carve
from zerolm.carving.request import Destination, Methods
from zerolm.checkpoints import Checkpoint
from zerolm.planning.size_request import SizeRequest, VocabularyRequest

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


def cut_to_listed(folder: Path) -> Any:
    """Carve the parent in a folder to the listed tokens, with what they need."""
    words(folder / "parent")
    (folder / "ids.json").write_text(json.dumps(LISTED))
    request = SizeRequest.of(vocabulary=VocabularyRequest(None, str(folder / "ids.json")))
    return carve(folder / "parent", request, Methods(), Destination(folder / "child"))


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    file = saved(tmp_path / "parent", "glm4_moe", pad_token_id=1) / "model.safetensors"
    beyond = f"model.layers.{Checkpoint.open(file.parent).layout.depth}"
    further = {
        f"{beyond}.{name}.weight": torch.ones(ROWS, 48) for name in ("embed_tokens", "shared_head.head")
    }
    save_file(load_file(file) | further, file, {"format": "pt"})
    assert cut_to_listed(tmp_path).verified.relative <= 1e-5
    assert not [name for name in load_file(tmp_path / "child" / file.name) if name.startswith(f"{beyond}.")]


@pytest.mark.parametrize("kind", ODD)
def test_every_table_loses_its_rows(kind: str, tmp_path: Path) -> None:
    changes = {"hidden_size_per_layer_input": 8, "enable_moe_block": False} if "gemma4" in kind else {}
    changes |= {"pad_token_id": 1} if "pad_token_id" not in TINY[kind] else {}
    saved(tmp_path / "parent", kind, **changes)
    carved = cut_to_listed(tmp_path)
    parent, child = (Checkpoint.open(tmp_path / name) for name in ("parent", "child"))
    assert child.layout.vocab == carved.vocabulary.child < ROWS
    assert max(carved.vocabulary.proof.relative, carved.verified.relative) <= 1e-5
    kept = [*range(34), *LISTED]  # special tokens and characters stay
    for name, slot in parent.layout.slots.items():
        whole, part = parent.read(name), child.read(name)
        for axis, label in enumerate(slot.axes):
            whole = np.take(whole, kept, axis) if label in ("vocab", "layer_vocab") else whole
        np.testing.assert_array_equal(part, whole)
