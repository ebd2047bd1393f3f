"""Weights and activations are rounded as llama.cpp rounds them; rows that blocks do not divide."""

import ctypes
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from once import once
from refusals import Zerolm
from torch import nn
from typed_models import some_words, typed_parent

from zerolm.carving.bits.kernels import rounded
from zerolm.carving.bits.row_blocks import in_blocks
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, IN_SMALLER_BLOCKS, QUANTISED, for_rows, types_named
from zerolm.networks.hooks import rounded_inputs
from zerolm.planning.size_request import SizeRequest
from zerolm.units.kept_units import dimensions

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_files import TYPES, read, written  # noqa: E402
from gguf_files import quantised as quantised_file  # noqa: E402

from zerolm.carving.bits.kernels import quantised  # noqa: E402
from zerolm.checkpoints.gguf.dequantise import dequantised  # noqa: E402
from zerolm.checkpoints.weight_types import (  # noqa: E402
    BY_NUMBER,
    STORED,
    WeightType,
    from_largest,
)

WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1}


def normal(rows: int, columns: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


@pytest.mark.parametrize("kind", [*STORED, *QUANTISED], ids=lambda kind: kind.name)
def test_numbers_are_those_of_the_format(kind: WeightType) -> None:
    assert gguf.GGMLQuantizationType(kind.number).name == kind.name
    assert f"MOSTLY_{kind.name}" in gguf.LlamaFileType(kind.file).name.replace("ALL", "MOSTLY")


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("weighed", [False, True])
def test_rows_by_threads_are_those_of_one(kind: WeightType, weighed: bool) -> None:
    values = normal(3000, 256)
    importances = np.linspace(0.1, 2.0, 256, dtype=np.float32) if weighed else None
    if kind.needs_importances and not weighed:
        with pytest.raises(ValueError, match="needs importances"):
            quantised(values, kind, importances)
        return
    values = values if "IQ" not in kind.name else values[:16]
    raw = quantised(values, kind, importances)
    assert raw.shape == (len(values), kind.size(256))
    assert (raw == quantised(values, kind, importances, threads=3)).all()
    assert np.square(dequantised(raw, kind) - values).mean() < 16 * 4.0**-kind.bits


@pytest.mark.parametrize("name", ["Q8_0", "Q5_K", "Q4_K", "Q3_K", "IQ4_XS", "IQ3_S"])
@pytest.mark.parametrize("weighed", [False, True])
def test_the_quantiser_of_llama_cpp_writes_the_same(name: str, weighed: bool, tmp_path: Path) -> None:
    """One matrix by our call, and in a file by ``llama_model_quantize`` with the type and the importances."""
    from llama_cpp import llama_cpp as lib

    folder = typed_parent(tmp_path / "parent", torch.float32, **WIDE)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    checkpoint = Checkpoint.open(folder)
    source, target = tmp_path / "plain.gguf", tmp_path / "typed.gguf"
    written(folder, source)
    tensor, role = "blk.0.ffn_down.weight", "down"
    importances = np.linspace(0.1, 2.0, 512).astype(np.float32)
    settings = lib.llama_model_quantize_default_params()
    settings.nthread, settings.pure, settings.ftype = 1, True, lib.LLAMA_FTYPE_ALL_F32
    overrides = (lib.llama_model_tensor_override * 2)()
    overrides[0].pattern, overrides[0].type = tensor.replace(".", r"\.").encode(), BY_NAME[name].number
    settings.tt_overrides = ctypes.cast(overrides, type(settings.tt_overrides))
    if weighed:
        rows = (lib.llama_model_imatrix_data * 2)()
        pointer = importances.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        rows[0].name, rows[0].data, rows[0].size = tensor.encode(), pointer, len(importances)
        settings.imatrix = ctypes.cast(rows, type(settings.imatrix))
    settings.ftype = lib.LLAMA_FTYPE_MOSTLY_Q8_0
    assert lib.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(settings)) == 0
    read = next(one for one in gguf.GGUFReader(target).tensors if one.name == tensor)
    assert BY_NUMBER[int(read.tensor_type)].name == name
    stored = checkpoint.read(checkpoint.layout.name(role, 0) or "")
    ours = quantised(stored, BY_NAME[name], importances if weighed else None)
    assert (np.asarray(read.data).reshape(ours.shape) == ours).all()


def test_types_are_named() -> None:
    assert types_named("all", with_importances=True) == QUANTISED
    assert not [kind for kind in types_named("all", with_importances=False) if kind.needs_importances]
    assert [kind.name for kind in types_named("q4_k, Q6_K", with_importances=False)] == ["Q6_K", "Q4_K"]
    assert from_largest(QUANTISED)[0].name == "Q8_0"
    with pytest.raises(ValueError, match="type 'Q7_K' is not known; did you mean"):
        types_named("Q7_K", with_importances=True)
    with pytest.raises(ValueError, match="IQ2_S needs importances: give --text FILE"):
        types_named("IQ2_S", with_importances=False)


def test_rows_that_fall_into_no_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 100 do not fall into blocks of 32, as Q8_0 has"):
        quantised(normal(2, 100), BY_NAME["Q8_0"], None)
    with pytest.raises(ValueError, match=r"importances of \(8,\) do not fit rows of 32"):
        quantised(normal(2, 32), BY_NAME["Q8_0"], np.ones(8, np.float32))


