"""A text and a small space whose architectures train within a second each."""

from pathlib import Path
from typing import Any

SPACE: dict[str, Any] = {
    "hidden": "16,32", "depth": "1,2", "head_size": "8", "ffn": "16:64:16", "heads_per_kv": "1",
    "hidden_per_depth": "1:1000", "ffn_per_hidden": "0.1:10", "vocab": 300,
}  # fmt: skip
TRAINING: dict[str, Any] = {"tokens": 160, "batch": 2, "length": 16}
"""Five steps."""
ASKED: dict[str, Any] = {"count": 5, "max_body_params": "15k", **TRAINING, **SPACE}


def some_text(folder: Path, words: int = 3000) -> Path:
    file = folder / "text.txt"
    file.write_text(" ".join(f"w{i * i % 61}" for i in range(words)))
    return file


def flags(settings: dict[str, Any] | None = None) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in (settings or ASKED).items()]
