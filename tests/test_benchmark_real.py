"""``benchmarks/real.py``: published methods as cuts, and judging, against whole models in memory."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("transformers")
import real_judging
import real_ours
from parts import Parts
from real_judging import judged, of_peer, surprise, whole
from real_models import Parent, Sizes
from real_page import page
from real_peers import FLAP, METHODS, PCA, TWO_SSP, PeerCut, params_of, peer_cut, scores_of
from tiny import saved, word_tokenizer

from zerolm.networks.opener import open_model
from zerolm.networks.roles import layers_of
from zerolm.text.tokens import random_tokens
from zerolm.units.kept_units import Cut
from zerolm.units.pruning import apply_in_memory

TOKENS = random_tokens(64, 6, 11, seed=4)


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parent:
    saved(tmp_path / "pydec", "llama")
    monkeypatch.setenv("ZEROLM_MODELS", str(tmp_path))
    monkeypatch.setattr(Parent, "_tokens", lambda self, text, part, count: TOKENS)
    monkeypatch.setattr(real_judging, "EVERY", 1)
    return Parent("pydec")


def half(parent: Parent) -> Cut:
    every = parent.sizes
    return Cut.of(every, range(every.depth), lambda layer: (every.kv_heads, every.ffn // 2))


def test_children_are_judged_as_whole_models_are(parent: Parent) -> None:
    model = open_model(parent.checkpoint)
    child = apply_in_memory(model, half(parent))
    first, same = judged(
        parent, parent.unseen("python"), [of_peer(parent, PeerCut(half(parent))), whole(parent)]
    )
    with torch.no_grad():
        theirs, ours = (each(TOKENS.ids).logits[:, :-1].double().log_softmax(-1) for each in (model, child))
    wanted = functional.kl_div(ours, theirs, log_target=True, reduction="none").sum(-1).mean()
    likely = ours.gather(-1, TOKENS.ids[:, 1:, None]).mean()
    assert first["kl"] == pytest.approx(float(wanted), rel=1e-4)
    assert first["perplexity"] == pytest.approx(float((-likely).exp()), rel=1e-4)
    assert first["positions"] == 6 * 10
    assert same["kl"] == pytest.approx(0.0, abs=1e-6)
    assert same["perplexity"] == pytest.approx(same["parent"])


def test_flap_puts_the_means_of_what_goes_into_a_bias(parent: Parent) -> None:
    scores = scores_of(parent, "python")
    peer = peer_cut(parent, FLAP, 0.3 * Sizes.of(parent).body, scores)
    assert len({len(layer["ffn"]) for layer in peer.cut.layers}) > 1, "layers have sizes of their own"
    total = sum(len(layer["ffn"]) for layer in peer.cut.layers)
    assert abs(total - Sizes.of(parent).width(parent, 0.3 * Sizes.of(parent).body) * 3) <= 2
    model = open_model(parent.checkpoint)
    means = dict(enumerate(scores.means))
    for number, layer in enumerate(layers_of(model)):
        kept = torch.zeros(parent.sizes.ffn, dtype=torch.bool)
        kept[torch.from_numpy(peer.cut.layers[number]["ffn"])] = True
        mean = torch.from_numpy(means[number]).float()
        layer.writers["down"].register_forward_pre_hook(
            lambda _, inputs, kept=kept, mean=mean: (torch.where(kept, inputs[0], mean),)
        )
    with torch.no_grad():
        wanted = model(TOKENS.ids).logits
        ran = of_peer(parent, peer)(TOKENS)
        logits = torch.cat([ran.end(index, each).logits for index, each in enumerate(ran.states)])
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)


def test_all_principal_components_are_the_parent(parent: Parent) -> None:
    scores = scores_of(parent, "python")
    (same,) = judged(parent, parent.unseen("python"), [of_peer(parent, peer_cut(parent, PCA, 0.0, scores))])
    assert same["kl"] == pytest.approx(0.0, abs=1e-5)
    reads = list[torch.Tensor]()
    model = open_model(parent.checkpoint)
    for layer in layers_of(model):
        for norm in ("before", "between"):
            layer.norms[norm].register_forward_pre_hook(lambda _, x: reads.append(x[0].flatten(0, 1)))
    with torch.no_grad():
        model(TOKENS.ids)
    stream = torch.cat([functional.normalize(read, dim=1) for read in reads]).double()
    narrow = peer_cut(parent, PCA, 0.5 * Sizes.of(parent).body, scores).cut.narrowing
    wanted = torch.linalg.svd(stream).Vh[:24]
    energy = (stream @ torch.from_numpy(narrow.basis.copy())).square().sum()
    assert float(energy) == pytest.approx(float((stream @ wanted.T).square().sum()), rel=1e-4)


def test_2ssp_removes_the_attention_that_costs_least(parent: Parent) -> None:
    scores, sizes = scores_of(parent, "python"), Sizes.of(parent)
    fewer = 0.3 * sizes.body
    peer = peer_cut(parent, TWO_SSP, fewer, scores)
    ratio = sizes.neuron * parent.sizes.ffn / 3 / sizes.attention
    assert len(peer.without_attention) == round(3 * 0.3 ** (ratio / 1.5)) == 1
    assert params_of(parent, peer)[1] == pytest.approx(sizes.body - fewer, abs=sizes.neuron)
    losses = {
        layer: surprise(parent, TOKENS.rows([0]), PeerCut(peer.cut, without_attention=frozenset({layer})))
        for layer in range(3)
    }
    assert peer.without_attention == {min(losses, key=losses.__getitem__)}


@pytest.mark.parametrize("method", METHODS)
def test_methods_of_one_share_have_equal_parameters(parent: Parent, method: str) -> None:
    sizes = Sizes.of(parent)
    assert sizes.params == sum(weight.numel() for weight in open_model(parent.checkpoint).parameters())
    fewer = sizes.body / 3
    peer = peer_cut(parent, method, fewer, scores_of(parent, "python"))
    params, body = params_of(parent, peer)
    assert params - body == sizes.params - sizes.body or method == PCA
    assert body == pytest.approx(sizes.body - fewer, abs=sizes.neuron)
    if not peer.without_attention and method != PCA:
        child = apply_in_memory(open_model(parent.checkpoint), peer.cut)
        assert sum(weight.numel() for weight in child.parameters()) == pytest.approx(params, abs=3)


@pytest.mark.slow
def test_our_rows_are_made_by_the_command_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word_tokenizer(saved(tmp_path / "gemma270", "llama"))
    generator = np.random.default_rng(0)
    (tmp_path / "texts").mkdir()
    for part in ("cal", "unseen"):
        words = (f"w{number}" for number in generator.integers(64, size=40_000))
        (tmp_path / "texts" / f"py_{part}.txt").write_text(" ".join(words))
    monkeypatch.setenv("ZEROLM_REAL", str(tmp_path))
    monkeypatch.setattr(real_ours, "WORK", tmp_path / "work")
    parent, store = Parent("gemma270"), Parts(tmp_path / "rows.jsonl")
    real_ours.ours_row(parent, 0.8, "ours none", ["python"], store)
    row = store.stored("0.8 ours none by python on python")
    assert row["body"] == pytest.approx(0.8 * Sizes.of(parent).body, rel=0.02)
    assert row["params"] - row["body"] == Sizes.of(parent).params - Sizes.of(parent).body
    assert row["kl"] > 0
    assert row["peak_gb"] > 0
    monkeypatch.setattr(real_ours, "ran", None)  # nothing is made or judged again
    real_ours.ours_row(parent, 0.8, "ours none", ["python"], store)
    assert len(store.every()) == 2


def test_the_page_is_written_without_a_row(tmp_path: Path) -> None:
    assert "Not measured yet." in page(tmp_path)
