"""Carved models, table by table: ``python benchmarks/carving.py --model pydec --model pyenc``.

Writes ``carving.md``. The models are folders that ``benchmarks/train_models.py`` makes; they are calibrated
on the modules of the standard library that they have seen and judged on those that they have not.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from carved.coherence import coherence
from carved.parent import LENGTH, Parent, Scale, Texts
from carved.plans import plans
from carved.uniform import uniform
from corpus import seen_files, seen_text, summaries, unseen_files, unseen_text
from parts import Parts
from timing import machine, note

from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import is_decoder

PLACE: Final = Path(__file__).with_suffix(".md")
QUICK: Final = Scale(calibration=16, judged=4, sentences=64, seeds=1, plans=4)


def document(folders: list[Path], scale: Scale, scratch: Path) -> Iterator[str]:
    """The lines of the file."""
    yield "# Carved models"
    yield ""
    yield (
        f"Written by `python benchmarks/carving.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}."
    )
    yield ""
    yield (
        f"Calibrated on {scale.calibration} sequences of {LENGTH} tokens from modules of the standard "
        "library that the models have seen (decoders), or as many first sentences of their docstrings "
        "(encoders). Judged on modules that they have not seen: perplexity a token and KL to the parent in "
        f"nats a token, over at most {scale.judged} sequences of {LENGTH} tokens, or the mean cosine of the "
        "embeddings of first sentences to the parent's. *asked*: what this project set out to reach with "
        f"its own two models. Chance, `random`, is the mean of {scale.seeds} seeds, of two "
        "where it is repaired."
    )
    for folder in folders:
        yield ""
        yield from tables(folder, scale, scratch)


def tables(folder: Path, scale: Scale, scratch: Path) -> Iterator[str]:
    """Those of one model."""
    start = time.perf_counter()
    parent = Parent(folder, texts(folder, scratch), scale, Parts(scratch / "parts.jsonl"))
    kind, size = parent.checkpoint.family.name, parent.cost("params")
    yield f"## {folder.resolve().name}: a {kind} of {size:,} parameters"
    yield ""
    yield from uniform(parent)
    yield ""
    yield from coherence(parent)
    if parent.decoder:
        yield ""
        yield from plans(parent)
    yield ""
    yield f"All of it took {(time.perf_counter() - start) / 60:.1f} minutes."


def texts(folder: Path, scratch: Path) -> Texts:
    """What a model of this kind reads: running source, or a docstring's first sentence a line."""
    decoder = is_decoder(Checkpoint.open(folder))
    found = Texts(scratch / f"seen-{decoder}", scratch / f"unseen-{decoder}")
    for file, files, running in (
        (found.seen, seen_files, seen_text),
        (found.unseen, unseen_files, unseen_text),
    ):
        if not file.exists():
            file.write_text(running() if decoder else "\n".join(summaries(files())), encoding="utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--model", type=Path, action="append", required=True, help="a folder; may be given again"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few sequences, printed and not written: a trial"
    )
    parser.add_argument("--work", type=Path, help="folder of what is tried: a run that was killed goes on")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = asked.work or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        os.environ["ZEROLM_CACHE"] = str(scratch / "cache")  # nothing is known from a run with another folder
        lines = document(asked.model, QUICK if asked.quick else Scale(), scratch)
        text = "\n".join(lines).rstrip() + "\n"
    if asked.quick:
        print(text)
        return
    unfinished = PLACE.with_suffix(".md.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(PLACE)
    note(f"wrote {PLACE}")


if __name__ == "__main__":
    main()
