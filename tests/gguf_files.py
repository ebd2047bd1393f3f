"""GGUF files of tiny models: written, quantised, carved, read back and run by llama.cpp."""

import ctypes
import json
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from carvings import carve

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.parts import stem_of
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.write import write
from zerolm.units.kept_units import Cut, dimensions

TYPES = {
    "Q8_0": 7, "Q4_0": 2, "MXFP4": 38, "Q2_K": 10, "Q3_K": 12, "Q4_K": 15, "Q5_K": 17, "Q6_K": 18,
    "IQ4_XS": 30,
}  # fmt: skip
"""The numbers that llama.cpp's quantiser has for types of whole files."""


def written(folder: Path, file: Path) -> Path:
    """Return the file, with the whole model in the folder."""
    checkpoint = Checkpoint.open(folder)
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), file)
    return file


def quantised(source: Path, kind: str, target: Path) -> Path:
    lib = llama_cpp.llama_cpp
    settings = lib.llama_model_quantize_default_params()
    settings.nthread, settings.ftype = 1, TYPES[kind]
    settings.pure = kind != "MXFP4"  # else what has eight experts gets other types
    assert lib.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(settings)) == 0
    return target


def fewer_of(file: Path, target: Path, **flags: Any) -> tuple[Path, dict[int, list[int]]]:
    """Return the child of a file, and the experts that stay by layer."""
    flags = {"keep_experts": "0.5", "criterion": "random", "seed": 3} | flags
    carved = carve(file, target, form="gguf", **flags)
    assert carved.notes == []
    assert carved.verified is not None
    recipe = json.loads((target / "recipe.json").read_text())
    return target / f"{stem_of(file)}-carved.gguf", {row["layer"]: row["kept"] for row in recipe["experts"]}


def read(file: Path) -> dict[str, Any]:
    return {one.name: (one.tensor_type, np.array(one.data)) for one in gguf.GGUFReader(file).tensors}


def logits(file: Path, ids: list[int]) -> np.ndarray[Any, Any]:
    """Return the logits that llama.cpp sends, one token at a time."""
    opened = llama_cpp.Llama(str(file), n_ctx=32, n_batch=32, logits_all=True, verbose=False, n_threads=1)
    for token in ids:
        opened.eval([token])
    scores = np.array(opened.scores[: len(ids)])
    opened.close()
    return scores
