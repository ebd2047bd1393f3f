"""A checkpoint of random weights in the shape of a configuration, written a few megabytes at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.checkpoint import check_format
from zerolm.checkpoints.folder import read_object
from zerolm.checkpoints.writer import Outgoing, write_shards
from zerolm.families.config import sizes_of
from zerolm.families.known import family_of
from zerolm.networks.mapped import shapes_only
from zerolm.networks.opener import one_line, quiet, stock_config
from zerolm.networks.roles import places_in
from zerolm.progress import Progress, announce, silent

CHUNK: Final = 1 << 22
"""Weights that are in memory at a time."""
SPREAD: Final = 0.02
"""The standard deviation of the weights of matrices."""
TYPES: Final = {
    torch.bfloat16: ("BF16", torch.int16),
    torch.float16: ("F16", torch.int16),
    torch.float32: ("F32", torch.int32),
}
"""Of each type of weights its name in a file, and integers as wide."""


def random_checkpoint(
    config: Path, folder: Path, *, room: float = 1.0, seed: int = 0, progress: Progress = silent
) -> Checkpoint:
    """Return a decoder of random weights, written into an existing folder, as a ``config.json`` describes it.

    ``config`` is the folder of that file; weights are in its type. ``ValueError``, in one line, where it is
    no configuration of a known decoder, or where the disk lacks ``room`` times the bytes of the weights.
    """
    document = read_object(config, "config.json")
    try:
        check_format(config, document)
        family = family_of(document)
        places_in(family.name)
        sizes_of(family, document)
        if family.task != "next":
            raise ValueError(f"a {family.name} is no decoder")
    except ValueError as error:
        raise ValueError(f"{str(config)!r}: {error}") from None
    model, dtype = _blank(config)
    name, integers = TYPES[dtype]
    generator = torch.Generator().manual_seed(seed)

    def outgoing(parameter: str, shape: torch.Size) -> Outgoing:
        def chunks() -> Iterator[NDArray[Any]]:
            for part in _drawn(parameter, shape, generator):
                yield part.to(dtype).view(integers).numpy()

        return Outgoing(parameter, name, tuple(shape), chunks)

    tensors = [outgoing(each, parameter.shape) for each, parameter in model.named_parameters()]
    total = sum(tensor.bytes for tensor in tensors)
    _check_room(folder, int(room * total))
    announce(progress, f"random weights of that shape: {total / 1e9:.3g} GB on disk for so long")
    (folder / "config.json").write_text(json.dumps({"architectures": [type(model).__name__]} | document))
    write_shards(folder, tensors, progress=progress)
    return Checkpoint.open(folder)


def _blank(folder: Path) -> tuple[PreTrainedModel, torch.dtype]:
    """Return the stock model of a configuration without memory, and the type of its weights."""
    quiet()
    config = stock_config(folder)
    dtype = getattr(config, "dtype", None) or torch.float32
    if dtype not in TYPES:
        raise ValueError(f"{str(folder)!r}: weights in {dtype} cannot be read")
    with one_line(f"the model in {str(folder)!r}"), shapes_only():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, trust_remote_code=False, dtype=torch.float32
        )
    model.tie_weights()
    return model, dtype


def _drawn(name: str, shape: torch.Size, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the weights of a tensor in parts: of matrices normal ones, of norms ones, of biases zeros."""
    remaining = shape.numel()
    while remaining:
        count = min(remaining, CHUNK)
        if len(shape) > 1:
            yield torch.randn(count, generator=generator).mul_(SPREAD)
        else:
            yield torch.full((count,), 0.0 if name.endswith("bias") else 1.0)
        remaining -= count


def _check_room(folder: Path, needed: int) -> None:
    """Refuse what the disk has no room for."""
    free = disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"random weights of that shape need {needed / 1e9:.3g} GB on disk, {free / 1e9:.3g} GB are free "
            f"in {str(folder.parent)!r}; TMPDIR names another place"
        )
