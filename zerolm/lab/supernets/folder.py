"""The folder of a trained supernet: its weights and widths, the space, and how it was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import safetensors.torch
from transformers import PreTrainedTokenizerBase

from zerolm.io.brief import one_line
from zerolm.io.files import parse_json, read_text, write_json
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.result import GrowthEpoch
from zerolm.lab.supernets.supernet import Supernet
from zerolm.networks.opener import stock_tokenizer
from zerolm.spaces import make_space

SUPERNET_FORMAT: Final = "zerolm-supernet"
SUPERNET_FILE: Final = "supernet.json"
SUPERNET_WEIGHTS: Final = "supernet.safetensors"
HISTORY: Final = "history.jsonl"
MAX_FACTS: Final = 16 << 20


def write_supernet(
    folder: Path,
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    facts: Mapping[str, Any],
    history: Sequence[GrowthEpoch],
) -> None:
    """Write a supernet with the ``facts`` of its training (plain JSON)."""
    space = supernet.grown_space()
    tokenizer.save_pretrained(folder)
    safetensors.torch.save_model(supernet, str(folder / SUPERNET_WEIGHTS))
    (folder / HISTORY).write_text(
        "".join(f"{json.dumps(asdict(row))}\n" for row in history), encoding="utf-8"
    )
    files = sorted([SUPERNET_FILE, *(file.name for file in folder.iterdir())])
    about = {"format": SUPERNET_FORMAT, "space": space.name, "settings": space.settings, "files": files}
    write_json(folder / SUPERNET_FILE, {**about, **facts})


def read_supernet(folder: Path) -> tuple[Supernet, PreTrainedTokenizerBase, dict[str, Any]]:
    """Return the supernet of a folder, its tokenizer, and its description.

    ``ValueError``, in one line, where the folder is none of a supernet or damaged, or its weights are of
    another configuration.
    """
    file = folder / SUPERNET_FILE
    try:
        facts = parse_json(read_text(file, MAX_FACTS))
    except (OSError, ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != SUPERNET_FORMAT:
        raise ValueError(f"{str(folder)!r} is no folder of a supernet: it has no {SUPERNET_FILE} of one")
    settings, text = facts.get("settings"), facts.get("text")
    if not isinstance(settings, dict) or not isinstance(text, dict):
        raise ValueError(f"{str(file)!r} has no settings of a space, or no text")
    space = make_space(str(facts.get("space")), **settings)
    if not isinstance(space, Elastic):
        raise ValueError(f"{str(file)!r} is of space {space.name!r}, which has no supernets")
    supernet = Supernet(space)
    widths = supernet.widths.clone()
    with one_line(f"the weights in {str(folder / SUPERNET_WEIGHTS)!r}"):
        safetensors.torch.load_model(supernet, str(folder / SUPERNET_WEIGHTS))
    if not bool((supernet.widths == widths).all()):
        raise ValueError(f"the weights in {str(folder)!r} do not have the widths of {SUPERNET_FILE}")
    return supernet.train(False), stock_tokenizer(folder), facts
