"""Tiny folders of sentence-transformers, written by hand: no test needs the package for them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tiny import saved, word_tokenizer

HIDDEN, NARROW = 48, 24
CLASSES = "sentence_transformers.models."
PROMPTS = {"prompts": {"query": "w1 w2 ", "document": ""}, "default_prompt_name": None}
LINES = [" ".join(f"w{(i * i + 7 * i + 5 * j) % 64}" for i in range(3 + j % 14)) for j in range(24)]


def write(file: Path, content: Any) -> None:
    """Write JSON into a file of a folder that may have to be made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def lines_file(folder: Path, lines: Sequence[str] = LINES) -> Path:
    """Write sentences into a text, one a line."""
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder / "text.txt"


def sentence_folder(
    folder: Path,
    *,
    inside: str = "",
    mode: str | Sequence[str] = "mean",
    kinds: Sequence[str] = ("Normalize",),
    model: str = "bert",
    seed: int = 0,
) -> Path:
    """Return a folder with a tiny encoder, at the root or ``inside`` a folder, and modules of these kinds."""
    place = folder / inside
    word_tokenizer(saved(place, model, seed), "w0")
    (place / "LICENSE").write_text("free", encoding="utf-8")
    write(place / "sentence_bert_config.json", {"max_seq_length": 12, "do_lower_case": False})
    names = [inside, "1_Pooling", *(f"{number}_{kind}" for number, kind in enumerate(kinds, 2))]
    modules = [
        {"idx": number, "name": str(number), "path": name, "type": f"{CLASSES}{kind}"}
        for number, (name, kind) in enumerate(zip(names, ("Transformer", "Pooling", *kinds), strict=True))
    ]
    write(folder / "modules.json", modules)
    write(folder / "config_sentence_transformers.json", PROMPTS | {"similarity_fn_name": "cosine"})
    write(folder / "1_Pooling" / "config.json", {"embedding_dimension": HIDDEN, "pooling_mode": mode})
    width = HIDDEN * (1 if isinstance(mode, str) else len(mode))
    for name, kind in zip(names[2:], kinds, strict=True):
        if kind == "Dense":
            dense(folder / name, width)
            width = NARROW
    return folder


def dense(place: Path, width: int, **changes: Any) -> None:
    """Write a ``Dense`` from so many dimensions."""
    config = {"in_features": width, "out_features": NARROW, "bias": True}
    config["activation_function"] = "torch.nn.modules.activation.Tanh"
    write(place / "config.json", config | changes)
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(NARROW, width, generator=generator) / width**0.5
    save_file(
        {"linear.weight": weight, "linear.bias": torch.randn(NARROW, generator=generator)},
        place / "model.safetensors",
    )
