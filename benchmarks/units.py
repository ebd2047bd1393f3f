"""All units within a budget, and each kind alone: ``python benchmarks/units.py``.

Writes ``units.md``. ``ZEROLM_MODELS`` names a folder with ``pydec``; ``--moe FOLDER`` a mixture that
``train_models.py OUT --only moe --minutes 60`` trained. Rows that were measured are kept in ``units/``, so
that a run that was stopped goes on. Texts are Python and English documents, others to judge by.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from corpus import sources
from real_bytes import bits, weight_bytes
from small_text import divided
from timing import machine, note, one_thread, table

import zerolm
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.units.kept_units import Cut, dimensions

PLACE: Final = Path(__file__).with_suffix(".md")
STORED: Final = Path(__file__).with_suffix("")
SHARES: Final = (0.25, 0.15, 0.08)
"""Bytes of the file, of those of the parent as it is stored."""
TEXT: Final = 2_000_000
"""Characters of each text that is calibrated on, or judged by."""
ALL: Final = ("--keep-layers", "1", "--keep-heads", "1", "--keep-ffn", "1", "--keep-hidden", "1")
TOKENS, EXPERTS, TYPES = ("--keep-vocab", "all"), ("--keep-experts", "all"), ("--types", "stored")
WAYS: Final[dict[str, tuple[str, ...]]] = {
    "all together": (),
    "types": ("--keep", "1"),
    "tokens and types": (*ALL, *EXPERTS),
    "cuts and types": (*TOKENS, *EXPERTS),
    "experts and types": (*ALL, *TOKENS),
    "cuts": (*TOKENS, *EXPERTS, *TYPES),
    "tokens": (*ALL, *EXPERTS, *TYPES),
    "experts": (*ALL, *TOKENS, *TYPES),
}
"""The units that may leave, and the flags that keep the others."""
OF_EXPERTS: Final = ("experts and types", "experts")
OF_PARAMS: Final = ("all together", "cuts", "tokens", "experts")
"""What may leave of the mixture, for which llama.cpp has no architecture."""
PARAMS: Final = (0.8, 0.6, 0.4)
SMALLEST: Final = "none"


@dataclass(frozen=True)
class Row:
    """A file: ``bytes`` of its weights, its tokens, ``bits`` a byte of unseen text, and processor seconds."""

    bytes: int
    tokens: int
    bits: float
    seconds: float


def texts(folder: Path) -> tuple[Path, Path]:
    """Write the text that is calibrated on, and the one that is judged by; half Python, half English."""
    files = []
    for name, sides in zip(("seen", "unseen"), divided(), strict=True):
        parts = ["\n".join(sources(file for _, file in side))[: TEXT // 2] for side in sides]
        files.append(folder / f"{name}.txt")
        files[-1].write_text("\n".join(parts), "utf-8")
    return files[0], files[1]


def measured(parent: Path, way: str, most: int, seen: Path, unseen: Path) -> Row | str:
    """Carve a child within bytes, and judge it; the refusal where there is none."""
    with TemporaryDirectory() as folder:
        out, before = Path(folder) / "child", os.times()
        size = ("--format", "gguf", "--max-weight-bytes", str(most), "--sequences", "64")
        flags = (*size, *WAYS[way], "--text", str(seen), "--out", str(out), "-q")
        command = [sys.executable, "-m", "zerolm", "carve", str(parent), *flags]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        after = os.times()
        if ran.returncode:
            return ran.stderr.strip().splitlines()[-1]
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        file = next(out.glob("*.gguf"))
        tokens = int(read_gguf_header(file).tensors["token_embd.weight"][-1])
        return Row(weight_bytes(file), tokens, bits(file, unseen), seconds)


@dataclass(frozen=True)
class Judged:
    """A folder: its parameters, and KL to the parent on unseen text, over the tokens that both have."""

    params: int
    kl: float
    seconds: float
    note: str


def within_params(parent: Path, way: str, share: float, seen: Path, unseen: Path) -> Judged | str:
    """Carve a child within a share of the parameters, and judge it; the refusal where there is none."""
    with TemporaryDirectory() as folder:
        out, before = Path(folder) / "child", time.process_time()
        flags = [flag for flag in WAYS[way] if flag not in TYPES]
        values = dict(zip(flags[::2], flags[1::2], strict=True))
        named = {name.removeprefix("--").replace("-", "_"): value for name, value in values.items()}
        keep = {name: float(value) if value == "1" else value for name, value in named.items()}
        try:
            child = zerolm.carve(parent, out, max_params=f"{share}x", sequences=64, text=seen, **keep)
        except ValueError as error:
            return str(error)
        seconds = time.process_time() - before
        ours = zerolm.eval(out, parent=parent, text=unseen).rows()[0]
        return Judged(child.costs["child"]["params"], ours["kl"], seconds, "; ".join(child.notes))


def whole(parent: Path, unseen: Path) -> Row:
    """Judge the parent as it is stored."""
    checkpoint = Checkpoint.open(parent)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "whole.gguf"
        write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), file)
        return Row(weight_bytes(file), checkpoint.layout.vocab, bits(file, unseen), 0.0)


def stored(model: str) -> dict[str, Row | str]:
    file = STORED / f"{model}.json"
    rows = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return {name: row if isinstance(row, str) else Row(**row) for name, row in rows.items()}


def keep(model: str, rows: dict[str, Row | str]) -> None:
    plain = {name: row if isinstance(row, str) else asdict(row) for name, row in rows.items()}
    (STORED / f"{model}.json").write_text(json.dumps(plain, indent=1) + "\n", "utf-8")


def measure(model: str, parent: Path, seen: Path, unseen: Path) -> None:
    """Measure what is not stored of a model."""
    rows = stored(model)
    if "whole" not in rows:
        rows["whole"] = whole(parent, unseen)
        keep(model, rows)
    whole_row = rows["whole"]
    assert isinstance(whole_row, Row)
    has_experts = Checkpoint.open(parent).family.has_experts
    for share in SHARES:
        for way in WAYS:
            name = f"{share} {way}"
            if name in rows or (way in OF_EXPERTS and not has_experts):
                continue
            note(f"{model} {name}")
            rows[name] = measured(parent, way, int(share * whole_row.bytes), seen, unseen)
            keep(model, rows)


def measure_mixture(parent: Path, seen: Path, unseen: Path) -> None:
    """Measure what is not stored of the mixture."""
    file = STORED / "mixture.json"
    rows = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for share in PARAMS:
        for way in OF_PARAMS:
            name = f"{share} {way}"
            if name in rows:
                continue
            note(f"mixture {name}")
            row = within_params(parent, way, share, seen, unseen)
            rows[name] = row if isinstance(row, str) else asdict(row)
            file.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def mixture_page() -> None:
    """Print what is stored of the mixture."""
    file = STORED / "mixture.json"
    if not file.exists():
        return
    rows = json.loads(file.read_text("utf-8"))
    print("## A mixture of 16 experts, within parameters\n")
    print(
        "As a folder; KL in nats a token to the parent on the same documents, over the tokens that both "
        "have. Experts are weighed with the neurons of each.\n"
    )
    cells = []
    for way in OF_PARAMS:
        each = [rows.get(f"{share} {way}", "") for share in PARAMS]
        took = [row["seconds"] for row in each if isinstance(row, dict)]
        losses = [f"{row['kl']:.4f}" if isinstance(row, dict) else SMALLEST * bool(row) for row in each]
        cells.append((way, *losses, f"{max(took):,.0f} s" if took else ""))
    head = ("what may leave", *(f"{share:.0%} of the parameters" for share in PARAMS), "processor, at most")
    table(head, cells)


def page() -> None:
    """Print the page of what is stored."""
    print("# All units within bytes, and each kind alone\n")
    print(f"Written by `python benchmarks/units.py`. Machine: {machine()}; one thread.\n")
    print(
        "GGUF files within shares of the bytes of the parent as it is stored, and folders. Bits a byte are "
        "of Python and English documents that nothing was trained or calibrated on, by llama.cpp. All ways "
        "read the same 16,384 tokens and are repaired where least squares can. What a row does not name "
        "stays whole; 'none' is where no such child is so small.\n"
    )  # fmt: skip
    for file in (STORED / "pydec.json",):
        rows = stored(file.stem)
        whole_row = rows["whole"]
        assert isinstance(whole_row, Row)
        print(f"## {file.stem}: {whole_row.bytes / 1e6:,.2f} MB, {whole_row.bits:.4f} bits a byte\n")
        cells = []
        for way in WAYS:
            if not any(f"{share} {way}" in rows for share in SHARES):
                continue
            each = [rows.get(f"{share} {way}") for share in SHARES]
            took = [row.seconds for row in each if isinstance(row, Row)]
            losses = [
                f"{row.bits / whole_row.bits - 1:+.2%}" if isinstance(row, Row) else SMALLEST * bool(row)
                for row in each
            ]
            cells.append((way, *losses, f"{max(took):,.0f} s" if took else ""))
        head = ("what may leave", *(f"{share:.0%} of the bytes" for share in SHARES), "processor, at most")
        table(head, cells)
    mixture_page()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--moe", type=Path, help="the folder of a trained mixture")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    wish = parser.parse_args()
    one_thread()
    STORED.mkdir(exist_ok=True)
    if not wish.page:
        begin = time.monotonic()
        with TemporaryDirectory() as folder:
            seen, unseen = texts(Path(folder))
            measure("pydec", Path(os.environ["ZEROLM_MODELS"].split(":")[0]) / "pydec", seen, unseen)
            if wish.moe is not None:
                measure_mixture(wish.moe, seen, unseen)
        note(f"measured in {time.monotonic() - begin:,.0f} s")
    text = StringIO()
    with redirect_stdout(text):
        page()
    PLACE.write_text(text.getvalue().strip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
