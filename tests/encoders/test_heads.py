"""Heads of classification, tagging, answers and retrieval go into the child, whose stock class opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from carvings import carve
from sentence_folders import LINES
from tiny import MODELS, word_tokenizer

from zerolm.networks.roles import layer_list, layer_of, places_of
from zerolm.units.pruning import slice_layer

SIZES = MODELS["bert"][1]
CLASSES = {
    "BertForSequenceClassification": {"id2label": {0: "no", 1: "yes", 2: "maybe"}},
    "BertForTokenClassification": {"num_labels": 5},
    "BertForMultipleChoice": {},
    "BertForMaskedLM": {},
    "BertForPreTraining": {},
    "BertModel": {},
}


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
    (tmp_path / "text.txt").write_text("\n".join(LINES))
    cut = {"keep_layers": 0.67, "keep_ffn": 0.5, "repair": "none", "text": tmp_path / "text.txt"}
    carved = carve(tmp_path / "parent", tmp_path / "child", sequences=8, length=12, **cut)
    child, report = kind.from_pretrained(tmp_path / "child", output_loading_info=True)
    odd = {key: report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    assert not any(odd.values()), odd
    ids = torch.randint(64, (2, 1, 9) if name == "BertForMultipleChoice" else (2, 9))
    with torch.no_grad():
        ours, theirs = (
            one(input_ids=ids).to_tuple() for one in (child.eval(), masked(tmp_path / "parent", kind, carved))
        )
        whole = network.eval()(input_ids=ids).to_tuple()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours[0], whole[0], atol=1e-3)
    assert child.config.id2label == network.config.id2label
    assert child.config.architectures == [name]
