"""Texts and tables in the form that the judges of sub-networks use."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor

from zerolm.checkpoints import Checkpoint
from zerolm.lab.subnets.classified import read_attacked, read_classified
from zerolm.lab.subnets.judging import Judged, JudgedClasses, JudgedLines, JudgedText
from zerolm.lab.subnets.request import JudgingRequest
from zerolm.networks.opener import is_decoder, stock_config, stock_tokenizer
from zerolm.networks.pooling import TokenPooling
from zerolm.text.calibration import sentence_tokens, tokens_of
from zerolm.text.tokens import Tokens


def judged_by(checkpoint: Checkpoint, request: JudgingRequest) -> tuple[list[Judged], dict[str, str]]:
    """Return the evaluation data for sub-networks of a parent, and the SHA-256 of each file by name."""
    judged: list[Judged] = []
    files: dict[str, str] = {}
    if request.data is not None or request.attacked is not None:
        judged.append(_classes(checkpoint, request, files))
    if request.text is not None:
        judged.append(judged_text(checkpoint, request.text, request.sequences, request.length))
        files["text_sha256"] = str(judged[-1].tokens.text)
    return judged, files


def judged_text(checkpoint: Checkpoint, text: str, sequences: int, length: int) -> Judged:
    """Return a text tokenized for a parent."""
    tokens = tokens_of(checkpoint, text, sequences=sequences, length=length)
    if is_decoder(checkpoint):
        return JudgedText(tokens, _bytes(checkpoint, tokens))
    return JudgedLines(tokens, TokenPooling.of(checkpoint))


def _bytes(checkpoint: Checkpoint, tokens: Tokens) -> int:
    """Return the bytes of text after the first token of each sequence."""
    tokenizer = stock_tokenizer(checkpoint.folder)

    def length(ids: Tensor) -> int:
        return sum(len(text.encode()) for text in tokenizer.batch_decode(ids, skip_special_tokens=True))

    return max(1, length(tokens.ids) - length(tokens.ids[:, :1]))


def _classes(checkpoint: Checkpoint, request: JudgingRequest, files: dict[str, str]) -> JudgedClasses:
    named = stock_config(checkpoint.folder).id2label or {}
    names = {str(number): str(name) for number, name in named.items()}
    classes = [names.get(str(number), str(number)) for number in range(len(names))]
    clean = None if request.data is None else read_classified(Path(request.data), classes)
    attacked = None if request.attacked is None else read_attacked(Path(request.attacked), classes)
    texts: dict[str, None] = {}
    if clean is not None:
        texts |= dict.fromkeys(clean.texts)
        files["data_sha256"] = clean.sha256
    if attacked is not None:
        texts |= dict.fromkeys((*attacked.texts, *attacked.perturbed))
        files["attacked_sha256"] = attacked.sha256
    ordered = sorted(texts, key=lambda text: (len(text), hashlib.sha256(text.encode()).digest()))
    tokens = sentence_tokens(checkpoint, ordered, length=request.length)
    return JudgedClasses(tokens, {text: place for place, text in enumerate(ordered)}, clean, attacked)
