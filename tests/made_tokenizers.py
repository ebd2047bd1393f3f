"""Tokenizers of each kind, trained on a few pages."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from zerolm.checkpoints.gguf.words import BY_NAME, splitting_of
from zerolm.checkpoints.many_scripts import PAGE

CHAT = ["<|im_start|>", "<|im_end|>"]
SPECIAL = ["<unk>", "<s>", "</s>", *CHAT]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CORPUS = [PAGE, Path(__file__).read_text("utf-8"), Path(json.__file__).read_text("utf-8")]


@cache
def byte_level(words: str = "gpt-2", size: int = 900, whole: bool | None = None) -> str:
    whole = BY_NAME[words].whole if whole is None else whole
    document = json.loads(Tokenizer(models.BPE(ignore_merges=whole)).to_str())
    tokenizer = Tokenizer.from_str(json.dumps(document | {"pre_tokenizer": splitting_of(BY_NAME[words])}))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer.to_str()


@cache
def sentence_piece(*, with_bytes: bool = True, in_front: bool = True, size: int = 900) -> str:
    """A BPE as Llama 2 has it: all pairs that make a token are merges, bytes stand for other characters.

    A text gets a space ``in_front``, or none, as Gemma has it.
    """
    tokenizer = Tokenizer(models.BPE(byte_fallback=with_bytes, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    special = [*SPECIAL, *(BYTES if with_bytes else [])]
    trainer = trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=90, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator([w for t in CORPUS for w in t.replace(" ", "\n ").split("\n")], trainer)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][: len(SPECIAL)]
    vocab, order = document["model"]["vocab"], dict[str, int]()
    for left, right in document["model"]["merges"]:
        order.setdefault(left + right, len(order))
    document["model"]["merges"] = [pair for token in order for pair in _halves(token, vocab)]
    whole = Tokenizer.from_str(json.dumps(document))
    written: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if in_front:
        whole.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        written.append(decoders.Strip(" ", 1, 0))
    whole.decoder = decoders.Sequence(written)
    whole.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return whole.to_str()


def _halves(token: str, vocab: dict[str, int]) -> Iterator[list[str]]:
    for cut in range(1, len(token)):
        if token[:cut] in vocab and token[cut:] in vocab:
            yield [token[:cut], token[cut:]]


@cache
def unigram(*, with_bytes: bool = False, size: int = 700) -> str:
    """A Unigram as XLM-R has it, or with bytes for characters that it has not, as newer ones of T5."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = [*SPECIAL, *(BYTES if with_bytes else [])]
    trainer = trainers.UnigramTrainer(
        vocab_size=size + len(special), special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([line for text in CORPUS for line in text.splitlines()], trainer)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    document["model"]["byte_fallback"] = with_bytes
    document["added_tokens"] = document["added_tokens"][: len(SPECIAL)]
    whole = Tokenizer.from_str(json.dumps(document))
    if with_bytes:
        whole.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
    whole.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return whole.to_str()


@cache
def word_piece(size: int = 700) -> str:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    return tokenizer.to_str()


KINDS: dict[str, Callable[[], str]] = {
    "byte level": byte_level,
    "byte level, whole words": lambda: byte_level("llama-bpe"),
    "SentencePiece with bytes": sentence_piece,
    "SentencePiece without a space in front": lambda: sentence_piece(in_front=False),
    "SentencePiece without bytes": lambda: sentence_piece(with_bytes=False),
    "Unigram": unigram,
    "Unigram with bytes": lambda: unigram(with_bytes=True),
    "WordPiece": word_piece,
}
