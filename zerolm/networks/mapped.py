"""Weights that stay in their files: mapped into memory, in the type that they are stored in."""

from __future__ import annotations

import copy
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint, Part, TensorInfo
from zerolm.networks.roles import body_prefix

M = TypeVar("M", bound=nn.Module)

_MAP: Final = "_zerolm_map"
_PARTS: Final = "_zerolm_parts"
STORED: Final = {
    "BF16": (np.uint16, torch.bfloat16),
    "F16": (np.float16, torch.float16),
    "F32": (np.float32, torch.float32),
}
"""How numpy maps what is stored, and what it then is."""


def map_parameters(model: PreTrainedModel, checkpoint: Checkpoint) -> None:
    """Give a model without memory the mapped tensors; ``ValueError`` where a weight is missing.

    A parameter that is stored in several tensors, as those of experts are, is put together when it is used;
    one that is packed is dequantised then.
    Buffers that are stored, as are biases of routers, are in memory.
    """
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    buffers = {name: buffer.shape for name, buffer in model.named_buffers()}
    prefix = body_prefix(model)
    parts: dict[str, list[TensorInfo]] = {}
    for stored, names in parameters(checkpoint, prefix).items():
        slot, info = checkpoint.layout.slots[stored], checkpoint.tensors[stored]
        shape = info.shape
        for name, part in zip(names, slot.parts, strict=False):
            if len(names) > 1 and name in shapes:
                _give(model, name, info, partial(_narrowed, part=part))
        name = names[0] if len(names) == 1 else ""
        if name in shapes and shapes[name] == shape:
            _give(model, name, info)
        elif name in shapes and slot.transposed and shapes[name] == (shape[0], *shape[:0:-1]):
            _give(model, name, info, turned)
        elif name in shapes:
            parts.setdefault(name, []).append(info)
        elif buffers.get(name) == shape:
            model.get_buffer(name).copy_(mapped_tensor(info))
    for name, infos in parts.items():
        if sum(info.count for info in infos) == shapes[name].numel() and not len(infos) % shapes[name][0]:
            model.get_parameter(name).__dict__[_PARTS] = partial(_experts, infos, shapes[name][0])
    model.tie_weights()
    missing = [
        name for name, weight in model.named_parameters() if weight.is_meta and not is_in_parts(weight)
    ]
    if missing:
        raise ValueError(f"{str(checkpoint.folder)!r} lacks {missing[0]!r}, or has it in another shape")


def by_tensor(
    checkpoint: Checkpoint, values: Mapping[str, Tensor], prefix: str = ""
) -> Iterator[tuple[str, Tensor]]:
    """Yield what each stored tensor has of values by the stock model's parameters, such as their gradients.

    They are views of these values: the inverse of ``map_parameters``. Tensors of parameters without values
    are left out.
    """
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    for stored, parts in _parts(checkpoint, values, prefix, shapes):
        axis = checkpoint.layout.slots[stored].parts[0].axis
        yield stored, parts[0] if len(parts) == 1 else torch.cat(parts, axis)


def put_tensors(
    checkpoint: Checkpoint, values: Mapping[str, Tensor], into: Mapping[str, Tensor], prefix: str = ""
) -> None:
    """Put numbers of stored tensors, whole or cut, into the stock model's parameters, in place.

    The inverse of ``by_tensor``. Tensors without values, and values without parameters, are left out.
    """
    shapes = {name: tuple(value.shape) for name, value in values.items()}
    for stored, parts in _parts(checkpoint, into, prefix, shapes):
        axis = checkpoint.layout.slots[stored].parts[0].axis
        lengths = [part.shape[axis] for part in parts]
        for part, value in zip(parts, torch.split(values[stored], lengths, axis), strict=True):
            part.copy_(value)


