"""``shape_law``: the formula written out, what it turns with, its intervals, and the exact search by it."""

from __future__ import annotations

import math
import sys
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import architectures
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture
from zerolm.scores import make_score
from zerolm.scores.shape import (
    COVARIANCE,
    GEMSTONES_STEP,
    STEPS,
    WEIGHTS,
    best_ratio,
    worth,
)
from zerolm.solvers import search
from zerolm.spaces import SearchSpace, make_space

TOKENS = st.one_of(st.none(), st.integers(GEMSTONES_STEP, 10**15))


def by_hand(architecture: Architecture, tokens: int | None, batch: int) -> float:
    """Return the score in parameters, term by term."""
    e, k, floor, twice = WEIGHTS
    depth = len(architecture.layers)
    width = sum(layer.width for layer in architecture.layers) / depth
    geo = make_score("geo").of(architecture)
    steps = math.inf if tokens is None else min(max(tokens / batch, 477), 83_475)
    best = math.exp(floor) * (1 + (math.exp(twice) / steps) ** 2)
    ends = architecture.ends
    total = 1 + (ends.embedding + ends.head) / (15 * depth * width**2)
    return float(geo * total**e * math.exp(-k * math.log(width / depth / best) ** 2))


@given(architectures(), TOKENS, st.sampled_from([1 << 16, 1 << 20, GEMSTONES_STEP]))
def test_it_is_the_formula(architecture: Architecture, tokens: int | None, batch: int) -> None:
    if tokens is not None and tokens < batch:
        return
    score = make_score("shape_law", train_tokens=tokens, batch_tokens=batch)
    assert score.of(architecture) == pytest.approx(by_hand(architecture, tokens, batch), rel=1e-9)


@given(st.integers(GEMSTONES_STEP, 10**15), st.integers(1, 1000))
def test_the_best_ratio_falls_to_a_floor(tokens: int, times: int) -> None:
    floor = best_ratio()
    assert best_ratio(tokens) >= best_ratio(tokens * times) >= floor
    assert best_ratio(10**15) == pytest.approx(floor, rel=1e-3)
    assert best_ratio(tokens) == best_ratio(tokens * times, GEMSTONES_STEP * times)


def test_trainings_beyond_the_data_count_as_the_nearest() -> None:
    """Fewer steps than any network had, and more, are those that the law knows."""
    few, many = (steps * GEMSTONES_STEP for steps in STEPS)
    assert best_ratio(GEMSTONES_STEP) == best_ratio(few) > best_ratio(few + GEMSTONES_STEP)
    assert best_ratio(100 * many) == best_ratio(many) < best_ratio(many // 2)


def shape(depth: int, hidden: int, ffn: int, **settings: Any) -> Architecture:
    space = make_space("llama", **{"vocab": 32000, "tied": True, **settings})
    return space.read(
        {"depth": depth, "hidden": hidden, "head_size": 64, "heads": hidden // 64, "kv_heads": hidden // 64,
         "ffn": ffn}
    )  # fmt: skip


def test_worth_is_a_ratio_of_scores_with_an_interval() -> None:
    one, other = shape(24, 576, 1536), shape(6, 1152, 3072)
    score = make_score("shape_law")
    there, back = worth(one, other), worth(other, one)
    assert there.times == pytest.approx(score.of(one) / score.of(other), rel=1e-9)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    assert there.low < there.times < there.high
    same = worth(one, one)
    assert (same.times, same.low, same.high) == (1, 1, 1)
    wider = worth(shape(24, 576, 1536), shape(24, 576, 1700))  # of one backbone geo alone differs
    assert wider.low == pytest.approx(wider.high)
    assert (np.linalg.eigvalsh(np.array(COVARIANCE)) > 0).all()


def thinned(per_layer: bool) -> SearchSpace:
    small: dict[str, Any] = {"hidden": (64, 128), "head_size": (32,), "ffn": (64, 192, 320), "vocab": 300}
    loose = {"hidden_per_depth": (1, 1000), "ffn_per_hidden": (0.1, 10)}
    return make_space("llama", depth=(2, 3), per_layer=per_layer, **small, **loose)


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("tokens", [None, 2 * 10**9, 10**10])
def test_the_search_finds_what_brute_force_finds(per_layer: bool, tokens: int | None) -> None:
    """Over every architecture of a thinned space, each built and scored for itself."""
    space = thinned(per_layer)
    score = make_score("shape_law", train_tokens=tokens)
    params = make_score("params")
    every = list(everything(space))
    scores, sizes = score.of_many(every), params.of_many(every)
    for limit in np.quantile(sizes, [0.2, 0.5, 1]).astype(int).tolist():
        result = search(space, "shape_law", budgets={"max_params": limit}, options={"train_tokens": tokens})
        assert result.certificate.optimal
        assert result.best[0].score == pytest.approx(scores[sizes <= limit].max(), rel=1e-12)


def everything(space: SearchSpace) -> list[Architecture]:
    built = []
    for backbone in space.backbones():
        per_block = [
            [(i,) for i in range(len(block.candidates))]
            if block.tied
            else list(combinations_with_replacement(range(len(block.candidates)), block.count))
            for block in backbone.blocks
        ]
        built += [space.assemble(backbone, picks) for picks in product(*per_block)]
    return built


def test_a_step_larger_than_the_training_is_one_line() -> None:
    with pytest.raises(ValueError, match="batch_tokens 4194304 is more than train_tokens 1000"):
        make_score("shape_law", train_tokens=1000).of(shape(4, 128, 256))


def test_the_constants_are_those_of_the_gemstones(decoders_folder: Path) -> None:
    """Fitted again, with body 15 L d^2 as the score has it."""
    file = decoders_folder / "gemstones_curves.jsonl"
    if not file.is_file():
        pytest.skip("the curves of the Gemstones are not here")
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    from aspect_form import STEPS_FLOOR, by_backbone, fit, gemstones

    form = fit(STEPS_FLOOR, by_backbone(gemstones(file)))
    assert form.weights == pytest.approx(WEIGHTS, rel=1e-3)
