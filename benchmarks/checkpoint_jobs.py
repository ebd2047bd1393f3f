"""What ``checkpoints.py`` measures, in a process of its own: ``checkpoint_jobs.py JOB PARENT OUT CUT``.

Prints JSON: ``seconds`` of the job; bytes of memory, mapped files included, that it added to those of the
imports at its ``peak``; bytes of anonymous memory ``before`` it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zerolm.checkpoints import Checkpoint, ledger_of, write_shards
from zerolm.units.kept_units import Cut, LayerCut

Job = Callable[[Path, Path, Path], None]


def read_cut(checkpoint: Checkpoint, file: Path) -> Cut:
    """A uniform cut from an archive with ``groups`` (layers, g) and ``ffn`` (layers, f)."""
    from zerolm.units.kept_units import dimensions

    kept = np.load(file)
    layers = (
        LayerCut.of(layer, *each) for layer, each in enumerate(zip(kept["groups"], kept["ffn"], strict=True))
    )
    return Cut(dimensions(checkpoint), tuple(layers))


def ledger(parent: Path, out: Path, cut: Path) -> None:
    ledger_of(Checkpoint.open(parent), cache=False)


def doubles(parent: Path, out: Path, cut: Path) -> None:
    for _ in loaded_doubles(parent):
        pass


def sums(parent: Path, out: Path, cut: Path) -> None:
    for value in loaded_doubles(parent):
        square = value.square()
        for axis in range(square.ndim):
            square.sum(axis)


def loaded_doubles(parent: Path) -> Iterator[Any]:
    """All tensors, one after another, as float64; a shard is in memory as a whole."""
    from safetensors.torch import load_file

    for file in sorted(parent.glob("*.safetensors")):
        tensors = load_file(file)
        for name in list(tensors):
            yield tensors.pop(name).double()


def child(parent: Path, out: Path, cut: Path) -> None:
    from zerolm.children.child_tensors import Child
    from zerolm.children.folder import tensors

    checkpoint = Checkpoint.open(parent)
    out.mkdir()
    write_shards(out, tensors(Child(checkpoint, read_cut(checkpoint, cut))))


def slices(parent: Path, out: Path, cut: Path) -> None:
    """Load a shard, slice its tensors, save them, wait for the disk; and the next."""
    import torch
    from safetensors.torch import load_file, save_file

    checkpoint = Checkpoint.open(parent)
    kept, slots = read_cut(checkpoint, cut), checkpoint.layout.slots
    out.mkdir()
    for file in sorted(parent.glob("*.safetensors")):
        tensors = load_file(file)
        for name in tensors:
            slot = slots[name]
            for axis, label in enumerate(slot.axes):
                indices = None if slot.layer is None else kept.kept(kept.layers[slot.layer], label)
                if indices is not None:
                    tensors[name] = sliced(tensors[name], axis, torch.from_numpy(indices))
        save_file(tensors, out / file.name, {"format": "pt"})
        with (out / file.name).open("rb") as written:
            os.fsync(written.fileno())


def sliced(tensor: Any, axis: int, indices: Any) -> Any:
    """ArrayCache rows or columns, copied: a run of them without looking each up."""
    if indices[-1] - indices[0] == len(indices) - 1:
        return tensor.narrow(axis, int(indices[0]), len(indices)).contiguous()
    return tensor.index_select(axis, indices)


JOBS: dict[str, tuple[Job, tuple[str, ...]]] = {
    "ledger": (ledger, ("zerolm.checkpoints.kernel",)),
    "ledger in numpy": (ledger, ()),
    "load + double": (doubles, ("safetensors.torch",)),
    "load + double + sums": (sums, ("safetensors.torch",)),
    "child": (child, ("zerolm.children.folder",)),
    "load + slice + save": (slices, ("safetensors.torch",)),
}
"""Each job and what it imports beforehand."""


def memory(entry: str) -> int:
    """An entry of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{entry}:"))


def main() -> None:
    asked, *places = sys.argv[1:]
    name, comma, _ = asked.partition(", no fsync")
    if comma:
        os.fsync = lambda handle: None  # type: ignore[assignment]
    job, imports = JOBS[name]
    if name == "ledger in numpy":
        sys.modules["numba"] = None  # type: ignore[assignment]
    for module in imports:
        __import__(module)
    resident, before = memory("VmRSS"), memory("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    start = time.perf_counter()
    job(*map(Path, places))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": memory("VmHWM") - resident, "before": before}))


if __name__ == "__main__":
    main()
