"""Results of several sub-networks at a time: on a text, and on classified texts (torch)."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint
from zerolm.io.brief import one_line
from zerolm.lab.subnets.classified import ClassifiedTexts, read_attacked, read_classified
from zerolm.lab.subnets.request import JudgingRequest
from zerolm.lab.subnets.walk import SubNetwork, last_states
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.compute import Compute, computed, put_on
from zerolm.networks.opener import (
    is_decoder,
    mapped_model,
    stock_config,
    stock_tokenizer,
    stored_model,
    without,
)
from zerolm.networks.pooling import TokenPooling
from zerolm.networks.states import HiddenStates
from zerolm.passes.divergence import kl, perplexity, surprises
from zerolm.text.calibration import sentence_tokens, tokens_of
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import dimensions_of

Results = dict[str, float]
HIGHER_IS_BETTER: Final = {
    **{"accuracy": True, "accuracy_under_attack": True, "attack_success_rate": False, "accuracy_drop": False},
    **{"perplexity": False, "bits_a_byte": False, "kl": False, "distance": False},
}
"""All results by name, and whether higher is better."""


@dataclass(frozen=True, eq=False)
class Judged(ABC):
    """The ``tokens`` that networks cut from a parent are evaluated on, a ``batch`` at a time."""

    tokens: Tokens
    batch: ClassVar[int] = 32

    def digest(self) -> str:
        """Return an identifier of all that is evaluated."""
        more = repr([value for name, value in vars(self).items() if name not in ("tokens", "pooling")])
        return f"{self.tokens.digest()} {hashlib.sha256(more.encode()).hexdigest()}"

    def opened(self, checkpoint: Checkpoint, compute: Compute) -> Blocks:
        """Return the parent, open, with these tokens."""
        return Blocks(computed(mapped_model(checkpoint), compute), self.tokens.batches(self.batch))

    @abstractmethod
    def results(self, blocks: Blocks, networks: Sequence[SubNetwork]) -> list[Results]:
        """Return the results of networks cut from the model of ``blocks``."""


@dataclass(frozen=True, eq=False)
class JudgedText(Judged):
    """A text of which a decoder predicts a number of ``bytes``.

    Results are perplexity, bits per byte and KL(parent || network) of next-token predictions.
    """

    bytes: int
    batch = 4

    def results(self, blocks: Blocks, networks: Sequence[SubNetwork]) -> list[Results]:
        states = last_states(blocks, [whole_of(blocks), *networks])
        count = sum(batch["input_ids"][:, 1:].numel() for batch in blocks.batches)
        by_batch = enumerate(zip(*states, strict=True))
        sums = np.sum([_sums(blocks, index, each) for index, each in by_batch], axis=0)
        return [
            {
                "perplexity": perplexity(surprise / count),
                "bits_a_byte": surprise / math.log(2.0) / self.bytes,
                "kl": max(0.0, divergence / count),
            }
            for surprise, divergence in sums[1:].tolist()
        ]


def whole_of(blocks: Blocks) -> SubNetwork:
    """Return the parent as a network cut from it."""
    return SubNetwork(Cut.whole(dimensions_of(blocks.model)))


def _sums(blocks: Blocks, index: int, states: Sequence[Tensor]) -> Floats:
    """Return nats of surprise and of divergence of a batch for each of the states, the parent's first.

    The parent's predictions are computed once for all, a few at a time.
    """
    ids = blocks.batches[index]["input_ids"]
    size, last = tokens_at_once(blocks, len(ids)), ids.shape[1] - 1
    sums = np.zeros((len(states), 2))
    for start in range(0, last, size):
        end = min(start + size, last)
        following = ids[:, start + 1 : end + 1]
        theirs = blocks.finish(index, states[0][:, start:end]).logits
        for row, each in enumerate(states):
            ours = theirs if row == 0 else blocks.finish(index, each[:, start:end]).logits
            nats = surprises(ours, following), kl(theirs, ours)
            sums[row] += [float(each.double().sum()) for each in nats]
    return sums


@dataclass(frozen=True, eq=False)
class JudgedLines(Judged):
    """Lines whose embeddings are compared with the parent's: 1 - cosine, where cosine compares them."""

    pooling: TokenPooling

    def results(self, blocks: Blocks, networks: Sequence[SubNetwork]) -> list[Results]:
        def embeddings(states: HiddenStates) -> Tensor:
            sent = (blocks.finish(i, each).last_hidden_state for i, each in enumerate(states))
            return torch.cat([self.pooling(x, blocks.tokens(i)) for i, x in enumerate(sent)])

        theirs, *ours = map(embeddings, last_states(blocks, [whole_of(blocks), *networks]))
        apart = (self.pooling.distances(each, theirs).double().mean() for each in ours)
        return [{"distance": max(0.0, float(distance))} for distance in apart]


