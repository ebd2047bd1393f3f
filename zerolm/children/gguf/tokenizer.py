"""The tokenizer of a checkpoint in GGUF; one that readers would apply differently is rejected."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from gguf import GGUFWriter, TokenType
from transformers import PreTrainedTokenizerBase

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.folder import inside
from zerolm.checkpoints.gguf.same_tokens import BARE, compare_tokens, differences, opened_by_llama_cpp
from zerolm.checkpoints.gguf.tokenizer import DEFAULT
from zerolm.checkpoints.gguf.words import SPACE
from zerolm.children.gguf.vocabulary import WORD_PIECES, Pieces, check_model, pieces_of, step_types
from zerolm.networks.opener import stock_tokenizer
from zerolm.text.encoding import edges

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""A checkpoint with none of these has no tokenizer."""

ENDS: Final = {WORD_PIECES: ("cls", "sep")}
"""Names of the tokens around a text, by gguf's kind of tokenizer; the other kinds have bos and eos."""
OTHERS: Final = ("unk", "pad", "sep", "mask")
NAMED: Final = ("bos", "eos", *OTHERS)
STAMPED: Final = ("*.json", "*.model", "*.txt", "*.jinja", "additional_chat_templates/*.jinja")
"""Files that a tokenizer may consist of."""
ADD_EOS: Final = "tokenizer.ggml.add_eos_token"
LOWER: Final = "tokenizer.ggml.normalizer.lowercase"


@dataclass(frozen=True)
class GgufVocabulary:
    """The pieces (tokens and merges) and the special tokens.

    ``types`` are gguf's ``TokenType`` of each token. ``add_bos``, ``add_eos``: whether a text is framed by
    these tokens. ``others`` are the ids of further special tokens, by gguf's names. ``templates`` are Jinja
    chat templates by name.
    """

    pieces: Pieces
    types: tuple[int, ...]
    bos: int
    eos: int
    others: Mapping[str, int]
    add_bos: bool
    add_eos: bool
    templates: Mapping[str, str]


def opened(checkpoint: Checkpoint) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer opened by transformers, None where there is none; no code of the folder is run.

    Raises ``ValueError`` where it cannot be read, or lies elsewhere.
    """
    files = [name for name in TOKENIZER_FILES if inside(checkpoint.folder, name)]
    if not files:
        return None
    try:
        return stock_tokenizer(checkpoint.folder)
    except ValueError:
        needed = map(find_spec, ("google", "google.protobuf", "sentencepiece"))
        if files != ["tokenizer.model"] or all(needed):
            raise
        reason = "there is no tokenizer.json, and a tokenizer.model takes protobuf and sentencepiece"
        raise ValueError(f"the tokenizer of {str(checkpoint.folder)!r} cannot be read: {reason}") from None


def vocabulary(checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerBase) -> GgufVocabulary:
    """Return a tokenizer in GGUF's form; ``ValueError`` where GGUF cannot express it.

    Rows of the embedding beyond the tokenizer's tokens are written as unused tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(
            f"gguf cannot express a {type(tokenizer).__name__}, which runs as Python code; "
            "byte-level BPE, SentencePiece and WordPiece tokenizers of the tokenizers library can be"
        )
    document = json.loads(backend.to_str())
    check_model(document["model"])
    _check_added(document["added_tokens"])
    named = {int(index): token for token, index in document["model"]["vocab"].items()}
    named |= {int(token["id"]): token["content"] for token in document["added_tokens"]}
    rows, most = checkpoint.layout.vocab, max(named, default=-1)
    if most >= rows:
        raise ValueError(f"the tokenizer has ids up to {most}, and the embedding has {rows} rows")
    tokens = tuple(named.get(index, f"[PAD{index}]") for index in range(rows))
    if len(set(tokens)) < rows:
        raise ValueError("the tokenizer has a token twice; gguf needs one id for each")
    pieces = pieces_of(document, tokens)
    others = {name: _identity(checkpoint, tokenizer, name) for name in OTHERS}
    bos, eos = (_identity(checkpoint, tokenizer, name) for name in ENDS.get(pieces.kind, ("bos", "eos")))
    if eos is None:
        raise ValueError("the tokenizer names no eos token, and a reader of gguf would take another for it")
    add_bos, add_eos = _frame(tokenizer, bos, eos)
    if pieces.kind == WORD_PIECES and not (add_bos and add_eos):
        raise ValueError("gguf puts WordPiece between the tokens CLS and SEP, and this tokenizer does not")
    if pieces.kind == WORD_PIECES and others["unk"] is None:
        raise ValueError("the tokenizer names no unk token, and a reader of gguf would take another for it")
    return GgufVocabulary(
        pieces,
        _types(document, named, rows, others["unk"]),
        eos if bos is None else bos,
        eos,
        {name: token for name, token in others.items() if token is not None},
        add_bos,
        add_eos,
        _templates(tokenizer.chat_template),
    )


