"""Predictions of a teacher: computed during training, or read from the disk."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.architecture import Ints
from zerolm.io.files import cache_folder
from zerolm.passes.outputs import sequences_at_once
from zerolm.progress import Progress, silent
from zerolm.text.corpus import Corpus
from zerolm.training.learner import EMBEDDING, OF_STATES, Objective

TOP: Final = 64
"""Tokens whose predictions are kept, the likeliest."""
CACHE_VERSION: Final = 1


def half_precision(device: torch.device, on: bool) -> torch.autocast:
    """Return a context within which products are in bfloat16, where it is ``on``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=on)


class LiveTeacher:
    """A teacher that runs during training."""

    def __init__(self, model: PreTrainedModel, objective: Objective, bfloat16: bool = False) -> None:
        self.model, self.objective, self.bfloat16 = model, objective, bfloat16
        model.train(False).requires_grad_(False)

    def signals(self, ids: Tensor, numbers: Tensor) -> dict[str, Any]:
        if self.model.device != ids.device:
            self.model.to(ids.device)  # type: ignore[arg-type]
        objective = self.objective
        with torch.no_grad(), half_precision(ids.device, self.bfloat16):
            inputs = objective.inputs(ids)
            outputs = self.model(**inputs, use_cache=False, output_hidden_states=objective.hidden)
        signals: dict[str, Any] = {}
        if set(objective.weights) - {*OF_STATES, EMBEDDING, "next-token"}:
            signals["logits"] = outputs.logits
        if objective.hidden:
            signals["hidden"] = [outputs.hidden_states[place] for _, place in objective.layers]
        return signals


class CachedTeacher:
    """The likeliest ``k`` tokens of a teacher's predictions for numbered sequences, memory-mapped.

    Log-probabilities are float16 at the temperature. A killed run goes on filling where it was.
    """

    def __init__(self, folder: Path, sequences: int, length: int, k: int, vocabulary: int) -> None:
        self.folder, shape = folder, (sequences, length, k)
        folder.mkdir(parents=True, exist_ok=True)
        kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
        self._log_p = _mapped(folder / "log_p.bin", np.float16, shape)
        self._ids = _mapped(folder / "ids.bin", kind, shape)
        self._done = _mapped(folder / "done.bin", np.bool_, (sequences,))

    def missing(self, numbers: Ints) -> Ints:
        """Return which of these sequences are not there yet, ascending."""
        distinct = np.unique(numbers)
        return np.asarray(distinct[~self._done[distinct]], np.int64)

    def check_room(self, sequences: int) -> None:
        """Raise ``ValueError`` where the disk has no room for these ``sequences``: mapped files fail
        otherwise."""
        row = self._log_p[0].nbytes + self._ids[0].nbytes
        needed, free = sequences * row, shutil.disk_usage(self.folder).free
        if needed > free:
            sizes = f"{needed / 1e9:.3g} GB, {free / 1e9:.3g} are free in {str(self.folder)!r}"
            raise ValueError(f"the teacher's predictions take {sizes}: give a smaller --top, or leave it out")

    def put(self, numbers: Ints, log_p: Tensor, ids: Tensor) -> None:
        """Keep the predictions (n, t, k) of sequences."""
        self._log_p[numbers] = log_p.numpy().astype(np.float16)
        self._ids[numbers] = ids.numpy()
        self._done[numbers] = True

    def signals(self, ids: Tensor, numbers: Tensor) -> dict[str, Any]:
        rows = numbers.cpu().numpy()
        log_p = torch.from_numpy(self._log_p[rows].astype(np.float32)).to(ids.device)
        likely = torch.from_numpy(self._ids[rows].astype(np.int64)).to(ids.device)
        return {"log_p": log_p, "ids": likely}


def _mapped(file: Path, kind: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Return an array over a file, which is made sparse where there is none."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    if not file.is_file() or file.stat().st_size != size:
        with file.open("wb") as empty:
            empty.truncate(size)
    return np.memmap(file, kind, "r+", shape=shape)


def teacher_cache(
    identity: str, corpus: Corpus, vocabulary: int, temperature: float, k: int = TOP
) -> CachedTeacher:
    """Return the cache of a teacher of this identity on all sequences of a corpus, as far as it is filled."""
    k = min(k, vocabulary)
    texts = [(text.sha256, len(text.ids)) for text in corpus.texts]
    key = json.dumps(
        [CACHE_VERSION, identity, texts, corpus.length, list(corpus.start), list(corpus.end), temperature, k]
    )
    folder = cache_folder("teachers") / hashlib.sha256(key.encode()).hexdigest()
    sequences = sum(train for train, _ in corpus.counts)
    return CachedTeacher(folder, sequences, corpus.length, k, vocabulary)


@torch.no_grad()
def fill(
    cache: CachedTeacher,
    model: PreTrainedModel,
    corpus: Corpus,
    pairs: Ints,
    temperature: float,
    progress: Progress = silent,
    *,
    bfloat16: bool = False,
) -> None:
    """Run the teacher on those sequences of (text, window) pairs that are not in the cache."""
    numbers = corpus.number(pairs)
    wanted = cache.missing(numbers)
    if not len(wanted):
        return
    cache.check_room(len(wanted))
    places = dict(zip(numbers.tolist(), map(tuple, pairs.tolist()), strict=True))
    model.train(False)
    k = cache._log_p.shape[-1]
    at_once = sequences_at_once(int(model.config.vocab_size), corpus.length)
    for first in range(0, len(wanted), at_once):
        progress("running the teacher once", first, len(wanted))
        chosen = wanted[first : first + at_once]
        ids = torch.stack([corpus.sequence(*places[number]) for number in chosen.tolist()])
        with half_precision(model.device, bfloat16):
            logits = model(input_ids=ids.to(model.device), use_cache=False).logits.float()
        log_p, likely = functional.log_softmax(logits / temperature, dim=-1).topk(k, dim=-1)
        cache.put(chosen, log_p.cpu(), likely.cpu())
    cache._log_p.flush()
