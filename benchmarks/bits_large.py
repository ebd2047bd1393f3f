"""Types alone of a large checkpoint, beside llama.cpp's quantiser: ``python benchmarks/bits_large.py``.

Writes ``bits_large.md``. Makes a llama of 5 GB in a temporary folder (below ``--folder``), for which it needs
15 GB of disk; without importances, each in a process of its own. Both write the same types.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import resource
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

import numpy as np
from processes import watched
from synthetic import DEPTH, synthetic
from timing import machine, note, one_thread, table

from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.units.kept_units import Cut, dimensions

PLACE: Final = Path(__file__).with_suffix(".md")
SHARE: Final = 0.29
"""Bytes of the parent's that the types may have: 4.6 bits a weight."""
MOSTLY_Q8_0: Final = 7


def ours(work: Path) -> dict[str, Any]:
    """Choose types and write them as ``zerolm carve --keep 1 --format gguf`` does, and check the file."""
    from zerolm.carving.carve import carve
    from zerolm.carving.request import Destination, MethodRequest, methods_of
    from zerolm.planning.size_request import SizeRequest

    phases: dict[str, float] = defaultdict(float)
    last = ["reading", time.process_time()]

    def progress(text: str, done: int = 0, of: int = 0, /) -> None:
        now = time.process_time()
        phases[str(last[0])] += now - float(last[1])
        last[:] = [text, now]

    kept = dict.fromkeys(("ffn", "heads", "layers", "hidden"), 1.0)
    size = SizeRequest.of(kept, {"max_weight_bytes": f"{SHARE}x"})
    place = Destination(work / "ours", "gguf")
    carved = carve(
        work / "parent", size, methods_of(size, MethodRequest("capacity")), place, progress=progress
    )
    progress("")
    return {"phases": dict(phases), "bytes": carved.costs["child"]["weight_bytes"]}


def theirs(work: Path) -> dict[str, Any]:
    """Quantise the whole model to the same types by llama.cpp."""
    from llama_cpp import llama_cpp as lib

    header = read_gguf_header(next((work / "ours").glob("*.gguf")))
    kinds = {name: header.types[name] for name, shape in header.tensors.items() if len(shape) == 2}
    rows = (lib.llama_model_tensor_override * (len(kinds) + 1))()
    patterns = [f"^{re.escape(name)}$".encode() for name in kinds]
    for row, pattern, kind in zip(rows, patterns, kinds.values(), strict=False):
        row.pattern, row.type = pattern, kind
    settings = lib.llama_model_quantize_default_params()
    settings.nthread, settings.ftype, settings.pure = 1, MOSTLY_Q8_0, True
    settings.token_embedding_type = kinds["token_embd.weight"]
    settings.output_tensor_type = kinds["output.weight"]
    settings.tt_overrides = rows
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

    with tempfile.TemporaryDirectory(dir=wish.folder) as scratch:
        work = Path(scratch)
        checkpoint = synthetic(work / "parent", wish.layers)
        note("the whole parent as one file")
        write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), work / "plain.gguf")
        ran = {job: measured(job, work) for job in JOBS}
        same = differing(next((work / "ours").glob("*.gguf")), work / "theirs.gguf")
        stored = sum(info.end - info.start for info in checkpoint.tensors.values())
    text = StringIO()
    with redirect_stdout(text):
        page(ran, same, stored)
    content = text.getvalue().strip() + "\n"
    print(content) if wish.layers < DEPTH else PLACE.write_text(content, encoding="utf-8")


def measured(job: str, work: Path) -> dict[str, Any]:
    """Run a job in a process of its own: its result, ``memory`` at its peak, and ``clock`` on the wall."""
    note(job)
    begin = time.monotonic()
    answer, most = watched(job, [sys.executable, __file__, "--job", job, str(work)])
    return {**json.loads(answer.splitlines()[-1]), "memory": most, "clock": time.monotonic() - begin}


def differing(first: Path, other: Path) -> tuple[int, list[str]]:
    """Return how many tensors two files have, and which of them are not the same bytes."""
    one, two = (read_gguf_header(file) for file in (first, other))
    assert one.tensors == two.tensors
    ours, theirs = (np.memmap(file, np.uint8, "r") for file in (first, other))
    names = [
        name
        for name in one.tensors
        if one.types[name] != two.types[name]
        or not np.array_equal(ours[slice(*one.places[name])], theirs[slice(*two.places[name])])
    ]
    return len(one.tensors), names


def page(ran: dict[str, dict[str, Any]], same: tuple[int, list[str]], stored: int) -> None:
    """Print the page."""
    mine = ran["ours"]
    print("# Types of weights of a large checkpoint\n")
    print(
        f"Written by `python benchmarks/bits_large.py`. Machine: {machine()}, llama-cpp-python "
        f"{version('llama-cpp-python')}; one thread.\n"
    )
    print(
        f"A llama of {stored / 1e9:.2f} GB in bfloat16 gets types alone, without a text, within "
        f"{mine['bytes'] / 1e9:.2f} GB: planned, written, opened again and compared. Beside it llama.cpp's "
        "quantiser writes the same types. Seconds are of the processor, memory is at the peak beside mapped "
        "files.\n"
    )
    head = ("", "seconds", "seconds by the clock", "memory")
    rows = [
        (job, each["seconds"], each["clock"], f"{each['memory'] / 1e6:,.0f} MB") for job, each in ran.items()
    ]
    titles = {"ours": "`zerolm carve`", "theirs": "`llama_model_quantize`"}
    table(head, [(titles[job], *rest) for job, *rest in rows])
    print("What `zerolm carve` does in its seconds:\n")
    table(("", "seconds"), sorted(mine["phases"].items(), key=lambda item: -item[1]))
    count, others = same
    print(f"Of {count} tensors {count - len(others)} are the same bytes in both files.")


if __name__ == "__main__":
    main()
