"""The authors' files of published benchmarks, as they publish them."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from published.sources import GEMSTONE_LOSSES, GEMSTONE_RUNS, SOURCES

OLDER = [name for name, source in SOURCES.items() if not source.pinned.parts]
"""The benchmarks whose authors' files are at hand."""


def upstream_folder(data_folder: Path) -> Path:
    """Return the folder of the authors' files; tests that need it are skipped where there is none."""
    folder = data_folder / "upstream"
    if not folder.is_dir():
        pytest.skip(f"{folder} with the authors' files is not there")
    return folder


def gemstones(decoders_folder: Path) -> dict[str, bytes]:
    """Files laid out as their authors' are, from the shared benchmark, with rows around those used."""
    runs, files = [], {}
    for entry in json.loads((decoders_folder / "gemstones.json").read_text())["architectures"]:
        name, results, sizes = entry["id"], entry["results"], entry["architecture"]
        run = {
            "run_name": f"PyGemma-{name}_pretrain",
            "params_active_precise": entry["parameters"]["total"],
            "width": sizes["hidden"],
            "depth": sizes["depth"],
        }
        for billions in (10, 50, 100, 200, 350):
            loss, tokens = results[f"train_loss_{billions}B"], billions * 10**9
            for place, value in ((tokens - 1, 9.0), (tokens, loss), (tokens + 10**9, 1.0)):
                runs.append({**run, "tokens": place, "step": place // 4_194_304, "final_loss": value})
        for corpus in ("fineweb", "fineweb_edu", "dclm"):
            losses = {"step_00047700": 9.0, "main": results[f"{corpus}_loss"]}
            files[f"{GEMSTONE_LOSSES}/{corpus}_losses/Gemstone-{name}.json"] = json.dumps(losses).encode()
    return {GEMSTONE_RUNS: "\n".join(json.dumps(run) for run in reversed(runs)).encode(), **files}
