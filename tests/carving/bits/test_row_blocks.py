"""Types of weights and rows that their blocks do not divide: what fits, what stands in, what is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from once import once
from refusals import refused
from typed_models import some_words, typed_parent

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import gguf
from gguf_files import TYPES, quantised, read, written

from zerolm.carving.bits.estimates import TypeEstimates
from zerolm.carving.bits.row_blocks import Rows, check_rows, fit_notes, in_blocks, widths_in_file
from zerolm.carving.bits.weighed_child import WeighedChild
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, IN_SMALLER_BLOCKS, QUANTISED, for_rows, types_named
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.check import COARSELY, rounding_error
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import choices
from zerolm.units.importance.criterion import FirstUnits
from zerolm.units.kept_units import Cut, dimensions

Zerolm = Callable[..., Any]
SMALL: dict[str, Any] = {"hidden_size": 96, "num_attention_heads": 6, "intermediate_size": 256}
"""Rows of 96 and 256: blocks of 256 fit the latter alone."""
ODD: dict[str, Any] = {"hidden_size": 72, "num_attention_heads": 4, "intermediate_size": 172, "head_dim": 18}
"""Rows of 72 and 172, which no blocks fit."""
FLAGS = ("--format", "gguf", "--sequences", "4", "--length", "16")


def rows_of(checkpoint: Checkpoint, request: SizeRequest) -> list[Rows]:
    """Return the rows of a parent's matrices, of all lengths that a request allows."""
    estimates = TypeEstimates(WeighedChild(Child(checkpoint, Cut.whole(dimensions(checkpoint)))), ())
    widths = widths_in_file(checkpoint, FirstUnits(-1.0), request)
    return estimates.rows(choices(checkpoint, request, width) for width in widths)


@pytest.fixture(scope="session")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        typed_parent(folder / "small", **SMALL)
        typed_parent(folder / "odd", **ODD)
        some_words(folder / "text.txt")

    return once(tmp_path_factory, "rows_of_parents", make)


@given(st.sets(st.sampled_from(QUANTISED), min_size=1), st.integers(1, 64).map(lambda n: 8 * n))
def test_rows_have_the_types_that_fit_and_others_in_the_place_of_those_that_do_not(
    types: Any, row: int
) -> None:
    able = for_rows(types, row)
    assert all(kind.holds(row) for kind in able)
    assert {kind for kind in types if kind.holds(row)} <= able
    assert able <= types | {BY_NAME[IN_SMALLER_BLOCKS[kind.name]] for kind in types if kind.weights == 256}
    assert bool(able) == (row % 32 == 0)


def test_each_type_in_large_blocks_has_one_in_small_blocks_of_no_fewer_bits() -> None:
    assert set(IN_SMALLER_BLOCKS) == {kind.name for kind in QUANTISED if kind.weights == 256}
    for name, smaller in IN_SMALLER_BLOCKS.items():
        assert BY_NAME[smaller].weights == 32
        assert BY_NAME[smaller].bits >= BY_NAME[name].bits


@pytest.mark.parametrize("kind", sorted(TYPES.keys() & IN_SMALLER_BLOCKS.keys()))
@pytest.mark.parametrize("parent", ["small", "odd"])
def test_what_stands_in_is_what_the_quantiser_of_llama_cpp_gives(
    kind: str, parent: str, parents: Path, tmp_path: Path
) -> None:
    file = written(parents / parent, tmp_path / "whole.gguf")
    for name, (number, _) in read(quantised(file, kind, tmp_path / "typed.gguf")).items():
        shape = read(file)[name][1].shape
        if len(shape) == 2:
            able = for_rows({BY_NAME[kind]}, shape[1])
            assert gguf.GGMLQuantizationType(number).name in ({each.name for each in able} or {"F16"}), name


