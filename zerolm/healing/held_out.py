"""How far a network is from its parent on text that is held out of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from transformers import PreTrainedModel

from zerolm.evaluation.evaluated import TextMeasures
from zerolm.evaluation.readers import InMemory, Reader, Recorded
from zerolm.evaluation.text_judge import JudgedPassages, JudgedSentences, Sentences
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.passes.outputs import BATCH
from zerolm.progress import Progress
from zerolm.text.tokens import Tokens
from zerolm.training.watch import Judge

JUDGE_ROOM: Final = 512 << 20
"""Bytes of the parent's predictions that are kept in memory to judge a run as it goes."""
JUDGE_SEQUENCES: Final = 32
Values = dict[str, float]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Sequences that are never trained on; ``pooling`` is None for a decoder, else that of an encoder.

    A decoder is judged at one position in ``every``.
    """

    tokens: Tokens
    pooling: TokenPooling | None
    every: int = 1

    def measured(
        self, model: PreTrainedModel, parent: PreTrainedModel, progress: Progress
    ) -> tuple[Values, Values]:
        """Return ``perplexity`` and ``kl``, or the ``cosine``, of the parent and of a network."""
        readers, text = [self._reader(parent), self._reader(model)], self._text(self.tokens)
        of_parent, of_network = text.measures(readers, progress)
        return self._values(of_parent), self._values(of_network)

    def judge(self, model: PreTrainedModel, parent: PreTrainedModel) -> Judge:
        """Return the measure of a network on some of the sequences; the parent is not needed any more."""
        length, vocabulary = self.tokens.ids.shape[1], int(parent.config.vocab_size)
        predicted = -(-length // self.every)
        count = min(JUDGE_SEQUENCES, max(1, JUDGE_ROOM // (4 * predicted * vocabulary)))
        text, reader = self._text(self.tokens.spread(count)), self._reader(parent)
        outputs: dict[int, Any] = {}
        if isinstance(text, JudgedPassages):
            outputs |= {id(each): reader.predictions(each).cpu() for each in text.passages[""]}
        else:
            outputs |= {id(each): reader.embeddings(each) for each in text.sentences.passages}
        readers: list[Reader] = [Recorded(outputs), self._reader(model)]
        return lambda: self._values(text.measures(readers)[1])

    def _reader(self, model: PreTrainedModel) -> InMemory:
        return InMemory(lambda: model, self.pooling or MEAN, self.every)

    def _text(self, tokens: Tokens) -> JudgedPassages | JudgedSentences:
        if self.pooling is None:
            return JudgedPassages({"": tokens.batches(BATCH)})
        return JudgedSentences(Sentences.of_tokens(tokens))

    def _values(self, measures: TextMeasures) -> Values:
        names = ("perplexity", "kl") if self.pooling is None else ("cosine",)
        return {name: measures.values[name] for name in names}
