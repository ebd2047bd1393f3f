"""Requests to carve: declared once, light to import, and the same from flags and from Python."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.carving.request import MethodRequest, methods_of
from zerolm.costs import COSTS
from zerolm.planning.size_request import SizeRequest
from zerolm.settings.request import build, settings_of
from zerolm.verbs.carve import CarveSettings

SHARES = st.dictionaries(
    st.sampled_from(["ffn", "heads", "layers", "hidden"]), st.floats(0, 1, exclude_min=True)
)
AMOUNTS = st.one_of(st.integers(0, 10**12), st.sampled_from(["0.8x", "0.05x"]))
BUDGETS = st.dictionaries(st.sampled_from([f"max_{cost}" for cost in COSTS]), AMOUNTS)


@given(SHARES, BUDGETS, st.sampled_from([None, "uniform", "per-layer"]), st.integers(1, 9))
def test_flags_and_python_ask_for_the_same(
    keep: dict[str, float], budgets: dict[str, Any], shape: str | None, ways: int
) -> None:
    flags = {f"keep_{kind}": share for kind, share in keep.items()} | budgets
    typed = CarveSettings.parse({"parent": "p", **flags, "shape": shape, "tensor_parallel": ways}).size
    request = SizeRequest.of(keep, budgets, shape=shape, tensor_parallel=ways)
    assert typed == request
    assert (request.keep, request.budgets) == (keep, budgets)
    assert request.is_fixed == (not budgets and "layers" not in keep)
    assert request.within({"max_params": 7}) == SizeRequest.of(
        keep, {"max_params": 7}, shape=shape, tensor_parallel=ways
    )


def test_a_space_says_the_shape_unless_one_is_given() -> None:
    assert SizeRequest().is_uniform
    assert not SizeRequest(space="lonas-bert").is_uniform
    assert SizeRequest(space="lonas-bert", shape="uniform").is_uniform


@pytest.mark.parametrize(
    ("size", "text", "usual"),
    [
        (SizeRequest.of({"ffn": 0.5}), None, ("surgeon", "weights", "least-squares")),
        (SizeRequest.of({}, {"max_params": 9}), None, ("surgeon", "prices", "least-squares")),
        (SizeRequest.of({"all": 1}), None, ("capacity", "weights", "none")),
        (SizeRequest.of({"ffn": 0.5}), "random", ("surgeon", "weights", "least-squares")),
        (SizeRequest.of({"layers": 0.5}), "random", ("surgeon", "prices", "least-squares")),
        (SizeRequest.of({}, {"max_params": 9}), "random", ("surgeon", "prices", "least-squares")),
    ],
)
def test_what_is_not_named_suits_the_text(
    size: SizeRequest, text: str | None, usual: tuple[str, str, str]
) -> None:
    methods = methods_of(size, MethodRequest(text=text, seed=3))
    assert (methods.criterion, methods.plan, methods.repair) == usual
    assert methods.text == (text or ("generated" if usual[0] == "surgeon" else None))
    assert methods.seed == 3
    named = methods_of(size, MethodRequest("prefix", "heuristic", text, repair="bias"))
    assert (named.criterion, named.plan, named.repair) == ("prefix", "heuristic", "bias")


def test_every_setting_of_the_command_is_declared_by_what_has_it() -> None:
    values = {item.name: item.default for item in (*settings_of(SizeRequest), *settings_of(MethodRequest))}
    assert build(SizeRequest, values) == SizeRequest()
    assert build(MethodRequest, values) == MethodRequest()
    assert {f"max_{cost}" for cost in COSTS} <= values.keys()


def test_a_request_is_light_to_import() -> None:
    code = "import sys, zerolm.verbs.carve; print(sorted({'numpy', 'torch', 'pydantic'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
