"""Types alone of a large checkpoint, beside llama.cpp's quantiser: ``python benchmarks/bits_large.py``.

Writes ``bits_large.md``. Makes a llama of 5 GB in a temporary folder (below ``--folder``), for which it needs
15 GB of disk; without importances, each in a process of its own. Both write the same types.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any, Final

from processes import PAUSE, anonymous_memory
from synthetic import DEPTH, synthetic
from timing import machine, note, one_thread, table

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.header import read_gguf_header

PLACE: Final = Path(__file__).with_suffix(".md")
SHARE: Final = 0.29
"""Bytes of the parent's that the types may have: 4.6 bits a weight."""
MOSTLY_F16: Final = 1


def ours(work: Path) -> dict[str, Any]:
    """Choose types and write them as ``zerolm carve --keep 1 --format gguf`` does, and check the file."""
    from zerolm.carving.carve import carve
    from zerolm.carving.request import Destination, SizeRequest, methods_of
    from zerolm.carving.request import MethodRequest

    phases: dict[str, float] = defaultdict(float)
    last = ["reading", time.process_time()]

    def progress(text: str, done: int = 0, of: int = 0, /) -> None:
        now = time.process_time()
        phases[str(last[0])] += now - float(last[1])
        last[:] = [text, now]

    kept = dict.fromkeys(("ffn", "heads", "layers", "hidden"), 1.0)
    size = SizeRequest.of(kept, {"max_weight_bytes": f"{SHARE}x"})
    place = Destination(work / "ours", "gguf")
    carved = carve(work / "parent", size, methods_of(size, MethodRequest()), place, progress=progress)
    progress("")
    return {"phases": dict(phases), "bytes": carved.costs["child"]["weight_bytes"]}


def theirs(work: Path) -> dict[str, Any]:
    """Quantise the whole model to the same types by llama.cpp."""
    from llama_cpp import llama_cpp as lib

    header = read_gguf_header(next((work / "ours").glob("*.gguf")))
    settings = lib.llama_model_quantize_default_params()
    rows = (lib.llama_model_tensor_override * (len(header.tensors) + 1))() if False else None
    assert rows is None
    kinds = {name: header.types[name] for name, shape in header.tensors.items() if len(shape) == 2}
    overrides = overridden(kinds)
    settings.nthread, settings.ftype, settings.pure = 1, MOSTLY_F16, True
    settings.token_embedding_type = kinds["token_embd.weight"]
    settings.output_tensor_type = kinds["output.weight"]
    settings.tt_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    names = (str(work / name).encode() for name in ("plain.gguf", "theirs.gguf"))
    assert lib.llama_model_quantize(*names, ctypes.byref(settings)) == 0
    return {}


JOBS: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {"ours": ours, "theirs": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--layers", type=int, default=DEPTH, help="layers of the checkpoint")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    wish = parser.parse_args()
    one_thread()
    if wish.job:
        result = JOBS[wish.job[0]](Path(wish.job[1]))
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({**result, "seconds": used.ru_utime + used.ru_stime}))
        return
