"""Results of several sub-networks at a time: on a text, and on classified texts (torch)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint
from zerolm.io.brief import one_line
from zerolm.lab.subnets import metrics
from zerolm.lab.subnets.classified import AttackedTexts, ClassifiedTexts
from zerolm.lab.subnets.walk import SubNetwork, last_states
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.compute import Compute, computed, put_on
from zerolm.networks.opener import mapped_model, stored_model, without
from zerolm.networks.pooling import TokenPooling
from zerolm.networks.states import HiddenStates
from zerolm.passes.divergence import kl, perplexity, surprises
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import dimensions_of

TEXT_BATCH: Final = 4
LINES_BATCH: Final = 32
Results = dict[str, float]


class Judge(Protocol):
    """Evaluates networks cut from the model of ``blocks``."""

    @property
    def blocks(self) -> Blocks: ...

    def results(self, networks: Sequence[SubNetwork]) -> list[Results]:
        """Return the results of each network."""


@dataclass(frozen=True, eq=False)
class JudgedText:
    """Tokens of a text, and the number of predicted ``bytes`` (0 for an encoder, which does not predict)."""

    tokens: Tokens
    bytes: int

    def digest(self) -> str:
        """Return an identifier of these tokens."""
        return f"{self.tokens.digest()} {self.bytes}"

    def judge(self, checkpoint: Checkpoint, compute: Compute) -> Judge:
        """Return the judge of these tokens, with its network open."""
        model = computed(mapped_model(checkpoint), compute)
        if self.bytes:
            return PredictionJudge(Blocks(model, self.tokens.batches(TEXT_BATCH)), self.bytes)
        blocks = Blocks(model, self.tokens.batches(LINES_BATCH))
        return EmbeddingJudge(blocks, TokenPooling.of(checkpoint))


@dataclass(frozen=True, eq=False)
class JudgedClasses:
    """Classified texts in tokens: each text once, ``tokens`` (n, t) in order of their length.

    ``clean`` are the rows of the clean table and ``attacked`` those of the attacked one, if any; ``places``
    maps a text to its row in the tokens.
    """

    tokens: Tokens
    places: Mapping[str, int]
    clean: ClassifiedTexts | None
    attacked: AttackedTexts | None

    def digest(self) -> str:
        """Return an identifier of these tokens and rows."""
        rows = [vars(each) for each in (self.clean, self.attacked) if each is not None]
        return f"{self.tokens.digest()} {hashlib.sha256(repr(rows).encode()).hexdigest()}"

    def judge(self, checkpoint: Checkpoint, compute: Compute) -> Judge:
        """Return the judge of these texts; ``ValueError`` where the parent is not a classifier."""
        model = put_on(classifier(checkpoint), compute)
        return ClassJudge(Blocks(model, self.tokens.batches(LINES_BATCH)), self)


def classifier(checkpoint: Checkpoint) -> PreTrainedModel:
    """Return the parent with its classification head, in memory; ``ValueError`` where it has none."""
    with one_line(f"the model in {str(checkpoint.folder)!r}"):
        options = without(checkpoint.wrapper)
        model, report = stored_model(checkpoint.folder, AutoModelForSequenceClassification, **options)
    if report["missing_keys"]:
        raise ValueError(
            f"{str(checkpoint.folder)!r} has no head that classifies texts, for it lacks "
            f"{min(map(str, report['missing_keys']))!r}: train one first, as examples/classify_texts.py does"
        )
    model.train(False)
    return model


@dataclass(frozen=True, eq=False)
class PredictionJudge:
    """Perplexity, bits per byte and KL(parent || network) of next-token predictions."""

    blocks: Blocks
    bytes: int

    def results(self, networks: Sequence[SubNetwork]) -> list[Results]:
        whole = SubNetwork(Cut.whole(dimensions_of(self.blocks.model)))
        states = last_states(self.blocks, [whole, *networks])
        sums, count = np.zeros((1 + len(networks), 2)), 0
        for index in range(len(self.blocks.batches)):
            more, tokens = self._sums(index, [each[index] for each in states])
            sums, count = sums + more, count + tokens
        return [self._of(surprise, apart, count) for surprise, apart in sums[1:].tolist()]

    def _of(self, surprise: float, divergence: float, count: int) -> Results:
        return {
            metrics.PERPLEXITY: perplexity(surprise / count),
            metrics.BITS: surprise / math.log(2.0) / self.bytes,
            metrics.KL: max(0.0, divergence / count),
        }

    def _sums(self, index: int, states: Sequence[Tensor]) -> tuple[Floats, int]:
        """Return nats of surprise and of divergence of a batch for each of the states, the parent's first.

        The parent's predictions are computed once for all, a few at a time.
        """
        ids = self.blocks.batches[index]["input_ids"]
        size, last = tokens_at_once(self.blocks, len(ids)), ids.shape[1] - 1
        sums = np.zeros((len(states), 2))
        for start in range(0, last, size):
            end = min(start + size, last)
            following = ids[:, start + 1 : end + 1]
            theirs = self.blocks.finish(index, states[0][:, start:end]).logits
            for row, each in enumerate(states):
                ours = theirs if row == 0 else self.blocks.finish(index, each[:, start:end]).logits
                nats = surprises(ours, following), kl(theirs, ours)
                sums[row] += [float(each.double().sum()) for each in nats]
        return sums, len(ids) * last


@dataclass(frozen=True, eq=False)
class EmbeddingJudge:
    """The distance of embeddings from the parent's: 1 - cosine, where they are compared by cosine."""

    blocks: Blocks
    pooling: TokenPooling

    def results(self, networks: Sequence[SubNetwork]) -> list[Results]:
        whole = SubNetwork(Cut.whole(dimensions_of(self.blocks.model)))
        theirs, *ours = (self._embeddings(each) for each in last_states(self.blocks, [whole, *networks]))
        apart = (self.pooling.distances(each, theirs).double().mean() for each in ours)
        return [{metrics.DISTANCE: max(0.0, float(distance))} for distance in apart]

    def _embeddings(self, states: HiddenStates) -> Tensor:
        sent = (self.blocks.finish(i, each).last_hidden_state for i, each in enumerate(states))
        return torch.cat([self.pooling(x, self.blocks.tokens(i)) for i, x in enumerate(sent)])


