"""A path as models of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)

from zerolm.elastic.model import ElasticConfig, ElasticForCausalLM, ElasticForMaskedLM
from zerolm.networks.build import build
from zerolm.spaces import make_space

NAMES = ("elastic", "elastic-causal")


def config(name: str) -> ElasticConfig:
    space = make_space(name, hidden=32, heads=2, embedding=8, vocab=40, positions=16, step=8)
    third = "llama" if name == "elastic-causal" else "bert"
    layers = [("bert", "kv", 8), ("mobile", "none", 16), (third, "qv", 24)]
    architecture = space.read({"layers": [{"block": b, "share": s, "ffn": f} for b, s, f in layers]})
    return ElasticConfig.of(space, architecture)


def model(name: str) -> Any:
    torch.manual_seed(0)
    kind: Any = ElasticForCausalLM if name == "elastic-causal" else ElasticForMaskedLM
    return kind(config(name)).train(False)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_network_of_the_architecture(name: str) -> None:
    made, network = model(name), build(config(name).architecture)
    weights = {key.removeprefix("network."): value for key, value in made.state_dict().items()}
    network.module.load_state_dict(weights)
    ids = torch.randint(0, 40, (3, 12))
    assert torch.equal(made(ids).logits, network.module(ids))
    assert sum(parameter.numel() for parameter in made.parameters()) == network.params


@pytest.mark.parametrize("name", NAMES)
def test_it_saves_and_opens_itself(name: str, tmp_path: Path) -> None:
    made = model(name)
    made.save_pretrained(tmp_path)
    auto: Any = AutoModelForCausalLM if name == "elastic-causal" else AutoModelForMaskedLM
    again = auto.from_pretrained(tmp_path).train(False)
    ids = torch.randint(0, 40, (3, 12))
    assert torch.equal(again(ids).logits, made(ids).logits)
    assert again.head.tokens.weight is again.get_input_embeddings().weight
    assert again.config.architecture.choices == made.config.architecture.choices
    hidden = AutoModel.from_pretrained(tmp_path).train(False)(ids, output_hidden_states=True)
    assert len(hidden.hidden_states) == 4
    assert torch.equal(hidden.last_hidden_state, hidden.hidden_states[-1])


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(name: str) -> None:
    made = model(name)
    ids = torch.randint(0, 40, (2, 12))
    mask = torch.ones_like(ids)
    mask[:, 9:] = 0
    padded = made(ids, attention_mask=mask).logits[:, :9]
    assert torch.allclose(padded, made(ids[:, :9]).logits, atol=1e-5)


def test_a_decoder_generates_its_likeliest_tokens() -> None:
    made = model("elastic-causal")
    ids = torch.randint(0, 40, (1, 3))
    told = made.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    for _ in range(6):
        ids = torch.cat([ids, made(ids).logits[:, -1:].argmax(-1)], 1)
    assert told.tolist() == ids.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_labels(name: str) -> None:
    made = model(name)
    ids = torch.randint(0, 40, (3, 12))
    logits = made(ids).logits
    loss = made(ids, labels=ids).loss
    ours, theirs = (logits[:, :-1], ids[:, 1:]) if name == "elastic-causal" else (logits, ids)
    expected = -torch.log_softmax(ours, -1).gather(-1, theirs[..., None]).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_heads_of_tasks(name: str, tmp_path: Path) -> None:
    model(name).save_pretrained(tmp_path)
    ids, mask = torch.randint(0, 40, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[0, 7:] = 0
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3).train(False)
    outputs = classifier(ids, attention_mask=mask, labels=torch.tensor([0, 2]))
    assert outputs.logits.shape == (2, 3)
    assert outputs.loss.item() > 0
    alone = classifier(ids[:1, :7]).logits
    assert torch.allclose(outputs.logits[:1], alone, atol=1e-5)
    reader = AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    answers = reader(ids)
    assert answers.start_logits.shape == answers.end_logits.shape == (2, 12)
