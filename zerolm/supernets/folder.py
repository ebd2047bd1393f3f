"""The folder of a trained supernet: its weights and widths, the space, and how it was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import safetensors.torch
from transformers import PreTrainedTokenizerBase

from zerolm.io.files import parse_json, read_text, write_json
from zerolm.networks.opener import one_line, stock_tokenizer
from zerolm.spaces import make_space
from zerolm.spaces.elastic import Elastic
from zerolm.supernets.supernet import Supernet

FORMAT: Final = "zerolm-supernet"
TOLD: Final = "supernet.json"
WEIGHTS: Final = "supernet.safetensors"
HISTORY: Final = "history.jsonl"
MOST: Final = 16 << 20


def write_supernet(
    folder: Path,
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    told: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
) -> None:
    """Write a supernet with what is ``told`` of its training (plain JSON)."""
    space = supernet.grown_space()
    tokenizer.save_pretrained(folder)
    safetensors.torch.save_model(supernet, str(folder / WEIGHTS))
    (folder / HISTORY).write_text("".join(f"{json.dumps(row)}\n" for row in history), encoding="utf-8")
    files = sorted([TOLD, *(file.name for file in folder.iterdir())])
    about = {"format": FORMAT, "space": space.name, "settings": space.settings, "files": files}
    write_json(folder / TOLD, {**about, **told})


def told_of(folder: Path) -> dict[str, Any]:
    """Return what a supernet's folder tells of it; ``ValueError`` for any other folder."""
    try:
        told = parse_json(read_text(folder / TOLD, MOST))
    except (OSError, ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError(f"{str(folder)!r} is no folder of a supernet: it has no {TOLD} of one")
    return told


def read_supernet(folder: Path) -> tuple[Supernet, PreTrainedTokenizerBase, dict[str, Any]]:
    """Return the supernet of a folder, its tokenizer, and what is told of it.

    ``ValueError``, in one line, where the folder is damaged, or its weights are of another configuration.
    """
    told = told_of(folder)
    settings, text = told.get("settings"), told.get("text")
    if not isinstance(settings, dict) or not isinstance(text, dict):
        raise ValueError(f"{str(folder / TOLD)!r} has no settings of a space, or no text")
    space = make_space(str(told.get("space")), **settings)
    if not isinstance(space, Elastic):
        raise ValueError(f"{str(folder / TOLD)!r} is of space {space.name!r}, which has no supernets")
    supernet = Supernet(space)
    widths = supernet.widths.clone()
    with one_line(f"the weights in {str(folder / WEIGHTS)!r}"):
        safetensors.torch.load_model(supernet, str(folder / WEIGHTS))
    if not bool((supernet.widths == widths).all()):
        raise ValueError(f"the weights in {str(folder)!r} are of other widths than {TOLD} tells")
    return supernet.train(False), stock_tokenizer(folder), told
