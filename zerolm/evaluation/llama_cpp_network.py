"""A decoder in a GGUF file as llama.cpp computes it, for families whose files are not read as their class."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.same_tokens import opened_by_llama_cpp

FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors of a file that are no weights."""


class LlamaCppNetwork(nn.Module):
    """A stand-in for a stock class: returns the logits of llama.cpp, on one thread."""

    device = torch.device("cpu")

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self._opened: Any = None
        self._room = 0

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: object
    ) -> SimpleNamespace:
        """Return ``logits`` (b, t, v) of tokens (b, t); those of padding, which comes last, are 0."""
        del unused  # options of stock classes
        opened = self._for(input_ids.shape[1])
        lengths = [input_ids.shape[1]] * len(input_ids)
        if attention_mask is not None:
            lengths = attention_mask.sum(1).tolist()
        rows = np.zeros((*input_ids.shape, opened.n_vocab()), np.float32)
        for row, ids, length in zip(rows, input_ids.tolist(), lengths, strict=True):
            opened.reset()
            for token in ids[:length]:  # several at a time crash some builds, where weights are quantised
                opened.eval([token])
            row[:length] = opened.scores[:length]
        return SimpleNamespace(logits=torch.from_numpy(rows))

    def _for(self, length: int) -> Any:
        """Return the file, opened for sequences of this length."""
        if length > self._room:
            sizes = {"n_ctx": length, "n_batch": length, "n_threads": 1, "n_threads_batch": 1}
            self._opened = opened_by_llama_cpp(self.file, logits_all=True, **sizes)
            self._room = length
        return self._opened

    @property
    def params(self) -> int:
        """The weights of the file."""
        shapes = read_gguf_header(self.file).tensors
        return sum(math.prod(shape) for name, shape in shapes.items() if name not in FACTORS)