@dataclass(frozen=True, eq=False)
class JudgedClasses(Judged):
    """Classified texts in tokens: each text once, ``tokens`` (n, t) in order of their length.

    ``clean`` are the rows of the clean table and ``attacked`` those of the attacked one, if any; ``places``
    maps a text to its row in the tokens. Results are the accuracy on clean texts, and accuracy, success and
    drop under attack.
    """

    places: Mapping[str, int]
    clean: ClassifiedTexts | None
    attacked: ClassifiedTexts | None

    def opened(self, checkpoint: Checkpoint, compute: Compute) -> Blocks:
        """Return the parent with its head, open; ``ValueError`` where it is not a classifier."""
        return Blocks(put_on(classifier(checkpoint), compute), self.tokens.batches(self.batch))

    def results(self, blocks: Blocks, networks: Sequence[SubNetwork]) -> list[Results]:
        def classes(states: HiddenStates) -> list[int]:
            sent = (blocks.finish(index, each).logits for index, each in enumerate(states))
            return [int(one) for logits in sent for one in logits.argmax(-1).tolist()]

        return [self._of(classes(each)) for each in last_states(blocks, networks)]

    def _of(self, classes: Sequence[int]) -> Results:
        def of(texts: Sequence[str]) -> list[int]:
            return [classes[self.places[text]] for text in texts]

        clean, attacked = self.clean, self.attacked
        results = {}
        if clean is not None:
            results["accuracy"] = share_right(of(clean.texts), clean.labels)
        if attacked is not None:
            rows = (of(attacked.texts), of(attacked.perturbed), attacked.labels, attacked.attacked)
            results |= under_attack(*rows)
        return results


def share_right(predicted: Sequence[int], labels: Sequence[int]) -> float:
    """Return the share of correctly classified texts."""
    return sum(one == label for one, label in zip(predicted, labels, strict=True)) / len(labels)


def under_attack(
    before: Sequence[int], after: Sequence[int], labels: Sequence[int], attacked: Sequence[bool]
) -> Results:
    """Return the accuracy under attack, the attack success rate, and the drop of accuracy.

    As defined by TextAttack (arXiv 2005.05909): ``before`` and ``after`` (n,) are the predicted classes of
    each original text and of its attacked version. A network that misclassifies the original is not attacked,
    and counts as wrong under attack. For a text that is not ``attacked`` both are equal, and it counts as
    neither a failed nor a successful attack. For the network that was attacked these are TextAttack's
    figures; without any attack the rate is 0, as there.
    """
    rows = list(zip(before, after, labels, attacked, strict=True))
    right_before = [row for row in rows if row[0] == row[2]]
    right_after = [row for row in right_before if row[1] == row[2]]
    tried, failed = (sum(row[3] for row in some) for some in (right_before, right_after))
    return {
        "accuracy_under_attack": len(right_after) / len(rows),
        "attack_success_rate": (tried - failed) / tried if tried else 0.0,
        "accuracy_drop": (len(right_before) - len(right_after)) / len(rows),
    }


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


