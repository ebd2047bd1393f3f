"""A GGUF file as a checkpoint: its tensors where they lie, and the rest in a folder of the cache.

The file's own bytes are used where they are what the stock class has. Queries and keys with another order of
rows, norms in another form, and quantised tensors are written once, next to the configuration and the
tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.dtypes import RAW_TYPES, narrowed, widened
from zerolm.checkpoints.folder import inside, read_object
from zerolm.checkpoints.gguf.configuration import FACTORS, configuration, family_in
from zerolm.checkpoints.gguf.dequantise import STORED_NAMES, TypedTensor, dequantised, readable
from zerolm.checkpoints.gguf.header import GgufHeader
from zerolm.checkpoints.gguf.names import changes_places, in_class_order, roles_in
from zerolm.checkpoints.gguf.parts import GgufModel, first_part, read_gguf, stem_of
from zerolm.checkpoints.gguf.tokenizer import LISTS, TOKENS, tokenizer_documents
from zerolm.checkpoints.headers import Shard, TensorInfo, read_shard
from zerolm.checkpoints.shards import SINGLE
from zerolm.checkpoints.weight_types import BY_NUMBER, WeightType
from zerolm.checkpoints.writer import Chunk, Outgoing, write_shards
from zerolm.families.config import sizes_of
from zerolm.families.family import Family, Pattern
from zerolm.io.files import cache_folder, write_json
from zerolm.io.folders import new_folder

CACHE_VERSION: Final = 1
EXPERT: Final = "{expert}"
ROWS: Final = 1 << 22
"""Weights that are dequantised at a time, about."""
TOKENIZER_FILES: Final = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
)  # fmt: skip
MORE_TEMPLATES: Final = "additional_chat_templates/*.jinja"
"""Files of a tokenizer that are used where they are next to a GGUF file."""


@dataclass(frozen=True)
class GgufSource:
    """The file that a checkpoint is read of, and the types of its matrices by their stock names.

    ``bytes`` are those of all weights.
    """

    file: Path
    types: dict[str, str]
    bytes: int

    @property
    def quantised(self) -> tuple[str, ...]:
        """Return the types that are not of 16 or 32 bits, the most frequent first."""
        kinds = [kind for kind in self.types.values() if kind not in STORED_NAMES]
        return tuple(sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind)))


@dataclass(frozen=True)
class _Stored:
    """A tensor of the file, by its name in the stock class, with its type: a ``TypedTensor`` if quantised."""

    pattern: Pattern
    info: TensorInfo
    kind: WeightType


def gguf_file(name: str | Path) -> Path | None:
    """Return the GGUF file that this is, or the only one of a folder without a configuration; else None.

    Of parts it is the first. ``ValueError`` where a folder holds several models.
    """
    place = Path(name)
    if place.suffix == ".gguf" and place.is_file():
        return place
    files = sorted(place.glob("*.gguf")) if place.is_dir() and not (place / "config.json").exists() else []
    first = files[0] if len(files) == 1 else first_part(files)
    if files and first is None:
        raise ValueError(f"{str(name)!r} holds {len(files)} GGUF files: name one")
    return first


def unpacked(
    file: Path, *, mixtures: bool = False
) -> tuple[Path, dict[str, Any], tuple[Shard, ...], GgufSource]:
    """Return the folder with what is no weight, the configuration, the shards of a file, and their source.

    ``ValueError``, in one line, for what is not a sound parent. Matrices in layers of ``mixtures`` stay in
    the file, quantised or not.
    """
    model = read_gguf(file, LISTS)
    header = model.header
    family = family_in(header)
    if family.has_experts and not mixtures:
        raise ValueError(f"a {family.name} in a gguf file is read by carve and eval alone")
    factors = _factors(model)
    config = configuration(header, family, factors)
    tensors = _tensors(model, family, config)
    types = {each.info.name: each.kind.name for each in tensors if len(each.info.shape) == 2}
    moved = [each for each in tensors if _is_moved(family, each)]
    shards = model.shards(each.info for each in tensors if not _is_moved(family, each))
    seen = [(each.file.stat().st_ino, each.size, each.modified) for each in shards]
    key = (CACHE_VERSION, str(file.resolve()), seen, header.digest)
    tokenizer_files = [(name, (file.parent / name).stat().st_mtime_ns) for name in _tokenizer_files(file)]
    digest = hashlib.sha256(repr((key, tokenizer_files, config)).encode()).hexdigest()
    folder = cache_folder("gguf") / digest / stem_of(file)
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        size = sizes_of(family, config).head_size
        with new_folder(folder, force=False) as place:
            _write_tokenizer(place, file, header)
            if moved:
                write_shards(place, [_outgoing(each, family, size) for each in moved], max_bytes=1 << 62)
            licence = header.metadata.get("general.license")
            if isinstance(licence, str) and len(licence) <= 80 and licence.isprintable():
                (place / "README.md").write_text(f"---\nlicense: {json.dumps(licence)}\n---\n", "utf-8")
            write_json(place / "config.json", config)
    source = GgufSource(file, types, sum(each.info.end - each.info.start for each in tensors))
    new = (read_shard(folder / SINGLE),) if moved else ()
    return folder, read_object(folder, "config.json"), (*shards, *new), source


def _tensors(model: GgufModel, family: Family, config: dict[str, Any]) -> list[_Stored]:
    """Return the tensors of the file that the stock class has; ``ValueError`` for one that it has not.

    What has a part for each expert is one tensor an expert.
    """
    sizes, roles = sizes_of(family, config), roles_in(family)
    names: dict[str, tuple[str, Pattern]] = {}
    before = family.tensors.prefixes[0]
    for prefix, patterns in ((before.body, family.tensors.body), (before.head, family.tensors.head)):
        for pattern in patterns:
            for layer in range(sizes.depth) if pattern.in_layer else (0,):
                if pattern.role in roles:
                    stored = roles[pattern.role].replace("{layer}", str(layer))
                    name = f"{prefix}{pattern.name}".replace("{layer}", str(layer))
                    names[stored] = name, pattern
    tensors, header = [], model.header
    for stored, shape in header.tensors.items():
        if stored == FACTORS:
            continue
        if stored not in names:
            raise ValueError(f"tensor {stored!r} is none of a {family.name}")
        kind = readable(header.types[stored])
        if kind is None:
            raise ValueError(f"tensor {stored!r} has type number {header.types[stored]}, which is not read")
        name, pattern = names[stored]
        start, end = header.places[stored]
        order = tuple(reversed(shape))
        if pattern.axes[0] == "1" and len(order) < len(pattern.axes):
            order = (1, *order)
        info = TensorInfo(name, kind.name, order, model.file_of[stored], start, end)
        if kind.name not in STORED_NAMES:
            info = TypedTensor(name, kind.name, order, info.file, start, end, kind)
        if EXPERT not in name:
            tensors.append(_Stored(pattern, info, kind))
            continue
        if len(order) != 3 or order[0] != sizes.sizes["experts"]:
            raise ValueError(f"tensor {stored!r} of {list(shape)} has no matrix for each expert")
        for expert in range(order[0]):
            part = replace(info.one(expert), name=name.replace(EXPERT, str(expert)))
            tensors.append(_Stored(pattern, part, kind))
    return tensors


def _is_moved(family: Family, tensor: _Stored) -> bool:
    role = tensor.pattern.role
    shifted = family.tensors.factors.shift != 0 and role.endswith("norm")
    is_in_mixture = family.has_experts and tensor.pattern.in_layer and len(tensor.info.shape) == 2
    there = not tensor.info.is_packed or is_in_mixture
    return not there or changes_places(family, role) or shifted


def _outgoing(tensor: _Stored, family: Family, head_size: int) -> Outgoing:
    """Return a tensor as the stock class has it: in its own type, or what is quantised in float32."""
    dtype, info = "F32" if tensor.info.is_packed else tensor.kind.name, tensor.info
    return Outgoing(info.name, dtype, info.shape, partial(_chunks, tensor, family, head_size, dtype))


def _chunks(tensor: _Stored, family: Family, head_size: int, dtype: str) -> Iterator[Chunk]:
    info, role = tensor.info, tensor.pattern.role
    rows = info.shape[0] if len(info.shape) == 2 else 1
    columns = info.count // rows
    raw: NDArray[Any] = np.memmap(info.file, np.uint8, "r", info.start, (rows, tensor.kind.size(columns)))
    step = max(1, ROWS // columns // head_size) * head_size
    shift = np.float32(family.tensors.factors.shift if role.endswith("norm") else 0.0)
    for start in range(0, rows, step):
        part = np.asarray(raw[start : start + step])
        if len(info.shape) == 1:
            part = part.view(RAW_TYPES[dtype]).reshape(-1)
        else:
            part = dequantised(part, tensor.kind) if info.is_packed else part.view(RAW_TYPES[dtype])
        part = in_class_order(family, role, part, head_size)
        yield narrowed(widened(part, dtype) - shift, dtype) if shift else part


def _factors(model: GgufModel) -> NDArray[np.float32] | None:
    header = model.header
    if FACTORS not in header.tensors:
        return None
    start, _ = header.places[FACTORS]
    if BY_NUMBER.get(header.types[FACTORS]) != BY_NUMBER[0] or len(header.tensors[FACTORS]) != 1:
        raise ValueError(f"{FACTORS!r} is no list of float32")
    return np.array(np.memmap(model.file_of[FACTORS], np.float32, "r", start, header.tensors[FACTORS]))


def _tokenizer_files(file: Path) -> list[str]:
    if not inside(file.parent, TOKENIZER_FILES[0]):
        return []
    more = sorted(each.relative_to(file.parent).as_posix() for each in file.parent.glob(MORE_TEMPLATES))
    return [name for name in (*TOKENIZER_FILES, *more) if inside(file.parent, name)]


def _write_tokenizer(folder: Path, file: Path, header: GgufHeader) -> None:
    """Write the tokenizer next to the file, if there is one, else the file's own, if it has one.

    ``ValueError`` where it has other tokens than the file, or llama.cpp reads a text as others.
    """
    names = _tokenizer_files(file)
    if names:
        _check_vocabulary(read_object(file.parent, TOKENIZER_FILES[0]), header)
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(file.parent / name, folder / name)
        return
    documents = tokenizer_documents(header.metadata)
    if documents is not None:
        for name, document in zip(TOKENIZER_FILES, documents, strict=False):
            write_json(folder / name, document)
        from zerolm.checkpoints.gguf.same_tokens import check_same_tokens

        check_same_tokens(file, folder / TOKENIZER_FILES[0])


def _check_vocabulary(document: dict[str, Any], header: GgufHeader) -> None:
    try:
        ids = {str(text): int(index) for text, index in document["model"]["vocab"].items()}
        ids |= {str(token["content"]): int(token["id"]) for token in document.get("added_tokens") or []}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"the {TOKENIZER_FILES[0]} next to it is invalid") from None
    texts = header.metadata.get(TOKENS) or []
    other = next((text for text, at in ids.items() if not 0 <= at < len(texts) or texts[at] != text), None)
    if other is not None:
        raise ValueError(
            f"the {TOKENIZER_FILES[0]} next to it has other tokens: {other[:40]!r} has another id, or none"
        )