@pytest.mark.parametrize("names", ["Q4_K", "Q6_K,Q4_K", "Q4_0,Q2_K"])
def test_a_named_type_that_fits_no_matrix_is_refused_before_any_work(
    names: str, parents: Path, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("carve", str(parents / "odd"), *FLAGS, "--types", names, "--max-weight-bytes", "0.3x")
    text = ("--text", str(parents / "text.txt"), "--out", "child")
    words = "do not divide rows of 72 (q, k, v, gate, up, embedding, head, o) and 172 (down); no quantised"
    monkeypatch.setattr("zerolm.carving.session.Session.moments", None)
    refused(zerolm, *command, *text, words=words)


def test_types_that_fit_are_named_with_the_refusal(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(typed_parent(tmp_path, intermediate_size=172))
    request = SizeRequest.of({"ffn": 1, "heads": 1, "layers": 1, "hidden": 1})
    able = ", ".join(kind.name for kind in QUANTISED if kind.weights == 32)
    with pytest.raises(ValueError, match=f"Q4_K fits no matrix.*; {able} fit some$"):
        check_rows(rows_of(checkpoint, request), "Q4_K")


def plan(zerolm: Zerolm, parents: Path, parent: str, *flags: str) -> dict[str, Any]:
    ran = zerolm("carve", str(parents / parent), *FLAGS, *flags, "--json")
    assert ran.status == 0, ran.err
    return json.loads(ran.out)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("parent", "types", "sizes", "kinds"),
    [
        ("odd", (), "2 layers, hidden 72, KV groups 2, FFN neurons 172, in BF16", {"BF16"}),
        (
            "small",
            ("--types", "Q4_K"),
            "hidden 96, KV groups 2, FFN neurons 256, in Q4_K and Q5_0",
            {"Q4_K", "Q5_0"},
        ),
    ],
)
def test_the_least_bytes_are_named_and_possible(
    parent: str, types: tuple[str, ...], sizes: str, kinds: set[str], parents: Path, zerolm: Zerolm
) -> None:
    flags = (*types, "--keep", "1", "--text", str(parents / "text.txt"))
    ran = zerolm("carve", str(parents / parent), *FLAGS, *flags, "--max-weight-bytes", "9000")
    assert (ran.status, sizes in ran.err) == (2, True), ran.err
    least = re.search("at least ([0-9,]+)", ran.err)
    assert least is not None
    size = least[1].replace(",", "")
    found = plan(zerolm, parents, parent, *flags, "--max-weight-bytes", size)
    assert found["costs"]["child"]["weight_bytes"] == int(size)
    assert {row["type"] for row in found["types"]} == kinds
    assert found["stream"] is None
    ran = zerolm("carve", str(parents / parent), *FLAGS, *flags, "--max-weight-bytes", str(int(size) - 1))
    assert (ran.status, f"at least {least[1]}" in ran.err) == (2, True), ran.err


def test_cuts_reach_fewer_bytes_and_the_refusal_names_both(parents: Path, zerolm: Zerolm) -> None:
    flags = ("--text", str(parents / "text.txt"), "--max-weight-bytes", "5000")
    ran = zerolm("carve", str(parents / "odd"), *FLAGS, *flags)
    assert ran.status == 2
    sizes = "1 layer, hidden 32, KV groups 1, FFN neurons 32"
    words = rf"at least ([0-9,]+) \({sizes}, in .*\); with all units ([0-9,]+)"
    least = re.search(words, ran.err)
    assert least is not None, ran.err
    assert int(least[1].replace(",", "")) < int(least[2].replace(",", ""))


def test_bits_that_are_too_few_are_refused_with_bits_that_are_enough(parents: Path, zerolm: Zerolm) -> None:
    flags = ("--keep", "1", "--text", str(parents / "text.txt"), "--max-bits")
    ran = zerolm("carve", str(parents / "small"), *FLAGS, *flags, "2")
    bits = re.search("--max-bits ([0-9.]+) ", ran.err)
    assert bits is not None, ran.err
    assert zerolm("carve", str(parents / "small"), *FLAGS, *flags, bits[1]).status == 0
    assert zerolm("carve", str(parents / "small"), *FLAGS, *flags, f"{float(bits[1]) - 0.02:g}").status == 2


def test_a_plan_says_what_stands_in_and_keeps_the_stream(parents: Path, zerolm: Zerolm) -> None:
    flags = (
        "--types",
        "Q4_K",
        "--keep",
        "1",
        "--text",
        str(parents / "text.txt"),
        "--max-weight-bytes",
        "0.4x",
    )
    found = plan(zerolm, parents, "small", *flags)
    assert (found["stream"], {row["ffn"] for row in found["widths"]}) == (None, {256})
    assert (
        "blocks of 256 (Q4_K) do not fit rows of 96 (q, k, v, gate, up, embedding, head, o): Q5_0 there, as "
        "llama.cpp's quantiser has it"
    ) in found["note"]
    for row in found["types"]:
        assert row["type"] in ({"Q4_K", "BF16"} if row["role"] == "down" else {"Q5_0", "BF16"})


def test_a_stream_that_is_narrowed_so_that_types_fit_is_named(parents: Path, zerolm: Zerolm) -> None:
    text = ("--text", str(parents / "text.txt"))
    found = plan(zerolm, parents, "odd", *text, "--max-weight-bytes", "0.4x")
    assert found["stream"]["hidden"] == 64
    assert "blocks of 32 fit what is cut, and not the parent's: hidden 64 of 72" in found["note"]
    assert "--keep-hidden 1 keeps it" in found["note"]
    kept = plan(zerolm, parents, "odd", *text, "--max-weight-bytes", "0.8x", "--keep-hidden", "1")
    assert kept["stream"] is None
    assert "hidden 64" not in kept["note"]
    assert "no quantised type fits rows of" in kept["note"]


@given(st.data())
def test_notes_name_each_matrix_that_a_type_does_not_fit(parents: Path, data: st.DataObject) -> None:
    checkpoint = Checkpoint.open(parents / "small")
    whole = rows_of(checkpoint, SizeRequest.of(budgets={"max_weight_bytes": 10**5}))
    axes = [replace(rows, possible=frozenset({8 * data.draw(st.integers(1, 64))})) for rows in whole]
    types = types_named(data.draw(st.sampled_from(["all", "Q4_K,Q6_K", "Q4_0"])), with_importances=True)
    named = data.draw(st.booleans())
    words = " ".join(fit_notes(axes, types, named=named))
    for rows in axes:
        (length,) = rows.possible
        unfit = any(not kind.holds(length) for kind in types)
        listed = re.findall(rf"(?:rows of|and) {length} \(([^)]*)\)", words)
        assert unfit == bool(listed)
        assert all(set(rows.roles) <= set(roles.split(", ")) for roles in listed)


@given(st.floats(0.05, 0.99), st.sampled_from(["ffn", "hidden"]))
def test_shares_leave_rows_that_fall_into_blocks(parents: Path, share: float, kind: str) -> None:
    checkpoint = Checkpoint.open(parents / "odd")
    parent = dimensions(checkpoint)
    notes, request = in_blocks(checkpoint, SizeRequest.of({kind: share}))
    whole = {"ffn": parent.ffn, "hidden": parent.hidden}[kind]
    left = request.keep[kind] * whole
    assert request.keep[kind] == share or math.isclose(left, round(left))
    assert request.keep[kind] == share or round(left) % 32 == 0
    assert abs(left - share * whole) <= 32
    assert bool(notes) == (request.keep[kind] != share)
    every = SizeRequest.of({kind: share}, multiple_of=4)
    assert in_blocks(checkpoint, every) == ([], every)


def test_few_quantised_matrices_explain_the_rounding_of_a_file(
    parents: Path, zerolm: Zerolm, tmp_path: Path
) -> None:
    """Most matrices fit no blocks there, so that the file is mostly of another type."""
    flags = ("--keep-hidden", "1", "--keep-heads", "1", "--keep-layers", "1", "--keep-ffn", "0.6")
    flags += ("--keep-vocab", "all")
    command = ("carve", str(parents / "odd"), *FLAGS, *flags, "--text", str(parents / "text.txt"))
    typed = (*command, "--types", "Q4_0", "--out", str(tmp_path / "child"), "--json", "--max-weight-bytes")
    least = re.search("at least ([0-9,]+)", zerolm(*typed, "9000").err)
    assert least is not None
    ran = zerolm(*typed, least[1].replace(",", ""))
    assert ran.status == 0, ran.err
    kinds = [row["type"] for row in json.loads(ran.out)["types"]]
    assert 0 < kinds.count("Q4_0") < len(kinds) / 2
    file = next((tmp_path / "child").glob("*.gguf"))
    assert rounding_error(file) == COARSELY
