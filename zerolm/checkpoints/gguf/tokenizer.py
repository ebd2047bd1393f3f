"""The tokenizer of a GGUF file as the documents that transformers reads of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zerolm.checkpoints.gguf.words import BY_NAME, SPACE, WORDS, Words, splitting_of

TOKENS, SCORES, KINDS, MERGES = (
    f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type", "merges")
)
LISTS: Final = (TOKENS, SCORES, KINDS, MERGES)
"""The long arrays that it is made of."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
NAMES: Final = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
TEMPLATE: Final = "tokenizer.chat_template"
DEFAULT: Final = "default"
"""The name of the chat template that has none in a file."""
LONGEST_TOKEN: Final = 512


@dataclass(frozen=True)
class ReadTokens:
    """The ``texts`` of all tokens, GGUF's ``kinds`` of them, and the ids of those ``named`` by a task."""

    texts: list[str]
    kinds: list[int]
    named: dict[str, int]

    @property
    def vocab(self) -> dict[str, int]:
        """The ids of tokens that are used, by their texts."""
        return {text: index for index, text in enumerate(self.texts) if self.kinds[index] != UNUSED}


def tokenizer_documents(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return ``tokenizer.json`` and ``tokenizer_config.json`` of a file's metadata; None where it has none.

    ``ValueError`` for a tokenizer that is neither byte-level BPE nor SentencePiece's BPE, or that is unsound.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind in (None, "no_vocab", "none"):
        return None
    if kind not in ("gpt2", "llama"):
        raise ValueError(f"its tokenizer is a {kind!r}; gpt2 and llama are read")
    tokens = _tokens(metadata)
    if kind == "gpt2":
        words = _words(metadata)
        parts, bos = _byte_level(metadata, tokens, words), words.bos
    else:
        parts, bos = _sentence_piece(metadata, tokens), True
    framed = _frame(metadata, tokens, bos=bos)
    special = [index for index, each in enumerate(tokens.kinds) if each in (CONTROL, USER_DEFINED, UNKNOWN)]
    added = [
        {"id": index, "content": tokens.texts[index], "special": tokens.kinds[index] != USER_DEFINED,
         "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for index in special
    ]  # fmt: skip
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **parts,
        **framed,
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config |= {f"{name}_token": tokens.texts[index] for name, index in tokens.named.items()}
    return document, config | _templates(metadata)


def _templates(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chat templates as ``tokenizer_config.json`` has them: one, or a list of named ones."""
    named = {DEFAULT: metadata.get(TEMPLATE)}
    named |= {
        key.removeprefix(f"{TEMPLATE}."): text
        for key, text in metadata.items()
        if key.startswith(f"{TEMPLATE}.")
    }
    rows = [{"name": name, "template": text} for name, text in named.items() if isinstance(text, str)]
    if not rows:
        return {}
    return {"chat_template": rows[0]["template"] if list(named) == [DEFAULT] else rows}


def _tokens(metadata: Mapping[str, Any]) -> ReadTokens:
    texts, kinds = metadata.get(TOKENS), metadata.get(KINDS)
    if not _is_list(texts, str) or not texts:
        raise ValueError("its tokenizer has no tokens")
    kinds = [NORMAL] * len(texts) if kinds is None else kinds
    if not _is_list(kinds, int) or len(kinds) != len(texts):
        raise ValueError("its tokenizer lacks the type of each token")
    if len(set(texts)) < len(texts):
        raise ValueError("its tokenizer has a token twice")
    if max(map(len, texts)) > LONGEST_TOKEN:
        raise ValueError(f"its tokenizer has a token of more than {LONGEST_TOKEN} characters")
    named = {}
    for name, key in NAMES.items():
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if type(index) is int and 0 <= index < len(texts):
            named[name] = index
    return ReadTokens(texts, kinds, named)


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


def _words(metadata: Mapping[str, Any]) -> Words:
    """Return how a byte-level tokenizer cuts a text into words; ``ValueError`` for another way."""
    name = str(metadata.get("tokenizer.ggml.pre", "default"))
    if name not in BY_NAME:
        possible = ", ".join(words.name for words in WORDS)
        raise ValueError(
            f"its tokenizer splits text into words as {name!r}; supported are {possible}: put its "
            "tokenizer.json next to the file"
        )
    return BY_NAME[name]


def _byte_level(metadata: Mapping[str, Any], tokens: ReadTokens, words: Words) -> dict[str, Any]:
    merges = metadata.get(MERGES, [])
    if not _is_list(merges, str):
        raise ValueError("its tokenizer has merges that are no texts")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    pairs = [pair.split(" ") for pair in merges]
    vocab = tokens.vocab
    for pair in pairs:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocab.keys():
            raise ValueError(f"its tokenizer merges {' '.join(pair)[:40]!r}, which makes no token of two")
    model = _bpe(vocab, pairs) | {"ignore_merges": words.whole}
    return {"normalizer": None, "pre_tokenizer": splitting_of(words), "decoder": level, "model": model}


def _bpe(vocab: Mapping[str, int], merges: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": dict(vocab), "merges": [list(pair) for pair in merges],
    }  # fmt: skip


def _sentence_piece(metadata: Mapping[str, Any], tokens: ReadTokens) -> dict[str, Any]:
    scores, vocab = metadata.get(SCORES), tokens.vocab
    if scores is None or not _is_list(scores, float) or len(scores) != len(tokens.texts):
        raise ValueError("its tokenizer lacks the score of each token")
    plain = {text for text, index in vocab.items() if tokens.kinds[index] in (NORMAL, USER_DEFINED)}
    order = sorted(plain, key=lambda text: (-scores[vocab[text]], vocab[text]))
    merges = [
        (text[:cut], text[cut:])
        for text in order
        for cut in range(1, len(text))
        if text[:cut] in plain and text[cut:] in plain
    ]
    swap = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    fronted = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps = [{"type": "Prepend", "prepend": SPACE}, swap]
    unknown = tokens.named.get("unk")
    model = _bpe(vocab, merges) | {"fuse_unk": True, "byte_fallback": True}
    model |= {} if unknown is None else {"unk_token": tokens.texts[unknown]}
    back = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if fronted else []),
    ]  # fmt: skip
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if fronted else swap,
        "pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": back}, "model": model,
    }  # fmt: skip


def _frame(metadata: Mapping[str, Any], tokens: ReadTokens, *, bos: bool) -> dict[str, Any]:
    """Return the post-processor: what is put around a text; ``bos``: whether readers do so by themselves."""
    wanted = {
        "bos": metadata.get("tokenizer.ggml.add_bos_token", bos),
        "eos": metadata.get("tokenizer.ggml.add_eos_token", False),
    }
    around = {
        name: tokens.named[name] for name, is_wanted in wanted.items() if is_wanted and name in tokens.named
    }
    if not around:
        return {"post_processor": None}

    def piece(name: str) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": tokens.texts[around[name]], "type_id": 0}}] if name in around else []

    def text(name: str, number: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": number}}

    single = [*piece("bos"), text("A", 0), *piece("eos")]
    pair = [*single, *piece("bos"), text("B", 1), *piece("eos")]
    special = {
        tokens.texts[index]: {"id": tokens.texts[index], "ids": [index], "tokens": [tokens.texts[index]]}
        for index in around.values()
    }
    processor = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
    return {"post_processor": processor}
