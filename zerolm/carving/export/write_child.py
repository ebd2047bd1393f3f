"""The child on the disk: written in a format, then opened again and compared with the carved parent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zerolm.carving.export.folder import configuration, tensors
from zerolm.carving.export.verify import Verified, as_stored, compare, compare_blocks, fits
from zerolm.carving.kept_units import Cut
from zerolm.carving.parent import is_decoder
from zerolm.carving.pruning import Repaired
from zerolm.carving.session import Running
from zerolm.checkpoints import Checkpoint, write_shards
from zerolm.networks.opener import load_model, stock_config


def write(
    checkpoint: Checkpoint, cut: Cut, repaired: Repaired, form: str, recipe: Mapping[str, Any], folder: Path
) -> None:
    """Everything of a child into an empty folder: weights, configuration, tokenizer, card and recipe."""
    arrays = repaired.named(checkpoint.layout.name)
    if form == "gguf":
        from zerolm.carving.export.gguf.write import write as write_gguf

        write_gguf(checkpoint, cut, arrays, folder / f"{recipe['parent']}-carved.gguf")
        kind = "deci"
    else:
        config = configuration(checkpoint, cut) | attention_kinds(checkpoint, cut)
        write_shards(folder, tensors(checkpoint, cut, arrays))
        _write_json(folder / "config.json", config)
        kind = str(config["model_type"])
    for name in checkpoint.other_files():
        if name.name.lower() == "readme.md" or (form == "gguf" and not _is_licence(name)):
            continue
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.folder / name, place)
    (folder / "README.md").write_text(card(recipe, kind), encoding="utf-8")
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    _write_json(folder / "recipe.json", {**recipe, "files": sorted([*files, "recipe.json"])})


def attention_kinds(checkpoint: Checkpoint, cut: Cut) -> dict[str, list[str]]:
    """How each kept layer attends, where the stock class would tell by its number and layers have gone."""
    field = "layer_types"
    if field not in checkpoint.family.config.per_layer or len(cut.layers) == cut.parent.depth:
        return {}
    kinds = stock_config(checkpoint.folder).layer_types
    return {field: [str(kinds[layer.layer]) for layer in cut.layers]}


def _is_licence(name: Path) -> bool:
    return name.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "USE_POLICY"))


def verified(running: Running, cut: Cut, repaired: Repaired, form: str, folder: Path) -> Verified:
    """Open the child in stock software; ``ValueError`` where it differs from the carved parent."""
    checkpoint = running.checkpoint
    if form == "gguf":
        from zerolm.carving.export.gguf.check import check
        from zerolm.carving.export.gguf.tokenizer import opened

        file = next(folder.glob("*.gguf"))
        return check(file, running.carved_layers(cut, repaired), opened(checkpoint))
    child = Checkpoint.open(folder)
    found = compare_blocks(child, checkpoint, cut, repaired)
    if not fits(checkpoint):
        return replace(found, by="blocks")
    reference = running.carved(cut, as_stored(child, cut, repaired))
    return compare(load_model(folder, is_decoder(checkpoint)), reference)


def card(recipe: Mapping[str, Any], kind: str) -> str:
    """The model card: what was cut from what, and how; ``kind`` is the model type that it is written as."""
    child, parent = recipe["costs"]["child"]["params"], recipe["costs"]["parent"]["params"]
    tokens = recipe["calibration"]
    text = "no calibration text"
    if tokens:
        source = f"random, seed {tokens['seed']}" if tokens["text"] is None else f"SHA-256 {tokens['text']}"
        text = f"calibration text: {tokens['sequences']} sequences of {tokens['length']} tokens ({source})"
    other = ""
    if kind not in (recipe["family"], "deci"):
        other = f"- a {recipe['family']} whose heads do not divide the hidden size, so its type is {kind}\n"
    return (
        f"# Carved from {recipe['parent']}\n\n"
        f"{child:,} of {parent:,} parameters ({child / parent:.1%}), carved by zerolm without training.\n\n"
        f"- criterion: {recipe['criterion']}\n- repair: {recipe['repair']}\n- plan: {recipe['plan']}\n"
        f"- shape: {recipe['shape']}, written as {recipe['written_as']}\n- {text}\n{other}\n"
        "`recipe.json` lists what was kept of each layer; `zerolm carve PARENT --recipe recipe.json` builds "
        "the same again. The licence of the parent applies.\n"
    )


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
