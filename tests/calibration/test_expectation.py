"""Where a pick goes beyond the labels: sizes, choices, and ratios of them."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import Zerolm

from zerolm.architecture import Architecture
from zerolm.calibration import Labels, Pool
from zerolm.calibration.expectation import beyond, ratio_columns
from zerolm.scores import ScoreBatch
from zerolm.spaces import make_space

SPACE = make_space("llama", vocab=1000)


def llama(depth: int, heads: int, times: float = 4, per_kv: int = 2) -> Architecture:
    hidden = 64 * heads
    return SPACE.read({"depth": depth, "hidden": hidden, "head_size": 64, "heads": heads,
                       "kv_heads": heads // per_kv, "ffn": int(times * hidden)})  # fmt: skip


def labels(architectures: list[Architecture]) -> Labels:
    result = np.linspace(0, 1, len(architectures))
    return Labels("llama", SPACE.settings, "loss", False, Pool.of(architectures), result)


def leaving(known: list[Architecture], one: Architecture) -> set[str]:
    return {name for name, outside in beyond(labels(known), Pool.of([one])).items() if outside[0]}


ALIKE = [llama(depth, heads) for depth in (4, 8, 16) for heads in (4, 8, 16)]


def test_ratios_are_those_of_the_shape() -> None:
    columns = ratio_columns(ScoreBatch.of([llama(8, 8), llama(4, 16, times=2, per_kv=8)]))
    assert columns["hidden / depth"].tolist() == [64, 256]
    assert columns["heads / kv heads"].tolist() == [2, 8]
    attention = [2 + 2 / 2, 2 + 2 / 8]  # over hidden^2: q and o, k and v
    assert columns["ffn / attention"] == pytest.approx([12 / attention[0], 6 / attention[1]])


def test_a_label_is_never_beyond_itself() -> None:
    for one in ALIKE:
        assert leaving(ALIKE, one) == set()


@pytest.mark.parametrize(
    ("one", "ratio"),
    [
        (llama(8, 8, times=3), "ffn / attention"),
        (llama(8, 8, per_kv=4), "heads / kv heads"),
    ],
)
def test_a_ratio_that_no_label_has_is_beyond_them(one: Architecture, ratio: str) -> None:
    """Though depth, width and every size of it lie between those of the labels."""
    assert ratio in leaving(ALIKE, one)
    assert leaving(ALIKE, one) <= {"ffn / attention", "heads / kv heads"}


def test_combinations_are_beyond_where_each_size_is_not() -> None:
    """The deepest of the widest and of the narrowest were not trained: their aspect is new."""
    diagonal = [llama(4, 4), llama(8, 8), llama(16, 16)]
    assert "hidden / depth" in leaving(diagonal, llama(16, 4))
    assert "hidden / depth" in leaving(diagonal, llama(4, 16))


def test_labels_may_be_named(zerolm: Zerolm) -> None:
    small = (
        "--hidden",
        "64,96",
        "--depth",
        "2:4",
        "--head-size",
        "16",
        "--ffn",
        "64:256:64",
        "--vocab",
        "1024",
    )
    ran = zerolm("search", "llama", "--labels", "llama_small", "--hidden-per-depth", "1:1000", *small)
    assert ran.status == 0, ran.err
    zerolm("search", "llama", "--labels", "llama_smal", *small).refused("did you mean 'llama_small'")
