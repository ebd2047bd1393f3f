"""Train a model to classify texts: ``python examples/classify_texts.py MODEL ROWS.csv OUT``.

MODEL is a folder that ``zerolm lab elastic export`` wrote, or any encoder or decoder of transformers.
ROWS.csv has the columns ``text`` and ``label``; a tenth of its rows is held out. OUT opens in
``AutoModelForSequenceClassification``.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

import zerolm.lab.supernets.model  # noqa: F401 - makes paths of supernets known to transformers

HELD_OUT = 10
"""Every so many rows one is held out."""


def main(model: Path, file: Path, out: Path, epochs: int = 3, rate: float = 5e-5) -> dict[str, float]:
    """Train, write the model, and return its ``accuracy`` beside that of the commonest class."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    names = sorted({row["label"] for row in rows})
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    transformers.set_seed(0)
    network = AutoModelForSequenceClassification.from_pretrained(
        model,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
        pad_token_id=tokenizer.pad_token_id,
        ignore_mismatched_sizes=True,
    )
    longest = network.config.max_position_embeddings

    def encoded(row: dict[str, str]) -> dict[str, Any]:
        tokens = tokenizer(row["text"], truncation=True, max_length=longest)
        return {**tokens, "labels": names.index(row["label"])}

    train = [encoded(row) for place, row in enumerate(rows) if place % HELD_OUT]
    judged = [encoded(row) for row in rows[::HELD_OUT]]
    settings = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        num_train_epochs=epochs,
        learning_rate=rate,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to=[],
    )
    trainer = Trainer(
        network, settings, train_dataset=train, eval_dataset=judged, processing_class=tokenizer,
        compute_metrics=lambda p: {"accuracy": float(np.mean(p.predictions.argmax(-1) == p.label_ids))},
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(out))
    _, commonest = Counter(row["labels"] for row in train).most_common(1)[0]
    return {"accuracy": trainer.evaluate()["eval_accuracy"], "commonest class": commonest / len(train)}


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:4])))
