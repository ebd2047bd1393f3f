"""Real models as GGUF files within bytes, and llama.cpp's own types: ``python benchmarks/real_bytes.py``.

Writes ``real_bytes.md``. ``ZEROLM_REAL`` names a folder with ``gemma270``, ``qwen05`` and ``texts``. Each
step is stored when it is done, so that a script that was stopped goes on; ``--only`` runs the steps whose
names begin with a text. Children are kept below ``--folder``.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from timing import machine, note, one_thread, table

from zerolm.architecture import Floats
from zerolm.carving.vocabulary.byte_losses import stretches_of
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.same_tokens import opened_by_llama_cpp
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.units.kept_units import Cut, dimensions

PLACE: Final = Path(__file__).with_suffix(".md")
STORED: Final = Path(__file__).with_suffix("")
BYTES: Final = {"gemma270": 120_000_000, "qwen05": 250_000_000}
TYPES: Final = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_S": 14,
    "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30,
}  # fmt: skip
"""llama.cpp's mixes of types, by their numbers."""
TRIED: Final = 3
"""So many of the largest mixes within the bytes are judged, and the best is shown."""
LENGTH: Final = 256
STRETCHES: Final = 32
"""Texts of about 1,000 characters that children are judged by."""


@dataclass(frozen=True)
class Row:
    """A file: its ``bytes`` of weights, its tokens, and ``bits`` of each stretch of unseen text."""

    name: str
    bytes: int
    tokens: int
    bits: list[float]


@dataclass(frozen=True)
class Bench:
    """A model at its bytes: where it lies, its texts, and where children are written."""

    model: str
    real: Path
    work: Path

    @property
    def parent(self) -> Path:
        return self.real / self.model

    @property
    def seen(self) -> Path:
        return self.real / "texts" / "en_cal.txt"

    @cached_property
    def stretches(self) -> list[str]:
        return stretches_of(str(self.real / "texts" / "en_unseen.txt"), STRETCHES, 4 * LENGTH)

    @property
    def sizes(self) -> list[int]:
        """The bytes of all stretches."""
        return [len(stretch.encode()) for stretch in self.stretches]

    @property
    def identity(self) -> str:
        """What tells the stretches from others: other releases of manuals make other texts."""
        return hashlib.sha256("\0".join(self.stretches).encode()).hexdigest()[:16]

    @property
    def few(self) -> Path:
        return self.work / f"{self.model}-few"

    def carved(self, parent: Path, out: str, *flags: str) -> Path:
        """Carve a child, unless it is there; its GGUF file where it is one."""
        place = self.work / f"{self.model}-{out}"
        if not place.exists():
            text = ("--text", str(self.seen), "--out", str(place))
            command = [sys.executable, "-m", "zerolm", "carve", str(parent), *flags, *text]
            note(" ".join(command))
            subprocess.run(command, check=True)
        return place

    def plain(self, parent: Path, name: str) -> Path:
        """Write a checkpoint as one file in the types that it is stored in."""
        file = self.work / f"{self.model}-{name}.gguf"
        if not file.exists():
            checkpoint = Checkpoint.open(parent)
            write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), file)
        return file

    def row(self, name: str, file: Path) -> Row:
        """Judge a file."""
        note(f"judging {file.name}")
        tokens = int(read_gguf_header(file).tensors["token_embd.weight"][-1])
        return Row(name, weight_bytes(file), tokens, bits(file, self.stretches))

    def ours(self, parent: Path, name: str, *flags: str) -> list[Row]:
        """Types, and other units where flags leave them free, within the bytes."""
        size = ("--format", "gguf", "--max-weight-bytes", str(BYTES[self.model]), "--sequences", "64")
        folder = self.carved(parent, name, *size, *flags)
        return [self.row("zerolm: " + name, next(folder.glob("*.gguf")))]

    def theirs(self, plain: Path, name: str) -> list[Row]:
        """llama.cpp's mixes of types: the largest within the bytes, or the smallest where none is."""
        files = {kind: quantised(plain, kind) for kind in TYPES}
        sizes = {kind: weight_bytes(file) for kind, file in files.items()}
        within = [kind for kind in TYPES if sizes[kind] <= BYTES[self.model]]
        largest = sorted(within, key=lambda kind: -sizes[kind])[:TRIED]
        judged = largest or [min(sizes, key=sizes.__getitem__)]
        rows = [self.row(f"llama.cpp: {kind}, {name}", files[kind]) for kind in judged]
        for file in files.values():
            file.unlink()
        return rows

    def steps(self) -> dict[str, Callable[[], list[Row]]]:
        """Return what is measured, by name."""
        few, every = "fewer tokens", "all tokens"

        def with_few() -> Path:
            return self.carved(self.parent, "few", "--keep-vocab", "used")

        return {
            "parent": lambda: [self.row("parent, as stored", self.plain(self.parent, "plain"))],
            "few": lambda: [self.row("fewer tokens, as stored", self.plain(with_few(), "few-plain"))],
            "few-ours": lambda: self.ours(with_few(), f"types, {few}", "--keep", "1", "--repair", "none"),
            "few-theirs": lambda: self.theirs(self.plain(with_few(), "few-plain"), few),
            "all-theirs": lambda: self.theirs(self.plain(self.parent, "plain"), every),
            "ours": lambda: self.ours(self.parent, "tokens, types and cuts together"),
            "all-ours": lambda: self.ours(self.parent, f"types and cuts, {every}", "--keep-vocab", "all"),
        }


