"""What is written is what safetensors reads, and slices equal numpy's."""

import errno
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny import model, saved

from zerolm.checkpoints import Checkpoint, Outgoing, Span, TensorInfo, sliced, slicing, write_shards
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.headers import read_shard


def copied(tensor: TensorInfo) -> Outgoing:
    return Outgoing(tensor.name, tensor.dtype, tensor.shape, lambda: sliced(tensor, {}))


def joined(chunks: Iterator[Any]) -> bytes:
    """Chunks as bytes, each taken before the next is asked for."""

    def plain(chunk: Any) -> bytes:
        if isinstance(chunk, Span):
            return chunk.file.read_bytes()[chunk.start : chunk.end]
        return chunk if isinstance(chunk, bytes) else np.ascontiguousarray(chunk).tobytes()

    return b"".join([plain(chunk) for chunk in chunks])


def test_shards_are_loaded_by_transformers(tmp_path: Path) -> None:
    import transformers

    folder = saved(tmp_path / "model", "llama", dtype="bfloat16")
    checkpoint = Checkpoint.open(folder)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "config.json").write_bytes((folder / "config.json").read_bytes())
    told: list[tuple[int, int]] = []
    tensors = [copied(tensor) for tensor in checkpoint.tensors.values()]
    paths = write_shards(tmp_path / "copy", tensors, 20_000, progress=lambda text, *done: told.append(done))
    assert [path.name for path in paths[-2:]] == [
        "model-00005-of-00005.safetensors",
        "model.safetensors.index.json",
    ]
    size = sum(tensor.bytes for tensor in tensors)
    assert json.loads(paths[-1].read_text())["metadata"] == {"total_size": size}
    assert told[-1] == (size, size)
    for path in paths[:-1]:
        assert sum(tensor.end - tensor.start for tensor in read_shard(path).tensors.values()) <= 20_000
    assert Checkpoint.open(tmp_path / "copy").tensors.keys() == checkpoint.tensors.keys()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "copy").state_dict()
    expected = model("llama", dtype="bfloat16").state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


def test_numbers_stay_aligned(tmp_path: Path) -> None:
    odd = Outgoing("a", "BF16", (3,), lambda: [b"123456"])
    wide = Outgoing("b", "F32", (2,), lambda: [np.ones(2, np.float32)])
    one = Outgoing("c", "U8", (), lambda: [b"1"])
    (path,) = write_shards(tmp_path, [one, odd, wide, Outgoing("d", "F32", (0, 4), lambda: [])])
    assert all(tensor.start % tensor.item_bytes == 0 for tensor in read_shard(path).tensors.values())
    assert torch.equal(load_file(path)["b"], torch.ones(2))


def test_what_cannot_be_written(tmp_path: Path) -> None:
    short = Outgoing("a", "F32", (2,), lambda: [b"1234"])
    with pytest.raises(ValueError, match="tensor 'a' came as 4 bytes instead of 8"):
        write_shards(tmp_path, [short])
    with pytest.raises(FileExistsError):
        write_shards(tmp_path, [short])
    with pytest.raises(ValueError, match="the same name"):
        write_shards(tmp_path, [short, short])


@pytest.mark.parametrize("failure", [OSError(errno.EXDEV, "cross-device"), None])
def test_copies_where_the_kernel_does_not(
    failure: OSError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(bytes(range(256)) * 20_000)
    real = os.copy_file_range

    def partly(source: int, target: int, count: int, offset: int) -> int:
        if failure:
            raise failure
        return 0 if offset > 1_000_000 else real(source, target, min(count, 600_000), offset)

    monkeypatch.setattr(os, "copy_file_range", partly)
    tensor = Outgoing("a", "U8", (5_000_001,), lambda: [Span(tmp_path / "source", 3, 5_000_003), b"!"])
    (path,) = write_shards(tmp_path, [tensor])
    expected = (tmp_path / "source").read_bytes()[3:5_000_003] + b"!"
    assert load_file(path)["a"].numpy().tobytes() == expected


def test_a_span_beyond_its_file(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"1234")
    with pytest.raises(ValueError, match="was cut off while it was read"):
        write_shards(tmp_path, [Outgoing("a", "U8", (8,), lambda: [Span(tmp_path / "source", 0, 8)])])


@pytest.fixture(scope="module")
def matrices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TensorInfo]:
    folder = tmp_path_factory.mktemp("matrices")
    generator = torch.Generator().manual_seed(0)
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    tensors = {name: torch.randn(60, 40, generator=generator).to(kind) for name, kind in kinds.items()}
    save_file(tensors | {"vector": torch.randn(60, generator=generator)}, folder / "x.safetensors")
    return read_shard(folder / "x.safetensors").tensors


