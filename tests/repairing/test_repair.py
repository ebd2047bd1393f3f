"""Repair against literal least squares, and what must hold whatever the network."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny import model, saved
from tiny_families import BIASED, DECODER, random_model
from torch import Tensor

from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import Compute, computed
from zerolm.networks.hooks import watching
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import bias, layers_of, matrix
from zerolm.repairing import ridge as moments
from zerolm.repairing import walk
from zerolm.repairing.ridge import ERROR_RIDGES, OUTPUT_RIDGES, Fit, SecondMoments
from zerolm.repairing.walk import repair, repair_together
from zerolm.text.tokens import Tokens, random_tokens
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, apply_in_memory, dimensions_of
from zerolm.units.ridges import UNTRIED, Ridges
from zerolm.units.stream.narrowing import Width
from zerolm.units.stream.weights_basis import weights_basis

FAMILIES = ("llama", "llama_biased", "mistral", "qwen2", "qwen3", "gemma2", "gpt2", "bert")
TOKENS = random_tokens(64, 40, 16, seed=5)


def half(network: Any, layers: tuple[int, ...] = (0, 1, 2)) -> Cut:
    sizes = dimensions_of(network)
    groups, ffn = np.arange(0, sizes.kv_heads, 2), np.arange(0, sizes.ffn, 2)
    return Cut(sizes, tuple(LayerCut.of(layer, groups, ffn) for layer in layers))


def passed(network: Any, layer: int) -> dict[str, np.ndarray]:
    """What goes in and out of the output matrices of a layer in one pass of the whole model, float64."""
    found = layers_of(network)[layer]
    modules = {"layer": found.module, "o": found.writers["o"], "down": found.ffn_out}
    modules["ffn"] = found.ffn_in[0]
    with torch.no_grad(), watching(modules) as seen:
        network.base_model(input_ids=TOKENS.ids)
    named = {f"{name}_in": x for name, x in seen.inputs.items()}
    named |= {f"{name}_out": x for name, x in seen.outputs.items()}
    return {name: x.reshape(-1, x.shape[-1]).double().numpy() for name, x in named.items()}


RIDGES = Ridges(1e-2, 1e-1)


def literal(
    x: np.ndarray, t: np.ndarray, start: np.ndarray, offset: Any, share: float, weights: np.ndarray
) -> np.ndarray:
    """Weighted ridge regression as one least-squares problem: the ridge is rows below the tokens; (k, d)."""
    root = np.sqrt(weights)[:, None]
    centred = x - weights @ x / weights.sum() if offset is not None else x
    pull = np.sqrt(share * np.square(root * centred).sum(0).mean()) * np.eye(x.shape[1])
    t = t - weights @ t / weights.sum() if offset is not None else t
    rows, targets = np.vstack([root * centred, pull]), np.vstack([root * t, pull @ start])
    return np.linalg.lstsq(rows, targets, rcond=None)[0]


def targets_of(
    norm: str, role: str, theirs: dict[str, np.ndarray], ours: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix's output in the parent, what is lacking before it in the child, and the weights of tokens."""
    own = theirs[f"{role}_out"]
    if norm == "sandwich":
        return own, 0 * own, 1 / (np.square(own).mean(1) * np.square(theirs["layer_in"]).mean(1))
    if role == "o":
        before, lacking = theirs["layer_in"], theirs["layer_in"] - ours["layer_in"]
    elif norm == "pre":
        before = theirs["layer_in"] + theirs["o_out"]
        lacking = before - ours["layer_in"] - ours["o_out"]
    else:
        before, lacking = theirs["ffn_in"], theirs["ffn_in"] - ours["ffn_in"]
    return own, lacking, 1 / np.square(before + own).mean(1)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_matrix_solves_its_literal_problem(name: str) -> None:
    """Matrix by matrix against numpy, on activations of whole networks: the parent and the child so far."""
    network = model(name)
    cut = half(network, (0, 2))
    ridges = {(layer, role): RIDGES for layer in (0, 2) for role in ("o", "down")}
    arrays = repair(network, cut, TOKENS, ridges=ridges).arrays
    so_far = Repaired()
    for place, kept in enumerate(cut.layers):
        theirs = passed(network, kept.layer)
        for role in ("o", "down"):
            child = apply_in_memory(network, cut, so_far)
            ours, layer = passed(child, place), layers_of(child)[place]
            module = layer.writers["o"] if role == "o" else layer.ffn_out
            offset = bias(module)
            own, lacking, weights = targets_of(layer.norm, role, theirs, ours)
            start, x = matrix(module).double().numpy().T, ours[f"{role}_in"]
            own_part = literal(x, own, start, offset, RIDGES.output, weights)
            wanted = own_part + literal(x, lacking, 0 * start, offset, RIDGES.lost, weights)
            new = {(kept.layer, role): arrays[kept.layer, role]}
            columns = arrays[kept.layer, role] if name == "gpt2" else arrays[kept.layer, role].T
            np.testing.assert_allclose(columns, wanted, atol=1e-3 * np.abs(wanted).max())
            if offset is not None:
                shift = weights @ (own + lacking - x @ wanted) / weights.sum()
                near = 1e-3 * max(np.abs(shift).max(), np.abs(own).max())
                new[kept.layer, f"{role}_bias"] = arrays[kept.layer, f"{role}_bias"]
                np.testing.assert_allclose(arrays[kept.layer, f"{role}_bias"], shift, atol=near)
            so_far = Repaired(so_far.arrays | new)
    assert set(so_far.arrays) == set(arrays)


