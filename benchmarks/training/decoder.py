"""A llama-type decoder with grouped queries that predicts the next token of Python sources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from training.loop import Curve, train

END: Final = "<|end|>"


@dataclass(frozen=True)
class DecoderSettings:
    """Sizes of the model, of its vocabulary and of a batch (sequences x tokens)."""

    layers: int = 8
    hidden: int = 256
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 768
    vocab: int = 4096
    length: int = 256
    batch: int = 8
    rate: float = 1.5e-3

    def config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            intermediate_size=self.ffn,
            max_position_embeddings=4 * self.length,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )


def byte_tokenizer(texts: Sequence[str], vocab: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE of ``vocab`` tokens, the first of which ends a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END)


def stream(texts: Sequence[str], tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """All texts one after another, each with its end, (tokens,)."""
    end = tokenizer.eos_token_id
    ids = tokenizer(list(texts), verbose=False)["input_ids"]
    return torch.tensor([token for each in ids for token in (*each, end)])


def batches(ids: Tensor, length: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Without end, (size, length + 1): in each round all windows of a division of the stream, shuffled."""
    while True:
        shift = int(torch.randint(length, (1,), generator=generator))
        order = torch.randperm((len(ids) - 1 - shift) // length, generator=generator)
        for chosen in order.split(size):
            yield ids[shift + length * chosen[:, None] + torch.arange(length + 1)]


def train_decoder(
    model: LlamaForCausalLM, ids: Tensor, settings: DecoderSettings, *, seconds: float, seed: int
) -> Curve:
    """Next tokens of ``ids`` (tokens,), in sequences."""
    feed = batches(ids, settings.length, settings.batch, torch.Generator().manual_seed(seed))

    def loss_of_batch() -> Tensor:
        return surprise(model, next(feed)).mean()

    return train(model, loss_of_batch, seconds=seconds, rate=settings.rate)


def surprise(model: LlamaForCausalLM, rows: Tensor) -> Tensor:
    """-ln p of each token of ``rows`` (n, t + 1) but the first, (n, t)."""
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits.float()  # (n, t, v)
    return functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")


def perplexity(model: LlamaForCausalLM, ids: Tensor, length: int, size: int = 16) -> float:
    """A token, over all whole sequences of ``length`` tokens of ``ids``; the first of each is given."""
    rows = ids[: len(ids) // length * length].view(-1, length)
    with torch.no_grad():
        losses = [surprise(model, some) for some in rows.split(size)]
    return math.exp(float(torch.cat(losses).double().mean()))
