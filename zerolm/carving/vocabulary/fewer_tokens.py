"""A parent with fewer tokens: tokenizer, embedding and head are cut, other weights remain in its files.

Such a checkpoint is the parent of all further carving; its new files are those of a tokenizer and one with
the kept rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles, numbers, renumbered, resized
from zerolm.checkpoints import Checkpoint, Outgoing, TensorInfo, sliced
from zerolm.checkpoints.layout import Layout
from zerolm.checkpoints.smaller import smaller
from zerolm.progress import Progress, silent

AXES: Final = ("vocab", "layer_vocab")
"""Labels of axes with a row for each token."""


def with_tokens(
    checkpoint: Checkpoint, kept: Ints, folder: Path, *, progress: Progress = silent
) -> Checkpoint:
    """Return a checkpoint with only the kept tokens; its files are written into an empty folder.

    ``kept`` ascends. Weights without a row for each token remain in the parent's files. Raises ``ValueError``
    where tokenizer and embedding disagree, or a table of another size depends on tokens.
    """
    files, rows = TokenizerFiles(checkpoint), checkpoint.layout.vocab
    place = folder / checkpoint.folder.relative_to(checkpoint.root)
    place.mkdir(parents=True, exist_ok=True)
    files.write(kept, place)
    tables = dict(_tables(checkpoint))
    config = renumbered(checkpoint.config, numbers(kept), rows)
    outgoing = [
        tensor
        for name, info in checkpoint.tensors.items()
        for tensor in _outgoing(info, tables.get(name), kept)
    ]
    return smaller(checkpoint, outgoing, config, folder, tokens=kept, progress=progress)


def can_lose_tokens(checkpoint: Checkpoint) -> bool:
    """Return whether the tokenizer and the tensors of a checkpoint can be cut to fewer tokens."""
    try:
        shaped(checkpoint, checkpoint.layout.vocab)
        return bool(TokenizerFiles(checkpoint).table.rows)
    except ValueError:
        return False


def shaped(checkpoint: Checkpoint, size: int) -> Checkpoint:
    """Return a checkpoint with the shapes for ``size`` tokens, for counting: its rows do not exist."""
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
    """Yield the tensors with a row for each token, each with its axis."""
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


def _outgoing(info: TensorInfo, axis: int | None, kept: Ints) -> list[Outgoing]:
    """Return the kept part of a tensor whose axis, if any, has a row for each token."""
    if axis is None:
        return [Outgoing.copied(part) for part in info.stored]
    shape = tuple(len(kept) if place == axis else size for place, size in enumerate(info.shape))
    return [Outgoing(info.name, info.dtype, shape, lambda: sliced(info, {axis: kept}))]
