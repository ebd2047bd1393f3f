"""``shape_law``: the formula written out, what it turns with, its intervals, and the exact search by it."""

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
    TOKENS_A_PARAMETER,
    TOLD,
    UNTOLD,
    best_ratio,
    ratio_worth,
    tokens_a_parameter,
    worth,
)
from zerolm.solvers import search
from zerolm.spaces import SearchSpace, make_space

TOKENS = st.one_of(st.none(), st.integers(1, 10**15))


def by_hand(architecture: Architecture, tokens: int | None) -> float:
    """Return the score in parameters, term by term."""
    e, k, m, t = (UNTOLD if tokens is None else TOLD).values
    depth = len(architecture.layers)
    width = sum(layer.width for layer in architecture.layers) / depth
    body = 15 * depth * width**2
    if tokens is not None:
        m += t * math.log(min(max(tokens / body, 1.13), 15_500) / 20)
    ends = architecture.ends
    total = 1 + (ends.embedding + ends.head) / body
    geo = make_score("geo").of(architecture)
    return float(geo * total**e * math.exp(-k * (math.log(width / depth) - m) ** 2))


@given(architectures(), TOKENS)
def test_it_is_the_formula(architecture: Architecture, tokens: int | None) -> None:
    score = make_score("shape_law", train_tokens=tokens)
    assert score.of(architecture) == pytest.approx(by_hand(architecture, tokens), rel=1e-9)


@given(st.integers(1, 10**15), st.integers(2, 1000))
def test_the_best_ratio_falls_with_tokens(tokens: int, times: int) -> None:
    architecture = shape(8, 256, 512)
    before, after = (best_ratio(architecture, count).value for count in (tokens, tokens * times))
    assert before >= after
    within = TOKENS_A_PARAMETER[0] <= tokens_a_parameter(architecture, tokens)
    if within and tokens_a_parameter(architecture, tokens * times) <= TOKENS_A_PARAMETER[1]:
        assert after / before == pytest.approx(times ** TOLD.values[3])


def test_trainings_beyond_the_data_count_as_the_nearest() -> None:
    architecture = shape(8, 256, 512)
    few, many = (round(count * 15 * 8 * 256**2) for count in TOKENS_A_PARAMETER)
    near = pytest.approx
    assert best_ratio(architecture, 1).value == near(best_ratio(architecture, few).value, rel=1e-4)
    assert best_ratio(architecture, few).value > best_ratio(architecture, 2 * few).value
    assert best_ratio(architecture, 9 * many).value == near(best_ratio(architecture, many).value, rel=1e-4)
    assert best_ratio(architecture, many).value < best_ratio(architecture, many // 2).value


@given(st.integers(1, 64), st.integers(1, 32), TOKENS)
def test_no_ratio_is_worth_more_than_the_best(depth: int, heads: int, tokens: int | None) -> None:
    one = ratio_worth(shape(depth, 64 * heads, 256), tokens)
    assert 0 <= one.low <= one.high <= 1
    assert one.low <= one.value


def shape(depth: int, hidden: int, ffn: int, **settings: Any) -> Architecture:
    return make_space("llama", **{"vocab": 32000, "tied": True, **settings}).read(
        {"depth": depth, "hidden": hidden, "head_size": 64, "heads": hidden // 64, "kv_heads": hidden // 64,
         "ffn": ffn}
    )  # fmt: skip


@pytest.mark.parametrize("tokens", [None, 10**10])
def test_worth_is_a_ratio_of_scores_with_an_interval(tokens: int | None) -> None:
    one, other = shape(24, 576, 1536), shape(6, 1152, 3072)
    score = make_score("shape_law", train_tokens=tokens)
    there, back = worth(one, other, tokens), worth(other, one, tokens)
    assert there.value == pytest.approx(score.of(one) / score.of(other), rel=1e-9)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))
    assert there.low < there.value < there.high
    same = worth(one, one, tokens)
    assert (same.value, same.low, same.high) == (1, 1, 1)
    wider = worth(shape(24, 576, 1536), shape(24, 576, 1700), tokens)  # of one backbone geo alone differs
    assert wider.low == pytest.approx(wider.high)


def thinned(per_layer: bool) -> SearchSpace:
    small: dict[str, Any] = {"hidden": (64, 128), "head_size": (32,), "ffn": (64, 192, 320), "vocab": 300}
    loose = {"hidden_per_depth": (1, 1000), "ffn_per_hidden": (0.1, 10)}
    return make_space("llama", depth=(2, 3), per_layer=per_layer, **small, **loose)


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("tokens", [None, 10**10])
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


@pytest.mark.parametrize("tokens", [0, -3, True, "many"])
def test_tokens_that_make_no_sense_are_one_line(tokens: Any) -> None:
    with pytest.raises(ValueError, match="train_tokens") as raised:
        make_score("shape_law", train_tokens=tokens)
    assert "\n" not in str(raised.value)


def test_the_constants_are_those_of_the_gemstones(decoders_folder: Path) -> None:
    """Fitted again, with a body of 15 L d^2 as the score has it."""
    file = decoders_folder / "gemstones_curves.jsonl"
    if not file.is_file():
        pytest.skip("the curves of the Gemstones are not here")
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    from aspect_form import STATIC, TOKENS_A_PARAMETER, by_backbone, covariance, fit, gemstones

    seen = by_backbone(gemstones(file))
    for driver, own in ((STATIC, UNTOLD), (TOKENS_A_PARAMETER, TOLD)):
        weights = fit(driver, seen).weights
        count = len(weights)
        assert weights == pytest.approx(own.values[:count], abs=5e-4)
        spread = np.array(own.covariance)[:count, :count]
        drawn = covariance(driver, seen, 100)  # the package has it by 400 draws
        assert 0.6 < (np.diag(drawn) / np.diag(spread)).min() < (np.diag(drawn) / np.diag(spread)).max() < 1.2
        assert (np.linalg.eigvalsh(spread) > 0).all()
