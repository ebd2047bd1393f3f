"""Agreement with published results: the measured table of label-free scores and the best alpha.

Golden values are tau-b / rho of the published benchmarks: the published proxies' own figures where there
are such (ZeroLM on GPT-2, #params on FlexiBERT), else independent measurements.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import Zerolm

from zerolm.comparison import bench as module
from zerolm.comparison.bench import bench
from zerolm.comparison.results import ScoreRow
from zerolm.scores import WholeScore

COLUMNS = ("body_params", "geo", "geo_saturating", "stable_rank", 0.5, "best")
TABLE: dict[tuple[str, str | None], tuple[tuple[float, float], ...]] = {
    ("flexibert_glue", "trained"):
        ((.572, .765), (.575, .770), (.703, .878), (.687, .869), (.720, .890), (.745, .875)),
    ("flexibert_glue", "declared"):
        ((.484, .675), (.578, .772), (.675, .865), (.639, .840), (.611, .821), (.643, .841)),
    ("flexibert_glue", "published"):
        ((.454, .652), (.504, .721), (.540, .770), (.535, .763), (.543, .772), (.579, .774)),
    ("gpt2_wt103", None):
        ((.847, .967), (.873, .976), (.833, .958), (.798, .940), (.577, .749), (.871, .979)),
    ("gpt2_lm1b", None):
        ((.913, .986), (.928, .990), (.868, .969), (.812, .942), (.644, .804), (.873, .977)),
    ("transformer_xl_wt103", None):
        ((.862, .973), (.865, .974), (.864, .973), (.863, .973), (.719, .897), (.873, .970)),
    ("transformer_xl_lm1b", None):
        ((.976, .999), (.978, .999), (.972, .998), (.968, .998), (.806, .929), (.965, .998)),
    ("autoformer_vit", None):
        ((.548, .726), (.555, .743), (.595, .800), (.652, .839), (.683, .862), (.700, .878)),
    ("pit_vit", None):
        ((.811, .952), (.844, .965), (.841, .964), (.866, .973), (.675, .851), (.868, .973)),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(data_folder: Path) -> list[ScoreRow]:
    return bench(list(dict.fromkeys(name for name, _ in TABLE)), data=str(data_folder)).rows


def find(rows: list[ScoreRow], benchmark: str, view: str | None, column: str | float) -> ScoreRow:
    score, alpha = ("zerolm", column) if column in (0.5, 1.0, 1.1, "best") else (column, None)
    wanted = (benchmark, view, score, alpha)
    (only,) = (row for row in rows if (row.benchmark, row.view, row.score, row.alpha) == wanted)
    return only


@pytest.mark.parametrize(("benchmark", "view"), TABLE)
def test_the_table_is_reproduced(benchmark: str, view: str | None, rows: list[ScoreRow]) -> None:
    for column, (tau, rho) in zip(COLUMNS, TABLE[benchmark, view], strict=True):
        row = find(rows, benchmark, view, column)
        assert row.tau == pytest.approx(tau, abs=0.0015), column
        assert row.rho == pytest.approx(rho, abs=0.0015), column


def test_ties_are_not_broken_by_rounding(rows: list[ScoreRow]) -> None:
    """Depth alone on FlexiBERT: .682 / .834 with its ties, .482 when they are broken at random."""
    depth = find(rows, "flexibert_glue", "trained", "depth")
    assert depth.tau == pytest.approx(0.682, abs=0.0005)
    assert depth.rho == pytest.approx(0.834, abs=0.0005)
    assert depth.tau_random_ties == pytest.approx(0.482, abs=0.0005)
    best = find(rows, "flexibert_glue", "trained", "best")
    assert best.saw_labels
    assert best.best_alpha == 1.0


def test_spectral_capacity_is_near_its_rerun(rows: list[ScoreRow]) -> None:
    """NSC on the declared view, Xavier: .636 / .836 by numerical integration."""
    row = find(rows, "flexibert_glue", "declared", "spectral_capacity")
    assert (row.tau, row.rho) == (pytest.approx(0.636, abs=0.003), pytest.approx(0.836, abs=0.003))


def test_a_constant_score_has_no_agreement(rows: list[ScoreRow]) -> None:
    row = find(rows, "flexibert_glue", "published", "width")
    assert (row.tau, row.tau_random_ties, row.rho) == (None, None, None)


def test_the_command(data_folder: Path, zerolm: Zerolm) -> None:
    file, folder = str(data_folder / "flexibert_glue.json"), str(data_folder)
    ran = zerolm("bench", "run", "gpt2_wt103", file, "--data", folder, "--alpha", "0.3", "--json")
    assert ran.status == 0
    found = json.loads(ran.out)["rows"]
    keys = ["benchmark", "view", "metric", "score", "alpha", "n", "tau", "tau_random_ties", "rho"]
    assert all(row.keys() >= set(keys) for row in found)
    assert {row["alpha"] for row in found if row["score"] == "zerolm"} == {0.3, "best"}
    assert {row["view"] for row in found} == {None, "declared", "published", "trained"}
    assert {(row["benchmark"], row["n"]) for row in found} == {("gpt2_wt103", 200), ("flexibert_glue", 500)}
    ran = zerolm("bench", "run", "pit_vit", "--metric", "c100_base_acc", "--data", folder)
    title = "pit_vit: c100_base_acc (higher is better)"
    for words in (title, "baseline", "saw the labels", "geo_saturating"):
        assert words in ran.out


@pytest.mark.parametrize("values", [None, [float("nan")] * 100])
def test_a_score_that_fails_is_left_out(
    values: list[float] | None, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a plug-in may: the others are compared all the same."""
    make = module.make_score

    def broken(name: str, **options: object) -> object:
        if name != "depth":
            return make(name, **options)

        def many(_: object) -> np.ndarray:
            if values is None:
                raise KeyError("no such\nlayer")
            return np.array(values)

        return WholeScore("depth", lambda _: 0.0, "a test", many=many)

    monkeypatch.setattr(module, "make_score", broken)
    (only,) = bench(["pit_vit"], data=str(data_folder), draws=20).sections
    reason = "KeyError: 'no such\\nlayer'" if values is None else "ValueError: it does not give one finite"
    assert list(only.left_out) == ["depth"]
    assert only.left_out["depth"].startswith(reason)
    assert {"geo", "body_params"} <= {row.score for row in only.rows}
    assert "depth" not in {row.score for row in only.rows}
