"""Proxies that a user registers: where they run, which cached values are reused, their errors and times."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks_small import batch_for, made

from zerolm.lab.testing import check_proxy
from zerolm.lab.zero_cost import find_proxy, proxy, proxy_names
from zerolm.lab.zero_cost.job import compute, costs, numbers
from zerolm.lab.zero_cost.passes import COSTS, NEEDS, Look, Passes, Protocol
from zerolm.lab.zero_cost.passes.record import Clock
from zerolm.lab.zero_cost.registry import PROXIES, Proxy

SCRIPT = """
import json, os, sys
from pathlib import Path
from zerolm.lab.zero_cost import proxy
from zerolm.lab.zero_cost.settings import random_source
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.job import evaluate
from zerolm.lab.zero_cost.settings import Settings
from zerolm.io.kept_rows import KeptRows
from zerolm.spaces import make_space

@proxy("mine", source="a test", needs=["gradients"])
def mine(passes):
    return {factor} * sum(float(passes.gradient(linear).square().sum()) for linear in passes.linears)

if __name__ == "__main__":
    space = make_space("llama", vocab=64)
    sizes = {{"depth": 1, "hidden": 16, "head_size": 8, "heads": 2, "kv_heads": 1}}
    candidates = [Candidate.of(space.read({{**sizes, "ffn": ffn}}), str(ffn)) for ffn in (8, 16, 24)]
    found = evaluate(candidates, ["mine"], random_source(64), Settings(batch=4, length=8, parts=2),
                     rows=KeptRows(Path("store")), jobs={jobs})
    print(json.dumps(found.columns["mine"].tolist()))
