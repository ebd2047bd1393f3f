"""A trained model as a folder of the usual layout, which appears when it is complete."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from transformers import PreTrainedModel, PreTrainedTokenizerFast

MODULES: Final = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def refuse_existing(folder: Path) -> None:
    """``ValueError`` where the place is taken."""
    if folder.exists():
        raise ValueError(f"{str(folder)!r} exists already; name another place, or remove it")


def write_model(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, card: str, *, pooled: bool
) -> None:
    """Weights, configuration, tokenizer and card; ``pooled``: also that sentences are means of tokens."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        if pooled:
            _write_pooling(unfinished, model.config.hidden_size)
        (unfinished / "README.md").write_text(card, encoding="utf-8")
        unfinished.chmod(0o755)
        for file in unfinished.glob("*.*"):
            file.chmod(0o644)
        refuse_existing(folder)
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def card(name: str, lines: dict[str, str]) -> str:
    """What a folder's README says: a table of what and how."""
    rows = [f"| {what} | {said} |" for what, said in {**lines, "Python": platform.python_version()}.items()]
    return "\n".join(
        [f"# {name}", "", "Written by `benchmarks/train_models.py`.", "", "| | |", "|---|---|", *rows, ""]
    )


def _write_pooling(folder: Path, width: int) -> None:
    modes = {
        f"pooling_mode_{mode}": mode == "mean_tokens" for mode in ("mean_tokens", "cls_token", "max_tokens")
    }
    _write_json(folder / "modules.json", MODULES)
    (folder / "1_Pooling").mkdir()
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
