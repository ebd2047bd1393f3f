"""Examples of a task as tensors, and the order in which they are trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BatchEncoding, PreTrainedTokenizerBase

from zerolm.architecture import Ints

LABELS: Final = ("labels", "start_positions", "end_positions")


@dataclass(frozen=True, eq=False)
class Examples:
    """Tensors by the names that models of transformers take them by, a row each.

    ``input_ids`` and ``attention_mask`` (n, t), for some ``token_type_ids`` (n, t), and the ``LABELS`` (n,).
    """

    tensors: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.tensors["input_ids"])

    def inputs(self, rows: Tensor | slice) -> dict[str, Tensor]:
        """Return the inputs of a model, without labels."""
        return {name: values[rows] for name, values in self.tensors.items() if name not in LABELS}


class Rounds(Dataset[dict[str, Tensor]]):
    """So many examples in an order fixed by a seed; none comes again before all have come."""

    def __init__(self, examples: Examples, count: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        rounds = [generator.permutation(len(examples)) for _ in range(-(-count // len(examples)))]
        self.examples = examples
        self.order: Ints = np.concatenate(rounds)[:count]

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        row = int(self.order[place])
        return {name: values[row] for name, values in self.examples.tensors.items()} | {
            "number": torch.tensor(row)
        }


def padded(encoded: BatchEncoding, tokenizer: PreTrainedTokenizerBase) -> dict[str, Tensor]:
    """Return ids, mask and, where the tokenizer tells them, types, (n, t): padded on the right."""
    names = [name for name in ("input_ids", "token_type_ids") if name in encoded]
    longest = max(map(len, encoded["input_ids"]))
    tensors = {
        name: _matrix(encoded[name], longest, pad_id(tokenizer) if name == "input_ids" else 0)
        for name in names
    }
    ones = [[1] * len(ids) for ids in encoded["input_ids"]]
    return tensors | {"attention_mask": _matrix(ones, longest, 0)}


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the id that stands for no token: the tokenizer's own, else that of an end, else 0."""
    ids = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(token for token in ids if isinstance(token, int))


def between(tokenizer: PreTrainedTokenizerBase, first: Sequence[str]) -> list[str]:
    """Return first texts of pairs, ended by a new line where the tokenizer has no token between two."""
    return list(first) if tokenizer.sep_token is not None else [f"{text}\n" for text in first]


def _matrix(rows: Sequence[Sequence[int]], width: int, filler: int) -> Tensor:
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows])
