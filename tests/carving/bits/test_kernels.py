"""What rounds weights is llama.cpp's own: its quantiser writes the same bytes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from typed_models import typed_parent

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.carving.bits.kernels import quantised, rounded  # noqa: E402
from zerolm.checkpoints import Checkpoint  # noqa: E402
from zerolm.checkpoints.gguf.dequantise import dequantised  # noqa: E402
from zerolm.checkpoints.weight_types import (  # noqa: E402
    BY_NAME,
    BY_NUMBER,
    QUANTISED,
    STORED,
    WeightType,
    from_largest,
    types_named,
)
from zerolm.children.child_tensors import Child  # noqa: E402
from zerolm.children.gguf.write import write  # noqa: E402
from zerolm.units.kept_units import Cut, dimensions  # noqa: E402

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
    values = values if "IQ" not in kind.name else values[:64]
    raw = quantised(values, kind, importances)
    assert raw.shape == (len(values), kind.size(256))
    assert (raw == quantised(values, kind, importances, threads=3)).all()
    error = np.square(dequantised(raw, kind) - values).mean()
    assert error < 16 * 4.0**-kind.bits


def test_importances_weigh_the_errors() -> None:
    values, importances = normal(64, 256), np.ones(256, np.float32)
    importances[::8] = 100.0
    kind = BY_NAME["Q4_K"]
    heavy = np.square(rounded(values, kind, importances) - values)[:, ::8].mean()
    assert heavy < 0.9 * np.square(rounded(values, kind, None) - values)[:, ::8].mean()


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
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), source)
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
