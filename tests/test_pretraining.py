"""What training takes: operations, memory by what autograd saves, and laws against their own minimum."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from catalogue import catalogue
from hypothesis import given
from hypothesis import strategies as st

from zerolm.cost_columns import TRAINING
from zerolm.costs import COSTS, CostModel
from zerolm.pretraining import (
    CAST_BYTES,
    HELD,
    LOGIT_BYTES,
    OPERATIONS,
    STATE_BYTES,
    TrainedCosts,
    chinchilla,
    chinchilla_tokens,
    deepseek,
    most_macs,
    train_flops,
)
from zerolm.scores import make_score
from zerolm.solvers import search
from zerolm.spaces import make_space

KEPT = 4
"""Bytes a logit that autograd saves; the other of ``LOGIT_BYTES`` live while the loss is computed."""


@given(st.floats(1, 1e25), st.integers(1, 10**14))
def test_the_most_macs_are_the_most(flops: float, tokens: int) -> None:
    most = most_macs(flops, tokens)
    assert train_flops(most, tokens) <= flops < train_flops(most + 1, tokens)


def loss(macs: np.ndarray[Any, Any], tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Chinchilla's law as arXiv 2404.10102 prints it, table 1."""
    return 1.8172 + 482.01 / macs**0.3478 + 2085.43 / tokens**0.3658  # type: ignore[no-any-return]


@given(st.floats(15, 25))
def test_chinchilla_divides_where_its_loss_is_least(exponent: float) -> None:
    flops = 10**exponent
    best = chinchilla(flops)
    assert best.macs * best.tokens * OPERATIONS == pytest.approx(flops)
    macs = best.macs * np.geomspace(0.5, 2, 2001)
    assert macs[loss(macs, flops / OPERATIONS / macs).argmin()] == pytest.approx(best.macs, rel=2e-3)
    assert chinchilla_tokens(round(best.macs)) == pytest.approx(best.tokens, rel=1e-4)


def test_the_laws_at_published_budgets() -> None:
    """DeepSeek LLM 67B was meant for 2 T tokens; 20 tokens a parameter are Chinchilla's rule at 5.76e23."""
    gopher = chinchilla(5.76e23)
    assert 15 < gopher.tokens / gopher.macs < 25
    other = deepseek(5.76e23)
    assert other.macs * other.tokens * OPERATIONS == pytest.approx(5.76e23)
    assert other.tokens < gopher.tokens


def saved_bytes(model: Any, batch: int, length: int, vocab: int) -> int:
    """The bytes that autograd saves of a forward pass with its loss, parameters apart."""
    parameters = {one.untyped_storage().data_ptr() for one in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(vocab, (batch, length))
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with torch.autocast("cpu", dtype=torch.bfloat16), hooks:
        outputs = model(input_ids=ids, labels=ids, use_cache=False)
    assert outputs.loss.isfinite()
    return sum(saved.values())


@pytest.mark.parametrize("space_name", sorted(HELD))
@pytest.mark.parametrize(
    "sizes",
    [
        {"depth": 2, "hidden": 128, "head_size": 64, "ffn": 256, "heads_per_kv": 1, "tied": True},
        {"depth": 3, "hidden": 192, "head_size": 64, "ffn": 640, "heads_per_kv": 3, "tied": False},
    ],
)
def test_memory_is_what_autograd_saves(space_name: str, sizes: dict[str, Any]) -> None:
    """Two numbers of sequences tell what goes with tokens, and what with weights."""
    tied, vocab, length = sizes["tied"], 512, 64
    ranges = {name: (value,) for name, value in sizes.items() if name != "tied"}
    space = make_space(
        space_name, vocab=vocab, positions=256, tied=tied, hidden_per_depth=(1, 1000),
        ffn_per_hidden=(0.1, 10), **ranges,
    )  # fmt: skip
    backbone = next(iter(space.backbones()))
    architecture = space.assemble(backbone, [[0] for _ in backbone.blocks])
    config = space.config(architecture)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config)).train()
    few, many = (saved_bytes(model, sequences, length, vocab) for sequences in (2, 6))
    costs = [
        TrainedCosts(context=length, sequences=sequences, vocab=vocab, held=HELD[space_name]).of(architecture)
        for sequences in (2, 6)
    ]
    tokens, transient = 4 * length, LOGIT_BYTES - KEPT
    predicted = costs[1][TRAINING] - costs[0][TRAINING] - tokens * vocab * transient
    assert many - few == pytest.approx(predicted, rel=0.015)
    params = sum(one.numel() for one in model.parameters())
    matrices = sum(layer.weights for layer in architecture.layers) + vocab * sizes["hidden"]
    fixed = costs[0][TRAINING] - (costs[1][TRAINING] - costs[0][TRAINING]) // 2
    assert fixed == STATE_BYTES * params + CAST_BYTES * matrices
    rotary = 2 * 4 * length * sizes["head_size"]
    assert few - (many - few) / 2 == pytest.approx(CAST_BYTES * matrices + rotary, rel=1e-3)


def test_a_search_within_memory_finds_what_brute_force_finds() -> None:
    every = catalogue("llama")
    vocab = every.space.settings["vocab"]
    costs = TrainedCosts(context=256, sequences=4, vocab=vocab, held=HELD["llama"])
    rows = [costs.of(one) for one in every.architectures]
    memory = np.array([row[TRAINING] for row in rows])
    assert all({name: row[name] for name in COSTS} == CostModel(context=256).of(one)
               for row, one in zip(rows, every.architectures, strict=True))  # fmt: skip
    scores = make_score("geo").of_many(every.batch)
    for limit in np.quantile(memory, [0.1, 0.5, 0.9]).astype(int).tolist():
        result = search(every.space, budgets={f"max_{TRAINING}": limit}, costs=costs)
        assert result.certificate.optimal
        assert result.best[0].score == pytest.approx(scores[memory <= limit].max(), rel=1e-12)
        assert result.best[0].costs[TRAINING] <= limit
        assert TRAINING in result.cost_names