@dataclass(frozen=True, eq=False)
class ClassJudge:
    """Accuracy on clean texts, and accuracy, success and drop under attack."""

    blocks: Blocks
    texts: JudgedClasses

    def results(self, networks: Sequence[SubNetwork]) -> list[Results]:
        return [self._of(self._classes(each)) for each in last_states(self.blocks, networks)]

    def _classes(self, states: HiddenStates) -> list[int]:
        """Return the class of each text."""
        sent = (self.blocks.finish(index, each).logits for index, each in enumerate(states))
        return [int(one) for logits in sent for one in logits.argmax(-1).tolist()]

    def _of(self, classes: Sequence[int]) -> Results:
        def of(texts: Sequence[str]) -> list[int]:
            return [classes[self.texts.places[text]] for text in texts]

        clean, attacked = self.texts.clean, self.texts.attacked
        results = {}
        if clean is not None:
            results[metrics.ACCURACY] = metrics.share_right(of(clean.texts), clean.labels)
        if attacked is not None:
            rows = (of(attacked.texts), of(attacked.perturbed), attacked.labels, attacked.attacked)
            results |= metrics.under_attack(*rows)
        return results


@dataclass(frozen=True, eq=False)
class Judging:
    """Evaluates networks cut from a parent on all of ``judged``, repaired by a ``rule`` on ``tokens``.

    It can be pickled for another process, which opens the parent itself.
    """

    parent: str
    judged: Sequence[Any]
    compute: Compute
    rule: str = "none"
    tokens: Tokens | None = None

    def __getstate__(self) -> dict[str, Any]:
        fields = ("parent", "judged", "compute", "rule", "tokens")
        return {name: self.__dict__[name] for name in fields}

    @cached_property
    def judges(self) -> list[Judge]:
        """The judges, with their networks open."""
        checkpoint = Checkpoint.open(self.parent)
        return [one.judge(checkpoint, self.compute) for one in self.judged]

    @cached_property
    def repairing(self) -> PreTrainedModel:
        """The parent, for repairs."""
        return computed(mapped_model(Checkpoint.open(self.parent)), self.compute)

    def __call__(self, cuts: Sequence[Cut]) -> list[Results]:
        """Return the results of each cut."""
        size, results = self._at_a_time, list[Results]()
        for start in range(0, len(cuts), size):
            results += self._together(cuts[start : start + size])
        return results

    @property
    def _at_a_time(self) -> int:
        """The number of networks that pass each layer together: memory has their states twice."""
        state = max(sum(judge.blocks.state_bytes) for judge in self.judges)
        return max(1, self.compute.limit // (2 * state) - 1)

    def _together(self, cuts: Sequence[Cut]) -> list[Results]:
        networks = [SubNetwork(cut, self._repaired(cut)) for cut in cuts]
        parts = [judge.results(networks) for judge in self.judges]
        return [
            {name: value for part in row for name, value in part.items()} for row in zip(*parts, strict=True)
        ]

    def _repaired(self, cut: Cut) -> Any:
        if self.tokens is None or self.rule == "none" or cut.is_whole:
            return None
        from zerolm.repairing.walk import repair

        parts = self.tokens.divided()
        return repair(self.repairing, cut, parts.fitted, self.rule, held=parts.compared)
