"""Matrices that are stored quantised, each in several tensors: codes, scales, and sometimes a shape.

Three ways of storing are read, by the ``quantization_config`` of a checkpoint. FP8 (``fp8``, and
``float-quantized`` of compressed-tensors): numbers of eight bits and a scale for each block of rows and
columns. MXFP4 (``mxfp4``): two numbers in a byte, an exponent for 32 of them; rows are what the stock class
has as columns. INT4 and INT8 (``pack-quantized`` of compressed-tensors): four bytes of numbers in a word, a
scale for a group of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.packed_values import BITS, FP8, INT4, INT8, MXFP4, PackedTensor
from zerolm.settings import shown

CODES: Final = {FP8: "F8_E4M3", MXFP4: "U8", INT4: "I32", INT8: "I32"}
SCALES: Final = {
    FP8: ("F32", "BF16", "F16", "F8_E8M0"),
    MXFP4: ("U8",),
    INT4: ("BF16", "F16", "F32"),
    INT8: ("BF16", "F16", "F32"),
}
GROUP: Final = 32
"""Numbers of MXFP4 that share an exponent."""
LARGEST_BLOCK: Final = 1 << 20
COMPRESSED: Final = "compressed-tensors"
METHODS: Final = ("fp8", "mxfp4", COMPRESSED)


@dataclass(frozen=True, slots=True)
class Packing:
    """How matrices are stored: the ``kind`` of their codes, and the endings of their names."""

    kind: str
    block: tuple[int, int]
    codes: str
    scales: str
    sizes: str = ""

    def packed(self, base: str, tensors: Mapping[str, TensorInfo]) -> PackedTensor:
        """Return the matrix of this name; ``ValueError`` names the part that is missing or does not fit."""
        names = [base + self.codes, base + self.scales, *([base + self.sizes] if self.sizes else [])]
        missing = next((name for name in names if name not in tensors), None)
        if missing is not None:
            there = next(name for name in names if name in tensors)
            raise ValueError(f"tensor {missing!r} is missing: {there!r} is a part of it")
        parts = tuple(tensors[name] for name in names)
        codes, scales = parts[:2]
        stored = self._shape(codes)
        if scales.dtype not in SCALES[self.kind]:
            raise ValueError(
                f"tensor {scales.name!r} is {scales.dtype}; scales are {', '.join(SCALES[self.kind])}"
            )
        blocks = zip(stored[-2:], self.block, strict=True)
        wanted = (*stored[:-2], *(-(-size // (block or size)) for size, block in blocks))
        if scales.shape != wanted:
            raise ValueError(
                f"tensor {scales.name!r} has shape {list(scales.shape)}; {codes.name!r} of "
                f"{list(codes.shape)} needs scales of {list(wanted)}"
            )
        if self.block[1] * BITS[self.kind] % 8:
            raise ValueError(
                f"a group of {self.block[1]} numbers of tensor {codes.name!r} does not fill bytes"
            )
        shape = (*stored[:-2], stored[-1], stored[-2]) if self.kind == MXFP4 else stored
        return PackedTensor(
            base, self.kind, shape, codes.file, codes.start, codes.end, packs=parts, block=self.block
        )

    def _shape(self, codes: TensorInfo) -> tuple[int, ...]:
        """Return the shape of the numbers of codes as they are stored; two axes at least."""
        if codes.dtype != CODES[self.kind]:
            raise ValueError(f"tensor {codes.name!r} is {codes.dtype}; {self.kind} has {CODES[self.kind]}")
        axes, shape = 4 if self.kind == MXFP4 else len(codes.shape), codes.shape
        is_sound = len(shape) == axes and len(shape) > 1 and 0 not in shape
        if not is_sound or (self.kind == MXFP4 and shape[-1] != GROUP // 2):
            raise ValueError(f"tensor {codes.name!r} has shape {list(shape)}, which is none of {self.kind}")
        if self.kind == MXFP4:
            return (*shape[:-2], shape[-2] * GROUP)
        return (*shape[:-1], shape[-1] * (1 if self.kind == FP8 else 32 // BITS[self.kind]))


def quantisation_of(config: Mapping[str, Any]) -> Any:
    """Return the ``quantization_config`` of the whole or of a part of it; None where there is none."""
    parts = [part for part in (config, *config.values()) if isinstance(part, Mapping)]
    stated = [part["quantization_config"] for part in parts if part.get("quantization_config") is not None]
    if any(other != stated[0] for other in stated):
        raise ValueError("it has two quantization_config, which differ")
    return stated[0] if stated else None


def packing_of(quantisation: Any) -> Packing:
    """Return how a ``quantization_config`` says that matrices are stored; ``ValueError`` for other ways."""
    if not isinstance(quantisation, Mapping):
        raise ValueError(f"its quantization_config is {shown(quantisation)}, not an object")
    method = quantisation.get("quant_method")
    if method == "fp8":
        if quantisation.get("fmt", "e4m3") != "e4m3":
            raise ValueError(f"its quantization_config has fmt {shown(quantisation['fmt'])}; e4m3 is read")
        block = _block("weight_block_size", quantisation.get("weight_block_size"))
        return Packing(FP8, block, "", "_scale_inv")
    if method == "mxfp4":
        return Packing(MXFP4, (1, GROUP), "_blocks", "_scales")
    if method == COMPRESSED:
        return _compressed(quantisation)
    raise ValueError(f"its weights are quantized by {shown(method)}; {', '.join(METHODS)} are read")


def packed_tensors(packing: Packing, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return the tensors with each packed matrix in place of its parts, where the first of them was.

    ``ValueError`` names the tensor where parts are without the others or do not fit one another.
    """
    base_of: dict[str, str] = {}
    for name, info in tensors.items():
        endings = filter(None, (packing.codes, packing.scales, packing.sizes))
        ending = next((each for each in endings if name.endswith(each)), "")
        if ending:
            base_of[name] = name.removesuffix(ending)
        elif not packing.codes and info.dtype == CODES[packing.kind]:
            base_of[name] = name
    bases, packed = set(base_of.values()), dict[str, TensorInfo]()
    for name, info in tensors.items():
        base = base_of.get(name, name)
        if name in bases and packing.codes:
            raise ValueError(f"tensor {name!r} is stored, and so are parts of a packed one of this name")
        if base not in bases:
            packed[name] = info
        elif base not in packed:
            packed[base] = packing.packed(base, tensors)
    return packed


