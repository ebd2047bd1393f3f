"""Passes over the text of ``carve --max-params .8x``, of the package of today and of an earlier one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from joint_models import Model
from safetensors.torch import load_file, save_file
from timing import note

HOOKS: Final = Path(__file__).with_name("joint_hooks.py")
TODAY: Final = Path(__file__).parents[1]
SEQUENCES: Final = 32
LENGTH: Final = 256
REPEATS: Final = 2


def counted(model: Model, before: Path | None) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield runs of a decoder, and of the same with each layer twice, by the name of model and package."""
    packages = {"before": before, "today": TODAY}
    for folder in (model.parent, deeper(model)):
        for number in range(REPEATS):
            for name, package in packages.items():
                if package is not None:
                    run = partial(_run, folder, model.texts[0], package, model.work / "passes")
                    yield f"{folder.name} {name} {number + 1}", run


def _run(folder: Path, text: Path, package: Path, work: Path) -> dict[str, Any]:
    """Return tokens that ran through layers as shares of a pass, processor seconds, and peak memory."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    command = [
        *(sys.executable, str(HOOKS), str(work / "counts.json"), "carve", str(folder)),
        *("--max-params", "0.8x", "--text", str(text), "--sequences", str(SEQUENCES)),
        *("--length", str(LENGTH), "--out", str(work / "child"), "--json"),
    ]
    note(f"PYTHONPATH={package} {' '.join(command[1:])}")
    environment = os.environ | {"PYTHONPATH": str(package), "ZEROLM_CACHE": str(work / "cache")}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    counts = json.loads((work / "counts.json").read_text("utf-8"))
    depth = json.loads((folder / "config.json").read_text("utf-8"))["num_hidden_layers"]
    whole = depth * SEQUENCES * LENGTH
    result = {"seconds": round(counts["seconds"], 1), "gb": round(counts["gb"], 2), "depth": depth}
    for way in ("forward", "backward"):
        ran = [counts[f"{way} {part}"] for part in ("Attention", "MLP")]
        result[way] = round(sum(ran) / 2 / whole, 2)
    document = json.loads(done.stdout)
    return {**result, "losses": document["losses"], "params": document["costs"]["child"]["params"]}


def deeper(model: Model) -> Path:
    """Return a copy of a llama with each layer twice: as deep as a real one, and of no use."""
    place = model.work / "parents" / f"{model.name}-twice"
    if not place.exists():
        making = place.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(model.parent, making)
        (file,) = making.glob("*.safetensors")
        tensors = {}
        for name, tensor in load_file(file).items():
            head, middle, rest = name.partition(".layers.")
            if not middle:
                tensors[name] = tensor
                continue
            layer, _, end = rest.partition(".")
            for copy in range(2):
                tensors[f"{head}{middle}{2 * int(layer) + copy}.{end}"] = tensor.clone()
        file.unlink()
        save_file(tensors, file, {"format": "pt"})
        config = json.loads((making / "config.json").read_text("utf-8"))
        config["num_hidden_layers"] *= 2
        (making / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
        making.rename(place)
    return place
