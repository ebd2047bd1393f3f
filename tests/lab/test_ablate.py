"""What an ablation changes, draws and borrows, against plain recomputations and published figures."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from zerolm.architecture import Architecture, Ends, Floats, Layer, Matrix, Shapes
from zerolm.comparison.bench import bench
from zerolm.groundtruth.reader import chosen, locate, quality, read, views
from zerolm.lab.ablation.ablate import (
    DRAWN_SEEDS,
    AblationSection,
    Effect,
    ablate,
    best_of_grid,
    drawn_norms,
    drawn_parts,
)
from zerolm.lab.ablation.variants import embedding_terms, fused, split, variants
from zerolm.lab.verbs.ablate_report import AblationReport
from zerolm.scores import ScoreBatch, make_score
from zerolm.scores.capacity import INITIALISATIONS
from zerolm.spaces import make_space
from zerolm.statistics import kendall

GPT2 = {"n_layer": 2, "d_model": 64, "d_inner": [100, 200], "n_head": [2, 2], "d_embed": 32, "div_val": 1}
ROWS = """\
space,architecture,ppl
gpt2,"{""n_layer"":1, ""d_model"":64, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",9
gpt2,"{""n_layer"":1, ""d_model"":128, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",8
gpt2,"{""n_layer"":2,""d_model"":128,""d_inner"":[256,300],""n_head"":[2,2],""d_embed"":64, ""div_val"":1}",7
"""


def gpt2(**choices: object) -> Architecture:
    return make_space("gpt2").read(GPT2 | choices)


def one_layer(*matrices: Matrix) -> Architecture:
    return Architecture("test", {}, (Layer(matrices, 8, 8, 8),), Ends(embedding=800))


def shapes_of(architecture: Architecture) -> list[tuple[str, int, int, int]]:
    return [(m.name, m.rows, m.cols, m.parts) for m in architecture.layers[0].matrices]


def test_what_becomes_of_a_layer() -> None:
    found = {name: shapes_of(changed[0]) for name, changed in variants([gpt2()])}
    up, down, o = ("up", 100, 64, 1), ("down", 64, 100, 1), ("o", 64, 64, 1)
    assert found == {
        "as published": [("qkv", 192, 64, 3), o, up, down],
        "qkv split": [("q", 64, 64, 1), ("k", 64, 64, 1), ("v", 64, 64, 1), o, up, down],
        "without q": [("kv", 128, 64, 2), o, up, down], "without k": [("qv", 128, 64, 2), o, up, down],
        "without v": [("qk", 128, 64, 2), o, up, down], "without o": [("qkv", 192, 64, 3), up, down],
        "without up": [("qkv", 192, 64, 3), o, down], "without down": [("qkv", 192, 64, 3), o, up],
        "attention only": [("qkv", 192, 64, 3), o], "ffn only": [up, down],
    }  # fmt: skip


def test_a_matrix_that_some_layers_lack() -> None:
    space = make_space("flexibert", view="declared")
    layer = {"num_operation_heads": 2, "feed_forward_dimension": 512, "num_feed_forward": 1}
    kinds = [
        {"operation_type": "SA", "operation_parameter": "SDP"},
        {"operation_type": "LT", "operation_parameter": "DFT"},
    ]
    network = space.read({"hidden_size": 128, "encoder_layers": [layer | kind for kind in kinds]})
    found = {name: changed[0] for name, changed in variants([network])}
    assert list(found) == [
        "as published", "qkv fused", "without q", "without k", "without v", "without o", "without up",
        "without down", "without mix", "attention only", "ffn only",
    ]  # fmt: skip
    assert found["without mix"].layers[0] == network.layers[0]
    assert [m.name for m in found["without mix"].layers[1].matrices] == ["up", "down"]
    assert shapes_of(found["qkv fused"])[0] == ("qkv", 384, 128, 3)
    assert found["qkv fused"].layers[1] == network.layers[1]


def test_split_and_fused_undo_each_other_and_matrices_without_labels_are_never_dropped() -> None:
    matrices = gpt2().layers[0].matrices
    assert fused(split(matrices)) == matrices
    sizes = (("q", 64), ("k", 16), ("v", 16))
    grouped = tuple(Matrix("attention", rows, 64, name=name) for name, rows in sizes)
    assert fused(grouped) == grouped
    network = one_layer(Matrix("attention", 24, 8, parts=3), Matrix("ffn", 16, 8))
    names = [name for name, _ in variants([network])]
    assert names == ["as published", "qkv split", "attention only", "ffn only"]


def test_factorised_embeddings_by_hand() -> None:
    network = one_layer(Matrix("ffn", 16, 8))
    shapes = tuple(Matrix("embedding", rows, cols) for rows, cols in ((100, 4), (8, 4)))
    terms = embedding_terms([replace(network, ends=Ends(embedding=432, embedding_matrices=shapes))])
    assert (terms["zerolm"][0], terms["geo"][0]) == (pytest.approx(108 * 0.02**2), 432)
    assert terms["stable_rank"][0] == pytest.approx(400 / (10 + 2) ** 2 + 32 / (8**0.5 + 2) ** 2)


@pytest.mark.parametrize("init", [init for init in INITIALISATIONS if init != "orthogonal"])
def test_norms_of_drawn_matrices_have_the_law_of_drawn_norms(init: str) -> None:
    """||W||_F^2 of matrices that are really drawn against the chi-square law, 4000 of each."""
    rng = np.random.default_rng(0)
    n, rows, cols, depth = 4000, 3, 5, 2
    layer = Layer((Matrix("attention", rows, cols, scaled=True),), 5, 5, 5)
    norms = drawn_norms(Shapes.of([layer] * n), np.full(n, depth), init, rng)[:, 0]
    variance = {
        "scaled": 0.02**2 / (2 * depth), "normal": 0.02**2, "xavier": 2 / (rows + cols), "kaiming": 2 / cols
    }[init]  # fmt: skip
    drawn = np.sum(rng.normal(0.0, variance**0.5, (n, rows, cols)) ** 2, axis=(1, 2))
    assert stats.ks_2samp(norms, drawn).pvalue > 0.01


def test_orthogonal_matrices_have_nothing_to_draw() -> None:
    shapes = Shapes.of([Layer((Matrix("ffn", 3, 5), Matrix("ffn", 7, 4)), 5, 5, 5)])
    norms = drawn_norms(shapes, np.array([1]), "orthogonal", np.random.default_rng(0))
    columns = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 4)))[0]
    assert norms[0] == pytest.approx([3.0, np.sum(columns**2)])


@pytest.mark.parametrize("init", INITIALISATIONS)
def test_draws_have_the_closed_form_as_their_mean(init: str) -> None:
    batch = ScoreBatch.of([gpt2(), gpt2(d_inner=[300, 100]), gpt2(n_layer=1, d_inner=[64], n_head=[2])])
    draws = np.array([drawn_parts(batch, init, seed) for seed in range(400)])
    for which, alpha in enumerate((1.0, 0.0)):
        closed = make_score("zerolm", alpha=alpha, init=init).of_many(batch)
        np.testing.assert_allclose(draws[:, which].mean(axis=0), closed, rtol=2e-3)
    assert np.array_equal(drawn_parts(batch, init, 3)[0], draws[3][0])


@pytest.fixture(scope="module")
def found(data_folder: Path) -> AblationReport:
    names = chosen([], str(data_folder), every=True)
    return AblationReport(ablate(names, data=str(data_folder), draws=200))


def section(found: AblationReport, title: str) -> AblationSection:
    return next(each for each in found.sections if each.title == title)


def effect(effects: tuple[Effect, ...], variant: str, column: str) -> Effect:
    return next(each for each in effects if (each.variant, each.column) == (variant, column))


def values(folder: Path, name: str, view: int, **options: object) -> tuple[Floats, Floats]:
    truth = read(locate(name, str(folder)))
    batch = ScoreBatch.of(views(truth)[view].architectures)
    return make_score("zerolm", **options).of_many(batch), quality(truth, truth.metric)


def test_the_first_rows_are_those_of_bench(found: AblationReport, data_folder: Path) -> None:
    names = list(dict.fromkeys(each.benchmark for each in found.sections))
    assert len(names) == 7
    assert len(found.sections) == 9
    rows = {(row.benchmark, row.view, row.label.split(" (")[0]): row for row in
            bench(names, data=str(data_folder), draws=10).rows}  # fmt: skip
    for each in found.sections:
        for column in ("zerolm 0.5", "zerolm best", "geo", "stable_rank"):
            row, own = rows[each.benchmark, each.view, column], effect(each.matrices, "as published", column)
            assert (own.tau, own.tau_random_ties) == pytest.approx((row.tau, row.tau_random_ties), abs=1e-12)
            assert own.change is None
        assert each.best_alpha == rows[each.benchmark, each.view, "zerolm best"].best_alpha


def test_known_figures(found: AblationReport) -> None:
    """GPT-2 on WikiText-103 at alpha 1.1: the published .871 with scaled residuals, .855 without."""
    gpt = section(found, "gpt2_wt103")
    best = effect(gpt.initialisations, "scaled residual", "zerolm best")
    assert (best.alpha, best.saw_labels, best.tau) == (1.1, True, pytest.approx(0.871, abs=5e-4))
    normal = effect(gpt.initialisations, "normal 0.02", "zerolm best")
    assert (normal.alpha, normal.tau) == (1.1, pytest.approx(0.855, abs=1e-3))
    assert normal.change == pytest.approx(normal.tau - best.tau)
    assert normal.low <= normal.change <= normal.high


@pytest.mark.parametrize("name", ["gpt2_lm1b", "pit_vit"])
def test_single_kinds_and_initialisations(name: str, found: AblationReport, data_folder: Path) -> None:
    each = section(found, name)
    for variant, alpha in (("attention only", 1.0), ("ffn only", 0.0)):
        score, result = values(data_folder, name, 0, alpha=alpha)
        tau = kendall(score[None], result)[0]
        for column in ("zerolm 0.5", "zerolm best"):
            assert effect(each.matrices, variant, column).tau == pytest.approx(tau, abs=1e-12)
        assert effect(each.matrices, variant, "geo").tau is None
    for init in ("xavier", "kaiming", "orthogonal"):
        score, result = values(data_folder, name, 0, alpha=1.0, init=init)
        assert effect(each.initialisations, init, "zerolm 1").tau == kendall(score[None], result)[0]


def test_what_cannot_change_does_not(found: AblationReport) -> None:
    for each in found.sections:
        for variant in ("qkv split", "qkv fused"):
            for column in ("geo", "stable_rank"):
                same = [e for e in each.matrices if (e.variant, e.column) == (variant, column)]
                assert [(e.change, e.low, e.high, e.direction) for e in same] in ([], [(0.0, 0.0, 0.0, 0)])
    inits = [e.variant for e in section(found, "pit_vit").initialisations if e.column == "zerolm 0.5"]
    assert inits == ["normal 0.02", "xavier", "kaiming", "orthogonal"]


def test_ten_seeds(found: AblationReport, data_folder: Path) -> None:
    truth = read(locate("gpt2_wt103", str(data_folder)))
    batch, result = ScoreBatch.of(views(truth)[0].architectures), quality(truth, truth.metric)
    draws = section(found, "gpt2_wt103").draws[0]
    assert (draws.init, draws.alpha, len(draws.taus)) == ("scaled residual", 0.5, DRAWN_SEEDS)
    attention, ffn = drawn_parts(batch, "scaled", 7)
    assert draws.taus[7] == kendall((0.5 * attention + 0.5 * ffn)[None], result)[0]
    summary = draws.summary
    assert summary["low"] <= summary["mean"] <= summary["high"]
    assert summary["deviation"] == pytest.approx(np.std(draws.taus, ddof=1))
    for each in found.sections:
        for own in each.draws:
            if own.init == "orthogonal":
                assert own.summary["deviation"] < 1e-12
            elif own.closed is not None and own.closed > 0.3:
                # A draw breaks the ties of the closed form by chance.
                assert own.summary["mean"] == pytest.approx(own.closed_random_ties, abs=0.02)


def test_borrowed_alphas(found: AblationReport, data_folder: Path) -> None:
    matrix, titles = found.transfers, [each.title for each in found.sections]
    assert [len(row) for row in matrix] == [9] * 9
    for i, row in enumerate(matrix):
        assert row[i].loss == 0.0
        assert [each.used_on for each in row] == titles
        assert all(each.loss >= 0.0 for each in row)
    assert sum(each.same_data for row in matrix for each in row) == 6 + 9
    one = matrix[titles.index("gpt2_wt103")][titles.index("pit_vit")]
    score, result = values(data_folder, "pit_vit", 0, alpha=1.1)
    assert (one.alpha, one.tau) == (1.1, pytest.approx(kendall(score[None], result)[0], abs=1e-12))


def test_the_table_of_what_is_shown_carries_the_numbers(found: AblationReport) -> None:
    dropped = [
        effect
        for each in found.sections
        for effect in each.matrices
        if effect.variant.startswith("without ") and effect.column == "zerolm 0.5"
    ]
    counts = [str(sum(effect.direction == way for effect in dropped)) for way in (-1, 1)]
    row = found.shown().rows[0]
    assert list(row[:5]) == ["one matrix dropped", "zerolm 0.5", *counts, str(len(dropped))]


def test_of_equals_the_alpha_nearest_to_even_weights() -> None:
    assert best_of_grid([None] * 31) == 0.5
    assert best_of_grid([0.5] * 31) == 0.5
    assert best_of_grid([0.5] * 17 + [0.7] * 10 + [0.7 - 1e-15] * 4) == 0.5


def test_constant_results_and_no_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(ROWS.replace(",8\n", ",9\n").replace(",7\n", ",9\n"))
    with pytest.raises(ValueError, match="all 3 results of ppl are the same: nothing can be ranked"):
        ablate([str(path)], draws=20)
    with pytest.raises(ValueError, match="no benchmark is named; there are mine, or --all"):
        ablate([], data=str(tmp_path))


def test_few_results_have_no_intervals(tmp_path: Path, zerolm: Callable[..., Any]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(ROWS)
    small = AblationReport(ablate([str(path)], draws=20))
    effects = [each for section in small.sections for each in section.effects]
    assert any(each.change for each in effects)
    assert {(each.low, each.high, each.direction) for each in effects} == {(None, None, 0)}
    assert [len(row) for row in small.transfers] == [1]
    document = json.loads(json.dumps(small.to_json(), allow_nan=False))
    assert set(document) == {"grid", "sections", "transfer"}
    assert "<table" in small.page()
    (tmp_path / "yours.csv").write_text(ROWS)
    shown = zerolm("lab", "ablate", "--all", "--data", str(tmp_path)).out
    for words in ("mine: ppl (lower is better), 3 architectures", "yours: ppl", "without q", "ten seeds"):
        assert words in shown
