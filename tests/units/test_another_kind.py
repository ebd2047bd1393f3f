"""The kind of units that CONTRIBUTING.md adds is pruned, written, proven and rebuilt beside all others."""

import json
import subprocess
import sys
from pathlib import Path

from saved_mixtures import mixture

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
RUN = """
import json, sys
from pathlib import Path
from zerolm.families import family
from zerolm.units import within_layers
exec(sys.argv[1])
family.OUTPUT_ROLES = (*family.OUTPUT_ROLES, "shared_down")
within_layers.UNITS = (*within_layers.UNITS, SharedNeurons())
within_layers.NAMES = tuple(unit.name for unit in within_layers.UNITS)

import zerolm
from zerolm.carving.carve import carve, rebuild
from zerolm.carving.request import Destination, Methods
from zerolm.io.plain import as_plain
from zerolm.planning.size_request import SizeRequest

parent, out = sys.argv[2:4]
amount = {"text": "random", "sequences": 16, "length": 24}
methods = Methods("surgeon", repair="least-squares", plan="prices", **amount)
for form, size in json.loads(sys.argv[4]).items():
    place, again = f"{out}-{form}", f"{out}-{form}-again"
    carved = carve(parent, SizeRequest.of(**size), methods, Destination(Path(place), form))
    rebuilt = rebuild(f"{place}/recipe.json", parent, Destination(Path(again), form), text="random")
    print(json.dumps(as_plain([carved.units, carved.verified, carved.losses, rebuilt.notes])))
"""
KINDS = ["mamba", "attention", "moe", "moe", "attention", "moe"]
NAME = "neurons of the shared expert"


SIZES: dict[str, dict[str, object]] = {
    "hf": {"keep": {"shared": 0.5}},
    "gguf": {"keep": {"heads": 1.0}, "budgets": {"max_params": "0.97x"}},
}


def test_a_further_kind_of_units_needs_a_class(tmp_path: Path) -> None:
    """By a share and within a budget, in a process of its own."""
    section = PAGE.read_text("utf-8").partition("## Add a kind of unit")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    parent = mixture(
        tmp_path / "parent", "nemotron_h", use_bias=False, mlp_bias=False, layers_block_type=KINDS
    )
    arguments = [code, str(parent), str(tmp_path / "child"), json.dumps(SIZES)]
    run = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    for line in run.stdout.splitlines()[-2:]:
        units, verified, losses, notes = json.loads(line)
        assert NAME in {row["unit"] for row in units if row["after"] < row["before"]}
        assert verified["difference"] < 1e-4
        assert losses["repaired"] < losses["measured"]
        assert notes == []
