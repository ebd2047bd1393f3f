"""Train a model to find answers in texts: ``python examples/find_answers.py MODEL ROWS.csv OUT``.

MODEL is a folder that ``zerolm lab elastic export`` wrote, or any encoder of transformers with a fast
tokenizer. ROWS.csv has the columns ``question``, ``context`` and ``answer``, a text of the context; a tenth
of its rows is held out. OUT opens in ``AutoModelForQuestionAnswering``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, Trainer, TrainingArguments

import zerolm.lab.supernets.model  # noqa: F401 - makes paths of supernets known to transformers

HELD_OUT = 10
"""Every so many rows one is held out."""


def encoded(row: dict[str, str], tokenizer: Any, longest: int) -> dict[str, Any]:
    """Return question and context as tokens, and the first and last token of the answer, 0 where none."""
    tokens = tokenizer(
        row["question"], row["context"], truncation="only_second", max_length=longest,
        return_offsets_mapping=True,
    )  # fmt: skip
    places = tokens.pop("offset_mapping")
    start = row["context"].index(row["answer"])
    end = start + len(row["answer"])
    inside = [
        token
        for token, (part, (first, behind)) in enumerate(zip(tokens.sequence_ids(), places, strict=True))
        if part == 1 and behind > start and first < end
    ]
    first, last = (inside[0], inside[-1]) if inside else (0, 0)
    return {**tokens, "start_positions": first, "end_positions": last}


def main(model: Path, file: Path, out: Path, epochs: int = 3, rate: float = 5e-5) -> dict[str, float]:
    """Train, write the model, and return the share of answers that it finds ``exact``ly."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    transformers.set_seed(0)
    network = AutoModelForQuestionAnswering.from_pretrained(model, pad_token_id=tokenizer.pad_token_id)
    longest = network.config.max_position_embeddings
    train = [encoded(row, tokenizer, longest) for place, row in enumerate(rows) if place % HELD_OUT]
    judged = [encoded(row, tokenizer, longest) for row in rows[::HELD_OUT]]
    settings = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        num_train_epochs=epochs,
        learning_rate=rate,
        per_device_train_batch_size=16,
        save_strategy="no",
        label_names=["start_positions", "end_positions"],
        report_to=[],
    )

    def exact(prediction: Any) -> dict[str, float]:
        ends = zip(prediction.predictions[:2], prediction.label_ids, strict=True)
        return {"exact": float(np.all([logits.argmax(-1) == label for logits, label in ends], axis=0).mean())}

    trainer = Trainer(
        network, settings, train_dataset=train, eval_dataset=judged, processing_class=tokenizer,
        compute_metrics=exact,
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(out))
    return {"exact": trainer.evaluate()["eval_exact"]}


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:4])))
