"""A mixture with fewer experts as one GGUF file, made of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zerolm.carving.export.child_tensors import Child
from zerolm.carving.export.formats import FORMATS
from zerolm.carving.export.verify import Verified
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.pruning import Repaired
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.progress import Progress
from zerolm.settings.compute import ComputeRequest

FOLDER: Final = "hf"
FILE: Final = "gguf"


def check_file(checkpoint: Checkpoint) -> None:
    """Raise ``ValueError`` for a mixture that cannot be written as a file."""
    if checkpoint.packed:
        raise ValueError(
            f"the parent is stored quantised, so that experts are copied as they are: give --format {FOLDER}"
        )
    FORMATS[FILE].check(checkpoint, Cut.whole(dimensions(checkpoint)))


def written_file(
    root: Path, folder: Path, compute: ComputeRequest, progress: Progress
) -> tuple[str, Verified]:
    """Write the mixture of one folder as a file in another; return its architecture and the proof of it.

    ``ValueError`` where llama.cpp computes other than the mixture does.
    """
    mixture = Checkpoint.open(root)
    cut = Cut.whole(dimensions(mixture))
    kind, _ = FORMATS[FILE].write(Child(mixture, cut), folder, progress)
    progress("opening the child again")
    session = Session(mixture, Methods(), progress, compute)
    return kind, FORMATS[FILE].verified(session, cut, Repaired(), folder)