def judged_by(checkpoint: Checkpoint, request: JudgingRequest) -> tuple[list[Judged], dict[str, str]]:
    """Return the evaluation data for sub-networks of a parent, and the SHA-256 of each file by name."""
    judged: list[Judged] = []
    files: dict[str, str] = {}
    if request.data is not None or request.attacked is not None:
        labels = stock_config(checkpoint.folder).id2label or {}
        names = {str(number): str(name) for number, name in labels.items()}
        classes = [names.get(str(number), str(number)) for number in range(len(names))]
        clean = None if request.data is None else read_classified(Path(request.data), classes)
        attacked = None if request.attacked is None else read_attacked(Path(request.attacked), classes)
        tables = {"data": clean, "attacked": attacked}
        files |= {f"{name}_sha256": each.sha256 for name, each in tables.items() if each}
        texts = {text for each in (clean, attacked) if each for text in (*each.texts, *each.perturbed)}
        ordered = sorted(texts, key=lambda text: (len(text), hashlib.sha256(text.encode()).digest()))
        tokens = sentence_tokens(checkpoint, ordered, length=request.length)
        places = {text: place for place, text in enumerate(ordered)}
        judged.append(JudgedClasses(tokens, places, clean, attacked))
    if request.text is not None:
        judged.append(judged_text(checkpoint, request.text, request.sequences, request.length))
        files["text_sha256"] = str(judged[-1].tokens.text)
    return judged, files


def judged_text(checkpoint: Checkpoint, text: str, sequences: int, length: int) -> Judged:
    """Return a text tokenized for a parent; of a decoder with its bytes after the first tokens."""
    tokens = tokens_of(checkpoint, text, sequences=sequences, length=length)
    if not is_decoder(checkpoint):
        return JudgedLines(tokens, TokenPooling.of(checkpoint))
    tokenizer = stock_tokenizer(checkpoint.folder)

    def size(ids: Tensor) -> int:
        return sum(len(text.encode()) for text in tokenizer.batch_decode(ids, skip_special_tokens=True))

    return JudgedText(tokens, max(1, size(tokens.ids) - size(tokens.ids[:, :1])))


@dataclass(frozen=True, eq=False)
class Judging:
    """Evaluates networks cut from a parent on all of ``judged``, repaired by a ``rule`` on ``tokens``.

    It can be pickled for another process, which opens the parent itself.
    """

    parent: str
    judged: Sequence[Judged]
    compute: Compute
    rule: str = "none"
    tokens: Tokens | None = None

    def __getstate__(self) -> dict[str, Any]:
        fields = ("parent", "judged", "compute", "rule", "tokens")
        return {name: self.__dict__[name] for name in fields}

    @cached_property
    def blocks(self) -> list[Blocks]:
        """The parent, open, for each of ``judged``."""
        checkpoint = Checkpoint.open(self.parent)
        return [one.opened(checkpoint, self.compute) for one in self.judged]

    @cached_property
    def repairing(self) -> PreTrainedModel:
        """The parent, for repairs."""
        return computed(mapped_model(Checkpoint.open(self.parent)), self.compute)

    def __call__(self, cuts: Sequence[Cut]) -> list[Results]:
        """Return the results of each cut; memory has twice the states of those that pass together."""
        state = max(sum(blocks.state_bytes) for blocks in self.blocks)
        size, results = max(1, self.compute.limit // (2 * state) - 1), list[Results]()
        for start in range(0, len(cuts), size):
            networks = [SubNetwork(cut, self._repaired(cut)) for cut in cuts[start : start + size]]
            pairs = zip(self.judged, self.blocks, strict=True)
            parts = [judged.results(blocks, networks) for judged, blocks in pairs]
            results += [
                {name: value for part in row for name, value in part.items()}
                for row in zip(*parts, strict=True)
            ]
        return results

    def _repaired(self, cut: Cut) -> Any:
        if self.tokens is None or self.rule == "none" or cut.is_whole:
            return None
        from zerolm.repairing.walk import repair

        parts = self.tokens.divided()
        return repair(self.repairing, cut, parts.fitted, self.rule, held=parts.compared)