def add_vocabulary(writer: GGUFWriter, vocabulary: GgufVocabulary) -> None:
    """Add the tokenizer to the header of a file."""
    pieces = vocabulary.pieces
    writer.add_tokenizer_model(pieces.kind)
    writer.add_tokenizer_pre(pieces.words)
    writer.add_token_list(pieces.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(pieces.merges)
    writer.add_token_scores(pieces.scores)
    writer.add_bos_token_id(vocabulary.bos)
    writer.add_eos_token_id(vocabulary.eos)
    for name, token in vocabulary.others.items():
        getattr(writer, f"add_{name}_token_id")(token)
    for key, value in ((LOWER, pieces.lower), (BARE, pieces.bare)):
        if value is not None:
            writer.add_bool(key, value)
    writer.add_add_bos_token(vocabulary.add_bos)
    writer.add_add_eos_token(vocabulary.add_eos)
    writer.add_add_space_prefix(pieces.space)
    if vocabulary.templates:
        templates = vocabulary.templates.items()
        writer.add_chat_template([{"name": name, "template": text} for name, text in templates])


def proven(checkpoint: Checkpoint) -> GgufVocabulary | None:
    """Return the tokenizer in GGUF's form, after llama.cpp tokenized texts with it as the tokenizer does.

    None where there is none. Raises ``ValueError`` for one that GGUF cannot express, or that is applied
    differently; ``ModuleNotFoundError`` without llama-cpp-python. Only the tokenizer is read. The last result
    is cached, because a carving asks several times.
    """
    rows, config = checkpoint.layout.vocab, checkpoint.config
    stamps = tuple(
        (str(file), file.stat().st_mtime_ns, file.stat().st_size)
        for pattern in STAMPED
        for file in sorted(checkpoint.folder.glob(pattern))
    )
    ids = (str(config.get(f"{name}_token_id")) for name in NAMED)
    key = (checkpoint.folder.resolve(), stamps, rows, *ids)
    if key not in _LAST:
        tokenizer = opened(checkpoint)
        written = None if tokenizer is None else vocabulary(checkpoint, tokenizer)
        if written is not None and tokenizer is not None:
            check_reading(written, tokenizer)
        _LAST.clear()
        _LAST[key] = written
    return _LAST[key]


_LAST: Final[dict[Any, GgufVocabulary | None]] = {}


def check_reading(
    vocabulary: GgufVocabulary, tokenizer: PreTrainedTokenizerBase, more: Sequence[str] = ()
) -> tuple[str, ...]:
    """Compare texts tokenized by llama.cpp from a file of the vocabulary alone, as ``compare_with`` does."""
    with TemporaryDirectory(prefix="zerolm-tokens-") as folder:
        file = Path(folder) / "tokens.gguf"
        writer = GGUFWriter(None, "llama")
        add_vocabulary(writer, vocabulary)
        writer.write_header_to_file(file)
        writer.write_kv_data_to_file()
        writer.close()
        opened_file = opened_by_llama_cpp(file, vocab_only=True)
        try:
            return compare_with(opened_file, tokenizer, [*vocabulary.pieces.doubtful, *more])
        finally:
            opened_file.close()


def compare_with(
    opened_file: Any, tokenizer: PreTrainedTokenizerBase, more: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return notes on the differences between llama.cpp, with an opened file, and a tokenizer.

    Texts in many scripts are compared, and ``more``. Raises ``ValueError`` where token ids differ for a
    reason that the notes do not name.
    """
    backend = tokenizer.backend_tokenizer
    steps = [
        *step_types(_json_of(backend.normalizer), "normalizers"),
        *step_types(_json_of(backend.pre_tokenizer), "pretokenizers"),
    ]
    present = differences(opened_file, steps)
    after = [] if opened_file.metadata.get(ADD_EOS) == "true" else list(edges(tokenizer)[1])

    def encode(text: str) -> list[int]:
        ids = [int(token) for token in tokenizer(text)["input_ids"]]
        return ids[: len(ids) - len(after)]

    compare_tokens(opened_file, encode, tokenizer.get_added_vocab().items(), present, more)
    notes = [difference.note for difference in present]
    if after:
        behind = " ".join(tokenizer.convert_ids_to_tokens(after))
        notes.append(f"llama.cpp puts nothing after a text, and the tokenizer {behind}")
    return tuple(notes)


def _json_of(part: Any) -> Any:
    return None if part is None else json.loads(part.__getstate__())


def _templates(template: Any) -> dict[str, str]:
    """Return the templates by name; a single one is the default."""
    named = {DEFAULT: template} if isinstance(template, str) else template
    return {} if named is None else {name: str(text) for name, text in named.items() if text}


def _types(
    document: Mapping[str, Any], named: Mapping[int, str], rows: int, unknown: int | None
) -> tuple[int, ...]:
    types = [int(TokenType.NORMAL if index in named else TokenType.UNUSED) for index in range(rows)]
    model = document["model"]
    if model.get("byte_fallback"):
        bytewise = (model["vocab"].get(f"<0x{byte:02X}>") for byte in range(256))
        for index in bytewise:
            if index is not None:
                types[index] = int(TokenType.BYTE)
    for token in document["added_tokens"]:
        kind = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
        if model.get("byte_fallback") and SPACE in token["content"] and not token["special"]:
            kind = TokenType.NORMAL  # merged like others; readers would decode it with ▁ in it
        types[token["id"]] = int(kind)
    if model.get("byte_fallback") and unknown is not None:
        types[unknown] = int(TokenType.UNKNOWN)
    return tuple(types)


def _check_added(added: Sequence[Mapping[str, Any]]) -> None:
    for token in added:
        odd = [name for name in ("lstrip", "rstrip", "single_word") if token[name]]
        if odd:
            raise ValueError(
                f"gguf cannot express the added token {token['content']!r} with {odd[0]}; "
                "added tokens that are found as they stand can be"
            )


def _identity(checkpoint: Checkpoint, tokenizer: PreTrainedTokenizerBase, name: str) -> int | None:
    """Return the id of a special token, from the tokenizer, else from the configuration."""
    token = getattr(tokenizer, f"{name}_token_id", None)
    if token is None:
        token = checkpoint.config.get(f"{name}_token_id")
        token = token[0] if isinstance(token, list) and token else token
    return token if type(token) is int and 0 <= token < checkpoint.layout.vocab else None


def _frame(tokenizer: PreTrainedTokenizerBase, bos: int | None, eos: int) -> tuple[bool, bool]:
    """Return whether readers put BOS before a text and EOS after it.

    They put nothing after it where the tokenizer puts other tokens there, as Cohere's does.
    """
    before, after = edges(tokenizer)
    if before in ((), (bos,)):
        return bool(before), after == (eos,)
    raise ValueError(
        f"the tokenizer adds {list(before)} before a text and {list(after)} after it; gguf supports only a "
        f"BOS ({bos}) before and an EOS ({eos}) after"
    )