def check_stated_shapes(tensors: Mapping[str, TensorInfo]) -> None:
    """Check the shapes that are stored with packed words; ``ValueError`` where one differs."""
    for tensor in tensors.values():
        if not isinstance(tensor, PackedTensor) or len(tensor.packs) < 3:
            continue
        sizes = tensor.packs[2]
        if sizes.dtype not in ("I32", "I64") or sizes.shape != (2,):
            raise ValueError(f"tensor {sizes.name!r} is {sizes.dtype} {list(sizes.shape)}, not two sizes")
        with sizes.file.open("rb") as file:
            file.seek(sizes.start)
            stated = np.frombuffer(file.read(sizes.end - sizes.start), f"<i{sizes.item_bytes}").tolist()
        if stated != list(tensor.shape):
            raise ValueError(f"tensor {sizes.name!r} says {stated}; its codes have {list(tensor.shape)}")


def _compressed(quantisation: Mapping[str, Any]) -> Packing:
    """Return the packing of compressed-tensors, from its one group of settings."""
    groups = quantisation.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise ValueError("its quantization_config has not one of config_groups, which alone is read")
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise ValueError("its quantization_config has no entry for weights")
    form = quantisation.get("format") or group.get("format")
    bits, kind, strategy = (weights.get(name) for name in ("num_bits", "type", "strategy"))
    if not weights.get("symmetric", True) or weights.get("actorder") is not None:
        raise ValueError("its weights are quantized with zero points or in another order, which is not read")
    if strategy == "group":
        block = (1, _size("group_size", weights.get("group_size")))
    elif strategy == "channel":
        block = (1, 0)
    elif strategy == "block":
        block = _block("block_structure", weights.get("block_structure"))
    else:
        raise ValueError(f"its scales are by {shown(strategy)}; group, channel and block are read")
    if (form, bits, kind) == ("float-quantized", 8, "float"):
        return Packing(FP8, block, "", "_scale")
    if form == "pack-quantized" and kind == "int" and bits in (4, 8) and type(bits) is int:
        return Packing(INT4 if bits == 4 else INT8, block, "_packed", "_scale", "_shape")
    raise ValueError(
        f"its weights are quantized in format {shown(form)} of {shown(bits)} bits ({shown(kind)}); "
        "pack-quantized of 4 or 8 bits (int) and float-quantized of 8 (float) are read"
    )


def _block(field: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"its quantization_config has {field} {shown(value)}, not rows and columns")
    return _size(field, value[0]), _size(field, value[1])


def _size(field: str, value: Any) -> int:
    if type(value) is not int or not 0 < value <= LARGEST_BLOCK:
        raise ValueError(f"its quantization_config has {field} {shown(value)}, which is no size")
    return value
