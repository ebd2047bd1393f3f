"""Algorithm 2 against its literal twin and published figures, and its guards."""

from pathlib import Path

import numpy as np
import pytest
from catalogue import SETTINGS, batch_of
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from zerolm.calibration.alpha import parts
from zerolm.groundtruth.reader import View, quality, read, views
from zerolm.lab.algorithm2 import USEFUL, algorithm2
from zerolm.scores import ScoreBatch, make_score
from zerolm.spaces import make_space
from zerolm.statistics import agreement


def tau(a: np.ndarray, b: np.ndarray) -> float:
    return float(kendalltau(a, b).statistic)


BATCHES = st.builds(batch_of, st.sampled_from(list(SETTINGS)), st.integers(0, 10**6), st.integers(4, 15))


@pytest.mark.parametrize("widths", [(512, 512, 512), (512, 1024, 2048)])
def test_undefined_without_differences(widths: tuple[int, ...]) -> None:
    """All alike, or the same attention."""
    rest = {"n_layer": 2, "d_model": 128, "n_head": 2, "d_embed": 128, "div_val": 1}
    alike = [make_space("gpt2").read({**rest, "d_inner": width}) for width in widths]
    with pytest.raises(ValueError, match="undefined"):
        algorithm2(ScoreBatch.of(alike))


@given(BATCHES)
def test_algorithm2_is_the_published_formula(batch: ScoreBatch) -> None:
    attention, ffn = (np.round(part, 9) for part in parts(batch))
    count = make_score("params").of_many(batch)
    ap, fp, af = tau(attention, count), tau(ffn, count), tau(attention, ffn)
    assume(np.isfinite([ap, fp, af]).all() and min(ap, fp) != 0)
    scale = abs(max(ap, fp) * (1 - af / min(ap, fp)))
    phi = (1 - fp) * (1 - ap) + af
    flag = 1 if phi > ap + 1e-12 else -1
    assume(abs(phi - ap) > 1e-9)
    found = algorithm2(batch)
    assert found.literal == pytest.approx(scale + flag * phi, abs=1e-9)
    assert found.alpha == pytest.approx(np.clip(found.literal, *USEFUL), abs=1e-9)
    said = " ".join(found.warnings)
    assert ("flips the sign" in said) == (flag < 0)
    assert (f"{found.alpha:g} is used" in said) == (not USEFUL[0] <= found.literal <= USEFUL[1])
    assert ("divides by" in said) == (abs(min(ap, fp)) < 0.1)


def benchmark(folder: Path, name: str, view: str | None = None) -> tuple[View, np.ndarray]:
    truth = read(folder / f"{name}.json")
    return next(one for one in views(truth) if one.name == view), quality(truth, truth.metric)


# Literal alpha with total parameters, and tau / rho of zerolm with it, rounded, on the whole file.
PUBLISHED = {
    ("flexibert_glue", "published"): (0.608, 0.537, 0.767),
    ("gpt2_wt103", None): (1.22, 0.812, 0.958),
    ("gpt2_lm1b", None): (-0.28, 0.29, None),
    ("transformer_xl_lm1b", None): (-0.32, 0.27, None),
    ("pit_vit", None): (-0.45, 0.53, None),
}


@pytest.mark.parametrize(("name", "view"), PUBLISHED)
def test_the_heuristic_on_published_benchmarks(name: str, view: str | None, data_folder: Path) -> None:
    alpha, tau_, rho = PUBLISHED[name, view]
    read_as, result = benchmark(data_folder, name, view)
    batch = ScoreBatch.of(read_as.architectures)
    found = algorithm2(batch)
    assert found.literal == pytest.approx(alpha, abs=0.006)
    literal = agreement(make_score("zerolm", alpha=alpha).of_many(batch), result)
    assert literal.tau == pytest.approx(tau_, abs=0.007 if rho is None else 0.001)
    assert rho is None or literal.rho == pytest.approx(rho, abs=0.001)
    # The guard speaks where the formula breaks, and never makes it worse.
    assert bool(found.warnings) == (name != "flexibert_glue")
    guarded = agreement(make_score("zerolm", alpha=found.alpha).of_many(batch), result)
    assert guarded.tau >= literal.tau - 0.001
