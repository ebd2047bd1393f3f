"""The texts that networks are judged by: of several domains, sentences of encoders, and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.evaluation.by_layers import Choice, surprises_by_layers
from zerolm.carving.evaluation.divergence import SPANS, Divergence, Made, surprises_and_divergences
from zerolm.carving.evaluation.evaluated import TextMeasures
from zerolm.carving.evaluation.loops import Prompts, half_of, longest_of
from zerolm.carving.evaluation.neighbours import Judged
from zerolm.checkpoints import Checkpoint
from zerolm.networks.compute import Compute
from zerolm.networks.opener import is_decoder
from zerolm.networks.pooling import TokenPooling
from zerolm.progress import Progress
from zerolm.settings.domains import domains_of
from zerolm.text.calibration import joined, longest_line, sentence_tokens, tokens_by_domain
from zerolm.text.defaults import LENGTH, RANDOM, SEQUENCES
from zerolm.text.pairs import read_pairs
from zerolm.text.tokens import Tokens, some


@dataclass(frozen=True)
class JudgeRequest:
    """A ``text``, or texts by domain, each of which gives ``sequences`` of ``length`` tokens.

    ``data`` is a file of pairs of sentences; ``loops`` prompts are answered, none by default.
    """

    text: str | None
    data: str | Path | None = None
    sequences: int = SEQUENCES
    length: int = LENGTH
    loops: int = 0

    def check(self, *, of_other_tokens: bool = False) -> None:
        """Raise ``ValueError`` for what tells nothing, or nothing of a child ``of_other_tokens``."""
        domains = domains_of(self.text)
        if (self.text is None and self.data is None) or RANDOM in (self.text, *domains.values()):
            raise ValueError("random tokens tell nothing of what a model is worth: give a text")
        if of_other_tokens and domains:
            raise ValueError(
                "a child of other tokens than its parent's is judged on one text at a time: give --text FILE"
            )
        if of_other_tokens and self.loops:
            raise ValueError(
                "a child of other tokens than its parent's has no prompts in common with it: "
                "leave --loops out"
            )


@dataclass(frozen=True, eq=False)
class TextJudge:
    """The texts that networks are judged by as the parent's tokenizer reads them, and those of each domain.

    ``domains`` is empty of one text. ``prompts`` are so many, 0 for none.
    """

    parent: Checkpoint
    judged: Judged
    domains: Mapping[str, Tokens] = field(default_factory=dict)
    prompts: int = 0

    @classmethod
    def of(cls, parent: Checkpoint, request: JudgeRequest) -> TextJudge:
        """Return the judge that a request asks for; ``ValueError`` where it cannot be."""
        text, data, sizes = request.text, request.data, {"length": request.length}
        if request.loops and not is_decoder(parent):
            raise ValueError(
                f"--loops counts answers of models that predict the next token, and a {parent.family.name} "
                "does not: leave it out"
            )
        if data is not None and is_decoder(parent):
            raise ValueError(f"pairs judge encoders, and a {parent.family.name} is none: leave --data out")
        pairs = None if data is None else read_pairs(Path(data))
        if text is None:
            assert pairs is not None
            tokens, domains = (
                sentence_tokens(parent, some(pairs.sentences, request.sequences), **sizes),
                dict[str, Tokens](),
            )
        else:
            named = tokens_by_domain(parent, text, sequences=request.sequences, **sizes)
            domains = named if domains_of(text) else {}
            tokens = joined(named) if domains else named[""]
        counts = {name: len(each) for name, each in domains.items()}
        if request.loops:
            longest_of(parent, half_of(tokens))  # refuses before networks run
        if pairs is None:
            return cls(parent, Judged(tokens, domains=counts), domains, request.loops)
        both = sentence_tokens(parent, [*pairs.first, *pairs.second], **sizes)
        return cls(parent, Judged(tokens, both, pairs.scores, counts), domains)

    @property
    def tokens(self) -> Tokens:
        """All tokens, domain after domain."""
        return self.judged.tokens

    def measured(
        self, makers: Sequence[Made], reference: PreTrainedModel, progress: Progress
    ) -> list[TextMeasures]:
        """Return what the parent, and then each network, makes of the text."""
        if not is_decoder(self.parent):
            return self.judged.measures(makers, reference, TokenPooling.of(self.parent), progress)
        rows = _measures(
            {
                name: surprises_and_divergences(makers, reference, tokens, progress=progress)
                for name, tokens in (self.domains or {"": self.tokens}).items()
            }
        )
        if not self.prompts:
            return rows
        prompts = Prompts.of(self.parent, reference, self.tokens, self.prompts)
        shares = prompts.shares([lambda: reference, *makers], progress)
        return [
            replace(row, values={**row.values, "loops": share})
            for row, share in zip(rows, shares, strict=True)
        ]

    def measured_by_layers(
        self,
        choices: Sequence[Choice],
        children: Sequence[Checkpoint],
        running: Compute,
        progress: Progress,
    ) -> list[TextMeasures]:
        """Return what the parent makes of the text, with each choice of experts, and then each child.

        One layer is in memory at a time.
        """
        sums, counts = surprises_by_layers(
            self.parent, choices, children, self.tokens, running, progress=progress
        )
        parts = self.judged.parts() or {"": np.arange(len(self.tokens))}
        return _measures({name: (sums[:, part].sum(1), counts[part].sum(0)) for name, part in parts.items()})

    @property
    def prompt_count(self) -> int:
        """How many prompts are answered: a text may have fewer sequences."""
        return min(self.prompts, len(self.tokens))

    def shortened(self, length: int) -> str:
        """Return why the sequences are shorter than they were to be; empty where they are not.

        Lines of a text are of all lengths: those of an encoder are shorter only where a length was chosen.
        """
        longest, most = self.tokens.ids.shape[1], longest_line(self.parent, length)
        positions = self.parent.layout.sizes.get("positions")
        if most < length and (most == positions or length != LENGTH):
            why = "has no more positions" if most == positions else "reads no more"
            return f"sequences have at most {most:,} tokens, not {length:,}: the model {why}"
        if longest < length and length != LENGTH:
            return f"sequences have at most {longest:,} tokens, not {length:,}: no line of the text is longer"
        return ""


def _measures(parts: Mapping[str, tuple[Floats, Ints]]) -> list[TextMeasures]:
    """Return the measures of each network by nats (networks, spans, 2) and predicted tokens (spans,).

    These are of each domain, or of a text by an empty name.
    """
    sums, counts = (np.sum(column, axis=0) for column in zip(*parts.values(), strict=True))
    return [
        TextMeasures(
            _divergence(nats, counts),
            {name: _divergence(each[place], count) for name, (each, count) in parts.items() if name},
            {span: float(nats[at, 1] / count)
             for at, (span, count) in enumerate(zip(SPANS, counts, strict=True)) if count},
        )
        for place, nats in enumerate(sums)
    ]  # fmt: skip


def _divergence(nats: Floats, counts: Ints) -> dict[str, float]:
    """Return perplexity and KL by nats (spans, 2) of so many predicted tokens (spans,)."""
    return asdict(Divergence.of(nats.sum(0), int(counts.sum())))
