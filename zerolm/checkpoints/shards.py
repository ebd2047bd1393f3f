"""Which safetensors files make up a checkpoint, and that they agree with their index."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from zerolm.checkpoints.folder import inside, is_plain, read_object
from zerolm.checkpoints.headers import Shard, read_shard
from zerolm.checkpoints.remedies import pickled

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
MAX_SHARDS: Final = 10_000


def read_shards(folder: Path) -> tuple[Shard, ...]:
    """The files with the weights: ``model.safetensors``, or those that the index names, in order of name."""
    if inside(folder, SINGLE):
        return (read_shard(folder / SINGLE),)
    if not (folder / INDEX).exists():
        raise ValueError(pickled(folder) or f"there is no {SINGLE} and no {INDEX}")
    places = _places(read_object(folder, INDEX))
    names = sorted(set(places.values()))
    if len(names) > MAX_SHARDS:
        raise ValueError(f"{INDEX} names {len(names)} files; at most {MAX_SHARDS} are read")
    for name in names:
        if not inside(folder, name):
            raise ValueError(f"{INDEX} names {name}, which is missing")
    shards = tuple(read_shard(folder / name) for name in names)
    for shard in shards:
        _agree(shard, places)
    return shards


def _places(index: dict[str, Any]) -> dict[str, str]:
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{INDEX} has no weight_map")
    for tensor, name in places.items():
        if not isinstance(name, str) or not is_plain(name) or not name.endswith(".safetensors"):
            raise ValueError(f"{INDEX} puts {tensor!r} into {name!r}, no safetensors file next to it")
    return places


def _agree(shard: Shard, places: dict[str, str]) -> None:
    """That a file holds the tensors that the index says, no others and none twice."""
    promised = {tensor for tensor, name in places.items() if name == shard.file.name}
    for tensor in sorted(promised ^ shard.tensors.keys()):
        if tensor in promised:
            raise ValueError(f"tensor {tensor!r} is missing from {shard.file.name}, where {INDEX} puts it")
        raise ValueError(f"{shard.file.name} holds tensor {tensor!r}, which {INDEX} does not put there")
