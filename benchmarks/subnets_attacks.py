"""Attacks of sub-networks themselves, for ``subnets.py``: each is its own victim, as in ZeroLM's tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from subnets_runs import criterion_in, sizes_in
from timing import note

from zerolm.architecture import Floats
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.pruning import apply_in_memory
from zerolm.carving.subnets.judging import classifier
from zerolm.carving.subnets.request import CutRequest, JudgingRequest
from zerolm.carving.subnets.slicing import cuts_of
from zerolm.checkpoints import Checkpoint
from zerolm.groundtruth.truth import check, thinned
from zerolm.networks.opener import stock_tokenizer

VICTIMS: Final = 50
"""Sub-networks that are attacked, evenly spread over all."""
PARENT: Final = "parent"
"""The id of the whole parent among the victims."""
STRENGTHS: Final = {"one word changed at most": 1, "three words in ten changed at most": None}
"""Words that an attack may change; None for as many as it tried. Words fall one after another."""


def attack_each(
    parent: Path, cutting: CutRequest, judging: JudgingRequest, document: dict[str, Any], file: Path
) -> None:
    """Attack every row of the clean table for each victim; a line of the file holds the outcomes of one.

    An outcome is the result and the number of changed words, as ``Successful 2``. What is there already is
    not attacked again.
    """
    import attack_texts

    few = [PARENT, *(entry.id for entry in thinned(check(document["benchmark"]), VICTIMS).architectures)]
    kept = outcomes(file)
    waiting = [one for one in few if one not in kept]
    if not waiting:
        return
    checkpoint = Checkpoint.open(parent)
    cuts = cuts_of(
        checkpoint,
        criterion_in(checkpoint, cutting, judging),
        sizes_in(document, checkpoint.layout.depth),
    )
    ids = [entry["id"] for entry in document["benchmark"]["architectures"]]
    network, tokenizer = classifier(checkpoint), stock_tokenizer(checkpoint.folder)
    with Path(str(judging.data)).open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    for done, one in enumerate(waiting, len(few) - len(waiting)):
        note("attacking sub-networks", done, len(few))
        cut = Cut.whole(dimensions(checkpoint)) if one == PARENT else cuts[ids.index(one)]
        victim = attack_texts.Victim(apply_in_memory(network, cut), tokenizer)
        table = attack_texts.attack(victim, rows)
        ends = [f"{row['result_type']} {row['perturbed_text'].count('[[')}" for row in table]
        with file.open("a") as lines:
            lines.write(json.dumps({"id": one, "outcomes": ends}) + "\n")


def outcomes(file: Path) -> dict[str, list[str]]:
    """Return the outcomes of the rows by the ids of their victims."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {row["id"]: row["outcomes"] for row in map(json.loads, lines)}


def stands(row: Sequence[str], most: int | None) -> Floats:
    """Return which rows (n,) of a victim are right, also when an attack may change so many words."""
    ends = [one.split() for one in row]
    return np.array([
        result == "Failed" or (result == "Successful" and most is not None and int(words) > most)
        for result, words in ends
    ], float)  # fmt: skip


def right_before(row: Sequence[str]) -> Floats:
    """Return which rows (n,) of a victim are right without an attack."""
    return np.array([not one.startswith("Skipped") for one in row], float)


def victims_in(document: Mapping[str, Any], kept: Mapping[str, Sequence[str]]) -> list[int]:
    """Return where the victims stand among the sub-networks of a document."""
    ids = [entry["id"] for entry in document["benchmark"]["architectures"]]
    return [ids.index(one) for one in kept]
