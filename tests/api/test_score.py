"""Scores of models by name: as a search takes its baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusals import Zerolm

import zerolm
from zerolm.checkpoints.named_model import DOCUMENTS
from zerolm.costs import CostModel
from zerolm.scores import make_score
from zerolm.spaces.decoders import SPACE_OF, decoders

SMALL = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 768,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(decoders()))
def test_every_known_decoder_is_scored_by_name_and_hub_id(name: str) -> None:
    decoder = decoders()[name]
    report = zerolm.score(name.lower(), score="geo", context=2048)
    assert report.costs == CostModel(context=2048).of(decoder.architecture)
    assert report.scores[0].value == make_score("geo").of(decoder.architecture)
    assert report.architecture == decoder.choices
    assert (report.space in {space for space, _ in SPACE_OF.values()}) == (decoder.family in SPACE_OF)
    assert zerolm.score(decoder.hub, score="geo", context=2048) == report


def test_it_is_the_baseline_of_a_search(tmp_path: Path) -> None:
    """Costs and scores are those that a search has for the same name."""
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    for name in ("SmolLM2-135M", tmp_path, tmp_path / "config.json"):
        result = zerolm.search(baseline=name, context=2048, top=1)
        report = zerolm.score(name, score="geo", context=2048)
        assert result.baseline is not None
        assert result.baseline.choice.costs == report.costs
        assert result.baseline.choice.score == pytest.approx(report.scores[0].value, rel=1e-12)


def test_a_model_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.checkpoints.named_model.fetched_config", lambda name: SMALL)
    assert zerolm.score("someone/something", score="geo").scores == zerolm.score(SMALL, score="geo").scores


def test_a_named_model_is_repeated_by_its_name(tmp_path: Path, zerolm: Zerolm) -> None:
    flags = ("score", "SmolLM2-135M", "--score", "zerolm", "--alpha", "0.5", "--alpha", "1.1")
    ran = zerolm(*flags, "--out", str(tmp_path / "out"), "--json")
    assert ran.status == 0, ran.err
    again = zerolm("score", "--config", str(tmp_path / "out" / "run.yaml"), "--json")
    assert json.loads(again.out) == json.loads(ran.out)
    assert [row["alpha"] for row in json.loads(ran.out)["scores"]] == [0.5, 1.1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SmolLM3", "is called 'SmolLM3'; did you mean 'SmolLM2-"),
        ("nowhere.json", "'nowhere.json' does not exist; give an architecture file"),
        ("nowhere/labels.csv", "'nowhere/labels.csv' does not exist"),
        (".", "folder '.' has neither config.json nor architecture.json"),
    ],
)
def test_an_unknown_model_is_one_line(
    name: str, words: str, tmp_path: Path, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["score", name], ["search", "--baseline", name]):
        zerolm(*command).refused(words)


def test_a_folder_is_looked_through_in_one_order(tmp_path: Path) -> None:
    choices = {"depth": 2, "hidden": 128, "head_size": 64, "heads": 2, "ffn": 512}
    documents = ({"space": "bert", "architecture": choices}, SMALL)
    for name, document in zip(DOCUMENTS, documents, strict=True):
        (tmp_path / name).write_text(json.dumps(document))
    assert zerolm.score(tmp_path, score="geo").space == "bert"


def test_costs_that_there_are_not_are_no_result(tmp_path: Path) -> None:
    report = zerolm.score(SMALL, score="geo")
    assert type(report).from_json(report.to_json()) == report
    with pytest.raises(ValueError, match="there is no cost 'wit'"):
        type(report).from_json({**report.to_json(), "costs": {"wit": 3}})
    with pytest.raises(ValueError, match=r"scores\.0\.value"):
        type(report).from_json(
            {**report.to_json(), "scores": [{"score": "geo", "alpha": None, "value": "x"}]}
        )
