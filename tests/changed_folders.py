"""Folders of models with other configurations or tensors than they were saved with, and unsound ones."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

FILE = "model.safetensors"


def configured(folder: Path, **fields: Any) -> Path:
    """Return the folder, fields of its configuration set, or taken out where they are ``...``."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))
    return folder


def stored(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Return the folder, the tensors of its one file changed."""
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file(tensors, folder / FILE, {"format": "pt"})
    return folder


def replaced(folder: Path, tensors: dict[str, Tensor | None]) -> Path:
    def put(whole: dict[str, Any]) -> None:
        for name, part in tensors.items():
            whole.pop(name, None)
            if part is not None:
                whole[name] = part

    return stored(folder, put)


def cut_off(folder: Path) -> None:
    """Let a file of weights end too early."""
    file = min(folder.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])


def without_a_shard(folder: Path) -> None:
    """Remove one of several files of weights."""
    min(folder.glob("*.safetensors")).unlink()


def with_a_shard_outside(folder: Path) -> None:
    """Let the index name a file beside the folder."""
    index = folder / f"{FILE}.index.json"
    document = json.loads(index.read_text())
    document["weight_map"][min(document["weight_map"])] = "../outside.safetensors"
    index.write_text(json.dumps(document))


class Evil:
    """Makes the folder ``opened`` where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("opened",)


def with_a_pickle(folder: Path) -> None:
    """Put a pickle into the place of the weights."""
    (folder / FILE).unlink(missing_ok=True)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))


def flip(file: Path, at: int) -> None:
    """Change a bit of a file's byte at a place, counted from the end where it is negative."""
    with file.open("r+b") as opened:
        opened.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 1]))
