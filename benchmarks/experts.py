"""Experts taken out of a large mixture: seconds, memory and bytes.

    python benchmarks/experts.py WORK [--layers N] [--token-layers N] > benchmarks/experts.md

``WORK`` is a folder on a disk with room for twice the mixture. The weights are random, so that nothing is
said of quality: layers have the shape of Qwen3-30B-A3B.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from processes import anonymous_memory
from synthetic import drawn, some_weights
from timing import machine, note

from zerolm.checkpoints import Checkpoint, Outgoing, write_shards
from zerolm.families.config import has, is_of, sizes_of
from zerolm.families.known import families

CONFIG: Final[dict[str, Any]] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
SHARD_BYTES: Final = 2_000_000_000
KILLED_AT: Final = 0.5
"""The share of the seconds of a whole run after which one is killed."""
PAUSE: Final = 0.01
CACHES: Final = Path("/proc/sys/vm/drop_caches")
"""What is written here makes Linux forget what it has read of files."""


COLD: Final = "Each job begins with no file in memory, and ends when all is on the disk."
WARM: Final = "The system could not be told to forget files, so that some were in memory when a job began."


@dataclass(frozen=True)
class Measured:
    """Seconds of a process, the most bytes that it held beside mapped files, and with them."""

    seconds: float
    anonymous: int
    resident: int


def mixture(folder: Path, layers: int) -> Checkpoint:
    """Write and open a random mixture of bfloat16."""
    family, rng, weights = families()["qwen3_moe"], np.random.default_rng(0), some_weights()
    config = CONFIG | {"num_hidden_layers": layers}
    sizes, outgoing = sizes_of(family, config), []
    for prefix, patterns in (("model.", family.tensors.body), ("", family.tensors.head)):
        for pattern in (p for p in patterns if has(family, p, config, True)):
            shape = tuple(int(sizes.length(axis) or 0) for axis in pattern.axes)
            for layer in range(layers if pattern.in_layer else 1):
                if pattern.in_layer and not is_of(pattern, sizes.kinds[layer]):
                    continue
                for expert in range(sizes.sizes["experts"] if "{expert}" in pattern.name else 1):
                    name = prefix + pattern.name.replace("{layer}", str(layer))
                    name = name.replace("{expert}", str(expert))
                    outgoing.append(Outgoing(name, "BF16", shape, partial(drawn, weights, shape, rng)))
    folder.mkdir()
    write_shards(folder, sorted(outgoing, key=lambda tensor: tensor.name), SHARD_BYTES)
    (folder / "config.json").write_text(json.dumps(config))
    return Checkpoint.open(folder)


def run(command: Sequence[str], cache: Path, until: float | None = None) -> Measured:
    """Run a process and look at its memory; with ``until`` it is killed after so many seconds.

    Nothing of its files is in memory when it begins, where the system can be told to forget them.
    """
    os.sync()
    if os.access(CACHES, os.W_OK):
        CACHES.write_text("3")
    environment = {**os.environ, "ZEROLM_CACHE": str(cache)}
    start, anonymous, resident = time.monotonic(), 0, 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        while process.poll() is None:
            anonymous = max(anonymous, anonymous_memory(process.pid))
            resident = max(resident, _resident(process.pid))
            if until is not None and time.monotonic() - start > until:
                process.kill()
            time.sleep(PAUSE)
    if process.returncode and until is None:
        raise RuntimeError(f"{command} failed")
    os.sync()
    return Measured(time.monotonic() - start, anonymous, resident)


def _resident(process: int) -> int:
    """Bytes that a process holds, mapped files among them; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def digest(folder: Path) -> str:
    """The SHA-256 of all weights of a folder."""
    whole = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()


def carving(parent: Path, out: Path, *flags: str) -> list[str]:
    """The command that takes half of the experts out."""
    place = ["--out", str(out)]
    return [sys.executable, "-m", "zerolm", "carve", str(parent), "--keep-experts", "0.5", *flags, *place]


def by_weights(work: Path, layers: int) -> list[str]:
    """Half of the experts out by weights alone: rows of the table, and what a killed run leaves."""
    parent, child, cache = work / "parent", work / "child", work / "cache"
    size = sum(shard.size for shard in mixture(parent, layers).shards)
    note(f"{size / 1e9:.1f} GB are written")
    first = run(carving(parent, child), cache)
    kept, whole = sum(file.stat().st_size for file in child.glob("*.safetensors")), digest(child)
    note(f"{first}")
    again = run(carving(parent, child, "--force"), cache)
    note(f"{again}")
    copy = run(["cp", "-r", str(child), str(work / "copy")], cache)
    shutil.rmtree(work / "copy")
    run(carving(parent, child, "--force"), cache, KILLED_AT * again.seconds)
    shutil.rmtree(child)
    run(carving(parent, child), cache)
    same = "the same" if digest(child) == whole else "OTHER"
    shutil.rmtree(parent)
    shutil.rmtree(child)
    rows = [
        ("carve, nothing cached: hashed, weighed, written, compared", first),
        ("carve, hashes and sums cached: weighed, written, compared", again),
        ("cp -r of the child", copy),
    ]
    speed = copy.seconds / again.seconds
    return [
        f"## By weights alone, {layers} layers, {size / 1e9:.1f} GB to {kept / 1e9:.1f} GB\n",
        *table(rows),
        "",
        f"{COLD if os.access(CACHES, os.W_OK) else WARM} "
        f"A run that was killed with SIGKILL after {KILLED_AT:.0%} of these seconds, started again, wrote "
        f"{same} bytes. The second row has {speed:.2f} of the speed of `cp`.\n",
    ]


def by_tokens(work: Path, layers: int) -> list[str]:
    """Half of the experts out by 16 k random tokens."""
    parent, child, cache = work / "parent", work / "child", work / "cache"
    size = sum(shard.size for shard in mixture(parent, layers).shards)
    flags = ("--text", "random", "--sequences", "32", "--length", "512")
    taken = run(carving(parent, child, *flags), cache)
    narrow = run(carving(parent, child, *flags, "--dtype", "bfloat16", "--force"), cache)
    again = run(carving(parent, child, *flags, "--criterion", "frequency", "--force"), cache)
    layer = 128 * 3 * 2048 * 768 * 2
    return [
        f"## By 16,384 random tokens, {layers} layers, {size / 1e9:.1f} GB\n",
        *table(
            [
                ("carve, REAP", taken),
                ("carve, REAP, products in bfloat16", narrow),
                ("carve again, another criterion, from the sums in the cache", again),
            ]
        ),
        "",
        f"The experts of one layer have {layer / 1e9:.2f} GB as stored, twice that in float32.\n",
    ]


def table(rows: Sequence[tuple[str, Measured]]) -> list[str]:
    """The rows of a table of jobs."""
    lines = ["| job | seconds | peak, GB | with mapped files, GB |", "|---|---:|---:|---:|"]
    return lines + [
        f"| {name} | {row.seconds:.0f} | {row.anonymous / 1e9:.2f} | {row.resident / 1e9:.2f} |"
        for name, row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--token-layers", type=int, default=2)
    arguments = parser.parse_args()
    lines = ["# Experts taken out of a large mixture\n"]
    lines += [f"Written by `python benchmarks/experts.py`. Machine: {machine()}, torch {version('torch')}."]
    lines += ["Layers have the shape of Qwen3-30B-A3B, the weights are random: nothing is said of quality.\n"]
    for job, layers in ((by_weights, arguments.layers), (by_tokens, arguments.token_layers)):
        with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
            lines += job(Path(folder), layers)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
