"""Attack a classifier by characters: ``python examples/attack_texts.py MODEL ROWS.csv ATTACKED.csv``.

In the manner of TextBugger (arXiv 1812.05271): the words whose removal raises the loss most are changed one
after another (two letters swapped, one dropped, a space put in, a look-alike in the place of one), each in
the way that raises the loss most, until the class is another or three words in ten were changed. MODEL opens
in ``AutoModelForSequenceClassification``; ROWS.csv has the columns ``text`` and ``label``. ATTACKED.csv has
the columns that TextAttack writes, with [[changed]] words; ``zerolm lab slice --attacked`` reads it.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

CHANGED = 0.3
"""The share of words that may be changed, at least one."""
LOOK_ALIKES = dict(zip("aceilosuvz", "@(31105vu2", strict=True))
COLUMNS = (
    *("original_text", "perturbed_text", "original_score", "perturbed_score"),
    *("original_output", "perturbed_output", "ground_truth_output", "num_queries", "result_type"),
)


@dataclass
class Victim:
    """A classifier with its tokenizer, and how often it was asked."""

    model: Any
    tokenizer: Any
    queries: int = 0

    def losses(self, texts: Sequence[str], label: int) -> tuple[list[float], list[int]]:
        """Return 1 - p of the label, and the class, of each text."""
        self.queries += len(texts)
        longest = min(self.model.config.max_position_embeddings, 512)
        tokens = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt"
        )
        with torch.no_grad():
            p = self.model(**tokens).logits.softmax(-1)
        return (1.0 - p[:, label]).tolist(), p.argmax(-1).tolist()


def bugs(word: str) -> Iterator[str]:
    """Yield the changes of a word; the first and the last letter stay in their places where others can go."""
    for i in range(1, len(word) - 2):
        yield word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    for i in range(1, len(word) - 1):
        yield word[:i] + word[i + 1 :]
        yield word[:i] + " " + word[i:]
    for i, letter in enumerate(word):
        if letter.lower() in LOOK_ALIKES:
            yield word[:i] + LOOK_ALIKES[letter.lower()] + word[i + 1 :]


def attacked(victim: Victim, text: str, label: int) -> dict[str, Any]:
    """Return a row of TextAttack's table."""
    victim.queries = 0
    words = text.split()
    (loss,), (output,) = victim.losses([text], label)
    before = loss
    changed = dict[int, str]()
    outcome, now = "Skipped" if output != label else "Failed", output
    if outcome != "Skipped":
        without = [" ".join(words[:i] + words[i + 1 :]) or "." for i in range(len(words))]
        removed, _ = victim.losses(without, label)
        order = sorted(range(len(words)), key=lambda i: (-removed[i], i))
        for place in order[: max(1, int(CHANGED * len(words)))]:
            options = list(dict.fromkeys(bugs(words[place])))
            if not options:
                continue
            texts = [" ".join({**dict(enumerate(words)), **changed, place: one}.values()) for one in options]
            losses, outputs = victim.losses(texts, label)
            best = max(range(len(options)), key=losses.__getitem__)
            if losses[best] <= loss:
                continue
            changed[place], loss, now = options[best], losses[best], outputs[best]
            if now != label:
                outcome = "Successful"
                break
    marked = [
        " ".join(f"[[{each}]]" if i in changed else each for i, each in enumerate(some))
        for some in (words, [changed.get(i, word) for i, word in enumerate(words)])
    ]
    if not changed:
        marked = [text, text]
    marked = [each.replace("\n", "<SPLIT>") for each in marked]
    values = (*marked, before, loss, output, now, label, victim.queries, outcome)
    return dict(zip(COLUMNS, values, strict=True))


def attack(victim: Victim, rows: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return TextAttack's table of ``rows`` with ``text`` and ``label``, a name or a number."""
    classes = victim.model.config.id2label
    numbers = {**{name: number for number, name in classes.items()}, **{str(each): each for each in classes}}
    return [attacked(victim, row["text"], numbers[row["label"]]) for row in rows]


def rates(table: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return TextAttack's three rates, in percent."""
    outcomes = Counter(row["result_type"] for row in table)
    tried = outcomes["Failed"] + outcomes["Successful"]
    return {
        "original accuracy": 100.0 * tried / len(table),
        "accuracy under attack": 100.0 * outcomes["Failed"] / len(table),
        "attack success rate": 100.0 * outcomes["Successful"] / max(1, tried),
    }


def main(model: Path, file: Path, out: Path, count: int | None = None) -> dict[str, float]:
    """Attack ``count`` rows (all), write the table, and return its rates."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))[:count]
    network = AutoModelForSequenceClassification.from_pretrained(model).eval()
    table = attack(Victim(network, AutoTokenizer.from_pretrained(model)), rows)
    with out.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, COLUMNS, quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows(table)
    return rates(table)


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:4])))
