"""Files that hold a child, judged by llama.cpp on unseen text, whatever tokens they have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from zerolm.carving.vocabulary.byte_losses import stretches_of
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.same_tokens import opened_by_llama_cpp
from zerolm.children.gguf.check import embedding_of, open_encoder
from zerolm.passes.divergence import kl, surprises

LENGTH: Final = 256
"""Tokens of a window."""
CHARACTERS: Final = 4096
"""Characters of a stretch of text, about."""
LINES: Final = 512
"""Lines that encoders are judged by."""
OF_THE_FILE: Final = -1
"""The pooling that a file names."""


@dataclass(frozen=True)
class Judged:
    """Figures of each stretch, or line: ``nats``, ``bytes`` and ``tokens``, and the divergence ``apart``.

    ``apart`` is KL(parent || child) in nats, None where the vocabulary is not the parent's; of an encoder
    it is 1 - cosine, and there are no other figures.
    """

    bytes: list[int]
    tokens: list[int]
    nats: list[float]
    apart: list[float] | None

    def to_json(self) -> dict[str, Any]:
        """Return all figures, and their sums."""
        document: dict[str, Any] = {"bytes_of_stretches": self.bytes, "tokens": sum(self.tokens)}
        document |= {"nats": rounded(self.nats), "apart": rounded(self.apart)}
        if self.nats:
            document["bits"] = sum(self.nats) / math.log(2) / sum(self.bytes)
        if self.apart is not None:
            document["kl"] = sum(self.apart) / (sum(self.tokens) or len(self.apart))
        return document


def judged(child: Path, parent: Path, text: Path, stretches: int, *, decoder: bool) -> dict[str, Any]:
    """Return what a file loses on unseen text, compared with its parent's file."""
    of = decoder_losses if decoder else encoder_losses
    return of(child, parent, text, stretches).to_json()


def decoder_losses(child: Path, parent: Path, text: Path, count: int) -> Judged:
    """Return the losses of a decoder on stretches of a text, by its own tokens.

    Windows have ``LENGTH`` tokens, each of which is predicted from those before it in its window.
    """
    settings: dict[str, Any] = {"n_ctx": LENGTH + 1, "n_batch": LENGTH + 1, "logits_all": True}
    settings |= {"n_threads": 1, "n_threads_batch": 1}
    model, whole = (opened_by_llama_cpp(file, **settings) for file in (child, parent))
    same = model.n_vocab() == whole.n_vocab()
    start = model.token_bos() if model.token_bos() >= 0 else model.token_eos()
    bytes_, tokens, nats, apart = [], [], [], []
    for stretch in stretches_of(str(text), count, CHARACTERS):
        ids = model.tokenize(stretch.encode(), add_bos=False, special=False)
        surprise = divergence = 0.0
        for first in range(0, len(ids), LENGTH):
            part = [ids[first - 1] if first else start, *ids[first : first + LENGTH]]
            logits = _logits(model, part)
            surprise += float(surprises(logits, torch.tensor(part[1:])).double().sum())
            if same:
                divergence += float(kl(_logits(whole, part), logits).double().sum())
        bytes_.append(len(stretch.encode()))
        tokens.append(len(ids))
        nats.append(surprise)
        apart.append(divergence)
    return Judged(bytes_, tokens, nats, apart if same else None)


def _logits(model: Any, ids: list[int]) -> Tensor:
    """Return logits of the tokens that follow each but the last of these, (t - 1, v)."""
    model.reset()
    model.eval(ids)
    return torch.from_numpy(model.scores[: len(ids) - 1])


def encoder_losses(child: Path, parent: Path, text: Path, count: int) -> Judged:
    """Return 1 - cosine of the embeddings of lines to the parent's, each file with its own tokens.

    Lines are cut off at the parent's positions.
    """
    lines = list(dict.fromkeys(line for line in text.read_text("utf-8").splitlines() if line.strip()))
    step = max(1, len(lines) // count)
    mine, other = (open_encoder(file, LENGTH, pooling_type=OF_THE_FILE) for file in (child, parent))
    longest, apart = min(LENGTH, other._model.n_ctx_train()), []
    for line in lines[::step][:count]:
        pair = [embedding_of(model, model.tokenize(line.encode())[:longest]) for model in (mine, other)]
        apart.append(1.0 - float(functional.cosine_similarity(*(each.double() for each in pair), dim=0)))
    return Judged([], [], [], apart)


def weight_bytes(file: Path) -> int:
    """Return the bytes of all tensors of a file."""
    return sum(end - start for start, end in read_gguf_header(file).places.values())


def rounded(values: list[Any] | None) -> list[Any] | None:
    """Return numbers with six digits, which is more than they are good for."""
    return values and [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]
