"""Searches of a tiny supernet beside brute force over all its paths."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from small_supernets import SIZES as SMALL
from small_supernets import run_of, text_in
from torch import Tensor

from zerolm.costs import CostModel
from zerolm.io.plain import as_plain
from zerolm.lab.spaces.elastic import Elastic, ElasticCausal
from zerolm.lab.supernets import search as module
from zerolm.lab.supernets.search import (
    ElasticSearch,
    loss_score,
    path_loss,
    pca_counts,
    pca_score,
    search_paths,
    search_supernet,
)
from zerolm.lab.supernets.supernet import Supernet, read_supernet
from zerolm.lab.supernets.text import ElasticText
from zerolm.lab.supernets.train import SupernetRequest, train_supernet
from zerolm.lab.verbs.elastic_search_report import SupernetSearchReport
from zerolm.networks.build import build
from zerolm.solvers import Infeasible, search
from zerolm.solvers.evolution import Evolution
from zerolm.text.predictions import predicted
from zerolm.training import losses as losses_module
from zerolm.training.losses import labelled
from zerolm.verbs.report import Run

SIZES = {"depth": 3, "hidden": 16, "heads": 2, "embedding": 6, "vocab": 40, "positions": 20, "step": 4}


def made(space: type[Elastic] = Elastic, seed: int = 0) -> Supernet:
    """Supernets of 6^3 paths (of 9^3), whose widths have grown unevenly."""
    supernet = Supernet(space(**SIZES, shares=["none", "kv", "qv"]), seed)
    draw = np.random.default_rng(seed)
    supernet.widths.copy_(torch.from_numpy(4 * draw.integers(1, 7, supernet.shape)))
    return supernet


def text(task: str = "masked") -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, 40, (5, 12), generator=torch.Generator().manual_seed(0))
    return predicted(ids, task, 0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def supernet() -> Supernet:
    return made()


@pytest.fixture(scope="module")
def paths(supernet: Supernet) -> list[tuple[int, ...]]:
    return list(product(range(6), repeat=3))


@pytest.fixture(scope="module")
def params(supernet: Supernet, paths: list[tuple[int, ...]]) -> list[int]:
    return [CostModel().of(supernet.architecture(path))["params"] for path in paths]


@pytest.mark.parametrize("space", [Elastic, ElasticCausal])
def test_a_path_loses_what_its_network_does(space: type[Elastic], monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of whatever size, though sequences have unequal numbers of labels."""
    supernet, (inputs, labels) = made(space), text(space.task)
    labels[1, 2:] = -100
    path = [5, 0, 3]
    network = build(supernet.architecture(path), 0).module
    network.load_state_dict(supernet.path_state(path))
    with torch.no_grad():
        alone = float(labelled(network.train(False)(inputs), labels))
    for batch in (2, 16):
        monkeypatch.setattr(losses_module, "HELD_BATCH", batch)
        assert path_loss(supernet, path, inputs, labels) == pytest.approx(alone, rel=1e-5)
    assert supernet.training


def test_no_path_is_better(supernet: Supernet, paths: list[tuple[int, ...]], params: list[int]) -> None:
    """Every path of two that share differently has a loss of its own."""
    inputs, labels = text()
    losses = [path_loss(supernet, path, inputs, labels) for path in paths]
    limit = int(np.median(params))
    best = min(loss for loss, count in zip(losses, params, strict=True) if count <= limit)
    results = {
        method: search_paths(
            supernet, inputs, labels, ElasticSearch(budgets={"max_params": limit}, method=method)
        )
        for method in ("exhaustive", "auto", "random")
    }
    for method, result in results.items():
        assert result.best[0].score == pytest.approx(-best, rel=1e-6)
        assert result.best[0].costs["params"] <= limit
        path = supernet.path_of(result.best[0].architecture)
        assert path_loss(supernet, path, inputs, labels) == pytest.approx(best, rel=1e-6)
        assert result.certificate.optimal == (method == "exhaustive")
    assert results["auto"].certificate.method == "evolution"
    assert results["random"].certificate.method == "random"
    told = results["exhaustive"]
    assert type(told).from_json(json.loads(json.dumps(as_plain(told)))) == told


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_components_are_searched_with_a_proof(
    supernet: Supernet, paths: list[tuple[int, ...]], params: list[int], weighed: bool, seed: int
) -> None:
    """Beside all paths, of tables that favour small blocks too."""
    counts = np.random.default_rng(seed).integers(1, 9, supernet.shape).astype(float)
    score, space = pca_score(supernet, counts, weighed=weighed), supernet.grown_space()
    values = np.array([sum(counts[layer, kind] for layer, kind in enumerate(path)) for path in paths])
    values = values * params if weighed else values
    for share in (0.1, 0.5, 1.0):
        limit = int(np.quantile(params, share))
        allowed = np.array(params) <= limit
        result = search(space, score, budgets={"max_params": limit})
        assert result.certificate.optimal
        assert result.certificate.method == "exact"
        assert result.best[0].score == pytest.approx(values[allowed].max(), rel=1e-12)
        assert score.of(result.best[0].architecture) == pytest.approx(result.best[0].score, rel=1e-12)
        assert result.plateau.ties.value <= (values[allowed] >= values[allowed].max() * (1 - 1e-9)).sum()
        assert not result.plateau.ties.exact
        for point in result.front.points:
            within = np.array(params) <= point.costs["params"]
            assert point.score == pytest.approx(values[within].max(), rel=1e-12)
    with pytest.raises(ValueError, match="is not additive"):
        search(space, score, method="milp")


