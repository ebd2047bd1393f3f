"""Paths as models of transformers: saved, opened by the automatic classes, padded, refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_supernets import NAMES, WORDS, space_of, supernet_of
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)

from zerolm.lab.supernets.export import named
from zerolm.lab.supernets.model import ElasticConfig, ElasticForCausalLM, ElasticForMaskedLM

AUTO: dict[str, Any] = {"elastic": AutoModelForMaskedLM, "elastic-causal": AutoModelForCausalLM}
IDS = torch.randint(WORDS, (2, 9), generator=torch.Generator().manual_seed(1))


def model_of(name: str) -> tuple[Any, torch.Tensor]:
    net = supernet_of(name)
    path = [1, net.shape[1] - 1]
    config = ElasticConfig.of(space_of(name), net.architecture(path))
    model = (ElasticForMaskedLM if name == "elastic" else ElasticForCausalLM)(config).eval()
    model.load_state_dict(named(net.path_state(path)))
    return model, net(IDS, path).detach()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_opens_with_the_same_logits(name: str, tmp_path: Path) -> None:
    model, logits = model_of(name)
    assert torch.allclose(model(IDS).logits, logits, atol=1e-5)
    model.save_pretrained(tmp_path)
    opened, report = AUTO[name].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert torch.allclose(opened.eval()(IDS).logits, logits, atol=1e-5)
    assert opened.head.tokens.weight is opened.get_input_embeddings().weight
    for maker in (AutoModel, AutoModelForSequenceClassification, AutoModelForQuestionAnswering):
        other, report = maker.from_pretrained(tmp_path, output_loading_info=True)
        assert not [key for key in report["missing_keys"] if key.startswith("network.")]
        assert torch.equal(other.get_input_embeddings().weight, opened.get_input_embeddings().weight)
        assert all(bool(torch.isfinite(parameter).all()) for parameter in other.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_padding_on_the_right_changes_nothing(name: str, tmp_path: Path) -> None:
    model, logits = model_of(name)
    padded = torch.nn.functional.pad(IDS, (0, 4), value=3)
    mask = torch.ones_like(padded)
    mask[:, 9:] = 0
    assert torch.allclose(model(padded, attention_mask=mask).logits[:, :9], logits, atol=1e-5)
    model.save_pretrained(tmp_path)
    classes: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3).eval()
    given = classes(padded, attention_mask=mask, labels=torch.tensor([0, 2]))
    assert torch.allclose(given.logits, classes(IDS).logits, atol=1e-5)
    wanted = torch.nn.functional.cross_entropy(given.logits, torch.tensor([0, 2]))
    assert torch.allclose(given.loss, wanted)
    answers: Any = AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    ends = [torch.tensor([1, 8]), torch.tensor([3, 0])]
    given = answers(padded, attention_mask=mask, start_positions=ends[0], end_positions=ends[1])
    logits = (given.start_logits, given.end_logits)
    assert logits[0].shape == logits[1].shape == (2, 13)
    losses = [torch.nn.functional.cross_entropy(x, places) for x, places in zip(logits, ends, strict=True)]
    assert torch.allclose(given.loss, torch.stack(losses).mean())


def test_losses_and_hidden_states_are_those_of_transformers() -> None:
    model, logits = model_of("elastic")
    labels = IDS.masked_fill(torch.rand(IDS.shape) < 0.5, -100)
    out = model(IDS, labels=labels, output_hidden_states=True)
    assert torch.allclose(out.loss, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    assert len(out.hidden_states) == 3
    decoder, logits = model_of("elastic-causal")
    wanted = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())
    assert torch.allclose(decoder(IDS, labels=IDS).loss, wanted)


def test_a_decoder_generates_its_likeliest_tokens() -> None:
    model, _ = model_of("elastic-causal")
    ids = IDS[:1, :3]
    told = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    for _ in range(6):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    assert told.tolist() == ids.tolist()


def test_segments_count() -> None:
    model, _ = model_of("elastic")
    segments = torch.zeros_like(IDS)
    assert torch.equal(model(IDS).logits, model(IDS, token_type_ids=segments).logits)
    assert not torch.equal(model(IDS).logits, model(IDS, token_type_ids=segments + 1).logits)


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"layers": []}, "depth must be an integer from 1"),
    ({"layers": [{"block": "bert", "share": "none", "ffn": 1 << 40}]}, "ffn must be an integer"),
    ({"layers": [7]}, "blocks 'None' is not known; there are bert, mobile"),
    ({"vocab_size": 1 << 60}, "vocab must be an integer"),
    ({"hidden_size": -4}, "hidden must be an integer"),
    ({"causal": True}, "is of a decoder, which ElasticForMaskedLM is not"),
]


@pytest.mark.parametrize(("change", "message"), HOSTILE)
def test_configurations_of_no_network(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    model, _ = model_of("elastic")
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    config = AutoConfig.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        ElasticForMaskedLM(config)
