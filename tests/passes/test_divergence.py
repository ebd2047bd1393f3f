"""KL, surprise and distance against their formulas in float64, in however many rows at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from divergences import fidelity, perplexities_and_kls, perplexity_and_kl
from hypothesis import given
from hypothesis import strategies as st
from tiny import model

from zerolm.checkpoints.sentences import MODES
from zerolm.networks.pooling import TokenPooling, cosine_distances
from zerolm.passes import divergence
from zerolm.passes.divergence import MOST_NATS, kl, perplexity, surprises
from zerolm.passes.outputs import embeddings
from zerolm.text.tokens import Tokens, random_tokens

TOKENS = random_tokens(64, 5, 9, seed=1)


def logits(*shape: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 9), st.sampled_from([(), (1,), (3,), (2, 2)]), st.sampled_from([0.01, 3.0, 30.0]))
def test_kl_and_surprise_are_their_formulas(seed: int, before: tuple[int, ...], scale: float) -> None:
    theirs, ours = (logits(*before, 7, 11, seed=each, scale=scale) for each in (seed, seed + 100))
    following = torch.randint(11, (*before, 7), generator=torch.Generator().manual_seed(seed))
    log_p, log_q = (x.double().log_softmax(-1) for x in (theirs, ours))
    torch.testing.assert_close(
        kl(theirs, ours).double(), (log_p.exp() * (log_p - log_q)).sum(-1), rtol=1e-5, atol=1e-6
    )
    wanted = -log_q.gather(-1, following[..., None])[..., 0]
    torch.testing.assert_close(surprises(ours, following).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(9, 16), (3, 9, 16)])
def test_rows_at_a_time_change_no_bit(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours, following = (
        logits(*shape, seed=0),
        logits(*shape, seed=1),
        torch.arange(9).expand(shape[:-1]),
    )
    whole = kl(theirs, ours), surprises(ours, following)
    for cached in (1, 16, 100):
        monkeypatch.setattr(divergence, "CACHED", cached)
        assert torch.equal(kl(theirs, ours), whole[0])
        assert torch.equal(surprises(ours, following), whole[1])


def test_equal_predictions_do_not_diverge() -> None:
    """Nor does a constant, which no softmax contains; the divergence is not symmetric, and never negative."""
    theirs, ours = logits(50, 20, seed=0), logits(50, 20, seed=1)
    assert (kl(theirs, theirs) == 0).all()
    torch.testing.assert_close(kl(theirs, ours + 5.0), kl(theirs, ours), rtol=1e-4, atol=1e-6)
    assert (kl(theirs, ours) > 0).all()
    assert not torch.allclose(kl(theirs, ours), kl(ours, theirs), rtol=1e-2)


def test_small_divergences_keep_their_digits() -> None:
    """The sum p ln p - p z + ln sum e^z is off by a per cent: its terms are some 10^5 times as large."""
    theirs = logits(20, 5000, seed=0)
    ours = theirs + logits(20, 5000, seed=1, scale=1e-2)
    log_p, log_q = (x.double().log_softmax(-1) for x in (theirs, ours))
    wanted = float((log_p.exp() * (log_p - log_q)).sum(-1).mean())
    assert float(kl(theirs, ours).mean()) == pytest.approx(wanted, rel=2e-3)


def test_its_gradient_is_the_difference_of_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = logits(4, 8, 6, seed=0), logits(4, 8, 6, seed=1).requires_grad_()
    monkeypatch.setattr(divergence, "CACHED", 48)
    kl(theirs, ours).sum().backward()
    assert ours.grad is not None
    torch.testing.assert_close(
        ours.grad, ours.detach().softmax(-1) - theirs.softmax(-1), atol=1e-6, rtol=1e-4
    )


def test_a_broken_network_has_a_finite_perplexity() -> None:
    assert perplexity(0.0) == 1.0
    assert perplexity(1e6) == np.exp(MOST_NATS)


def test_the_distance_is_one_less_the_cosine() -> None:
    a, b = logits(6, 5, seed=0), logits(6, 5, seed=1)
    torch.testing.assert_close(cosine_distances(a, b), 1 - torch.cosine_similarity(a, b, dim=-1))
    torch.testing.assert_close(cosine_distances(3 * a, b / 7), cosine_distances(a, b))
    assert (cosine_distances(a, a) == 0).all()


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
    first, *others = perplexities_and_kls([lambda: children[0], lambda: children[1]], parent, TOKENS, batch=2)
    assert len(runs) == 3  # batches of two of five sequences
    for child, judged in zip(children, others, strict=True):
        assert judged == perplexity_and_kl(child, parent, TOKENS, batch=2)
    assert first.kl == 0.0
    assert first.perplexity == perplexity_and_kl(parent, children[0], TOKENS, batch=2).perplexity


@pytest.mark.parametrize("pooling", [TokenPooling((mode,)) for mode in MODES], ids=list(MODES))
def test_fidelity_ignores_padding(pooling: TokenPooling) -> None:
    child, parent = model("bert"), model("bert", seed=1)
    mask = torch.ones_like(TOKENS.ids)
    mask[2, 5:] = 0
    judged = fidelity(child, parent, Tokens(TOKENS.ids, mask), pooling=pooling)
    cosines = []
    for row, length in enumerate(mask.sum(1).tolist()):
        inputs = {"input_ids": TOKENS.ids[row : row + 1, :length]}
        a, b = (embeddings(net, inputs, pooling)[0].double().numpy() for net in (child, parent))
        cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert judged == pytest.approx(np.mean(cosines), abs=1e-5)
    assert fidelity(parent, parent, TOKENS, pooling=pooling) == 1.0
