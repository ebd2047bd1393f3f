"""A run that goes well writes nothing to stderr: no library's warning reaches a user."""

import os
import subprocess
import sys
from pathlib import Path

from carvings import carve
from label_training import ASKED, some_text
from small_supernets import SIZES
from tiny import saved, word_tokenizer

RUNS = """
import sys, zerolm
folder, sizes, asked = sys.argv[1], eval(sys.argv[2]), eval(sys.argv[3])
text, run = folder + "/text.txt", {"tokens": 256, "batch": 4, "length": 16}
for more in ({"checkpointing": True}, {"lora": 2}):
    healed = folder + "/healed-" + "-".join(more)
    zerolm.heal(folder + "/child", healed, parent=folder + "/parent", text=text, **run, **more)
zerolm.lab.elastic.train("elastic", folder + "/net", text=text, words=300, epochs=2, **run, **sizes)
zerolm.bench.train("llama", text=text, **{**asked, "count": 2})
passes = {"batch": 2, "length": 8, "micro_batches": 1, "store": folder + "/store"}
zerolm.lab.proxies(folder + "/parent", text=text, **passes)
"""


def test_no_library_warns_a_user(tmp_path: Path) -> None:
    word_tokenizer(saved(tmp_path / "parent", "llama"))
    carve(tmp_path / "parent", tmp_path / "child", keep_ffn=0.5)
    some_text(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", RUNS, str(tmp_path), repr(SIZES), repr(ASKED)],
        env={**os.environ, "ZEROLM_CACHE": str(tmp_path / "cache")}, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
