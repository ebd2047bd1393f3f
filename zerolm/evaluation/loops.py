"""Answers that run in circles: greedy ones to the first halves of sequences, and which of them loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.readers import Made
from zerolm.networks.compute import as_noted
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

ANSWER: Final = 256
"""Tokens of an answer at most."""
PERIOD: Final = 64
TIMES: Final = 3
LEAST: Final = 32
BATCH: Final = 16
"""Prompts that are answered at a time."""


def ends_in_loop(
    ids: Sequence[int] | Ints, period: int = PERIOD, times: int = TIMES, least: int = LEAST
) -> bool:
    """Return whether an answer (t,) ends in a loop.

    That is a stretch at its end of at least ``least`` tokens, in which each token is the one ``p`` before it,
    for a ``p`` of at most ``period``, and which holds what is repeated at least ``times`` times.
    """
    answer = np.asarray(ids)
    for p in range(1, min(period, len(answer) // times) + 1):
        differs = np.flatnonzero(answer[p:] != answer[:-p])
        stretch = len(answer) - (int(differs[-1]) + 1 if len(differs) else 0)
        if stretch >= max(times * p, least):
            return True
    return False


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts (n, t), the ids that end an answer, and how many tokens one has at most."""

    ids: Tensor
    stops: tuple[int, ...]
    longest: int

    @classmethod
    def of(cls, checkpoint: Checkpoint, model: PreTrainedModel, tokens: Tokens, count: int) -> Prompts:
        """Return the first halves of at most ``count`` sequences, evenly from all."""
        chosen, half = tokens.spread(count).ids, half_of(tokens)
        return cls(chosen[:, :half], stops_of(model, checkpoint.layout.vocab), longest_of(checkpoint, half))

    def answers(self, make: Made) -> list[Ints]:
        """Return a network's answer to each prompt, by greedy decoding.

        The end token is not part of an answer.
        """
        model = make().train(False)
        # What a folder says of sampling and penalties would be another answer than the likeliest.
        model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=self.longest,
            eos_token_id=list(self.stops) or None,
            pad_token_id=self.stops[0] if self.stops else 0,
        )
        answers = list[Ints]()
        for ids in torch.split(self.ids, BATCH):
            inputs = ids.to(model.device)
            with torch.no_grad(), as_noted(model):
                mask = torch.ones_like(inputs)
                rows: Any = model.generate(input_ids=inputs, attention_mask=mask, use_cache=True)
            answers += [self._cut(row) for row in rows[:, ids.shape[1] :].cpu().numpy()]
        return answers

    def _cut(self, row: Ints) -> Ints:
        """Return an answer without what ends it, and what pads it."""
        ends = np.flatnonzero(np.isin(row, self.stops))
        return row[: ends[0]] if len(ends) else row

    def shares(self, makers: Sequence[Made], progress: Progress = silent) -> list[float]:
        """Return the share of answers of each network that loop."""
        shares = list[float]()
        for number, make in enumerate(makers):
            progress("answering prompts", number, len(makers))
            answers = self.answers(make)
            shares.append(sum(ends_in_loop(answer) for answer in answers) / len(answers))
        return shares


def half_of(tokens: Tokens) -> int:
    """Return the number of tokens of a sequence that are a prompt."""
    return max(1, tokens.ids.shape[1] // 2)


def longest_of(checkpoint: Checkpoint, prompt: int) -> int:
    """Return the largest number of tokens in an answer to a prompt of this length.

    ``ValueError`` where the model has no positions for an answer that could loop.
    """
    longest = min(ANSWER, checkpoint.layout.sizes.get("positions", prompt + ANSWER) - prompt)
    if longest < LEAST:
        raise ValueError(
            f"--loops needs answers of at least {LEAST} tokens: after prompts of {prompt} the model has "
            f"positions for {longest}; give less --length, or leave --loops out"
        )
    return longest


def stops_of(model: PreTrainedModel, vocab: int) -> tuple[int, ...]:
    """Return the ids that end a model's answers, as its folder says; none where it says none."""
    for config in (getattr(model, "generation_config", None), model.config):
        stops = getattr(config, "eos_token_id", None)
        several = stops if isinstance(stops, list) else [stops]
        sound = tuple(each for each in several if type(each) is int and 0 <= each < vocab)
        if sound:
            return sound
    return ()
