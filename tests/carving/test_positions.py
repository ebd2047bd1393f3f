"""KL by position in a window: against sums by hand, and the same layer by layer."""

from __future__ import annotations

import numpy as np
import torch
from tiny import model

from zerolm.carving.evaluation.divergence import (
    SPANS,
    log_probabilities,
    surprise_and_divergence,
    surprises_and_divergences,
)
from zerolm.text.tokens import Tokens

IDS = torch.randint(0, 64, (5, 24), generator=torch.Generator().manual_seed(1))
LENGTHS = [24, 24, 11, 2, 17]
MASK = torch.tensor([[1] * length + [0] * (24 - length) for length in LENGTHS])


def test_nats_are_split_by_position_and_padding_counts_nowhere() -> None:
    parent, child = model("llama", seed=0), model("llama", seed=1)
    sums, counts = surprises_and_divergences([lambda: child], parent, Tokens(IDS, MASK), batch=2)
    wanted, tokens = np.zeros((2, 3, 2)), np.zeros(3, int)
    for row, length in zip(IDS, LENGTHS, strict=True):
        theirs, ours = (
            log_probabilities(net, {"input_ids": row[None, :length]})[0] for net in (parent, child)
        )
        for place in range(length - 1):
            span = 0 if place == 0 else 1 if place < 16 else 2
            tokens[span] += 1
            for network, log_p in enumerate((theirs, ours)):
                wanted[network, span, 0] -= float(log_p[place, row[place + 1]])
                apart = (theirs[place].exp() * (theirs[place] - log_p[place])).sum()
                wanted[network, span, 1] += float(apart)
    assert counts.tolist() == tokens.tolist() == [5, 3 * 15 + 9, 7 + 7]
    np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-4)


def test_a_part_of_a_window_knows_where_it_begins() -> None:
    parent, child = model("llama", seed=0), model("llama", seed=1)
    inputs = {"input_ids": IDS}
    theirs, ours = (log_probabilities(net, inputs)[:, :-1] for net in (parent, child))
    whole = surprise_and_divergence(ours, theirs, inputs)
    assert whole.shape == (len(SPANS), 2)
    for step in (1, 7, 16, 20):
        parts = [
            surprise_and_divergence(
                ours[:, start : start + step],
                theirs[:, start : start + step],
                {"input_ids": IDS[:, start : start + step + 1]},
                first=start,
            )
            for start in range(0, 23, step)
        ]
        np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-5)
