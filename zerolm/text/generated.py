"""Calibration tokens for a parent without a text: sampled from a decoder, or random words for an encoder.

Data-free calibration as in LLM-QAT (arXiv 2305.17888), but sampled from the first token on: each sequence
begins a document, and every token is sampled from the decoder's prediction at temperature 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.io.memory import free_memory, give_back
from zerolm.networks.compute import Compute
from zerolm.networks.mapped import in_memory
from zerolm.networks.opener import is_decoder, mapped_model, stock_tokenizer
from zerolm.progress import Progress, silent
from zerolm.text.calibration import longest_line
from zerolm.text.encoding import edges, separator
from zerolm.text.tokens import Tokens

BATCH_TOKENS: Final = 1 << 14
"""Tokens of the sequences that are sampled together; a run that was killed goes on after the last batch."""
ROOM: Final = 1.5
"""Memory that sampling takes: the weights, and what is kept of the tokens so far, in units of the weights."""
ON_CPU: Final = Compute()
NOT_KEPT: Final = ArrayCache()
WORDS: Final = (6, 30)
"""Word pieces of a random sentence, at least and at most: those of most sentences."""
INSTEAD: Final = "give --text FILE, or choose by weights alone: --criterion capacity"


def generated_tokens(
    checkpoint: Checkpoint,
    sequences: int,
    length: int,
    *,
    seed: int = 0,
    compute: Compute = ON_CPU,
    cache: ArrayCache = NOT_KEPT,
    progress: Progress = silent,
) -> Tokens:
    """Sample ``sequences`` of ``length`` tokens from a decoder, as it predicts them.

    Each begins as a text does (``edges``); no other special token is in them, and none that the tokenizer
    lacks. The same ``seed`` gives the same tokens on the same machine and device. The whole model is held in
    memory in the type of products, which need not be as exact as where losses are measured. ``ValueError``
    where memory does not hold it. An encoder predicts no text: it gets ``random_sentences``.
    """
    length = longest_line(checkpoint, length)
    if not is_decoder(checkpoint):
        return random_sentences(checkpoint, sequences, length, seed)
    check_room(checkpoint, compute)
    rows = max(1, BATCH_TOKENS // length)
    sampler: Sampler | None = None
    batches = []
    for first in range(0, sequences, rows):
        count = min(rows, sequences - first)
        name = f"sequences-{first}-{first + count}"
        arrays = cache.get(name)
        if arrays is None:
            sampler = sampler or Sampler.of(checkpoint, compute)
            uniforms = np.random.default_rng([seed, first]).random((count, length), np.float32)
            ids = sampler.sample(
                torch.from_numpy(uniforms), progress, done=first * length, of=sequences * length
            )
            arrays = {"ids": ids.numpy().astype(np.int32)}
            cache.put(name, arrays)
        batches.append(torch.from_numpy(arrays["ids"].astype(np.int64)))
    del sampler
    give_back()
    return Tokens(torch.cat(batches), seed=seed)  # (n, t)


def random_sentences(checkpoint: Checkpoint, sequences: int, length: int, seed: int = 0) -> Tokens:
    """Return sentences of random word pieces, between what the tokenizer puts around any text, padded.

    Each has 6 to 30 pieces, as far as ``length`` tokens allow, each as likely as any other.
    """
    tokenizer, allowed = _vocabulary(checkpoint)
    begins, ends = edges(tokenizer) if tokenizer else ((), ())
    generator = np.random.default_rng(seed)
    most = max(1, min(WORDS[1], length - len(begins) - len(ends)))
    counts = generator.integers(min(WORDS[0], most), most + 1, sequences)
    words = np.flatnonzero(allowed.numpy())
    rows = [torch.tensor([*begins, *generator.choice(words, count).tolist(), *ends]) for count in counts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return Tokens(ids, mask, seed=seed)  # (n, t) both


def check_room(checkpoint: Checkpoint, compute: Compute) -> None:
    """Raise ``ValueError`` where memory does not hold a decoder, so that none is sampled from."""
    if not is_decoder(checkpoint):
        return
    weights = sum(checkpoint.tensors[name].count for name in checkpoint.layout.slots)
    needed, free = ROOM * compute.products.itemsize * weights, _free(compute)
    if needed > free:
        sizes = [f"{size / 1e9:.3g} GB" for size in (needed, free)]
        raise ValueError(
            f"a text sampled from the parent needs {sizes[0]} of memory, and {sizes[1]} are free: {INSTEAD}"
        )


@dataclass(frozen=True, eq=False)
class Sampler:
    """A decoder that is sampled from.

    ``before`` are the tokens ahead of a text, of which the last ``kept`` belong to a sequence; ``allowed``
    (v,) marks tokens that a text may hold.
    """

    model: PreTrainedModel
    before: tuple[int, ...]
    kept: int
    allowed: Tensor
    device: torch.device

    @classmethod
    def of(cls, checkpoint: Checkpoint, compute: Compute) -> Sampler:
        tokenizer, allowed = _vocabulary(checkpoint)
        before = tuple(separator(tokenizer, len(allowed))) if tokenizer else ()
        if max((*before, 0)) >= len(allowed):
            raise ValueError(
                f"the tokenizer of {str(checkpoint.folder)!r} gives token {max(before)}, but the model has "
                f"{len(allowed)}"
            )
        kept = len(edges(tokenizer)[0]) if tokenizer else 0
        model: PreTrainedModel = in_memory(mapped_model(checkpoint))
        for weight in model.parameters():  # buffers stay: frequencies of rotations are exact
            weight.data = weight.data.to(compute.products)
        model.to(compute.device)  # type: ignore[arg-type]
        return cls(model, before, kept, allowed, compute.device)

    @torch.inference_mode()
    def sample(self, uniforms: Tensor, progress: Progress, *, done: int, of: int) -> Tensor:
        """Return tokens (n, t) for ``uniforms`` (n, t) in [0, 1), one for each; ``done`` of all before."""
        count, length = uniforms.shape
        ids = torch.tensor(self.before, dtype=torch.long).repeat(count, 1)  # (n, b)
        dropped = len(self.before) - self.kept
        if not self.before:
            ids = drawn(torch.zeros(count, len(self.allowed)), self.allowed, uniforms[:, 0])[:, None]
        fed, past = ids, None
        for step in range(ids.shape[1], dropped + length):
            output: Any = self.model(input_ids=fed.to(self.device), past_key_values=past, use_cache=True)
            past = output.past_key_values
            logits = output.logits[:, -1, : len(self.allowed)].float().cpu()
            fed = drawn(logits, self.allowed, uniforms[:, step - dropped])[:, None]
            ids = torch.cat([ids, fed], 1)
            sampled = done + count * (step + 1 - dropped)
            progress("sampling a calibration text from the parent", sampled, of)
        return ids[:, dropped:]


def drawn(logits: Tensor, allowed: Tensor, uniforms: Tensor) -> Tensor:
    """Return tokens (n,) where the distribution functions of softmax(logits) (n, v) pass ``uniforms`` (n,).

    Only tokens that are ``allowed`` (v,) have a probability.
    """
    sums = logits.masked_fill(~allowed, -torch.inf).softmax(-1).cumsum(-1)
    total = sums[:, -1]
    if not bool(total.isfinite().all()):
        raise ValueError(f"the parent's predictions are not finite, so no text is sampled from it: {INSTEAD}")
    below = torch.nextafter(total, torch.zeros_like(total))  # a product may round to the total
    return torch.searchsorted(sums, torch.minimum(uniforms * total, below)[:, None], right=True)[:, 0]


def _vocabulary(checkpoint: Checkpoint) -> tuple[PreTrainedTokenizerBase | None, Tensor]:
    """Return the tokenizer, and which tokens (v,) a text may hold; None and all where there is none."""
    vocab = checkpoint.layout.vocab
    try:
        tokenizer = stock_tokenizer(checkpoint.folder)
    except ValueError:
        return None, torch.ones(vocab, dtype=torch.bool)
    special = {*tokenizer.all_special_ids}
    special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    usual = [token for token in tokenizer.get_vocab().values() if token < vocab and token not in special]
    if not usual:  # stock software makes a tokenizer of special tokens where there is none
        return None, torch.ones(vocab, dtype=torch.bool)
    allowed = torch.zeros(vocab, dtype=torch.bool)
    allowed[usual] = True
    return tokenizer, allowed


def _free(compute: Compute) -> int:
    if compute.device.type == "cuda":
        return int(torch.cuda.mem_get_info(compute.device)[0])
    return free_memory() if compute.memory is None else compute.memory
