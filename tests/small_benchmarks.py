"""Benchmark files of networks that take milliseconds, and the options that go with them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

FEW = ("--batch", "16", "--length", "8", "--micro-batches", "4")


def llamas(path: Path, count: int = 6, vocab: int = 64, depth: int = 1) -> Path:
    """Labels of llamas of different sizes, the larger the better."""
    rows: list[Sequence[object]] = [("space", "architecture", "settings", "loss")]
    for number in range(count):
        heads, ffn = 1 + number % 4, 16 + 8 * (number // 4)
        sizes = {"hidden": 8 * heads, "head_size": 8, "heads": heads, "kv_heads": 1, "ffn": ffn}
        architecture = {"depth": depth + number % 3, **sizes}
        rows.append(("llama", json.dumps(architecture), json.dumps({"vocab": vocab}), 9 - heads - ffn / 100))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path