@pytest.mark.parametrize("name", FAMILIES)
def test_keeping_everything_reproduces_the_parent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "BATCH_TOKENS", 48)
    network = model(name)
    cut = Cut.whole(dimensions_of(network))
    fitted, held, _ = vars(TOKENS.divided()).values()
    child = apply_in_memory(network, cut, repair(network, cut, fitted, held=held))
    with torch.no_grad():
        ours, wanted = (each(TOKENS.ids, use_cache=False)[0] for each in (child, network))
    assert torch.allclose(ours, wanted, atol=1e-3)


def test_held_out_tokens_choose_the_ridges_and_are_fitted_by_nothing() -> None:
    network = model("llama")
    cut, fitted, held = half(network), TOKENS.rows(range(30)), TOKENS.rows(range(30, 40))
    chosen = repair(network, cut, fitted, held=held)
    again = repair(network, cut, fitted, ridges=chosen.ridges)
    assert all(np.array_equal(chosen.arrays[place], again.arrays[place]) for place in chosen.arrays)
    assert set(repair(network, cut, fitted).ridges.values()) == {UNTRIED}


def test_what_is_padded_does_not_matter() -> None:
    network = model("bert")
    mask = torch.ones_like(TOKENS.ids)
    mask[::2, 11:] = 0
    other = torch.where(mask.bool(), TOKENS.ids, torch.full_like(TOKENS.ids, 7))
    first, second = (repair(network, half(network), Tokens(ids, mask)) for ids in (TOKENS.ids, other))
    for place, wanted in first.arrays.items():
        np.testing.assert_allclose(second.arrays[place], wanted, atol=1e-4)
    assert first.ridges == second.ridges


@pytest.mark.parametrize("room", [1 << 30, 1])
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gemma2"])
def test_cuts_are_repaired_together_as_each_alone(name: str, room: int, tmp_path: Path) -> None:
    """The parent runs once for all of them where memory has room for it, else once for each."""
    checkpoint = Checkpoint.open(saved(tmp_path / "parent", name))
    network = computed(mapped_model(checkpoint), Compute(memory=room))
    cuts = [half(network), half(network, (0, 2))]
    if name == "llama":
        width = weights_basis(checkpoint).narrowing(Width(32, False))
        cuts.append(replace(half(network), narrowing=width))
    with layers_run() as alone:
        wanted = [repair(network, cut, TOKENS) for cut in cuts]
    with layers_run() as together:
        found = repair_together(network, cuts, TOKENS)
    for ours, theirs in zip(found, wanted, strict=True):
        assert list(ours.arrays) == list(theirs.arrays)
        assert all(np.array_equal(ours.arrays[place], theirs.arrays[place]) for place in theirs.arrays)
        assert ours.ridges == theirs.ridges
    batches, saved_runs = 1, (len(cuts) - 1) * 3 if room > 1 else 0
    assert len(together) == len(alone) - batches * saved_runs


@contextmanager
def layers_run() -> Iterator[list[int]]:
    """Within, note each layer that is called with a batch."""
    called: list[int] = []
    call = Blocks.call

    def noted(blocks: Blocks, index: int, layer: int, *arguments: Any, **named: Any) -> Any:
        called.append(layer)
        return call(blocks, index, layer, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blocks, "call", noted)
        yield called


@pytest.mark.parametrize("name", ["qwen2", "bert"])
def test_given_ridges_are_not_chosen_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = model(name)
    cut = half(network)
    wanted = repair(network, cut, TOKENS, held=TOKENS.spread(5))
    monkeypatch.delattr(Fit, "chosen")
    found = repair(network, cut, TOKENS, ridges=wanted.ridges)
    assert found.ridges == wanted.ridges
    assert all(np.array_equal(found.arrays[place], wanted.arrays[place]) for place in wanted.arrays)
    with pytest.raises(ValueError, match="no ridge is given for down of layer 0; name all or none"):
        repair(network, cut, TOKENS, ridges={(0, "o"): RIDGES})


