"""A parent with fewer tokens: tokenizer, embedding and head are cut, all other weights lie where they lay.

Such a checkpoint is the parent of all that is carved further; its new files are those of a tokenizer and one
of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles, copy_others
from zerolm.carving.vocabulary.tokenizer_json import numbers, renumbered, resized
from zerolm.checkpoints import Checkpoint, Outgoing, TensorInfo, sliced, write_shards
from zerolm.checkpoints.checkpoint import FewerTokens
from zerolm.checkpoints.headers import read_shard
from zerolm.checkpoints.layout import Layout
from zerolm.checkpoints.sentences import SentenceModules
from zerolm.progress import Progress, silent

AXES: Final = ("vocab", "layer_vocab")
"""Labels of axes along which there is a row for each token."""
ROWS: Final = "rows"
"""The folder of the rows that are kept."""


def with_tokens(
    checkpoint: Checkpoint, kept: Ints, folder: Path, *, progress: Progress = silent
) -> Checkpoint:
    """Return a checkpoint that has the kept tokens alone; its files are written into an empty folder.

    ``kept`` ascends. Weights without a row for each token stay in the parent's files. ``ValueError`` where
    tokenizer and embedding disagree, or a table of another size depends on tokens.
    """
    files, rows = TokenizerFiles(checkpoint), checkpoint.layout.vocab
    place = folder / checkpoint.folder.relative_to(checkpoint.root)
    place.mkdir(parents=True, exist_ok=True)
    files.write(kept, place)
    copy_others(checkpoint, folder)
    tables = dict(_tables(checkpoint))
    (folder / ROWS).mkdir()
    outgoing = [_outgoing(checkpoint.tensors[name], axis, kept) for name, axis in tables.items()]
    written = write_shards(folder / ROWS, outgoing, progress=progress)
    shards = [read_shard(file) for file in written if file.suffix == ".safetensors"]
    tensors = dict(checkpoint.tensors)
    for shard in shards:
        tensors |= shard.tensors
    config = renumbered(checkpoint.config, numbers(kept), rows)
    layout = Layout.of(checkpoint.family, config, tensors)
    return replace(
        checkpoint,
        folder=place,
        config=config,
        layout=layout,
        shards=(*checkpoint.shards, *shards),
        tensors=tensors,
        root=folder,
        sentences=SentenceModules.of(folder),
        fewer=FewerTokens(checkpoint, kept),
    )


def shaped(checkpoint: Checkpoint, size: int) -> Checkpoint:
    """Return a checkpoint as it would be with so many tokens, to be counted: its rows are not there."""
    tensors = dict(checkpoint.tensors)
    for name, axis in _tables(checkpoint):
        info = tensors[name]
        shape = tuple(size if place == axis else length for place, length in enumerate(info.shape))
        tensors[name] = replace(info, shape=shape)
    config = resized(checkpoint.config, checkpoint.layout.vocab, size)
    return replace(
        checkpoint, config=config, layout=Layout.of(checkpoint.family, config, tensors), tensors=tensors
    )


def _tables(checkpoint: Checkpoint) -> Iterator[tuple[str, int]]:
    """Yield the tensors that have a row for each token, each with its axis."""
    layout = checkpoint.layout
    for name, slot in layout.slots.items():
        for axis, label in enumerate(slot.axes):
            if label not in AXES:
                continue
            if layout.sizes[label] != layout.vocab:
                raise ValueError(
                    f"{name!r} has {layout.sizes[label]} rows, and the embedding {layout.vocab}: its "
                    "vocabulary cannot be cut"
                )
            yield name, axis


def _outgoing(info: TensorInfo, axis: int, kept: Ints) -> Outgoing:
    shape = tuple(len(kept) if place == axis else size for place, size in enumerate(info.shape))
    return Outgoing(info.name, info.dtype, shape, lambda: sliced(info, {axis: kept}))
