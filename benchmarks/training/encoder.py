"""A BERT-type sentence encoder that finds the function which a docstring's first sentence describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from corpus import Documented
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from training.loop import Curve, train

PAD, UNKNOWN, FIRST, LAST, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MASKED: Final = 0.15
"""Share of the words that are hidden, and to be guessed."""
SHARPNESS: Final = 20.0
"""What cosines are multiplied by."""


@dataclass(frozen=True)
class EncoderSettings:
    """Sizes of the model, of its vocabulary and of a batch (pairs of at most ``length`` tokens a side)."""

    layers: int = 6
    hidden: int = 256
    heads: int = 8
    ffn: int = 1024
    vocab: int = 8192
    length: int = 64
    batch: int = 64
    rate: float = 5e-4

    def config(self) -> BertConfig:
        return BertConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.ffn,
            max_position_embeddings=128,
            attention_probs_dropout_prob=0.0,
            pad_token_id=0,
        )


def word_tokenizer(texts: Sequence[str], vocab: int, length: int) -> PreTrainedTokenizerFast:
    """Lower-case WordPiece of ``vocab`` tokens; texts are cut at ``length``."""
    tokenizer = _unlearned({UNKNOWN: SPECIAL.index(UNKNOWN)})
    alphabet = sorted(
        {letter for text in texts for letter in tokenizer.normalizer.normalize_str(text)} - {" "}
    )
    first = [*SPECIAL, *alphabet, *(f"##{letter}" for letter in alphabet)]
    # the trainer numbers what is not named in an order of chance, and breaks ties by these numbers
    trainer = trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=first, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    learned = _unlearned(tokenizer.get_vocab())
    ends = ((token, SPECIAL.index(token)) for token in (LAST, FIRST))
    learned.post_processor = processors.BertProcessing(*ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=learned,
        model_max_length=length,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=FIRST,
        sep_token=LAST,
        mask_token=MASK,
        model_input_names=["input_ids", "attention_mask"],
    )


def _unlearned(vocabulary: dict[str, int]) -> Tokenizer:
    """A lower-case WordPiece tokenizer with this vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def encoded(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[Tensor]:
    """Token ids of each text, cut to what the model takes."""
    return [torch.tensor(ids) for ids in tokenizer(list(texts), truncation=True)["input_ids"]]


def train_encoder(
    model: BertForMaskedLM,
    summaries: Sequence[Tensor],
    sources: Sequence[Tensor],
    settings: EncoderSettings,
    *,
    seconds: float,
    seed: int,
) -> Curve:
    """Summaries against sources, the others of the batch being wrong answers, and hidden words of both."""
    generator = torch.Generator().manual_seed(seed)
    feed = rounds(len(summaries), settings.batch, generator)

    def loss_of_batch() -> Tensor:
        chosen = next(feed)
        sides = [
            embed_and_guess(model, [side[i] for i in chosen], generator) for side in (summaries, sources)
        ]
        (queries, guess), (answers, guess_more) = sides
        cosines = SHARPNESS * queries @ answers.T  # (n, n)
        right = torch.arange(len(cosines))
        found = functional.cross_entropy(cosines, right) + functional.cross_entropy(cosines.T, right)
        return found / 2 + (guess + guess_more) / 2

    return train(model, loss_of_batch, seconds=seconds, rate=settings.rate)


def rounds(count: int, size: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Without end, ``size`` of ``count`` indices (all, where there are fewer): each once in a round."""
    while True:
        order = torch.randperm(count, generator=generator).tolist()
        for first in range(0, max(count - size, 0) + 1, size):
            yield order[first : first + size]


def embed_and_guess(
    model: BertForMaskedLM, texts: Sequence[Tensor], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Embeddings (n, d) of texts with hidden words, and the loss of guessing these."""
    ids, mask = padded(texts)
    hidden_words = (torch.rand(ids.shape, generator=generator) < MASKED) & (ids >= len(SPECIAL))  # (n, t)
    states = model.bert(
        input_ids=ids.masked_fill(hidden_words, SPECIAL.index(MASK)), attention_mask=mask
    ).last_hidden_state  # (n, t, d)
    guesses = model.cls(states[hidden_words]).float()
    loss = functional.cross_entropy(guesses, ids[hidden_words]) if len(guesses) else states.sum() * 0.0
    return pooled(states, mask), loss


def padded(texts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both (n, t)."""
    ids = torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
    return ids, (ids != SPECIAL.index(PAD)).long()


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    """Means over unmasked tokens (n, d), of length 1."""
    total = (states.float() * mask[..., None]).sum(1)
    return functional.normalize(total, dim=-1)


def retrieval(model: BertModel, tokenizer: PreTrainedTokenizerFast, pairs: Sequence[Documented]) -> float:
    """The share of summaries whose own source is the nearest of all."""
    sides = ([pair.summary for pair in pairs], [pair.source for pair in pairs])
    queries, answers = (_embedded(model, encoded(tokenizer, side)) for side in sides)
    nearest = (queries @ answers.T).argmax(1)
    return float((nearest == torch.arange(len(pairs))).double().mean())


def _embedded(model: BertModel, texts: Sequence[Tensor], size: int = 64) -> Tensor:
    found = []
    with torch.no_grad():
        for first in range(0, len(texts), size):
            ids, mask = padded(texts[first : first + size])
            found.append(pooled(model(input_ids=ids, attention_mask=mask).last_hidden_state, mask))
    return torch.cat(found)