def test_factors_of_the_residual_are_those_of_the_matrices_that_write_to_it() -> None:
    """A granite is the llama whose output matrices are its own times the factor, and is repaired alike."""
    factor = 0.3
    granite = random_model("granite", residual_multiplier=factor, embedding_multiplier=1.0,
                           logits_scaling=1.0, attention_multiplier=16**-0.5)  # fmt: skip
    settings = DECODER | BIASED | {"rms_norm_eps": granite.config.rms_norm_eps}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).eval()
    weights = granite.state_dict()
    for name in weights:
        weights[name] = weights[name] * (factor if ".o_proj." in name or ".down_proj." in name else 1.0)
    llama.load_state_dict(weights)
    ids = TOKENS.ids[:4]
    with torch.no_grad():
        assert torch.allclose(granite(input_ids=ids).logits, llama(input_ids=ids).logits, atol=1e-4)
    ours, theirs = (repair(network, half(network), TOKENS).arrays for network in (granite, llama))
    assert ours.keys() == theirs.keys()
    for place, matrix_of in ours.items():
        wanted = theirs[place]
        assert np.abs(factor * matrix_of - wanted).max() <= 2e-3 * np.abs(wanted).max(), place


def problem(tokens: int, mean: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs (n, 6), targets in two parts (n, 3), and columns to start from (6, 3)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, 6, generator=generator) + mean
    true = torch.randn(6, 3, generator=generator)
    own = x @ true + torch.randn(tokens, 3, generator=generator) + mean
    lost = x @ torch.randn(6, 3, generator=generator) + 5 * torch.randn(tokens, 3, generator=generator)
    return x, own, lost, 0.5 * true


def filled(x: Tensor, own: Tensor, lost: Tensor | None, weights: Tensor, *, bias: bool = False) -> Fit:
    """The fit of sequences of two tokens, one in four held out."""
    fit = Fit.empty(x.shape[1], own.shape[1], bias=bias)
    for first in range(0, len(x), 8):
        rows = slice(first, first + 8)
        pair = None if lost is None else lost[rows].reshape(-1, 2, own.shape[1])
        fit.add(
            x[rows].reshape(-1, 2, x.shape[1]), own[rows].reshape(-1, 2, own.shape[1]), pair,
            weights[rows].reshape(-1, 2), is_held=first // 8 % 4 == 3,
        )  # fmt: skip
    return fit


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("ridges", [Ridges(1e-3, 1e-2), Ridges(1.0, 1e2)])
def test_each_part_has_its_own_ridge_towards_the_start(bias: bool, ridges: Ridges) -> None:
    x, own, lost, start = problem(48, mean=3.0)
    weights = torch.rand(48, generator=torch.Generator().manual_seed(2))
    weights[::7] = 0.0  # padding
    fit = filled(x, own, lost, weights, bias=bias)
    columns, chosen = fit.best(start.double(), ridges)
    assert chosen == ridges
    rows = np.array([first // 8 % 4 != 3 for first in range(48)])
    a, b, c, w = (each.double().numpy()[rows] for each in (x, own, lost, weights))
    s, offset = start.double().numpy(), True if bias else None
    wanted = literal(a, b, s, offset, ridges.output, w) + literal(a, c, 0 * s, offset, ridges.lost, w)
    np.testing.assert_allclose(columns.numpy(), wanted, rtol=1e-5, atol=1e-5)
    if bias:
        shift = (w @ (b + c) - w @ a @ wanted) / w.sum()
        np.testing.assert_allclose(fit.fitted.offset(columns).numpy(), shift, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_the_pair_with_the_least_loss_on_held_out_tokens_is_chosen(bias: bool) -> None:
    x, own, lost, start = problem(64, mean=1.0)
    fit = filled(x, own, lost, torch.ones(64), bias=bias)
    rows = np.array([first // 8 % 4 == 3 for first in range(64)])
    a, b, c = (each.double().numpy()[rows] for each in (x, own, lost))
    if bias:
        a, b, c = (each - each.mean(0) for each in (a, b, c))
    losses = {}
    for pair in product(OUTPUT_RIDGES, ERROR_RIDGES):
        columns, _ = fit.best(start.double(), Ridges(*pair))
        losses[pair] = float(np.square(b + c - a @ columns.numpy()).sum())
        assert fit.improves(start.double(), columns) == (
            losses[pair] < float(np.square(b + c - a @ start.double().numpy()).sum())
        )
    assert fit.chosen(start.double()) == Ridges(*min(losses, key=losses.__getitem__))


def test_wide_matrices_choose_in_float32_and_solve_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    x, own, lost, start = problem(64, mean=1.0)
    fit = filled(x, own, lost, torch.ones(64))
    columns, ridges = fit.best(start.double())
    monkeypatch.setattr(moments, "WIDE", 6)
    again, same = fit.best(start.double())
    assert ridges == same
    assert torch.equal(columns, again)


def test_without_held_out_tokens_ridges_are_not_tried() -> None:
    fit = Fit.empty(6, 3, bias=False)
    x, own, lost, start = problem(8)
    fit.fitted.add(x, own, lost)
    assert fit.best(start.double())[1] == UNTRIED


def test_inputs_that_are_always_zero_keep_their_columns() -> None:
    fit = Fit(*(SecondMoments(6, 3, bias=False) for _ in range(2)))
    fit.fitted.add(torch.zeros(9, 6), torch.ones(9, 3), torch.ones(9, 3))
    start = torch.randn(6, 3).double()
    assert torch.equal(fit.best(start)[0], start)
