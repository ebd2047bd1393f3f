"""A checkpoint that is a part of a larger one: what is new of it is written, the rest stays in its files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.checkpoints.checkpoint import Checkpoint, Fewer
from zerolm.checkpoints.headers import Shard, TensorInfo, read_shard
from zerolm.checkpoints.layout import Layout
from zerolm.checkpoints.packed import packed_tensors, packing_of, quantisation_of
from zerolm.checkpoints.sentences import SentenceModules
from zerolm.checkpoints.writer import Outgoing, write_shards
from zerolm.progress import Progress, silent

NEW: Final = "new"
"""The folder of the tensors that are written."""


def smaller(
    checkpoint: Checkpoint,
    tensors: Sequence[Outgoing],
    config: dict[str, Any],
    folder: Path,
    *,
    tokens: Ints | None = None,
    progress: Progress = silent,
) -> Checkpoint:
    """Return a checkpoint of these tensors of a larger one, with this configuration.

    ``folder`` holds its configuration, and what else is new: other files are copied. ``tokens`` are those
    that stay, None for all. Tensors that are stored as they are to be stay where they lie; the others are
    written below the folder.
    """
    for name in checkpoint.other_files():
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint.root / name, folder / name)
    place = folder / NEW
    place.mkdir()
    written = write_shards(place, [each for each in tensors if each.stored is None], progress=progress)
    shards = [read_shard(file) for file in written if file.suffix == ".safetensors"]
    new = {name: info for shard in shards for name, info in shard.tensors.items()}
    infos = {each.name: new[each.name] if each.stored is None else each.stored for each in tensors}
    parts = packed_in(config, infos)
    return replace(
        checkpoint,
        folder=folder / checkpoint.folder.relative_to(checkpoint.root),
        config=config,
        layout=Layout.of(checkpoint.family, config, parts),
        shards=(*(_of(shard, infos) for shard in checkpoint.shards), *shards),
        tensors=parts,
        root=folder,
        sentences=SentenceModules.of(folder),
        fewer=Fewer(checkpoint, tokens),
    )


def packed_in(config: dict[str, Any], tensors: dict[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return tensors, with packed matrices in place of their parts where the configuration has any."""
    quantisation = quantisation_of(config)
    return tensors if quantisation is None else packed_tensors(packing_of(quantisation), tensors)


def _of(shard: Shard, infos: dict[str, TensorInfo]) -> Shard:
    """Return a shard of the larger checkpoint with those of its tensors that stay, by their new names."""
    return replace(shard, tensors={name: info for name, info in infos.items() if info.file == shard.file})
