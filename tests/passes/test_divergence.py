"""KL, surprise and distance against their formulas, by position and in however many rows at a time."""

import numpy as np
import pytest
import torch
from divergences import fidelity, perplexities_and_kls, perplexity_and_kl
from hypothesis import given
from hypothesis import strategies as st
from tiny import model

from zerolm.checkpoints.sentences import MODES
from zerolm.evaluation.readers import InMemory
from zerolm.evaluation.text_judge import JudgedPassages
from zerolm.networks.pooling import TokenPooling
from zerolm.passes import divergence
from zerolm.passes.divergence import kl, surprises
from zerolm.passes.outputs import SPANS, NextTokens, embeddings, logits_of
from zerolm.text.tokens import Tokens, random_tokens

TOKENS = random_tokens(64, 5, 9, seed=1)


def logits(*shape: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 9), st.sampled_from([(), (1,), (3,), (2, 2)]), st.sampled_from([0.01, 3.0, 30.0]))
def test_kl_and_surprise_are_their_formulas(seed: int, before: tuple[int, ...], scale: float) -> None:
    theirs, ours = (logits(*before, 7, 11, seed=each, scale=scale) for each in (seed, seed + 100))
    following = torch.randint(11, (*before, 7), generator=torch.Generator().manual_seed(seed))
    log_p, log_q = (x.double().log_softmax(-1) for x in (theirs, ours))
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    torch.testing.assert_close(kl(theirs, ours).double(), divergence, rtol=1e-5, atol=1e-6)
    wanted = -log_q.gather(-1, following[..., None])[..., 0]
    torch.testing.assert_close(surprises(ours, following).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(9, 16), (3, 9, 16)])
def test_rows_at_a_time_change_no_bit(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = (logits(*shape, seed=seed) for seed in (0, 1))
    following = torch.arange(9).expand(shape[:-1])
    whole = kl(theirs, ours), surprises(ours, following)
    for cached in (1, 16, 100):
        monkeypatch.setattr(divergence, "CACHED", cached)
        assert torch.equal(kl(theirs, ours), whole[0])
        assert torch.equal(surprises(ours, following), whole[1])


def test_equal_predictions_do_not_diverge() -> None:
    """Nor does a constant, which no softmax contains."""
    theirs, ours = logits(50, 20, seed=0), logits(50, 20, seed=1)
    assert (kl(theirs, theirs) == 0).all()
    torch.testing.assert_close(kl(theirs, ours + 5.0), kl(theirs, ours), rtol=1e-4, atol=1e-6)


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
    wanted = ours.detach().softmax(-1) - theirs.softmax(-1)
    torch.testing.assert_close(ours.grad, wanted, atol=1e-6, rtol=1e-4)


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


def test_parts_of_a_window_sum_to_the_whole() -> None:
    parent, child = model("llama", seed=0), model("llama", seed=1)
    inputs = {"input_ids": IDS}
    theirs, ours = (NextTokens.of(logits_of(net, inputs), inputs) for net in (parent, child))
    whole = ours.nats(theirs)
    assert whole[0].shape == whole[1].shape == (len(SPANS), 2)
    for step in (1, 7, 16, 20):
        sums, counts = np.zeros((len(SPANS), 2)), np.zeros((len(SPANS), 2))
        for start in range(0, 23, step):
            part = range(23)[start : start + step]
            other, one = (NextTokens.of(each.logits[:, start:], inputs, part) for each in (theirs, ours))
            nats, predicted = one.nats(other)
            sums, counts = sums + nats, counts + predicted
        np.testing.assert_allclose(sums, whole[0], rtol=1e-5)
        assert (counts == whole[1]).all()


@given(every=st.integers(2, 24), seed=st.integers(0, 3))
def test_one_position_in_several_is_predicted_as_it_is_among_all(every: int, seed: int) -> None:
    networks = [model("llama", seed=number) for number in (seed, seed + 1)]
    passage = {"input_ids": IDS}
    theirs, ours = (InMemory(lambda net=net: net).predictions(passage) for net in networks)
    apart = kl(theirs.logits, ours.logits).double().sum(0).numpy()  # (t - 1,)
    sampled = [InMemory(lambda net=net: net, every=every).predictions(passage) for net in networks]
    places = [*sampled[0].places]
    assert places == [*range(min(every // 2, 22), 23, every)]
    nats, counts = sampled[1].nats(sampled[0])
    assert counts.sum(0).tolist() == [len(places) * len(IDS)] * 2
    assert nats.sum(0)[1] == pytest.approx(apart[places].sum(), rel=1e-4)
