"""The example attack: its table is TextAttack's, and judging gives TextAttack's rates of its victim."""

import csv
import random
import sys
from pathlib import Path

import pytest
import torch
from tiny import saved
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import attack_texts

from zerolm.checkpoints import Checkpoint
from zerolm.lab.subnets.judging import Judging, judged_by
from zerolm.lab.subnets.request import JudgingRequest
from zerolm.networks.compute import Compute
from zerolm.units.kept_units import Cut, dimensions


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A random classifier that reads letters, with a bias by which some rows are right."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = saved(tmp_path / "victim", "bert_classes")
    letters = {letter: number for number, letter in enumerate("?abcdefghijklmnopqrstuvwxyz@0123459")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="?").save_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = [attack_texts_logits(network, letters, text) for text in words()]
        network.classifier.bias[1] -= torch.stack(logits).diff(dim=1).quantile(0.5)
    network.save_pretrained(folder)
    return folder


def attack_texts_logits(network: torch.nn.Module, letters: dict[str, int], text: str) -> torch.Tensor:
    ids = torch.tensor([[letters.get(letter, 0) for letter in text.replace(" ", "?")]])
    logits: torch.Tensor = network(input_ids=ids).logits[0]
    return logits


def words() -> list[str]:
    draw = random.Random(0)
    return [
        " ".join("".join(draw.choices("abcdefghilmnopqrstuvz", k=draw.randint(3, 6))) for _ in range(4))
        for _ in range(30)
    ]


def test_its_victim_has_the_rates_that_it_prints(victim: Path, tmp_path: Path) -> None:
    rows = [{"text": text, "label": str(number % 2)} for number, text in enumerate(words())]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        writer.writerows(rows)
    rates = attack_texts.main(victim, tmp_path / "rows.csv", tmp_path / "attacked.csv")
    table = list(csv.DictReader((tmp_path / "attacked.csv").open(newline="")))
    assert {row["result_type"] for row in table} >= {"Successful", "Skipped"}
    for row, asked in zip(table, rows, strict=True):
        assert row["original_text"].replace("[[", "").replace("]]", "") == asked["text"]
        assert (row["result_type"] == "Skipped") == (row["original_output"] != row["ground_truth_output"])
        if row["result_type"] == "Successful":
            assert row["perturbed_output"] != row["ground_truth_output"]
            assert row["original_text"].count("[[") == row["perturbed_text"].count("[[") >= 1
    checkpoint = Checkpoint.open(victim)
    judging = JudgingRequest(data=str(tmp_path / "rows.csv"), attacked=str(tmp_path / "attacked.csv"))
    judged, _ = judged_by(checkpoint, judging)
    (results,) = Judging(str(victim), judged, Compute())([Cut.whole(dimensions(checkpoint))])
    assert 100 * results["accuracy"] == pytest.approx(rates["original accuracy"])
    assert 100 * results["accuracy_under_attack"] == pytest.approx(rates["accuracy under attack"])
    assert 100 * results["attack_success_rate"] == pytest.approx(rates["attack success rate"])
    drop = rates["original accuracy"] - rates["accuracy under attack"]
    assert 100 * results["accuracy_drop"] == pytest.approx(drop)


def test_words_are_changed_as_textbugger_does() -> None:
    changes = set(attack_texts.bugs("love"))
    assert {"lvoe", "lve", "loe", "l ove", "lo ve", "l0ve", "1ove", "lov3"} <= changes
    assert "love" not in changes
    assert set(attack_texts.bugs("b")) == set()
