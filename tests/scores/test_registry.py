"""Scores by name: plug-ins, options, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import architectures
from hypothesis import given

from zerolm.architecture import Architecture, Ends, Floats, Ints, Layer, Matrix, Shapes
from zerolm.scores import (
    ClosedForm,
    WholeScore,
    base,
    closed_form,
    make_score,
    score_names,
    score_options,
    whole_score,
)

LAYER = Layer((Matrix("attention", 8, 8), Matrix("ffn", 16, 8)), 8, 8, 8)
NETWORK = Architecture("drawn", {}, (LAYER,) * 3, Ends(100))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registered scores, so that a test's plug-ins go with it."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))


@pytest.mark.usefixtures("registry")
def test_a_closed_form_plugs_in() -> None:
    def halved(depth: Ints, mean_width: Floats) -> Floats:
        return np.full(np.broadcast(depth, mean_width).shape, 0.5)

    @closed_form("kv", source="a test", factor=halved, sees_depth=True)
    def kv(shapes: Shapes, depth: Ints, /, *, power: int, shift: float = 1.0) -> Floats:
        return np.asarray(shapes.kv_width**power * depth + shift, np.float64)

    assert "kv" in score_names()
    assert score_options("kv") == ["power", "shift"]
    score = make_score("kv", power=2)
    assert isinstance(score, ClosedForm)
    assert (score.source, score.sees_depth, score.baseline) == ("a test", True, False)
    assert score.options == {"power": 2}
    assert score.of(NETWORK) == 0.5 * 3 * (64 * 3 + 1)
    assert make_score("kv", power=1, shift=0.0).of(NETWORK) == 0.5 * 3 * (8 * 3)
    with pytest.raises(ValueError, match="needs power"):
        make_score("kv")


@pytest.mark.usefixtures("registry")
def test_a_whole_score_plugs_in() -> None:
    @whole_score("spread", source="a test")
    def spread(architecture: Architecture) -> float:
        widths = [layer.width for layer in architecture.layers]
        return float(max(widths) - min(widths))

    assert "spread" in score_names()
    assert score_options("spread") == []
    score = make_score("spread")
    assert isinstance(score, WholeScore)
    wider = Layer(LAYER.matrices, 20, 8, 8)
    mixed = Architecture("drawn", {}, (LAYER, wider), Ends(0))
    assert score.of(mixed) == 12.0
    assert score.of_many([NETWORK, mixed]).tolist() == [0.0, 12.0]
    with pytest.raises(ValueError, match="takes no alpha"):
        make_score("spread", alpha=1.0)


@pytest.mark.usefixtures("registry")
def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="'geo' is registered already"):
        closed_form("geo", source="a test")(lambda shapes, depth, /: shapes.width)
    with pytest.raises(ValueError, match="'geo' is registered already"):
        whole_score("geo", source="a test")(lambda architecture: 0.0)
    assert make_score("geo").of(NETWORK) == pytest.approx(3 * (64 * 128) ** 0.5)


def test_plug_ins_of_other_tests_are_gone() -> None:
    assert not {"kv", "spread"} & set(score_names())


def test_baselines_come_last() -> None:
    baselines = [make_score(name).baseline for name in score_names() if name != "zerolm"]
    assert baselines == sorted(baselines)
    names = {name for name in score_names() if name != "zerolm" and make_score(name).baseline}
    assert names == {"params", "body_params", "macs", "depth", "width", "depth_width", "depth_width2"}


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'goe' is not known; there are .*geo"):
        make_score("goe")
    with pytest.raises(ValueError, match="'geo' takes no alpha; it takes no options"):
        make_score("geo", alpha=1.0)
    with pytest.raises(ValueError, match="'zerolm' takes no beta; it takes alpha, init"):
        make_score("zerolm", beta=1.0)
    with pytest.raises(ValueError, match="'zerolm' needs alpha"):
        make_score("zerolm")


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), -float("inf")])
def test_alpha_must_be_finite(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be a finite number"):
        make_score("zerolm", alpha=alpha).of(NETWORK)


@pytest.mark.parametrize(("name", "options"), [("zerolm", {"alpha": 1.0}), ("log_complexity", {})])
def test_unknown_initialisations_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="initialisation 'uniform' is not known"):
        make_score(name, init="uniform", **options).of(NETWORK)


@given(architectures(max_depth=3))
def test_a_score_of_an_architecture_is_a_plain_float(architecture: Architecture) -> None:
    for name in score_names():
        options: dict[str, Any] = {"alpha": 0.5} if "alpha" in score_options(name) else {}
        score = make_score(name, **options)
        assert type(score.of(architecture)) is float
