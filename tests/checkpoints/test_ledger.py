"""The ledger against plain sums, and when it is read from the cache."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changed_folders import stored
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tiny import saved

from zerolm.checkpoints import Checkpoint, Ledger, Sums, ledger_of
from zerolm.checkpoints import ledger as ledgers
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.headers import read_shard
from zerolm.checkpoints.matrix_sums import Summing, plain, sums_of
from zerolm.checkpoints.rows import row_reader

BIAS = "model.layers.1.self_attn.q_proj.bias"
UP = "model.layers.1.mlp.up_proj.weight"


def compiled() -> Summing:
    return pytest.importorskip("zerolm.checkpoints.kernel", reason="numba is not installed").compiled


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "ledgers"


def brute(values: np.ndarray[Any, Any], axis: int) -> Sums:
    return Sums((values**2).sum(axis), np.abs(values).sum(axis), values.max(axis), values.min(axis))


def assert_equal(found: Sums, expected: Sums, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found.squares, expected.squares, rtol=tolerance)
    np.testing.assert_allclose(found.absolute, expected.absolute, rtol=tolerance)
    assert np.array_equal(found.largest, expected.largest)
    assert np.array_equal(found.smallest, expected.smallest)
    assert found.squares.dtype == np.float64


def assert_right(ledger: Ledger, checkpoint: Checkpoint, tolerance: float = 1e-12) -> None:
    for name, slot in checkpoint.layout.slots.items():
        values = checkpoint.read(name).astype(np.float64)
        total = ledger.total(name)
        expected = [values.size, (values**2).sum(), np.abs(values).sum(), values.max(), values.min()]
        found = [total.count, total.squares, total.absolute, total.largest, total.smallest]
        np.testing.assert_allclose(found, expected, rtol=tolerance)
        if slot.layer is not None and values.ndim == 2:
            assert ledger.rows(name).largest.dtype == np.float64
            assert_equal(ledger.rows(name), brute(values, 1), tolerance)
            assert_equal(ledger.cols(name), brute(values, 0), tolerance)
        else:
            with pytest.raises(KeyError):
                ledger.rows(name)


@pytest.mark.parametrize(
    ("name", "dtype", "kernel"),
    [
        ("llama_biased", "float32", "plain"),
        *(("llama_biased", dtype, "compiled") for dtype in ("float32", "bfloat16", "float16")),
        ("gpt2", "bfloat16", "plain"),
        ("bert_masked", "float16", "plain"),
    ],
)
def test_against_plain_sums(
    name: str, dtype: str, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summing = plain if kernel == "plain" else compiled()
    monkeypatch.setattr(ledgers, "best_summing", lambda size: summing)
    checkpoint = Checkpoint.open(saved(tmp_path / "model", name, dtype=dtype, shard="30KB"))
    assert len(checkpoint.shards) > 1
    tolerance = 1e-12 if kernel == "plain" else 1e-6
    assert_right(ledger_of(checkpoint), checkpoint, tolerance)
    assert_right(ledger_of(checkpoint), checkpoint, tolerance)  # from the cache


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (130, 4097), (64, 2048), (7, 33)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_compiled_sums_equal_plain_ones(dtype: str, shape: tuple[int, int], scale: float) -> None:
    raw = narrowed(np.random.default_rng(1).standard_normal(shape) * scale, dtype)
    raw = raw.view(np.uint32) if dtype == "F32" else raw
    for found, expected in zip(compiled()(raw, dtype), plain(raw, dtype), strict=True):
        assert_equal(found, expected, 1e-6)


@given(st.binary(min_size=24, max_size=480), st.sampled_from(["BF16", "F16", "F32"]))
def test_any_bits_whatever(content: bytes, dtype: str) -> None:
    kind: Any = np.uint32 if dtype == "F32" else np.uint16
    raw = np.frombuffer(content[: len(content) // 12 * 12], kind).reshape(3, -1).copy()
    if not np.isfinite(widened(raw, dtype)).all():
        with np.errstate(invalid="ignore"):
            rows, _ = compiled()(raw, dtype)
        assert not np.isfinite([rows.largest.max(), rows.smallest.min()]).all()
        return
    for found, expected in zip(compiled()(raw, dtype), plain(raw, dtype), strict=True):
        assert np.array_equal(found.largest, expected.largest)
        assert np.array_equal(found.smallest, expected.smallest)
        assert found.squares.sum() == pytest.approx(expected.squares.sum(), rel=1e-6)
        assert found.absolute.sum() == pytest.approx(expected.absolute.sum(), rel=1e-6)


@pytest.mark.parametrize("block", [1, 100, 4096])
def test_blocks_of_any_size(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path / "model", "llama_biased", dtype="bfloat16"))
    monkeypatch.setattr("zerolm.checkpoints.matrix_sums.row_reader", lambda tensor: row_reader(tensor, block))
    for name in (UP, BIAS):
        rows, cols = sums_of(checkpoint.tensors[name], plain)
        assert_equal(rows, brute(np.atleast_2d(checkpoint.read(name).astype(np.float64)), 1))
        assert len(cols.squares) == (48 if name == UP else 0)


def test_memory_is_bounded_by_a_block(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(40_000, 256)}, tmp_path / "x.safetensors")
    tensor = read_shard(tmp_path / "x.safetensors").tensors["x"]
    with row_reader(tensor) as reader:
        sizes = {block.nbytes for _, block in reader.blocks()}
        assert max(sizes) == reader._buffer.nbytes <= 2 << 20 < tensor.end - tensor.start


@pytest.mark.parametrize(
    ("value", "name", "kernel", "dtype"),
    [
        (float("nan"), UP, "plain", "float32"),
        (float("inf"), BIAS, "plain", "bfloat16"),
        (-float("inf"), "model.embed_tokens.weight", "compiled", "float16"),
        *((value, UP, "compiled", "bfloat16") for value in (float("nan"), float("inf"), -float("inf"))),
    ],
)
def test_weights_that_are_not_finite(
    value: float,
    name: str,
    kernel: str,
    dtype: str,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summing = plain if kernel == "plain" else compiled()
    monkeypatch.setattr(ledgers, "best_summing", lambda size: summing)
    folder = saved(tmp_path / "model", "llama_biased", dtype=dtype)
    stored(folder, lambda tensors: tensors[name].view(-1)[7].fill_(value))
    with pytest.raises(ValueError, match=f"tensor '{name}' in .* has weights that are not finite"):
        ledger_of(Checkpoint.open(folder))
    assert not list(cache.glob("*"))


class Passes:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.limit = 10**9
        lock = threading.Lock()

        def counted(tensor: Any, summing: Any) -> Any:
            with lock:
                self.names.append(tensor.name)
                if len(self.names) > self.limit:
                    raise KeyboardInterrupt
            return sums_of(tensor, summing)

        monkeypatch.setattr(ledgers, "sums_of", counted)


def test_read_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    folder = saved(tmp_path / "model", "llama", shard="20KB")
    checkpoint = Checkpoint.open(folder)
    told: list[tuple[int, int]] = []
    ledger_of(checkpoint, progress=lambda text, done, of: told.append((done, of)))
    assert sorted(passes.names) == sorted(checkpoint.tensors)
    assert told == sorted(told)
    assert told[-1] == (told[0][1],) * 2
    assert len(list(cache.iterdir())) == len(checkpoint.shards)

    passes.names.clear()
    assert_right(ledger_of(Checkpoint.open(folder)), checkpoint)
    assert not passes.names
    ledger_of(checkpoint, cache=False)
    assert len(passes.names) == len(checkpoint.tensors)


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    folder = saved(tmp_path / "model", "llama")
    file = folder / "model.safetensors"
    checkpoint = Checkpoint.open(folder)
    ledger_of(checkpoint)
    state = file.stat()

    passes.names.clear()  # another content of the same size, at another time
    saved(folder, "llama", seed=1)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert_right(ledger_of(Checkpoint.open(folder)), Checkpoint.open(folder))
    assert passes.names
    with pytest.raises(ValueError, match="has changed since it was opened"):
        ledger_of(checkpoint)

    passes.names.clear()  # at the very same time
    saved(folder, "llama", seed=2)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert_right(ledger_of(Checkpoint.open(folder)), Checkpoint.open(folder))
    assert passes.names

    monkeypatch.setattr(ledgers, "state_of", lambda shard: ())  # only its content tells
    ledger_of(Checkpoint.open(folder))
    saved(folder, "llama", seed=3)
    passes.names.clear()
    ledger_of(Checkpoint.open(folder))
    assert not passes.names
    assert_right(ledger_of(Checkpoint.open(folder), verify=True), Checkpoint.open(folder))
    assert passes.names
    passes.names.clear()
    assert_right(ledger_of(Checkpoint.open(folder), verify=True), Checkpoint.open(folder))
    assert not passes.names


def test_a_killed_pass_goes_on(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    checkpoint = Checkpoint.open(saved(tmp_path / "model", "llama", shard="20KB"))
    first = len(checkpoint.shards[0].tensors)
    passes.limit = first + 1
    with pytest.raises(KeyboardInterrupt):
        ledger_of(checkpoint)
    assert len(list(cache.iterdir())) == 1
    passes.names.clear()
    passes.limit = 10**9
    assert_right(ledger_of(checkpoint), checkpoint)
    assert len(passes.names) == len(checkpoint.tensors) - first


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"PK\x03\x04"])
def test_a_damaged_cache_is_not_used(damage: bytes, tmp_path: Path, cache: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path / "model", "llama"))
    ledger_of(checkpoint)
    (path,) = cache.glob("*/*.npz")
    whole = path.read_bytes()
    for content in (damage, whole[: len(whole) // 2], whole[:3000] + b"\xff" * 64 + whole[3064:]):
        path.write_bytes(content)
        assert_right(ledger_of(checkpoint), checkpoint)
    with path.open("wb") as file:
        np.savez(file, **dict.fromkeys(("squares", "absolute", "largest", "smallest", "content"), np.ones(3)))
    assert_right(ledger_of(checkpoint), checkpoint)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "file"))
    checkpoint = Checkpoint.open(saved(tmp_path / "model", "llama"))
    assert_right(ledger_of(checkpoint), checkpoint)


def test_the_kernel_is_for_large_files_and_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ledgers.best_summing(1 << 20) is plain
    assert ledgers.best_summing(1 << 30) is compiled()
    monkeypatch.setitem(sys.modules, "zerolm.checkpoints.kernel", None)
    assert ledgers.best_summing(1 << 30) is plain


def test_no_torch_is_needed(models_folder: Path) -> None:
    script = (
        "import sys; from zerolm.checkpoints import *; "
        f"ledger_of(Checkpoint.open({str(models_folder / 'pydec')!r})); "
        "assert not {'torch', 'numba', 'transformers', 'huggingface_hub'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
