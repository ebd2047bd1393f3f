"""The network in a GGUF file, computed by the class of its parent: dequantised, in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.configuration import EMBEDDING, HEAD
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.gguf.header import GgufHeader, read_gguf_header
from zerolm.checkpoints.gguf.names import in_class_order, is_rearranged, roles_in
from zerolm.checkpoints.weight_types import BY_NUMBER
from zerolm.families.family import Family
from zerolm.networks.opener import open_model
from zerolm.networks.roles import body_of
from zerolm.units.kept_units import Cut, Dimensions, dimensions
from zerolm.units.pruning import apply_in_memory
from zerolm.units.stream.narrowing import Width
from zerolm.units.stream.weights_basis import weights_channels
from zerolm.units.within_layers import LayerSizes

Values = NDArray[np.float32]


def cut_in(file: Path, parent: Checkpoint) -> Cut:
    """Return a cut of a parent with the sizes of a file: its first layers, units and channels.

    Raises ``ValueError`` where the file has another architecture, or is larger than the parent.
    """
    header, whole = read_gguf_header(file), dimensions(parent)
    check_architecture(file, parent)
    keys = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    heads, groups, ffn = (_of_layers(file, header, key) for key in keys)
    hidden = header.metadata.get(f"{header.architecture}.embedding_length")
    names = (f"{header.architecture}.{key}" for key in ("attention.key_length", "vocab_size"))
    alike = heads == tuple(count * whole.heads_per_group for count in groups)
    alike &= [header.metadata.get(name) for name in names] == [whole.head_size, parent.layout.vocab]
    most = ((groups, whole.kv_heads), (ffn, whole.ffn))
    fits = len(groups) <= whole.depth and all(0 < size <= of for sizes, of in most for size in sizes)
    if not alike or not fits or type(hidden) is not int or not 0 < hidden <= whole.hidden:
        raise ValueError(f"{str(file)!r} has heads, layers or a stream that no child of this parent has")
    layers = _layers(file, header, parent, len(groups))
    sizes: dict[int, LayerSizes] = dict(zip(layers, zip(groups, ffn, strict=True), strict=True))
    return _with_stream(parent, whole, sizes, hidden, HEAD not in header.tensors)


def check_architecture(file: Path, parent: Checkpoint) -> None:
    """Raise ``ValueError`` for a file whose architecture is not that of a parent's children.

    Also for an encoder's file that stores matrices differently from its class.
    """
    family, architecture = parent.family, read_gguf_header(file).architecture
    if family.gguf is None or architecture != family.gguf.architecture:
        raise ValueError(
            f"{str(file)!r} has the architecture {architecture}, which no child of a {family.name} has"
        )
    if family.task != "next":
        _check_read_back(file, family)


def _check_read_back(file: Path, family: Family) -> None:
    if not is_read_back(family):
        raise ValueError(
            f"{str(file)!r} is not read back: files rearrange matrices or layers of a {family.name}; "
            "llama.cpp reads it"
        )


def rows_in(file: Path) -> int | None:
    """Return the number of tokens in a file's embedding; None where the file has no embedding."""
    shape = read_gguf_header(file).tensors.get(EMBEDDING)
    return shape[-1] if shape else None


def is_read_back(family: Family) -> bool:
    """Return whether a file of the family can be read as its class: matrices and layers are the same."""
    needs = family.gguf.needs.values() if family.gguf else ()
    keys = any(pattern.gguf.key for pattern in family.tensors.body)  # numbers that are not tensors in a file
    return not (is_rearranged(family) or keys or any(isinstance(value, list) for value in needs))


def _layers(file: Path, header: GgufHeader, parent: Checkpoint, count: int) -> list[int]:
    """Return layers of the parent, in order, whose windows match those of the file's layers."""
    pattern = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    if not isinstance(pattern, list) or len(pattern) != count:
        return list(range(count))
    numbers: list[int] = []
    for has_window in pattern:
        rest = range(numbers[-1] + 1 if numbers else 0, parent.layout.depth)
        fitting = next((n for n in rest if bool(parent.layout.windows[n]) == bool(has_window)), None)
        if fitting is None:
            raise ValueError(f"{str(file)!r} has windows in other layers than any child of this parent")
        numbers.append(fitting)
    return numbers


def _of_layers(file: Path, header: GgufHeader, key: str) -> tuple[int, ...]:
    values = header.of_layers(key)
    if values is None:
        raise ValueError(f"{str(file)!r} lacks the {key} of each layer")
    return values


def _with_stream(
    parent: Checkpoint, whole: Dimensions, sizes: dict[int, LayerSizes], hidden: int, tied: bool
) -> Cut:
    cut = Cut.of(whole, list(sizes), sizes.__getitem__)
    if parent.family.task != "next" or (hidden, tied) == (whole.hidden, parent.layout.tied):
        return cut
    if tied and not parent.layout.tied:
        raise ValueError("the file has no head, and its parent has one")
    return replace(cut, narrowing=weights_channels(parent).narrowing(Width(hidden, tied)))


def network_in(file: Path, parent: Checkpoint) -> PreTrainedModel:
    """Return the network of a file that was written from a child of this parent, in memory.

    Raises ``ValueError`` where a tensor is missing or has another shape, or files of the family cannot be
    read back.
    """
    _check_read_back(file, parent.family)
    model = apply_in_memory(open_model(parent), cut_in(file, parent))
    tensors = {str(tensor.name): tensor for tensor in GGUFReader(file).tensors}
    for name, role, parameter in _parameters(model, parent):
        if name not in tensors:
            raise ValueError(f"{str(file)!r} has no tensor {name!r}")
        values, shape = _values(tensors[name], role, parent), tuple(parameter.shape)
        if values.shape != shape:
            raise ValueError(f"tensor {name!r} of {str(file)!r} is {values.shape}, not {shape}")
        parameter.data.copy_(torch.from_numpy(values))
    return model


def _parameters(model: PreTrainedModel, parent: Checkpoint) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Yield the names of a file's tensors, their roles, and their parameters in the model."""
    body, tensors = body_of(model), parent.family.tensors
    inside, outside = dict(body.named_parameters()), dict(model.named_parameters())
    depth = int(model.config.num_hidden_layers)
    tied = bool(model.config.tie_word_embeddings)
    names = roles_in(parent.family)
    for pattern in (*tensors.body, *tensors.head):
        if pattern.role not in names or (pattern.role == "head" and tied):
            continue
        for layer in range(depth) if pattern.in_layer else (0,):
            name = pattern.parameter.replace("{layer}", str(layer))
            parameter = inside.get(name, outside.get(name))
            if parameter is not None:
                yield names[pattern.role].replace("{layer}", str(layer)), pattern.role, parameter


def _values(tensor: Any, role: str, parent: Checkpoint) -> Values:
    """Return the numbers of a tensor, with rows in the order of the parent's class."""
    kind = BY_NUMBER[int(tensor.tensor_type)]
    shape = tuple(int(size) for size in reversed(tensor.shape))
    raw = np.asarray(tensor.data).view(np.uint8).reshape(shape[0] if len(shape) == 2 else 1, -1)
    values = dequantised(raw, kind).reshape(shape)
    values = in_class_order(parent.family, role, values, dimensions(parent).head_size)
    shift = parent.family.tensors.factors.shift if role.endswith("norm") else 0.0
    return np.ascontiguousarray(values - np.float32(shift))
