"""Seconds of a proxy are those of what it needs, each counted once."""

from __future__ import annotations

import pytest
import torch
from networks_small import batch_for, made

from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.compute import compute, costs
from zerolm.lab.zero_cost.passes import COSTS, NEEDS, Passes, Protocol
from zerolm.lab.zero_cost.passes.clock import Clock


def test_a_clock_counts_what_is_inside_of_another_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ticks = Clock(torch.device("cpu")), iter((0.0, 1.0, 4.0, 5.0, 7.0, 10.0))
    monkeypatch.setattr(clock, "_now", lambda: next(ticks))
    with clock.on("forward"):
        with clock.on("codes"):
            pass
        with clock.on("outputs"):
            pass
    assert clock.seconds == {"codes": 3.0, "outputs": 2.0, "forward": 5.0}


def test_a_forward_pass_is_charged_no_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass and every sum has its own price, of which each proxy pays what it would alone."""
    prices = {
        "backward": 1e9,
        "curvature": 1e8,
        "jacobian": 1e7,
        "flow": 1e6,
        "transfer": 1e5,
        "forward": 1e4,
    }
    monkeypatch.setattr(Passes, "seconds", property(lambda _: prices))
    network = made("llama")
    outcomes = compute(
        network, [find_proxy(name) for name in proxy_names()], batch_for(network), Protocol(parts=2)
    )
    for name, outcome in outcomes.items():
        kinds = set(find_proxy(name).passes)
        backward = bool(kinds & {"backward", "curvature"})
        assert (outcome.seconds >= 1e9) == backward, name
        assert (outcome.seconds % 1e9 >= 1e8) == ("curvature" in kinds), name
        assert (outcome.seconds % 1e8 >= 1e7) == ("jacobian" in kinds), name
        assert (outcome.seconds < 1e3) == (not kinds), name
    assert costs(find_proxy("naswot")) == {"forward", "codes"}
    assert costs(find_proxy("grasp")) == {"forward", "backward", "gradients", "curvature"}
    assert set(COSTS) == set(NEEDS)
