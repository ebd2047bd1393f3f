"""Spans of a text that answer a question, after SQuAD (arXiv 1606.05250)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForQuestionAnswering, BatchEncoding, PreTrainedTokenizerBase

from zerolm.elastic.finetuning.examples import Examples, between, padded
from zerolm.elastic.finetuning.rows import Row

LONGEST: Final = 30
"""Tokens of an answer, at most."""
ROOM: Final = 4
"""Tokens that are left for a context and what stands around it, at least."""
NEVER: Final = -1e4
"""The logit of a token that is padding."""
ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Spans:
    """The task of finding answers: columns of the ``question``, the ``context`` and the ``answer``.

    An answer is a text of the context, at its first place or at that in a column ``answer_start``, or an
    object with lists ``text`` and ``answer_start`` as in SQuAD. An empty one says that there is none, which
    is the first token, if ``may_lack``; a longer context than fits is cut, and what lies beyond is none.
    """

    may_lack: bool
    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    maker = AutoModelForQuestionAnswering
    metric = "f1"

    @classmethod
    def of(cls, rows: Sequence[Row], question: str, context: str, answer: str) -> Spans:
        """Return the task of these rows."""
        return cls(any(not _answers(row[answer]) for row in rows), question, context, answer)

    @property
    def config(self) -> dict[str, Any]:
        """Return what the model's configuration says of the task."""
        return {"num_labels": 2}

    def encode(self, rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, length: int) -> Examples:
        """Return rows as tensors, cut to ``length``; ``ValueError`` for an answer that is not in its text."""
        questions = between(tokenizer, [str(row[self.question]) for row in rows])
        longest = max(map(len, tokenizer(questions)["input_ids"]))
        if longest + ROOM > length:
            raise ValueError(f"the longest question has {longest} tokens, which leaves no room in {length}")
        encoded = self._encoded(rows, tokenizer, length)
        places = [self._tokens(i, row, encoded) for i, row in enumerate(rows)]
        names = ("start_positions", "end_positions")
        labels = {
            name: torch.tensor(column) for name, column in zip(names, zip(*places, strict=True), strict=True)
        }
        return Examples(padded(encoded, tokenizer) | labels)

    def logits(self, outputs: Any, padding: Tensor) -> tuple[Tensor, ...]:
        """Return the logits (b, t) of starts and of ends, none of them on padding."""
        both = (outputs.start_logits, outputs.end_logits)
        return tuple(logits.float().masked_fill(padding == 0, NEVER) for logits in both)

    def loss(self, logits: Sequence[Tensor], labels: Mapping[str, Tensor]) -> Tensor:
        """Return the mean cross-entropy of starts and ends in nats."""
        start, end = (labels[name] for name in ("start_positions", "end_positions"))
        return (functional.cross_entropy(logits[0], start) + functional.cross_entropy(logits[1], end)) / 2

    def measure(
        self,
        logits: Sequence[Tensor],
        examples: Examples,
        rows: Sequence[Row],
        tokenizer: PreTrainedTokenizerBase,
    ) -> dict[str, float]:
        """Return the shares of exact answers and of words in common (F1), as SQuAD counts them."""
        encoded = self._encoded(rows, tokenizer, examples.tensors["input_ids"].shape[1])
        pairs = []
        for i, row in enumerate(rows):
            told = self._told(i, row, encoded, logits[0][i], logits[1][i])
            truths = _answers(row[self.answer]) or [""]
            pairs.append(
                (max(exact(told, truth) for truth in truths), max(f1(told, truth) for truth in truths))
            )
        return {
            name: sum(values) / len(rows)
            for name, values in zip(("exact", "f1"), zip(*pairs, strict=True), strict=True)
        }

    def baseline(self, rows: Sequence[Row]) -> dict[str, float]:
        """Return what the whole text as the answer reaches, or none where that is better."""
        options = ([str(row[self.context]) for row in rows], [""] * len(rows))
        shares = [
            [
                max(f1(told, truth) for truth in _answers(row[self.answer]) or [""])
                for told, row in zip(option, rows, strict=True)
            ]
            for option in options
        ]
        return {"f1": max(sum(values) / len(rows) for values in shares)}

    def _encoded(self, rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, length: int) -> BatchEncoding:
        if not tokenizer.is_fast:
            raise ValueError("the tokenizer does not tell where its tokens stand: a fast one is needed")
        questions = between(tokenizer, [str(row[self.question]) for row in rows])
        contexts = [str(row[self.context]) for row in rows]
        encoded: BatchEncoding = tokenizer(
            questions, contexts, truncation="only_second", max_length=length, return_offsets_mapping=True
        )
        return encoded

    def _tokens(self, i: int, row: Row, encoded: BatchEncoding) -> tuple[int, int]:
        """Return the first and the last token of an answer, the first token twice where there is none."""
        answers = _answers(row[self.answer])
        if not answers:
            return 0, 0
        context, answer = str(row[self.context]), answers[0]
        start = _start(row, self.answer, context, answer)
        if context[start : start + len(answer)] != answer or start < 0:
            raise ValueError(f"row {i + 1}: the answer {answer[:60]!r} is not in its text")
        inside = [
            token
            for token, (first, behind) in _of_context(i, encoded)
            if behind > start and first < start + len(answer)
        ]
        complete = inside and encoded["offset_mapping"][i][inside[-1]][1] >= start + len(answer.rstrip())
        return (inside[0], inside[-1]) if complete else (0, 0)

    def _told(self, i: int, row: Row, encoded: BatchEncoding, start: Tensor, end: Tensor) -> str:
        """Return the likeliest answer."""
        tokens = [token for token, _ in _of_context(i, encoded)]
        if not tokens:
            return ""
        scores = start[tokens][:, None] + end[tokens][None]  # (starts, ends)
        allowed = torch.ones_like(scores, dtype=torch.bool).triu().tril(LONGEST - 1)
        best = int(scores.masked_fill(~allowed, -torch.inf).argmax())
        first, last = tokens[best // len(tokens)], tokens[best % len(tokens)]
        if self.may_lack and start[0] + end[0] > start[first] + end[last]:
            return ""
        places = encoded["offset_mapping"][i]
        return str(row[self.context])[places[first][0] : places[last][1]]


def exact(told: str, truth: str) -> float:
    """Return 1 where both are the same words, but for case, punctuation and articles."""
    return float(_words(told) == _words(truth))


def f1(told: str, truth: str) -> float:
    """Return the harmonic mean of precision and recall of the words."""
    ours, theirs = _words(told), _words(truth)
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))


def _words(text: str) -> list[str]:
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def _answers(cell: Any) -> list[str]:
    """Return the answers that a cell gives, none of them empty."""
    answers = cell["text"] if isinstance(cell, dict) else [cell]
    return [str(answer) for answer in answers if answer is not None and str(answer)]


def _start(row: Row, column: str, context: str, answer: str) -> int:
    given = row[column]["answer_start"][0] if isinstance(row[column], dict) else row.get("answer_start", "")
    return context.find(answer) if str(given) == "" else int(given)


def _of_context(i: int, encoded: BatchEncoding) -> list[tuple[int, tuple[int, int]]]:
    """Return the tokens of the context with their places in it."""
    parts, places = encoded.sequence_ids(i), encoded["offset_mapping"][i]
    return [(token, places[token]) for token, part in enumerate(parts) if part == 1]
