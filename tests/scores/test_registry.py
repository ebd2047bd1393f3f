"""Scores by name: plug-ins, options, and what is refused."""

from typing import Any

import numpy as np
import pytest
from drawn import architectures
from hypothesis import given

from zerolm.architecture import Architecture, Ends, Floats, Ints, Layer, Matrix, Shapes
from zerolm.scores import (
    ClosedForm,
    WholeScore,
    all_variants,
    base,
    closed_form,
    make_score,
    score_names,
    score_settings,
    variants,
    whole_score,
)
from zerolm.settings import REQUIRED, Setting

LAYER = Layer((Matrix("attention", 8, 8), Matrix("ffn", 16, 8)), 8, 8, 8)
NETWORK = Architecture("drawn", {}, (LAYER,) * 3, Ends(100))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registered scores, so that a test's plug-ins go with it."""
    monkeypatch.setattr(base.SCORES, "_entries", dict(base.SCORES._entries))


@pytest.mark.usefixtures("registry")
def test_a_closed_form_plugs_in() -> None:
    def halved(depth: Ints, mean_width: Floats) -> Floats:
        return np.full(np.broadcast(depth, mean_width).shape, 0.5)

    power = Setting("power", "integer", REQUIRED, "exponent of the KV width", low=1, high=9)
    shift = Setting("shift", "number", 1.0, "what each layer adds")

    @closed_form("kv", source="a test", factor=halved, sees_depth=True, settings=(power, shift))
    def kv(shapes: Shapes, depth: Ints, /, *, power: int, shift: float) -> Floats:
        return np.asarray(shapes.kv_width**power * depth + shift, np.float64)

    assert "kv" in score_names()
    assert score_settings("kv") == (power, shift)
    score = make_score("kv", power=2)
    assert isinstance(score, ClosedForm)
    assert (score.source, score.sees_depth, score.baseline) == ("a test", True, False)
    assert score.options == {"power": 2}
    assert score.of(NETWORK) == 0.5 * 3 * (64 * 3 + 1)
    assert make_score("kv", power=1, shift=0.0).of(NETWORK) == 0.5 * 3 * (8 * 3)
    with pytest.raises(ValueError, match="score 'kv' needs power: exponent of the KV width"):
        make_score("kv")
    with pytest.raises(ValueError, match="power must be an integer from 1 to 9, not 10"):
        make_score("kv", power=10)
    with pytest.raises(ValueError, match="takes other, but its settings declare none"):
        closed_form("other", source="a test")(lambda shapes, depth, /, *, other: shapes.width)
    assert variants("kv", {"power": [2, 3], "alpha": [1.0]}) == [{"power": 2}, {"power": 3}]
    shown, left_out = all_variants({})
    assert (shown["geo"], [row["alpha"] for row in shown["zerolm"]]) == ([{}], [0.5, 1.0, 1.1])
    assert left_out == {"kv": "score 'kv' needs power: exponent of the KV width"}


@pytest.mark.usefixtures("registry")
def test_a_whole_score_plugs_in() -> None:
    @whole_score("spread", source="a test")
    def spread(architecture: Architecture) -> float:
        widths = [layer.width for layer in architecture.layers]
        return float(max(widths) - min(widths))

    assert "spread" in score_names()
    assert score_settings("spread") == ()
    score = make_score("spread")
    assert isinstance(score, WholeScore)
    mixed = Architecture("drawn", {}, (LAYER, Layer(LAYER.matrices, 20, 8, 8)), Ends(0))
    assert score.of(mixed) == 12.0
    assert score.of_many([NETWORK, mixed]).tolist() == [0.0, 12.0]
    with pytest.raises(ValueError, match="'spread' has no setting 'alpha'"):
        make_score("spread", alpha=1.0)


@pytest.mark.usefixtures("registry")
def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="'geo' is registered already"):
        closed_form("geo", source="a test")(lambda shapes, depth, /: shapes.width)
    with pytest.raises(ValueError, match="'geo' is registered already"):
        whole_score("geo", source="a test")(lambda architecture: 0.0)
    assert make_score("geo").of(NETWORK) == pytest.approx(3 * (64 * 128) ** 0.5)


def test_baselines_come_last() -> None:
    baselines = [make_score(name).baseline for name in score_names() if name != "zerolm"]
    assert baselines == sorted(baselines)
    names = {name for name in score_names() if name != "zerolm" and make_score(name).baseline}
    assert names == {"params", "body_params", "macs", "depth", "width", "depth_width", "depth_width2"}


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'goe' is not known; did you mean 'geo'\? there are "):
        make_score("goe")
    with pytest.raises(ValueError, match="score 'geo' has no setting 'alpha'; there are none"):
        make_score("geo", alpha=1.0)
    with pytest.raises(ValueError, match=r"'zerolm' has no setting 'beta'.* there are alpha, init"):
        make_score("zerolm", beta=1.0)
    with pytest.raises(ValueError, match="'zerolm' needs alpha"):
        make_score("zerolm")


@given(architectures(max_depth=3))
def test_a_score_of_an_architecture_is_a_plain_float(architecture: Architecture) -> None:
    for name in score_names():
        options: dict[str, Any] = {"alpha": 0.5} if "alpha" in [s.name for s in score_settings(name)] else {}
        assert type(make_score(name, **options).of(architecture)) is float
