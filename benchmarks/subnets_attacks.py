"""Attacks of sub-networks themselves, for ``subnets.py``: each is its own victim."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from parts import Parts
from subnets_runs import criterion_in, sizes_in

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint
from zerolm.groundtruth.truth import check, thinned
from zerolm.lab.subnets.judging import classifier
from zerolm.lab.subnets.request import CutRequest, JudgingRequest
from zerolm.lab.subnets.slicing import cuts_of
from zerolm.networks.opener import stock_tokenizer
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import apply_in_memory

VICTIMS: Final = 50
"""Sub-networks that are attacked, evenly spread over all."""
PARENT: Final = "parent"
"""The id of the whole parent among the victims."""
STRENGTHS: Final = {"one word changed at most": 1, "three words in ten changed at most": None}
"""Words that an attack may change; None for as many as it tried. Words fall one after another."""


def attack_each(
    parent: Path, cutting: CutRequest, judging: JudgingRequest, document: dict[str, Any], parts: Parts
) -> None:
    """Attack every row of the clean table for each victim; the outcomes of one are a part.

    An outcome is the result and the number of changed words, as ``Successful 2``.
    """
    import attack_texts

    checkpoint = Checkpoint.open(parent)
    criterion = criterion_in(checkpoint, cutting, judging)
    cuts = cuts_of(checkpoint, criterion, sizes_in(document, checkpoint.layout.depth))
    ids = [entry["id"] for entry in document["benchmark"]["architectures"]]
    by_id = {PARENT: Cut.whole(dimensions(checkpoint)), **dict(zip(ids, cuts, strict=True))}
    network, tokenizer = classifier(checkpoint), stock_tokenizer(checkpoint.folder)
    with Path(str(judging.data)).open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))

    def outcomes(name: str) -> list[str]:
        victim = attack_texts.Victim(apply_in_memory(network, by_id[name]), tokenizer)
        table = attack_texts.attack(victim, rows)
        return [f"{row['result_type']} {row['perturbed_text'].count('[[')}" for row in table]

    few = thinned(check(document["benchmark"]), VICTIMS).architectures
    for name in (PARENT, *(entry.id for entry in few)):
        parts.measured(name, partial(outcomes, name))


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
