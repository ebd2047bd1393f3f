"""Tokenizers of each kind trained on documentation in four languages and code, cut to one of them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
from parts import Parts
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from zerolm.carving.vocabulary.text_use import TokenUse
from zerolm.carving.vocabulary.token_table import BYTES, TokenTable
from zerolm.carving.vocabulary.tokenizer_files import cut_document, numbers

LANGUAGES: Final = {"English": "", "French": "fr", "German": "de", "Spanish": "es"}
SIZE: Final = 32_000
BYTES_EACH: Final = 2 << 20
"""Bytes of each language that tokenizers are trained on; a quarter as many more are held out."""
SPECIAL: Final = ["<unk>", "<s>", "</s>", "<pad>"]
MACRO: Final = re.compile(r"^[.'].*$", re.M)
ESCAPE: Final = re.compile(r"\\f.|\\f\(..|\\s[-+]?\d|\\[&|^%]|\\\*\(..|\\\((?:..)")


def manual_pages(folder: Path, language: str, most: int) -> str:
    """Return the running text of manual pages of a language, without macros, at most so many bytes."""
    place = folder / language if language else folder
    parts: list[str] = []
    size = 0
    for file in sorted(place.glob("man*/*.gz")):
        text = gzip.decompress(file.read_bytes()).decode("utf-8", "replace")
        text = ESCAPE.sub("", MACRO.sub("", text)).replace("\\-", "-").replace("\\", "")
        text = re.sub(r"\n{2,}", "\n", text).strip() + "\n"
        parts.append(text)
        size += len(text.encode())
        if size >= most:
            break
    return "".join(parts)


def texts(folder: Path, code: str) -> dict[str, tuple[str, str]]:
    """Return by language what is trained on and what is held out."""
    most = BYTES_EACH + BYTES_EACH // 4
    whole = {name: manual_pages(folder, short, most) for name, short in LANGUAGES.items()} | {"code": code}
    split = {}
    for name, text in whole.items():
        data = text.encode()[:most]
        cut = data.rfind(b"\n", 0, len(data) * 4 // 5)
        split[name] = data[:cut].decode(), data[cut:].decode("utf-8", "ignore")
    return split


def trained(kind: str, pieces: list[str]) -> str:
    """Return a tokenizer of a kind, trained on texts."""
    if kind == "byte-level BPE":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=SIZE, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "BPE with bytes":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
        trainer = trainers.BpeTrainer(
            vocab_size=SIZE, special_tokens=[*SPECIAL, *BYTES], limit_alphabet=400, show_progress=False
        )
    elif kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=SIZE, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(pieces, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][: len(SPECIAL)]
    if kind == "BPE with bytes":  # in the stream they are bytes, not added tokens
        steps = [decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()]
        document["decoder"] = json.loads(decoders.Sequence(steps).__getstate__())
    return json.dumps(document)


def counted(tokenizer: Tokenizer, text: str, rows: int) -> np.ndarray[Any, Any]:
    """Return how often each token is met in the lines of a text."""
    encoded = tokenizer.encode_batch_fast(text.splitlines(), add_special_tokens=False)
    return np.bincount([token for one in encoded for token in one.ids], minlength=rows)


def cut_to(kind: str, language: str, split: dict[str, tuple[str, str]], folder: Path) -> dict[str, Any]:
    """Return what a tokenizer keeps for a language, and the bytes of a token of all held-out texts."""
    document = json.loads((folder / f"{kind}.json").read_text("utf-8"))
    table = TokenTable.of(document, 1 + max(TokenTable.of(document, 1 << 20).ids.values()))
    before = Tokenizer.from_str(json.dumps(document))
    use = TokenUse(table, counted(before, split[language][0], table.rows))
    kept = use.kept(use.used)
    after = Tokenizer.from_str(json.dumps(cut_document(document, kept)))
    new = numbers(kept)
    rows, same, strings = {}, 0, 0
    for name, (_, held) in split.items():
        sizes = [counted(one, held, table.rows).sum() for one in (before, after)]
        rows[name] = [len(held.encode()) / int(size) for size in sizes]
        for line in held.splitlines()[::40]:
            theirs, ours = before.encode(line), after.encode(line)
            strings += 1
            assert before.decode(theirs.ids) == after.decode(ours.ids), line
            if all(token in new for token in theirs.ids):
                assert ours.ids == [new[token] for token in theirs.ids], line
                same += 1
    return {
        "rows": table.rows,
        "kept": len(kept),
        "least": use.least,
        "bytes_a_token": rows,
        "strings": strings,
        "same": same,
    }


def measure(parts: Parts, pages: Path, code: Path, work: Path) -> None:
    """Measure all kinds of tokenizers, each cut to English, to French and to code."""
    split = texts(pages, code.read_text("utf-8")[: BYTES_EACH + BYTES_EACH // 4])
    parts.measured("texts", lambda: {name: [len(t.encode()) for t in both] for name, both in split.items()})
    work.mkdir(exist_ok=True)
    for kind in ("byte-level BPE", "BPE with bytes", "WordPiece", "Unigram"):
        file = work / f"{kind}.json"
        if not file.exists():
            lines = [line for train, _ in split.values() for line in train.splitlines()]
            file.write_text(trained(kind, lines), "utf-8")
        for language in ("English", "French", "code"):
            parts.measured(
                f"cut {kind} {language}",
                lambda kind=kind, language=language: cut_to(kind, language, split, work),
            )
