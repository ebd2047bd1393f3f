"""Predictions by position in a window: against sums by hand, whole and in parts."""

from __future__ import annotations

import numpy as np
import torch
from tiny import model

from zerolm.evaluation.readers import InMemory
from zerolm.evaluation.text_judge import JudgedPassages
from zerolm.passes.outputs import SPANS, NextTokens, logits_of
from zerolm.text.tokens import Tokens

IDS = torch.randint(0, 64, (5, 24), generator=torch.Generator().manual_seed(1))
LENGTHS = [24, 24, 11, 2, 17]
MASK = torch.tensor([[1] * length + [0] * (24 - length) for length in LENGTHS])


def test_nats_are_split_by_position_and_padding_counts_nowhere() -> None:
    parent, child = model("llama", seed=0), model("llama", seed=1)
    text = JudgedPassages({"": Tokens(IDS, MASK).batches(2)})
    sums, counts = text.nats([InMemory(lambda: parent), InMemory(lambda: child)])
    wanted, tokens = np.zeros((2, 3, 2)), np.zeros(3, int)
    for row, length in zip(IDS, LENGTHS, strict=True):
        theirs, ours = (
            logits_of(net, {"input_ids": row[None, :length]})[0].log_softmax(-1) for net in (parent, child)
        )
        for place in range(length - 1):
            span = 0 if place == 0 else 1 if place < 16 else 2
            tokens[span] += 1
            for network, log_p in enumerate((theirs, ours)):
                wanted[network, span, 0] -= float(log_p[place, row[place + 1]])
                apart = (theirs[place].exp() * (theirs[place] - log_p[place])).sum()
                wanted[network, span, 1] += float(apart)
    assert tokens.tolist() == [5, 3 * 15 + 9, 7 + 7]
    assert (counts[""] == tokens[None, :, None]).all()
    np.testing.assert_allclose(sums[""], wanted, rtol=1e-4, atol=1e-4)


def test_a_part_of_a_window_knows_where_it_begins() -> None:
    parent, child = model("llama", seed=0), model("llama", seed=1)
    inputs = {"input_ids": IDS}
    theirs, ours = (NextTokens.of(logits_of(net, inputs), inputs) for net in (parent, child))
    whole = ours.nats(theirs)
    assert whole[0].shape == whole[1].shape == (len(SPANS), 2)
    for step in (1, 7, 16, 20):
        sums, counts = np.zeros((len(SPANS), 2)), np.zeros((len(SPANS), 2))
        for start in range(0, 23, step):
            part = {"input_ids": IDS[:, start : start + step + 1]}
            other, one = (NextTokens.of(each.logits[:, start:], part, start) for each in (theirs, ours))
            nats, predicted = one.nats(other)
            sums, counts = sums + nats, counts + predicted
        np.testing.assert_allclose(sums, whole[0], rtol=1e-5)
        assert (counts == whole[1]).all()
