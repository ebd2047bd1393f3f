"""``benchmarks/aspect.py``: forms are found again, pairs are judged, and what is told of parabolas."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import aspect
from aspect_form import DRIVERS, Curves, ShapeForm, Trainings, fit, unseen_error
from aspect_sources import Source, by_form, geo, judge
from llama_small import LLAMA, LONGER

from zerolm.spaces import make_space

WEIGHTS = {"static": (3.1,), "T": (3.3, -0.15), "D": (3.5, -0.2), "steps+floor": (3.0, 7.4)}


def curves(driver: Any, sign: float = 1.0) -> Curves:
    """Return curves whose ln loss is a parabola in the ln N_eff of a form with known weights."""
    space = make_space("llama", vocab=32000, tied=False)
    shapes = [
        space.read({"depth": depth, "hidden": 128 * heads, "head_size": 128, "heads": heads,
                    "kv_heads": heads, "ffn": 512 * heads})
        for heads in (2, 4, 8, 12) for depth in (4, 10, 24, 60)
    ]  # fmt: skip
    counts = [2 * 10**9, 10**10, 10**11]
    rows = [(shape, number, tokens) for tokens in counts for number, shape in enumerate(shapes)]
    tokens = [count for _, _, count in rows]
    of = Trainings.of([shape for shape, _, _ in rows], tokens, [count // 4_194_304 for count in tokens])
    scores = ShapeForm(driver, np.array([0.6, 0.06, *WEIGHTS[driver.name]])).score(of)
    losses = np.exp(2.0 - sign * 0.07 * (scores - 17) + 0.003 * (scores - 17) ** 2)
    return Curves(of, losses, np.array(tokens, float), np.array([number for _, number, _ in rows]))


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_form_is_found_again_in_what_it_made(driver: Any) -> None:
    made = curves(driver)
    assert fit(driver, made).weights == pytest.approx([0.6, 0.06, *WEIGHTS[driver.name]], rel=1e-3)
    assert unseen_error(driver, made) < 1e-5
    others = [other for other in DRIVERS if other is not driver]
    if driver.name != "static":
        assert min(unseen_error(other, made) for other in others) > 1e-5


def test_a_perfect_score_orders_every_pair_and_its_opposite_none() -> None:
    driver = DRIVERS[0]
    form = ShapeForm(driver, np.array([0.6, 0.06, *WEIGHTS["static"]]))
    for sign, share in ((1.0, 1.0), (-1.0, 0.0)):
        source = Source("made", "made", curves(driver, sign))
        verdict = judge(source, by_form(form))
        assert verdict.pairs > 0
        assert (verdict.share, verdict.weighed, verdict.tau) == (share, share, 2 * share - 1)
    assert judge(source, geo).gain == (0, 0, 0)


def test_runs_of_as_many_tokens_have_one_prediction_by_tokens_and_another_by_steps() -> None:
    batch, longer, short = aspect.LONGER_BATCH, LONGER, LLAMA
    for driver in DRIVERS:
        form = ShapeForm(driver, np.array([0.6, 0.06, *WEIGHTS[driver.name]]))
        of = [aspect.differences(form, plan, ".3M") for plan in (batch, longer, short)]
        assert (of[0] == pytest.approx(of[1], abs=1e-3)) == (driver.name != "steps+floor")
        assert (of[0] == pytest.approx(of[2], abs=1e-3)) == (driver.name in ("static", "steps+floor"))
