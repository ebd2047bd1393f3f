"""The examples, on rows that are learnt in seconds: they learn, and what they write opens again."""

import random
import sys
from pathlib import Path

import pytest
from tiny import word_tokenizer
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import classify_texts
import find_answers

from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.model import ElasticConfig, ElasticForCausalLM, ElasticForMaskedLM
from zerolm.spaces import make_space
from zerolm.training.randomness import seeded


def model_in(folder: Path, name: str = "elastic") -> Path:
    """Write a small path of a supernet as ``zerolm lab elastic export`` does, with random weights."""
    space = make_space(name, hidden=48, heads=6, embedding=16, vocab=64, positions=32, step=8)
    assert isinstance(space, Elastic)
    layers = [{"block": block, "share": "kv", "ffn": 16} for block in ("mobile", "bert")]
    config = ElasticConfig.of(space, space.read({"layers": layers}))
    with seeded(0):
        (ElasticForCausalLM if config.causal else ElasticForMaskedLM)(config).save_pretrained(folder)
    word_tokenizer(folder)
    return folder


@pytest.mark.parametrize("name", ["elastic", "elastic-causal"])
def test_texts_are_classified(name: str, tmp_path: Path) -> None:
    """The class of a text is that of one of its words, wherever it stands."""
    draw, rows = random.Random(0), ["text,label"]
    for _ in range(200):
        words = [f"w{draw.randrange(10, 60)}" for _ in range(4)]
        label = draw.choice(["no", "yes"])
        words.append("w1" if label == "yes" else "w2")
        rows.append(f"{' '.join(words)},{label}")
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    out = tmp_path / "out"
    measured = classify_texts.main(
        model_in(tmp_path / "model", name), tmp_path / "rows.csv", out, epochs=12, rate=3e-3
    )
    assert measured["accuracy"] > 0.85 > measured["commonest class"]
    opened = AutoModelForSequenceClassification.from_pretrained(out)
    assert dict(opened.config.id2label) == {0: "no", 1: "yes"}


def test_answers_are_found(tmp_path: Path) -> None:
    """The answer is one word, at one of four places."""
    draw, rows = random.Random(0), ["question,context,answer"]
    for _ in range(160):
        words = [f"w{draw.randrange(10, 60)}" for _ in range(3)]
        words.insert(draw.randrange(4), "w5")
        rows.append(f"w3,{' '.join(words)},w5")
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    out = tmp_path / "out"
    mine = find_answers.main(model_in(tmp_path / "model"), tmp_path / "rows.csv", out, epochs=12, rate=3e-3)
    assert mine["exact"] > 0.6
    AutoModelForQuestionAnswering.from_pretrained(out)