def test_components_are_counted_behind_drawn_paths(supernet: Supernet) -> None:
    inputs, _ = text()
    counts = pca_counts(supernet, inputs, draws=3)
    assert counts.shape == (3, 6)
    assert (counts >= 1).all()
    assert (counts <= np.minimum(supernet.widths.numpy(), 59)).all()
    assert (pca_counts(supernet, inputs, draws=3) == counts).all()
    one = pca_counts(made(seed=7), inputs, draws=1)
    assert (one == np.round(one)).all()
    assert supernet.training


def test_kills_repeat_no_path(supernet: Supernet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = text()
    store, measured = tmp_path / "store", 0

    def counted(*arguments: object) -> float:
        nonlocal measured
        measured += 1
        if measured == 60:
            raise KeyboardInterrupt
        return path_loss(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "path_loss", counted)
    asked = ElasticSearch(sizes=Evolution(population=20, generations=5, parents=5))
    with pytest.raises(KeyboardInterrupt):
        search_paths(supernet, inputs, labels, asked, store=store)
    (file,) = store.iterdir()
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"path": [0')  # killed as it wrote
    resumed = search_paths(supernet, inputs, labels, asked, store=store)
    assert measured == 60 + 100 - 59
    monkeypatch.setattr(module, "path_loss", path_loss)
    assert resumed.best == search_paths(supernet, inputs, labels, asked).best
    assert len(file.read_text(encoding="utf-8").splitlines()) == 100 + 1  # with the torn one
    other = loss_score(made(seed=1), inputs, labels, store=store)
    other.of(made(seed=1).architecture([0] * made().shape[0]))
    assert len(list(store.iterdir())) == 2
    assert other.sees_choices


def test_what_cannot_be_searched_is_refused(supernet: Supernet) -> None:
    broken = made()
    broken.stack.embeddings.tokens.weight.data.fill_(float("nan"))  # type: ignore[union-attr, operator]
    cases: list[tuple[Supernet, ElasticSearch, type[Exception], str]] = [
        (supernet, ElasticSearch(budgets={"max_params": 10}), Infeasible, "would have to be at least"),
        (supernet, ElasticSearch("other"), ValueError, "'other'"),
        (supernet, ElasticSearch(method="other"), ValueError, "method 'other' is not known"),
        (broken, ElasticSearch(), ValueError, "the loss of a path is nan: the training of the supernet"),
    ]
    for net, question, error, message in cases:
        with pytest.raises(error, match=message):
            search_paths(net, *text(), question)


def test_a_folder_is_searched_on_the_text_that_was_held_out(tmp_path: Path) -> None:
    """The best path is the best of all 36, by the loss that its folder's text gives."""
    source = text_in(tmp_path)
    sizes = {name: value for name, value in SMALL.items() if name != "vocab"}
    asked = SupernetRequest(source, run_of(4), settings=sizes, vocabulary=300)
    train_supernet(asked, tmp_path / "supernet")
    result = search_supernet(tmp_path / "supernet", ElasticSearch())
    net, _, _ = read_supernet(tmp_path / "supernet")
    text = ElasticText.of(
        source, "masked", length=16, batch=1, most=run_of(4).tokens_read, tokenizer=tmp_path / "supernet"
    )
    losses = [path_loss(net, path, *text.held_out) for path in product(range(6), repeat=2)]
    page = SupernetSearchReport(**vars(result), run=Run()).page()
    assert "weights that all paths share" in page
    assert "seen no training" not in page
    assert "random initialisation" not in page
    assert result.best[0].score == pytest.approx(-min(losses), rel=1e-6)
    assert len(set(losses)) == 36
    Path(source).write_text("another text of other words " * 400)
    with pytest.raises(ValueError, match="is not the one that the supernet was trained on"):
        search_supernet(tmp_path / "supernet", ElasticSearch())
    Path(source).unlink()
    with pytest.raises(ValueError, match="trained the supernet: give one by --text"):
        search_supernet(tmp_path / "supernet", ElasticSearch())
