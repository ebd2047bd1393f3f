"""A GGUF model in one file, or in parts in one folder, as ``llama-gguf-split`` makes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from zerolm.checkpoints.gguf.header import GgufHeader, read_gguf_header
from zerolm.checkpoints.headers import Shard, TensorInfo

PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""The name of a part; the first has number 1."""
COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
"""Keys of a part: how many there are, its number from 0, and the tensors of all."""


@dataclass(frozen=True, eq=False)
class GgufModel:
    """The ``files`` of a model, the header of each, and all of them as one ``header``.

    The metadata are those of the first. ``file_of`` has the file of each tensor by its name.
    """

    files: tuple[Path, ...]
    headers: tuple[GgufHeader, ...]
    header: GgufHeader
    file_of: Mapping[str, Path]

    def shards(self, tensors: Iterable[TensorInfo] = ()) -> tuple[Shard, ...]:
        """Return the files as they are now, each with those of the tensors that it holds, in their order."""
        by_place = sorted(tensors, key=lambda info: info.start)
        shards = []
        for file, header in zip(self.files, self.headers, strict=True):
            state, inside = file.stat(), {info.name: info for info in by_place if info.file == file}
            shards.append(Shard(file, inside, header.digest, state.st_size, state.st_mtime_ns))
        return tuple(shards)


def first_part(files: Sequence[Path]) -> Path | None:
    """Return the first of files that are all parts of one model; None where they are not."""
    matches = [PART.fullmatch(file.name) for file in files]
    names = {(match["stem"], int(match["count"])) if match else None for match in matches}
    is_one = len(names) == 1 and None not in names
    return min(files) if is_one else None


def stem_of(file: Path) -> str:
    """Return the name of a model without its ending, and without the number of a part."""
    match = PART.fullmatch(file.name)
    return match["stem"] if match else file.stem


def read_gguf(file: Path, whole: Collection[str] = ()) -> GgufModel:
    """Read and check the headers of a model, whose first file or only one this is.

    ``whole`` are the keys of long arrays that are wanted, too. ``ValueError`` names what is not sound, and a
    part that is missing.
    """
    header = read_gguf_header(file, whole)
    if header.metadata.get(COUNT, 0) in (0, 1):
        return GgufModel((file,), (header,), header, dict.fromkeys(header.tensors, file))
    files = _parts_of(file, header)
    headers = (header, *(read_gguf_header(each) for each in files[1:]))
    for number, (each, part) in enumerate(zip(files, headers, strict=True)):
        if (part.metadata.get(NUMBER), part.metadata.get(COUNT)) != (number, len(files)):
            raise ValueError(f"{each.name!r} is not marked as part {number + 1} of {len(files)}")
    names = [name for part in headers for name in part.tensors]
    if len({*names}) < len(names):
        raise ValueError("two of its parts have a tensor of one name")
    stated = header.metadata.get(TENSORS)
    if stated != len(names):
        raise ValueError(f"its parts have {len(names)} tensors, its header specifies {stated}")
    together = replace(
        header,
        tensors={name: shape for part in headers for name, shape in part.tensors.items()},
        types={name: kind for part in headers for name, kind in part.types.items()},
        places={name: place for part in headers for name, place in part.places.items()},
        digest=hashlib.sha256("".join(part.digest for part in headers).encode()).hexdigest(),
    )
    file_of = {name: each for each, part in zip(files, headers, strict=True) for name in part.tensors}
    return GgufModel(files, headers, together, file_of)


def _parts_of(file: Path, header: GgufHeader) -> tuple[Path, ...]:
    """Return the parts of a model in their order; ``ValueError`` where one is missing, or misnamed."""
    count, match = header.metadata[COUNT], PART.fullmatch(file.name)
    if type(count) is not int:
        raise ValueError(f"its {COUNT} is no number")
    if match is None or int(match["count"]) != count:
        raise ValueError(
            f"it is one of {count} parts, and its name is not ...-00001-of-{count:05d}.gguf, by which the "
            "others are known"
        )
    files = tuple(
        file.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    )
    if file != files[0]:
        raise ValueError(f"it is part {int(match['number'])} of {count}: name the first, {files[0].name}")
    missing = next((each for each in files if not each.is_file()), None)
    if missing is not None:
        raise ValueError(f"part {missing.name!r} is missing: all {count} parts are needed")
    return files
