"""Perplexity, divergence and fidelity against the formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from divergences import fidelity, perplexity_and_kl
from tiny import model

from zerolm.carving.evaluation.divergence import (
    embeddings,
    fidelities,
    perplexities_and_kls,
)
from zerolm.checkpoints.sentences import MODES
from zerolm.networks.pooling import TokenPooling
from zerolm.text.tokens import Tokens, random_tokens

TOKENS = random_tokens(64, 5, 9, seed=1)


def test_perplexity_and_divergence() -> None:
    child, parent = model("llama"), model("llama", seed=1)
    judged = perplexity_and_kl(child, parent, TOKENS, batch=2)
    with torch.no_grad():
        p, q = (net(TOKENS.ids).logits.double().softmax(-1)[:, :-1].numpy() for net in (parent, child))
    following = TOKENS.ids[:, 1:].numpy()
    taken = [q[b, t, following[b, t]] for b in range(5) for t in range(8)]
    assert judged.perplexity == pytest.approx(np.exp(-np.log(taken).mean()), rel=1e-5)
    assert judged.kl == pytest.approx((p * np.log(p / q)).sum(-1).mean(), rel=1e-4)
    assert perplexity_and_kl(parent, parent, TOKENS).kl == 0.0


def test_several_are_judged_as_one_by_one_and_the_parent_runs_once() -> None:
    children, parent = [model("llama", seed=seed) for seed in (2, 3)], model("llama")
    runs: list[int] = []
    parent.register_forward_hook(lambda *_: runs.append(1))
    own, *found = perplexities_and_kls([lambda: children[0], lambda: children[1]], parent, TOKENS, batch=2)
    assert len(runs) == 3  # batches of two of five sequences
    for child, judged in zip(children, found, strict=True):
        assert judged == perplexity_and_kl(child, parent, TOKENS, batch=2)
    assert own.kl == 0.0
    assert own.perplexity == perplexity_and_kl(parent, children[0], TOKENS, batch=2).perplexity


def test_several_encoders_are_judged_as_one_by_one() -> None:
    children, parent = [model("bert", seed=seed) for seed in (2, 3)], model("bert")
    own, *found = fidelities([lambda: children[0], lambda: children[1]], parent, TOKENS, batch=2)
    assert own == pytest.approx(1.0, abs=1e-6)
    assert found == [fidelity(child, parent, TOKENS, batch=2) for child in children]
    assert found[0] != found[1]


@pytest.mark.parametrize("pooling", [TokenPooling((mode,)) for mode in MODES], ids=list(MODES))
def test_fidelity_ignores_padding(pooling: TokenPooling) -> None:
    child, parent = model("bert"), model("bert", seed=1)
    mask = torch.ones_like(TOKENS.ids)
    mask[2, 5:] = 0
    found = fidelity(child, parent, Tokens(TOKENS.ids, mask), pooling=pooling, batch=2)
    cosines = []
    for row, length in enumerate(mask.sum(1).tolist()):
        inputs = {"input_ids": TOKENS.ids[row : row + 1, :length]}
        a, b = (embeddings(net, inputs, pooling)[0].double().numpy() for net in (child, parent))
        cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert found == pytest.approx(np.mean(cosines), abs=1e-5)
    assert fidelity(parent, parent, TOKENS, pooling=pooling) == pytest.approx(1.0, abs=1e-6)