def quantised(plain: Path, kind: str) -> Path:
    """Write a file with a mix of types by llama.cpp, without importances."""
    from llama_cpp import llama_cpp as lib

    file = plain.with_name(f"{plain.stem}-{kind}.gguf")
    settings = lib.llama_model_quantize_default_params()
    settings.nthread, settings.ftype = 1, TYPES[kind]
    note(f"quantising to {kind}")
    assert lib.llama_model_quantize(str(plain).encode(), str(file).encode(), ctypes.byref(settings)) == 0
    return file


def weight_bytes(file: Path) -> int:
    """Return the bytes of all tensors of a file."""
    return sum(end - start for start, end in read_gguf_header(file).places.values())


def bits(file: Path, stretches: Sequence[str]) -> list[float]:
    """Return the bits of stretches of a text, by llama.cpp, each token with what precedes it."""
    settings: dict[str, Any] = {"n_threads": 1, "n_threads_batch": 1, "logits_all": True}
    model = opened_by_llama_cpp(file, n_ctx=LENGTH + 1, n_batch=LENGTH + 1, **settings)
    of_stretches = []
    start = model.token_bos() if model.token_bos() >= 0 else model.token_eos()
    for stretch in stretches:
        ids, nats = model.tokenize(stretch.encode(), add_bos=False, special=False), 0.0
        for first in range(0, len(ids), LENGTH):
            part = [ids[first - 1] if first else start, *ids[first : first + LENGTH]]
            model.reset()
            model.eval(part)
            logits = model.scores[: len(part) - 1]
            top = logits.max(1, keepdims=True)
            total = np.log(np.exp(logits - top).sum(1, dtype=np.float64)) + top[:, 0]
            nats += float((total - logits[np.arange(len(part) - 1), part[1:]]).sum())
        of_stretches.append(nats / math.log(2))
    model.close()
    return of_stretches


def place(name: str) -> Path:
    return STORED / f"{name}.json"


def stored(name: str) -> Any:
    """Return what a step measured; None where it was not measured."""
    file = place(name)
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def page(models: Iterable[str]) -> None:
    """Print the page of what is stored."""
    print("# Real models within bytes, as GGUF\n")
    print(f"Written by `python benchmarks/real_bytes.py`. Machine: {machine()}; one thread.\n")
    print(
        "Bits a byte are of English manuals that nothing was calibrated on, by llama.cpp: "
        f"{STRETCHES} stretches of about {4 * LENGTH:,} characters. Types and tokens are chosen on 16,384 "
        "tokens of other manuals. llama.cpp's mixes have no importance matrix; of those within the bytes the "
        f"{TRIED} largest are judged. A row that exceeds the bytes is the smallest that there is. `±` is the "
        "standard error of a difference over the stretches.\n"
    )
    for model in models:
        done = [step for name in Bench(model, Path(), Path()).steps() if (step := stored(f"{model}-{name}"))]
        rows = [Row(**row) for each in done for row in each["rows"] if each["text"] == done[0]["text"]]
        if not rows:
            continue
        print(f"## {model} within {BYTES[model] / 1e6:,.0f} MB\n")
        sizes = np.array(done[0]["sizes"])
        head = ("", "MB of weights", "tokens", "bits a byte", "beside the parent")
        cells = [
            (row.name, f"{row.bytes / 1e6:,.1f}{' (exceeds)' * (row.bytes > BYTES[model])}",
             f"{row.tokens:,}", f"{sum(row.bits) / sizes.sum():.3f}", compared(row, rows[0], sizes))
            for row in rows
        ]  # fmt: skip
        table(head, cells)


def compared(row: Row, parent: Row, sizes: Floats) -> str:
    """Return how many more bits a row takes than its parent, with the standard error of that share."""
    if row is parent:
        return ""
    share = sum(row.bits) / sum(parent.bits) - 1.0
    apart = np.array(row.bits) - (1.0 + share) * np.array(parent.bits)
    error = apart.std(ddof=1) * math.sqrt(len(sizes)) / sum(parent.bits)
    return f"{share:+.1%} ± {error:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--folder", type=Path, default=Path("real_bytes_work"), help="where children are kept"
    )
    parser.add_argument("--only", default="", help="run the steps alone whose names begin so")
    wish = parser.parse_args()
    one_thread()
    wish.folder.mkdir(parents=True, exist_ok=True)
    STORED.mkdir(exist_ok=True)
    for model in BYTES:
        bench = Bench(model, Path(os.environ["ZEROLM_REAL"]), wish.folder)
        for step, run in bench.steps().items():
            name, text = f"{model}-{step}", bench.identity
            if not name.startswith(wish.only) or ((earlier := stored(name)) and earlier["text"] == text):
                continue
            note(name)
            rows = [asdict(row) for row in run()]
            result = {"text": text, "sizes": bench.sizes, "rows": rows}
            place(name).write_text(json.dumps(result) + "\n", "utf-8")
    out = StringIO()
    with redirect_stdout(out):
        page(BYTES)
    PLACE.write_text(out.getvalue().strip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
