"""A pretrained checkpoint: a folder with a configuration and safetensors files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.folder import fetched, other_files, read_object
from zerolm.checkpoints.gguf.unpack import GgufSource, gguf_file, unpacked
from zerolm.checkpoints.headers import Shard, TensorInfo
from zerolm.checkpoints.layout import Layout
from zerolm.checkpoints.packed import check_stated_shapes, packed_tensors, packing_of, quantisation_of
from zerolm.checkpoints.remedies import check_complete, check_stored, other_head, quantised
from zerolm.checkpoints.sentences import SentenceModules
from zerolm.checkpoints.shards import read_shards
from zerolm.checkpoints.tying import as_stored
from zerolm.checkpoints.wrappers import without_wrapper, wrapper_note, wrapper_of
from zerolm.families.config import cut_of
from zerolm.families.family import Family
from zerolm.families.known import described, family_of, refused
from zerolm.families.reading import alike, current
from zerolm.io.brief import brief

logger = logging.getLogger(__name__)

FOLLOWED: Final = "modules.json puts others behind it, which take embeddings of the parent's size"
"""Why the hidden size of a sentence-transformers folder stays."""

USUAL: Final = "llama"
"""Of families that fit alike the one that is named."""
EMBEDS: Final = "; a decoder that embeds is carved by its predictions of tokens, which need its head"


@dataclass(frozen=True, repr=False, eq=False)
class Fewer:
    """The checkpoint ``of`` which another is a part, and its rows of kept ``tokens``, ascending. They are
    None where all tokens are kept, so that experts are pruned.
    """

    of: Checkpoint
    tokens: Ints | None = None


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A folder, read and checked; no weights are in memory.

    ``config`` is that of the folder; where it ties a head that is stored with other numbers than the
    embedding, it says untied, as stock software runs it. ``tensors`` are those of all ``shards`` by name;
    ``layout`` says what each of them is. ``sentences`` are the modules of a sentence-transformers folder,
    which then is ``root``: its transformer may lie in a ``folder`` of its own. ``fewer`` says of what it is
    a part, if it has fewer tokens or experts than another; ``source`` is the GGUF file that it is read of.
    """

    folder: Path
    config: dict[str, Any]
    family: Family
    layout: Layout
    shards: tuple[Shard, ...]
    tensors: dict[str, TensorInfo]
    root: Path
    sentences: SentenceModules | None = None
    fewer: Fewer | None = None
    source: GgufSource | None = None

    @property
    def whole(self) -> Checkpoint:
        """The checkpoint with all its tokens and experts."""
        return self.fewer.of.whole if self.fewer else self

    @property
    def kept_tokens(self) -> Ints | None:
        """The rows of kept tokens of the whole checkpoint, ascending; None where all are kept."""
        return self.fewer.tokens if self.fewer else None

    def __repr__(self) -> str:
        return brief(self, str(self.root), f"{self.family.name}, {len(self.tensors)} tensors")

    @classmethod
    def open(cls, name: str | Path, *, packed: bool = False) -> Checkpoint:
        """Open a local folder, or fetch a model of the hub (``owner/name``) and open it.

        With ``packed`` also one whose matrices are stored quantised (``PackedTensor``), or a GGUF file with
        experts. Raises ``ValueError``, in one line, for anything that is not a sound checkpoint of a known
        family.
        """
        file = gguf_file(name)
        if file is not None:
            return cls._of_file(file, packed=packed)
        root = fetched(name)
        sentences = SentenceModules.of(root)
        folder = root / sentences.transformer if sentences else root
        check_complete(folder)
        config = read_object(folder, "config.json")
        try:
            check_config(config)
            shards = read_shards(folder)
            tensors = tensors_of(shards)
            quantisation = quantisation_of(config)
            if quantisation is not None:
                check_stored(folder, config, quantisation, tensors, packed=packed)
            packing = None if quantisation is None else packing_of(quantisation)
            family = _family(config, tensors)
            shards = without_wrapper(shards, wrapper_of(family, tensors))
            tensors = tensors_of(shards)
            if packing is not None:
                tensors = packed_tensors(packing, tensors)
                check_stated_shapes(tensors)
            family = replace(family, cut=cut_of(family, config))
            layout = _layout(family, config, tensors, embeds=sentences is not None)
            config, layout = as_stored(family, config, tensors, layout)
            if shards and shards[0].wrapper:
                layout = replace(layout, notes=(wrapper_note(shards[0].wrapper), *layout.notes))
            if sentences:
                sentences.check(layout.hidden)
            if sentences and family.cut.hidden:
                family = replace(family, cut=replace(family.cut, hidden=False, hidden_note=FOLLOWED))
        except ValueError as error:
            raise ValueError(f"checkpoint {str(folder)!r}: {error}") from None
        logger.info("%s is a %s: %d tensors in %d files", folder, family.name, len(tensors), len(shards))
        return cls(folder, config, family, layout, shards, tensors, root, sentences)

    @classmethod
    def _of_file(cls, file: Path, *, packed: bool) -> Self:
        """Open a GGUF file: its folder holds what is no weight."""
        try:
            folder, config, shards, source = unpacked(file, mixtures=packed)
            tensors = tensors_of(shards)
            family = _family(config, tensors)
            family = replace(family, cut=cut_of(family, config))
            layout = Layout.of(family, config, tensors)
        except ValueError as error:
            raise ValueError(f"checkpoint {str(file)!r}: {error}") from None
        return cls(folder, config, family, layout, shards, tensors, folder, source=source)

    @property
    def packed(self) -> tuple[str, ...]:
        """The types of the matrices that are stored quantised, in tensors of the folder; none of others."""
        return tuple(sorted({each.dtype for each in self.tensors.values() if each.is_packed}))

    @property
    def wrapper(self) -> str:
        """The text before the names of all tensors in the files, which is removed from them here."""
        return self.shards[0].wrapper if self.shards else ""

    @property
    def prompt(self) -> str:
        """The text that sentence-transformers puts before each text by default."""
        return self.sentences.settings.prompt if self.sentences else ""

    @property
    def place(self) -> Path:
        """The folder or the file that opens as this checkpoint."""
        return self.root if self.source is None else self.source.file

    def raw(self, name: str) -> NDArray[Any]:
        """Return a tensor as it is stored, mapped and read-only: uint16 for BF16 and F16, float32 for F32."""
        return self.tensors[name].raw()

    def read(self, name: str, rows: slice | None = None) -> NDArray[np.float32]:
        """Return a tensor, or some of its rows, in memory as float32 (exact for BF16, F16 and F32)."""
        tensor = self.tensors[name]
        if rows is None or tensor.is_packed:
            return tensor.numbers()[rows or ...]
        return widened(np.asarray(tensor.raw()[rows]), tensor.dtype)

    def other_files(self) -> list[Path]:
        """Return the files that a child takes over (tokenizer, licence ...), relative to ``root``."""
        if self.sentences is None:
            return other_files(self.root)
        return other_files(self.root, self.sentences.transformer, self.sentences.files)


