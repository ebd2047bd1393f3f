"""One state of weights is told from another: by its files, and by all its bytes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from changed_folders import stored
from safetensors.torch import save_file
from tiny import saved

from zerolm.checkpoints import Checkpoint, identity
from zerolm.checkpoints.headers import read_shard
from zerolm.checkpoints.identity import SAMPLE_BLOCK, SAMPLED, fingerprint, sampled, state_of


def edited(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    """Return the folder, its weights changed; header, size and time of change are as before."""
    file = folder / "model.safetensors"
    before = file.stat()
    stored(folder, change)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    return folder


UP = "model.layers.1.mlp.up_proj.weight"


def shuffled(weights: dict[str, torch.Tensor]) -> None:
    weights[UP] = weights[UP].flip(0).contiguous()


def swapped(weights: dict[str, torch.Tensor]) -> None:
    """Two tensors of one shape change places."""
    gate = UP.replace("up", "gate")
    weights[UP], weights[gate] = weights[gate], weights[UP]


def nudged(weights: dict[str, torch.Tensor]) -> None:
    weights[UP][3, 5] *= 1.001


@pytest.mark.parametrize("change", [shuffled, swapped, nudged])
def test_edits_change_prints(change: Callable[[dict[str, torch.Tensor]], None], tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "llama")
    before = fingerprint(Checkpoint.open(folder))
    assert fingerprint(Checkpoint.open(edited(folder, change))) != before


def test_a_fingerprint_is_of_the_weights_wherever_they_lie(tmp_path: Path) -> None:
    """Of a copy, and of the same tensors in several files."""
    whole = Checkpoint.open(saved(tmp_path / "a", "llama"))
    shutil.copytree(whole.folder, tmp_path / "copy")
    several = Checkpoint.open(saved(tmp_path / "b", "llama", shard="20KB"))
    assert len(several.shards) > 1
    values = {fingerprint(each) for each in (whole, Checkpoint.open(tmp_path / "copy"), several)}
    assert len(values) == 1
    assert fingerprint(Checkpoint.open(saved(tmp_path / "c", "llama", dtype="bfloat16"))) not in values


def test_bytes_are_read_once(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    digest = identity._digest
    monkeypatch.setattr(identity, "_digest", lambda tensor: names.append(tensor.name) or digest(tensor))
    checkpoint = Checkpoint.open(saved(tmp_path / "model", "llama"))
    first = fingerprint(checkpoint)
    assert sorted(names) == sorted(checkpoint.tensors)
    assert fingerprint(Checkpoint.open(checkpoint.folder)) == first
    assert len(names) == len(checkpoint.tensors)
    for file in (own_cache / "fingerprints").rglob("*.npz"):
        np.savez(file, sha256=np.zeros((2, 32), np.uint8))
    assert fingerprint(checkpoint) == first


def test_a_copy_with_all_its_times_is_another_state(tmp_path: Path) -> None:
    """As ``cp -p`` makes it: header, size, time of change and content agree."""
    file = saved(tmp_path / "model", "llama") / "model.safetensors"
    copy = tmp_path / "copy.safetensors"
    shutil.copy2(file, copy)
    assert file.stat().st_mtime_ns == copy.stat().st_mtime_ns
    assert state_of(read_shard(file)) != state_of(read_shard(copy))
    assert sampled(read_shard(file)) == sampled(read_shard(copy))


def test_samples_are_bounded_and_meet_every_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large file some blocks are read: the first and the last bytes of each tensor among them."""
    monkeypatch.setattr(identity, "SAMPLED", 16 * SAMPLE_BLOCK)
    file = tmp_path / "large.safetensors"
    save_file({name: torch.zeros(512, 256) for name in "abcd"}, file)
    shard = read_shard(file)
    blocks = [block for tensor in shard.tensors.values() for block in identity._blocks(tensor, 4)]
    assert sum(end - start for start, end in blocks) == 16 * SAMPLE_BLOCK < shard.size
    content = sampled(shard)
    for tensor in shard.tensors.values():
        for place in (tensor.start, tensor.end - 1):
            with file.open("r+b") as opened:
                opened.seek(place)
                opened.write(b"\x01")
            assert sampled(shard) != content
            with file.open("r+b") as opened:
                opened.seek(place)
                opened.write(b"\x00")
    assert sampled(shard) == content
    assert SAMPLED <= 8 << 20
