"""The child on disk: its weights in a format, configuration, tokenizer, card and recipe."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zerolm.carving.formats import FORMATS
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.folder import read_object
from zerolm.children.card import SENTENCES, card
from zerolm.children.child_tensors import Child
from zerolm.children.folder import REMOTE, without_code
from zerolm.io.files import sha256_of, write_json
from zerolm.progress import Progress, silent

if TYPE_CHECKING:
    from zerolm.children.gguf.file_tensors import Typed

LICENCE_FILES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "USE_POLICY")


def write(
    child: Child,
    recipe: Mapping[str, Any],
    folder: Path,
    more: Sequence[str] = (),
    *,
    typed: Typed | None = None,
    progress: Progress = silent,
) -> dict[str, str]:
    """Write all files of a child into an empty folder; return the SHA-256 of its weight files.

    The recipe also lists ``more`` files, which are written later. ``typed`` has the types of its matrices.
    """
    checkpoint, form = child.parent, FORMATS[recipe["written_as"]]
    place = folder if form.has_tokenizer else folder / checkpoint.folder.relative_to(checkpoint.root)
    place.mkdir(exist_ok=True)
    written = form.write(child, place, progress, typed)
    if written.config is not None:
        write_json(place / "config.json", written.config)
    weights = sorted(file for file in place.iterdir() if file.suffix != ".json")
    sha256 = {
        file.relative_to(folder).as_posix(): written.digests.get(file) or sha256_of(file) for file in weights
    }
    for name in checkpoint.other_files():
        is_licence = name.name.upper().startswith(LICENCE_FILES)
        if name.name.lower() != "readme.md" and (is_licence or not form.has_tokenizer):
            _copy(checkpoint.root, name, folder)
    auto = _auto_class(checkpoint) if written.config is not None else weights[0].name
    text = card(recipe, written.kind, auto, checkpoint.family.task)
    describe(folder, text, {**recipe, "sha256": sha256}, more)
    return sha256


def describe(folder: Path, text: str, recipe: Mapping[str, Any], more: Sequence[str] = ()) -> None:
    """Write the ``text`` of its card and the recipe of a child; it lists all files, ``more`` among them."""
    (folder / "README.md").write_text(text, encoding="utf-8")
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    write_json(folder / "recipe.json", {**recipe, "files": sorted([*files, "recipe.json", *more])})


def _auto_class(checkpoint: Checkpoint) -> str:
    if checkpoint.sentences:
        return SENTENCES
    return "AutoModelForCausalLM" if checkpoint.family.task == "next" else "AutoModel"


def _copy(source: Path, name: Path, folder: Path) -> None:
    """Copy a file of the parent, without the configuration fields that name its code."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    content = (source / name).read_bytes() if name.suffix == ".json" else b""
    if any(f'"{field}"'.encode() in content for field in REMOTE):
        write_json(place, without_code(read_object(source, str(name))))
    else:
        shutil.copyfile(source / name, place)
