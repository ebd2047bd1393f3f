"""What the proof of a parent costs: python benchmarks/proof.py > benchmarks/proof.md

Each check runs in a process of its own, on one thread. The whole `carve` has no text, so that the proof has
its largest share. ``ZEROLM_MODELS`` names the folder with pydec and pyenc.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import machine, note

REPEATS = 3
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "0.5 B (Qwen2.5-0.5B's shape)": (
        "qwen2",
        {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
         "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True},
    ),
    "mixture, 64 experts": (
        "qwen3_moe",
        {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "moe_intermediate_size": 384,
         "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
         "num_experts": 64, "num_experts_per_tok": 8, "tie_word_embeddings": False},
    ),
}  # fmt: skip


def job(name: str, parent: str, out: str) -> dict[str, float]:
    """Run one check in this process; its seconds, and gigabytes at the peak above the imports."""
    import torch

    from zerolm.checkpoints import Checkpoint
    from zerolm.children.parent_proof import compare_with_stock
    from zerolm.children.rotated import check_rotation
    from zerolm.cli import main

    torch.set_num_threads(1)
    before, start = kilobytes("VmRSS"), time.perf_counter()
    if name == "carve":
        kept = "--keep-experts" if "mixture" in Path(parent).name else "--keep-ffn"
        main(["carve", parent, kept, "0.5", "--out", out, "--force"])
    else:
        checkpoint = Checkpoint.open(parent)
        if name == "parent":
            compare_with_stock(checkpoint, 4 << 30, lambda *_: None)
        elif checkpoint.family.cut.hidden:
            check_rotation(checkpoint)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "gigabytes": (kilobytes("VmHWM") - before) * 1024 / 1e9}


def kilobytes(field: str) -> int:
    """Return a figure of this process's memory, as Linux has it: of now (VmRSS), or at the peak (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)))


def measured(name: str, parent: Path, out: Path) -> dict[str, float]:
    """Run a check in processes of its own; the median of each figure."""
    command = [sys.executable, __file__, name, str(parent), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    runs = []
    for _ in range(REPEATS):
        said = subprocess.run(command, capture_output=True, env=environment, check=True).stdout
        runs.append(json.loads(said.splitlines()[-1]))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def parents(work: Path) -> dict[str, Path]:
    """Return the trained models, and random ones of larger shapes in bfloat16, by name."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folders = {name: Path(os.environ["ZEROLM_MODELS"]) / name for name in ("pydec", "pyenc")}
    for name, (kind, sizes) in SHAPES.items():
        folders[name] = work / name.partition(",")[0].replace(" ", "_").partition("(")[0]
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes), dtype=torch.bfloat16)
        model.save_pretrained(folders[name])
    return folders


def size_of(folder: Path) -> float:
    """Return the gigabytes of the weights."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e9


def main() -> None:
    print("# What the proof of a parent costs\n")
    print(f"Written by `python benchmarks/proof.py`: one thread, median of {REPEATS}, gigabytes above the")
    print("imports. `carve` halves the FFN or the experts, without a text, and includes the first check.")
    print(f"Machine: {machine()}.\n")
    print("| parent | weights, GB | compared with stock software | stream reflected | `carve` as a whole |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as work:
        for name, folder in parents(Path(work)).items():
            cells = []
            for check in ("parent", "reflected", "carve"):
                note(f"{name}: {check}")
                figures = measured(check, folder, Path(work) / "child")
                cells.append("{seconds:.2f} s, {gigabytes:.2f} GB".format(**figures))
            print(f"| {name} | {size_of(folder):.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(job(*sys.argv[1:])))
    else:
        main()