def _family(config: dict[str, Any], tensors: dict[str, TensorInfo]) -> Family:
    """Return the family; the refusal of one that is not known says which document its tensors fit."""
    try:
        return family_of(config)
    except ValueError as error:
        fits = None if current() else _fitting(config, tensors)
        raise ValueError(f"{error}; its tensors fit {fits}: --like {fits}" if fits else str(error)) from None


def _fitting(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> str | None:
    """Return a family whose document would place all tensors exactly, None where no document does."""
    kind, by_name, fits = config.get("model_type"), described(), list[str]()
    if isinstance(kind, str) and kind not in by_name and kind not in refused():
        for name, family in by_name.items():
            with suppress(ValueError):
                Layout.of(alike(family, kind, config), config, tensors)
                fits.append(name)
    return USUAL if USUAL in fits else next(iter(fits), None)


def _layout(
    family: Family, config: dict[str, Any], tensors: dict[str, TensorInfo], *, embeds: bool
) -> Layout:
    """Return the layout; the refusal of a decoder without the head of a language model says what needs it."""
    try:
        return Layout.of(family, config, tensors)
    except ValueError as error:
        lacks_head = any(f"{head.name!r} is missing" in str(error) for head in family.tensors.head)
        why = EMBEDS if embeds and lacks_head and family.task == "next" else other_head(family, config)
        raise ValueError(f"{error}{why}") from None


def tensors_of(shards: Sequence[Shard]) -> dict[str, TensorInfo]:
    """Return the tensors of all shards by name."""
    return {name: tensor for shard in shards for name, tensor in shard.tensors.items()}


def check_format(folder: Path, config: dict[str, Any]) -> None:
    """Refuse files that need more than reading their tensors: quantised weights, adapters, kernels."""
    if quantisation_of(config) is not None:
        raise ValueError(quantised(config))
    check_complete(folder)
    check_config(config)


def check_config(config: dict[str, Any]) -> None:
    """Refuse a configuration that names code to run, or no classes."""
    kernel = next((n for n in config if n.endswith("attn_implementation") and "/" in str(config[n])), None)
    if kernel is not None:
        raise ValueError(f"its configuration names code to fetch and run in {kernel!r}; remove it")
    classes = config.get("architectures")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(x, str) for x in classes)):
        raise ValueError(f"its architectures are {str(classes)[:60]!r}, not a list of names")