"""


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """What a test registers is forgotten."""
    before = dict(PROXIES._entries)
    yield
    PROXIES._entries.clear()
    PROXIES._entries.update(before)


def test_workers_know_them_and_an_edited_one_is_computed_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First in this process, then, edited, in one that has workers."""
    script = Path("own.py")
    script.write_text(SCRIPT.format(factor=1.0, jobs=1))
    runpy.run_path("own.py", run_name="__main__")
    alone = json.loads(capsys.readouterr().out)
    script.write_text(SCRIPT.format(factor=2.0, jobs=2))
    done = subprocess.run([sys.executable, "own.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2 * value for value in alone]


def test_the_revision_is_the_version_and_of_another_package_the_source() -> None:
    def one(passes: Passes) -> float:
        return 1.0

    def two(passes: Passes) -> float:
        return 2.0

    assert len({Proxy("p", each, "", version=v).revision for each in (one, two) for v in (1, 2)}) == 4
    assert Proxy("p", eval("lambda passes: 1.0"), "").revision.startswith("1.")
    assert find_proxy("snip").revision == str(find_proxy("snip").version)


def test_a_closed_form_keeps_its_name() -> None:
    with pytest.raises(ValueError, match="'geo' is a closed form already"):
        proxy("geo", source="a test")(lambda passes: 1.0)


def test_a_proxy_returns_a_number_or_a_row() -> None:
    for value in (1.5, np.float32(1.5), torch.tensor(1.5), [1.5], np.array([1.5])):
        assert numbers(value) == (1.5,)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"not an array of shape \(2, 2\)"):
        numbers(np.ones((2, 2)))  # type: ignore[arg-type]
    for value in ("1.5", "much", None, {}, [None], 1j):
        with pytest.raises(ValueError, match="gives a number or a row of numbers, not "):
            numbers(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compute_it", "words"),
    [
        (lambda passes: 1 / 0, "ZeroDivisionError: division by zero$"),
        (
            lambda passes: passes.gradient(passes.linears[0]).sum(),
            "KeyError: .*; does it name all its needs.$",
        ),
        (lambda passes: "much", "ValueError: a proxy gives a number or a row of numbers, not 'much'$"),
        (lambda passes: sys.exit("enough"), "SystemExit: enough$"),
        (lambda passes: sys.exit(), "SystemExit$"),
    ],
)
def test_what_fails_is_named_in_one_line(compute_it: Callable[[Passes], float], words: str) -> None:
    network = made("llama")
    with pytest.raises(ValueError, match=f"^proxy 'mine' of {__name__} fails with {words}") as caught:
        compute(network, [Proxy("mine", compute_it, "")], batch_for(network), Protocol(parts=2))
    assert "\n" not in str(caught.value)


def test_what_fails_in_a_look_or_in_the_end_is_named() -> None:
    network = made("llama")

    def ends(*_: object) -> Any:
        sys.exit()

    for look in (Look("mine", ends, FINAL.reduce), Look("mine", FINAL.taps, ends)):
        with pytest.raises(ValueError, match=f"^look 'mine' of {__name__} fails with SystemExit"):
            compute(network, [Proxy("one", numbers_of, "", (look,))], batch_for(network), Protocol(parts=2))
    with pytest.raises(ValueError, match=f"^proxy 'one' of {__name__} fails with SystemExit"):
        Proxy("one", numbers_of, "", finish=ends).scores([[1.0]])


def test_gradients_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The square root of 0 is finite, and its gradient is not."""
    network = made("llama")
    monkeypatch.setattr(
        "zerolm.lab.zero_cost.passes.loss.loss", lambda logits, part: (logits.sum() * 0).sqrt()
    )
    with pytest.raises(ValueError, match="gradient of the loss is not finite"):
        compute(network, [find_proxy("eznas")], batch_for(network), Protocol(parts=2))


FINAL = Look("final_size", lambda network: [network.final], lambda states: [float(states.abs().mean())])


def test_one_looks_where_no_pass_does() -> None:
    """Its look is made in the forward pass, alone or beside others; its seconds are its own."""

    @proxy("final_size", source="a test", needs=[FINAL])
    def final_size(passes: Passes) -> float:
        ((size,),) = passes.looked(FINAL)
        return size

    check_proxy("final_size")
    mine, network = find_proxy("final_size"), made("llama", random=0.3)
    assert (mine.passes, costs(mine)) == (("forward",), {"forward", "final_size"})
    batch, seen = batch_for(network), list[torch.Tensor]()
    hook = network.final.module.register_forward_pre_hook(lambda _, taken: seen.append(taken[0]))
    outcomes = compute(network, [mine, find_proxy("softmax_confidence")], batch, Protocol(parts=4))
    hook.remove()
    assert (network.final.side, len(seen)) == ("input", 4)
    expected = sum(float(states.abs().mean()) for states in seen) / 4
    assert outcomes["final_size"].value == pytest.approx((expected,))


def test_a_look_has_a_name_of_its_own_and_an_edited_one_another_revision() -> None:
    taken = Look("outputs", FINAL.taps, FINAL.reduce)
    with pytest.raises(ValueError, match="looks at 'outputs', which a pass has"):
        proxy("taken", source="a test", needs=[taken])(lambda passes: 0.0)
    edited = Look("final_size", FINAL.taps, lambda states: [float(states.square().mean())])
    one, other = (Proxy("mine", numbers_of, "a test", (look,)) for look in (FINAL, edited))
    assert one.revision != other.revision


def numbers_of(passes: Passes) -> float:
    return 0.0


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
    kinds = ("forward", "transfer", "flow", "jacobian", "curvature", "backward")
    prices = {kind: 10.0**power for power, kind in enumerate(kinds, 4)}
    monkeypatch.setattr(Passes, "seconds", property(lambda _: prices))
    network = made("llama")
    outcomes = compute(network, [find_proxy(n) for n in proxy_names()], batch_for(network), Protocol(parts=2))
    for name, outcome in outcomes.items():
        passes = set(find_proxy(name).passes)
        needed = passes | ({"backward"} if "curvature" in passes else set())
        for kind in kinds[1:]:
            assert (outcome.seconds % (10 * prices[kind]) >= prices[kind]) == (kind in needed), name
        assert (outcome.seconds < 1e3) == (not passes), name
    assert costs(find_proxy("naswot")) == {"forward", "codes"}
    assert costs(find_proxy("grasp")) == {"forward", "backward", "gradients", "curvature"}
    assert set(COSTS) == set(NEEDS)