SMALL: dict[str, Any] = {"hidden_size": 96, "num_attention_heads": 6, "intermediate_size": 256}
"""Rows of 96 and 256: blocks of 256 fit the latter alone."""
ODD: dict[str, Any] = {"hidden_size": 72, "num_attention_heads": 4, "intermediate_size": 172, "head_dim": 18}
"""Rows of 72 and 172, which no blocks fit."""
FLAGS = ("--format", "gguf", "--sequences", "4", "--length", "16")


@pytest.fixture(scope="session")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        typed_parent(folder / "small", **SMALL)
        typed_parent(folder / "odd", **ODD)
        some_words(folder / "text.txt")

    return once(tmp_path_factory, "rows_of_parents", make)


@given(st.sets(st.sampled_from(QUANTISED), min_size=1), st.integers(1, 64).map(lambda n: 8 * n))
def test_rows_have_the_types_that_fit_and_others_where_none_does(types: Any, row: int) -> None:
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
def test_what_stands_in_is_that_of_llama_cpp(kind: str, parent: str, parents: Path, tmp_path: Path) -> None:
    file = written(parents / parent, tmp_path / "whole.gguf")
    for name, (number, _) in read(quantised_file(file, kind, tmp_path / "typed.gguf")).items():
        shape = read(file)[name][1].shape
        if len(shape) == 2:
            able = for_rows({BY_NAME[kind]}, shape[1])
            assert gguf.GGMLQuantizationType(number).name in ({each.name for each in able} or {"F16"}), name


def plan(zerolm: Zerolm, parents: Path, parent: str, *flags: str) -> dict[str, Any]:
    return zerolm("carve", str(parents / parent), *FLAGS, *flags, "--json").document  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("parent", "types", "sizes", "kinds"),
    [
        ("odd", (), "2 layers, hidden 72, KV groups 2, FFN neurons 172", {"BF16"}),
        (
            "small", ("--types", "Q4_K"), "hidden 96, KV groups 2, FFN neurons 256", {"Q4_K", "Q5_0"},
        ),
    ],
)  # fmt: skip
def test_the_least_bytes_are_named_and_possible(
    parent: str, types: tuple[str, ...], sizes: str, kinds: set[str], parents: Path, zerolm: Zerolm
) -> None:
    flags = (*types, "--keep", "1", "--text", str(parents / "text.txt"))
    ran = zerolm("carve", str(parents / parent), *FLAGS, *flags, "--max-weight-bytes", "9000")
    assert (ran.status, sizes in ran.err) == (2, True), ran.err
    least = re.search("at least ([0-9,]+)", ran.err)
    size = least[1].replace(",", "")
    found = plan(zerolm, parents, parent, *flags, "--max-weight-bytes", size)
    assert found["costs"]["child"]["weight_bytes"] == int(size)
    assert {row["type"] for row in found["types"]} == kinds
    assert found["stream"] is None
    ran = zerolm("carve", str(parents / parent), *FLAGS, *flags, "--max-weight-bytes", str(int(size) - 1))
    assert (ran.status, f"at least {least[1]}" in ran.err) == (2, True), ran.err


def test_a_plan_says_what_stands_in_and_keeps_the_stream(parents: Path, zerolm: Zerolm) -> None:
    flags = (
        "--types", "Q4_K", "--keep", "1", "--text", str(parents / "text.txt"), "--max-weight-bytes", "0.4x",
    )  # fmt: skip
    found = plan(zerolm, parents, "small", *flags)
    assert (found["stream"], {row["ffn"] for row in found["widths"]}) == (None, {256})
    assert (
        "blocks of 256 do not fit rows of 96 (q, k, v, o, gate, up, embedding, head): Q5_0 there"
    ) in " ".join(found["notes"])
    for row in found["types"]:
        assert row["type"] in ({"Q4_K", "BF16"} if row["role"] == "down" else {"Q5_0", "BF16"})


def test_a_stream_that_is_narrowed_so_that_types_fit_is_named(parents: Path, zerolm: Zerolm) -> None:
    text = ("--text", str(parents / "text.txt"))
    found = plan(zerolm, parents, "odd", *text, "--max-weight-bytes", "0.4x")
    assert found["stream"]["hidden"] == 64
    kept = plan(zerolm, parents, "odd", *text, "--max-weight-bytes", "0.8x", "--keep-hidden", "1")
    assert kept["stream"] is None
    assert "hidden 64" not in " ".join(kept["notes"])
    assert "no quantised type fits rows of" in " ".join(kept["notes"])


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


def reading(columns: int) -> nn.Linear:
    module = nn.Linear(columns, columns, bias=False)
    module.weight.data = torch.eye(columns)
    return module


def test_linear_modules_read_blocks_of_8_bits() -> None:
    values = np.random.default_rng(0).standard_normal((7, 64)).astype(np.float32)
    module, x = reading(64), torch.from_numpy(values)
    with torch.no_grad(), rounded_inputs():
        read = module(x).numpy()
    largest = np.abs(values.reshape(7, 2, 32)).max(2).repeat(32, 1)
    assert np.abs(read - values).max() > 0
    assert (np.abs(read - values) <= largest / 127 / 2 * 1.001).all()
    # its scale is in 16 bits
    np.testing.assert_allclose(read, rounded(values, BY_NAME["Q8_0"], None), atol=float(largest.max()) / 100)
    with torch.no_grad():
        np.testing.assert_array_equal(module(x).numpy(), values)


def test_what_falls_into_no_blocks_stays() -> None:
    x = torch.randn(3, 20)
    with torch.no_grad(), rounded_inputs():
        assert torch.equal(reading(20)(x), x)
