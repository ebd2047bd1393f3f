"""Decoders of today: what the scores reach on Gemstones, and on published pairs of equal size.

Golden values were measured apart from this code: tau-b with the loss on FineWeb (numpy and scipy on the
authors' files), and pairs within 5 % of total parameters. ``params`` counts what was trained, an untied
vocabulary of 50,304.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from zerolm.comparison.bench import bench
from zerolm.comparison.results import ScoreRow, Section
from zerolm.costs import CostModel
from zerolm.groundtruth.reader import SHIPPED, read, views
from zerolm.statistics import ordered_pairs, pairs_of_similar_cost

TAUS = {
    "depth_width2": 0.961, "geo": 0.952, "body_params": 0.948, "geo_saturating": 0.931, "params": 0.879,
    "stable_rank": 0.798, "spectral_capacity": 0.798, "zerolm 0.5": 0.798, "width": 0.61,
    "log_complexity": 0.41, "depth": 0.20,
}  # fmt: skip
ALL_RIGHT = ("geo", "depth", "depth_width", "depth_width2", "body_params", "stable_rank")


@pytest.fixture(scope="module")
def gemstones(decoders_folder: Path) -> Section:
    (section,) = bench(["gemstones"], data=str(decoders_folder), draws=20).sections
    return section


@pytest.fixture(scope="module")
def decoder_pairs() -> Section:
    (section,) = bench(["decoder_pairs"]).sections
    return section


def row(section: Section, label: str) -> ScoreRow:
    (only,) = (row for row in section.rows if row.label == label)
    return only


@pytest.mark.parametrize("label", TAUS)
def test_agreement_with_the_loss_on_fineweb(label: str, gemstones: Section) -> None:
    digits = 2 if label in ("width", "log_complexity", "depth") else 3
    assert row(gemstones, label).tau == pytest.approx(TAUS[label], abs=0.51 * 10**-digits)


def test_a_score_that_was_fitted_to_them_saw_the_labels(gemstones: Section, decoder_pairs: Section) -> None:
    assert {row.score for row in gemstones.rows if row.saw_labels} == {"zerolm", "shape_law"}
    assert {row.score for row in decoder_pairs.rows if row.saw_labels} == {"zerolm"}


def test_pairs_of_about_equal_parameters(gemstones: Section) -> None:
    assert gemstones.alike == "within 5 % of total parameters"
    assert {row.pairs for row in gemstones.rows} == {20}
    assert {row(gemstones, label).pairs_right for label in ALL_RIGHT} == {1.0}
    assert row(gemstones, "params").pairs_right == 11 / 20
    body = gemstones.scores["body_params"]
    totals = gemstones.scores["params"]
    width = ordered_pairs(gemstones.scores["width"], gemstones.result, pairs_of_similar_cost(totals, 0.05))
    assert (width.right, width.n) == (0, 20)
    assert len(pairs_of_similar_cost(body, 0.05)) == 6


@pytest.mark.parametrize("metric", ["train_loss_10B", "dclm_loss"])
def test_other_losses_are_chosen_as_metrics(metric: str, decoders_folder: Path) -> None:
    (section,) = bench(["gemstones"], data=str(decoders_folder), metric=metric, draws=0).sections
    losses = [entry.results[metric] for entry in section.truth.architectures]
    assert (-section.result).tolist() == losses
    tau = -kendalltau(section.scores["geo"].round(3), losses).statistic
    assert row(section, "geo").tau == pytest.approx(tau)


def test_published_parameters_are_met_exactly(decoders_folder: Path) -> None:
    (view,) = views(read(decoders_folder / "gemstones.json"))
    assert view.settings == {"vocab": 50304, "tied": False, "positions": 2048}
    totals = [CostModel().of(architecture)["params"] for architecture in view.architectures]
    printed = [
        48_377_600, 52_311_808, 95_588_096, 104_440_064, 66_758_784, 116_518_272, 94_776_832, 98_710_016,
        102_643_200, 106_576_384, 114_442_752, 103_814_400, 475_468_032, 543_482_880, 497_457_920,
        1_013_607_680, 1_924_161_024, 517_499_136, 1_047_397_120, 1_904_850_944, 1_044_032_000, 2_007_837_696,
    ]  # fmt: skip
    assert totals == printed


def test_settings_of_the_file_count_before_what_its_networks_share(decoders_folder: Path) -> None:
    truth = read(decoders_folder / "gemstones.json")
    (view,) = views(truth.model_copy(update={"settings": {"vocab": 32000}}))
    assert view.settings == {"vocab": 32000}
    assert all(architecture.ends.tied_head for architecture in view.architectures)


# arXiv 2510.18245, Tables 1 and 2: FFN over attention weights as printed, and the loss.
PRINTED = {
    "Llama-3.2-1B": (4.80, 2.803), "Panda-1B": (1.07, 2.782), "Surefire-1B": (3.6, 2.804),
    "Llama-3.2-3B": (3.0, 2.625), "Panda-3B": (1.0, 2.619), "Surefire-3B": (1.0, 2.620),
    "Panda-3B of 1B data": (1.23, 2.606),
}  # fmt: skip


def test_shapes_of_pairs_have_the_printed_ratios_at_equal_size() -> None:
    truth = read(SHIPPED / "decoder_pairs.json")
    (view,) = views(truth)
    bodies: dict[str | None, list[int]] = {}
    for entry, architecture in zip(truth.architectures, view.architectures, strict=True):
        weights = {"attention": 0, "ffn": 0}
        for matrix in architecture.layers[0].matrices:
            weights[matrix.role] += matrix.rows * matrix.cols
        ratio, loss = PRINTED[entry.id]
        assert weights["ffn"] / weights["attention"] == pytest.approx(ratio, abs=0.0051)
        assert entry.results["loss"] == loss
        bodies.setdefault(entry.group, []).append(CostModel().of(architecture)["body_params"])
    assert [len(sizes) for sizes in bodies.values()] == [3, 4]
    assert all(max(sizes) <= 1.021 * min(sizes) for sizes in bodies.values())


def test_pairs_are_within_groups(decoder_pairs: Section) -> None:
    """Three pairs of 1 B and six of 3 B; geo ties Surefire-3B with Panda-3B and misses one at 1 B."""
    assert decoder_pairs.alike == "within 2 groups"
    assert {row.pairs for row in decoder_pairs.rows} == {9}
    loss = -decoder_pairs.result
    geo = decoder_pairs.scores["geo"]
    groups = ((0, 1, 2), (3, 4, 5, 6))
    signs = [
        np.sign((geo[i] - geo[j]).round(3)) * np.sign(loss[j] - loss[i])
        for group in groups for i in group for j in group if i < j
    ]  # fmt: skip
    share = sum(sign > 0 for sign in signs) / 9 + sum(sign == 0 for sign in signs) / 18
    assert row(decoder_pairs, "geo").pairs_right == pytest.approx(share) == pytest.approx(7.5 / 9)
    assert row(decoder_pairs, "depth").pairs_right == 0.5