def _parts(
    checkpoint: Checkpoint, values: Mapping[str, Tensor], prefix: str, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield views of the values of parameters that make up each tensor, in the order in which they lie in it.

    ``shapes`` are those of the tensors. The parts of an expert follow one another in its parameter.
    """
    rows: dict[tuple[str, int], int] = {}
    for stored, names in parameters(checkpoint, prefix).items():
        if stored not in shapes or not values.keys() >= set(names):
            continue
        slot, shape, parts = checkpoint.layout.slots[stored], shapes[stored], [values[name] for name in names]
        whole = parts[0]
        if slot.expert is not None and whole.dim() > len(shape):
            start = rows.get((names[0], slot.expert), 0)
            rows[names[0], slot.expert] = end = start + shape[0]
            parts = [whole[slot.expert, start:end]]
        elif slot.transposed and whole.dim() == 3 and whole.shape != shape:
            parts = [whole.transpose(1, 2)]
        yield stored, parts


def parameters(checkpoint: Checkpoint, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Return the stock model's names of what each tensor holds: ``prefix`` is before those of the body."""
    layout = checkpoint.layout
    heads = {name for pattern in checkpoint.family.tensors.head for name, _ in pattern.parameters}
    return {
        stored: tuple(("" if name in heads else prefix) + name for name in slot.parameter.split("+"))
        for stored, slot in layout.slots.items()
        if not (layout.tied and slot.role == "head")
    }


def is_in_parts(weight: Tensor) -> bool:
    """Return whether a parameter is stored in several tensors, and has no memory."""
    return _PARTS in weight.__dict__


def assembled(weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a parameter from the tensors that it is stored in: in memory, as stored or dequantised.

    With ``dtype`` in that type: nothing else holds it in the stored one then, but for an expert at a time.
    """
    make: Callable[[torch.dtype | None], Tensor] = weight.__dict__[_PARTS]
    return make(dtype)


def _experts(parts: Sequence[TensorInfo], experts: int, dtype: torch.dtype | None) -> Tensor:
    """Return a parameter (experts, rows, columns) from its parts (rows, columns), in this type.

    The parts of an expert follow one another: all gates, then all up projections. One expert is read
    at a time.
    """
    whole = torch.empty(0)
    for expert in range(experts):
        tensors = [mapped_tensor(info) for info in parts[expert::experts]]
        if not expert:
            rows = sum(len(tensor) for tensor in tensors)
            whole = tensors[0].new_empty(experts, rows, *tensors[0].shape[1:], dtype=dtype)
        whole[expert] = torch.cat(tensors)
        released(tensors)
    return whole


def in_memory(module: M) -> M:
    """Return a copy of a module whose parameters are all in memory, as they are stored."""
    weights = [weight for weight in module.parameters() if is_in_parts(weight)]
    whole = {id(weight): nn.Parameter(assembled(weight), requires_grad=False) for weight in weights}
    return copy.deepcopy(module, whole)


def mapped_tensor(info: TensorInfo) -> Tensor:
    """Return a stored tensor over the mapped file; what is written into it stays in memory.

    One that is packed is in memory, dequantised.
    """
    if info.is_packed:
        return torch.from_numpy(info.numbers())
    stored, dtype = STORED[info.dtype]
    raw: Any = np.memmap(info.file, np.uint8, "c", info.start, (info.end - info.start,))
    values = torch.from_numpy(np.require(raw.view(stored), requirements="A")).view(dtype).reshape(info.shape)
    values.__dict__[_MAP] = raw
    return values


def _narrowed(whole: Tensor, part: Part) -> Tensor:
    """Return one part of a fused tensor, still mapped."""
    rows = whole.narrow(part.axis, part.along.start, part.along.stop - part.along.start)
    rows.__dict__.update(whole.__dict__)
    return rows


def _give(
    model: nn.Module, name: str, info: TensorInfo, view: Callable[[Tensor], Tensor] = lambda whole: whole
) -> None:
    """Give a model a view of a stored tensor as this parameter; of one that is packed, when it is used."""
    if info.is_packed:
        model.get_parameter(name).__dict__[_PARTS] = lambda dtype: view(mapped_tensor(info).to(dtype))
    else:
        put(model, name, view(mapped_tensor(info)))


def turned(stored: Tensor) -> Tensor:
    """Return matrices of experts (experts, inputs, outputs) as (experts, outputs, inputs), still mapped."""
    values = stored.transpose(1, 2)
    values.__dict__.update(stored.__dict__)
    return values


def released(weights: Iterable[Tensor]) -> None:
    """Let go of the memory that mapped weights have taken by being read; they are read again when needed."""
    for weight in weights:
        raw = weight.__dict__.get(_MAP)
        pages = getattr(raw, "_mmap", None)
        if pages is not None and hasattr(pages, "madvise"):
            pages.madvise(mmap.MADV_DONTNEED)


def put(model: nn.Module, name: str, value: Tensor) -> None:
    module, _, leaf = name.rpartition(".")
    parameter = nn.Parameter(value, requires_grad=False)
    parameter.__dict__.update(value.__dict__)
    setattr(model.get_submodule(module), leaf, parameter)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within, the parameters of new modules have shapes and no memory; their buffers are real."""
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=False)
        register(module, name, parameter)

    nn.Module.register_parameter = without_memory  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