def stored(tensor: TensorInfo) -> np.ndarray[Any, Any]:
    kind: Any = np.uint32 if tensor.dtype == "F32" else np.uint16
    return np.frombuffer(tensor.file.read_bytes()[tensor.start : tensor.end], kind).reshape(tensor.shape)


@given(
    st.sampled_from(["F32", "BF16", "F16"]),
    st.none() | st.sets(st.integers(0, 59)),
    st.none() | st.sets(st.integers(0, 39)),
    st.sampled_from([1, 300, 1000, 1 << 20]),
    st.sampled_from([1, 500, 1 << 20]),
)
def test_slices_equal_those_of_numpy(
    matrices: dict[str, TensorInfo],
    dtype: str,
    rows: set[int] | None,
    cols: set[int] | None,
    block: int,
    span: int,
) -> None:
    tensor, kept = matrices[dtype], {}
    expected = stored(tensor)
    for axis, indices in ((0, rows), (1, cols)):
        if indices is not None:
            kept[axis] = np.array(sorted(indices), np.int64)
            expected = np.take(expected, kept[axis], axis)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slicing, "COPIED_BYTES", block)
        patch.setattr(slicing, "SPAN_BYTES", span)
        assert joined(sliced(tensor, kept)) == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "kept", "message"),
    [
        ("F32", {0: [3, 2]}, "along axis 0 does not ascend"),
        ("F32", {0: [2, 2]}, "along axis 0 does not ascend"),
        ("F32", {0: [[1, 2]]}, "along axis 0 does not ascend"),
        ("F32", {0: [0.5]}, "along axis 0 does not ascend"),
        ("F32", {1: [39, 40]}, "axis 1 of 'F32' ends at 40"),
        ("F32", {0: [-1, 0]}, "axis 0 of 'F32' ends at 60"),
        ("F32", {2: [0]}, "is not cut along axis 2"),
        ("vector", {1: [0]}, "is not cut along axis 1"),
    ],
)
def test_slices_that_are_none(
    name: str, kept: dict[int, Any], message: str, matrices: dict[str, TensorInfo]
) -> None:
    indices = {axis: np.array(values) for axis, values in kept.items()}
    with pytest.raises(ValueError, match=message):
        joined(sliced(matrices[name], indices))


def test_long_runs_are_left_to_the_kernel(tmp_path: Path) -> None:
    save_file(
        {"x": torch.arange(4_000_000, dtype=torch.float32).reshape(4000, 1000)}, tmp_path / "x.safetensors"
    )
    tensor = read_shard(tmp_path / "x.safetensors").tensors["x"]
    rows = np.r_[0:3, 10:1000, 1002, 1500:4000:2]
    chunks = []
    for chunk in sliced(tensor, {0: rows}):
        chunks.append(chunk if isinstance(chunk, Span) else np.array(chunk))
        assert isinstance(chunk, Span) or chunk.nbytes <= slicing.COPIED_BYTES
    assert [isinstance(chunk, Span) for chunk in chunks] == [False, True, False, False, False]
    assert joined(iter(chunks)) == stored(tensor)[rows].tobytes()


@pytest.mark.parametrize(
    ("dtype", "kind"), [("BF16", torch.bfloat16), ("F16", torch.float16), ("F32", torch.float32)]
)
def test_rounding_is_that_of_torch(dtype: str, kind: torch.dtype) -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(3)) * 300
    values[:3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    ours = widened(narrowed(values.numpy(), dtype), dtype)
    assert np.array_equal(ours, values.to(kind).float().numpy(), equal_nan=True)


@given(
    st.lists(st.floats(-65_519, 65_519, width=32), max_size=8),
    st.floats(65_520, 2.0**100, width=32),
    st.sampled_from([1, -1]),
)
def test_beyond_float16_is_refused_without_a_warning(numbers: list[float], large: float, sign: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="beyond float16, which ends at 65,504"):
            narrowed(np.array([*numbers, sign * large], np.float32), "F16")
        narrowed(np.array([*numbers, sign * large], np.float32), "BF16")
