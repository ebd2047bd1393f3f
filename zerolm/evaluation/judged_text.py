"""The text that networks are judged by, as the parent's tokenizer reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.loops import Prompts, half_of, longest_of
from zerolm.evaluation.text_judge import JudgedPassages, JudgedSentences, Sentences
from zerolm.networks.opener import is_decoder
from zerolm.networks.pooling import TokenPooling
from zerolm.passes.outputs import sequences_at_once
from zerolm.settings.domains import domains_of
from zerolm.text.calibration import joined, longest_line, sentence_tokens, tokens_by_domain
from zerolm.text.defaults import LENGTH, RANDOM, SEQUENCES
from zerolm.text.pairs import SentencePairs, read_pairs
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

    def check(self, parent: Checkpoint) -> None:
        """Raise ``ValueError`` for random tokens, and measures of another kind of networks."""
        domains = domains_of(self.text)
        if (self.text is None and self.data is None) or RANDOM in (self.text, *domains.values()):
            raise ValueError("random tokens cannot evaluate a model: give a text")
        if self.loops and not is_decoder(parent):
            raise ValueError(
                f"--loops counts answers of models that predict the next token, and a {parent.family.name} "
                "does not: leave it out"
            )
        if self.data is not None and is_decoder(parent):
            raise ValueError(f"pairs judge encoders, and a {parent.family.name} is none: leave --data out")

    def pairs(self) -> SentencePairs | None:
        """Return the pairs of sentences, if any."""
        return None if self.data is None else read_pairs(Path(self.data))


@dataclass(frozen=True, eq=False)
class SharedTokens:
    """A text as the parent's tokenizer reads it: of each domain, with an empty name for one text, and all."""

    parent: Checkpoint
    request: JudgeRequest
    domains: Mapping[str, Tokens]
    tokens: Tokens

    @classmethod
    def of(cls, parent: Checkpoint, request: JudgeRequest) -> SharedTokens:
        """Return the text of a request; ``ValueError`` where it cannot be read, or judges no such parent."""
        text, pairs, length = request.text, request.pairs(), request.length
        if text is None:
            assert pairs is not None
            lines = some(pairs.sentences, request.sequences)
            named = {"": sentence_tokens(parent, lines, length=length)}
        else:
            named = tokens_by_domain(parent, text, sequences=request.sequences, length=length)
        tokens = named[""] if "" in named else joined(named)
        if request.loops:
            longest_of(parent, half_of(tokens))  # refuses before networks run
        return cls(parent, request, named, tokens)

    @property
    def batches(self) -> dict[str, list[dict[str, Tensor]]]:
        """The batches of each domain."""
        vocab = self.parent.layout.vocab
        return {
            name: tokens.batches(sequences_at_once(vocab, tokens.ids.shape[1]))
            for name, tokens in self.domains.items()
        }

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of sequences and of tokens."""
        return len(self.tokens), self.tokens.count

    def predicted(self, reference: PreTrainedModel) -> JudgedPassages:
        """Return the text as batches, with the prompts that are answered."""
        count = self.request.loops
        prompts = Prompts.of(self.parent, reference, self.tokens, count) if count else None
        return JudgedPassages(self.batches, prompts=prompts)

    def embedded(self) -> JudgedSentences:
        """Return the text as sentences, with pairs."""
        counts = {name: len(tokens) for name, tokens in self.domains.items() if name}
        sentences, by = Sentences.of_tokens(self.tokens), TokenPooling.of(self.parent).similarity
        pairs = self.request.pairs()
        if pairs is None:
            return JudgedSentences(sentences, counts, by=by)
        both = sentence_tokens(self.parent, [*pairs.first, *pairs.second], length=self.request.length)
        return JudgedSentences(sentences, counts, Sentences.of_tokens(both), pairs.scores, by)

    @property
    def shortened(self) -> str:
        """Why the sequences are shorter than they were to be; empty where they are not.

        Lines of a text are of all lengths: those of an encoder are shorter only where a length was chosen.
        """
        length, longest = self.request.length, self.tokens.ids.shape[1]
        most, positions = longest_line(self.parent, length), self.parent.layout.sizes.get("positions")
        if most < length and (most == positions or length != LENGTH):
            why = "has no more positions" if most == positions else "reads no more"
            return f"sequences have at most {most:,} tokens, not {length:,}: the model {why}"
        if longest < length and length != LENGTH:
            return f"sequences have at most {longest:,} tokens, not {length:,}: no line of the text is longer"
        return ""
