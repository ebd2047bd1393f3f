"""Which types fit which matrices: the block size of a type has to divide the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import roles_in
from zerolm.checkpoints.weight_types import (
    BY_NAME,
    IN_SMALLER_BLOCKS,
    QUANTISED,
    WeightType,
    for_rows,
    from_largest,
    types_named,
)
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import sizes_of, widths
from zerolm.units.importance.criterion import Criterion
from zerolm.units.stream.narrowing import Width

ROW_MULTIPLE: Final = 32
"""The smallest block size of types."""
RolesByLength = Mapping[int, Sequence[str]]
"""The roles of matrices by the length of their rows, the shortest first."""


def types_of_rows(
    checkpoint: Checkpoint, types: Sequence[WeightType], name: str, row: int
) -> tuple[WeightType, ...]:
    """Return those of ``types`` that a tensor may have with rows of this length, and its stored type.

    A tensor that is quantised already may only have the requested types, if the blocks of any fit its rows.
    """
    stored, able = as_stored(checkpoint, name), for_rows(types, row)
    if _is_quantised(checkpoint, name):
        return from_largest(able or stored)
    return from_largest({*able, *stored})


def types_of_any_rows(
    checkpoint: Checkpoint, types: Sequence[WeightType], name: str
) -> tuple[WeightType, ...]:
    """Return the types that a tensor may have for some length of its rows, the largest first."""
    smaller = {BY_NAME[IN_SMALLER_BLOCKS.get(kind.name, kind.name)] for kind in types}
    return from_largest({*types, *smaller, *as_stored(checkpoint, name)})


def as_stored(checkpoint: Checkpoint, name: str) -> set[WeightType]:
    """Return the stored type of a tensor; F16 for a quantised one, both F32 and F16 for F32."""
    stored, half = BY_NAME[checkpoint.tensors[name].dtype], BY_NAME["F16"]
    if _is_quantised(checkpoint, name):
        return {half}
    return {stored, half} if stored.name == "F32" else {stored}


def _is_quantised(checkpoint: Checkpoint, name: str) -> bool:
    source = checkpoint.source
    return source is not None and source.types.get(name) in source.quantised


def widths_in_file(checkpoint: Checkpoint, criterion: Criterion, request: SizeRequest) -> list[Width | None]:
    """Return the possible widths, None for the parent's; tied where llama.cpp has no other head."""
    family, tied = checkpoint.family, checkpoint.layout.tied
    only_tied = tied and family.task == "next" and "head" not in roles_in(family)
    every = widths(checkpoint, criterion, request)
    return [width for width in every if width is None or width.tied or not only_tied]


def check_rows(rows: RolesByLength, of_parent: RolesByLength, names: str) -> None:
    """Raise ``ValueError`` for types of these names that fit no matrix with any of these ``rows``."""
    for kind in types_named(names, with_importances=True):
        if any(map(kind.holds, rows)):
            continue
        able = [one for one in QUANTISED if any(map(one.holds, of_parent))]
        others = f"{_names(able)} fit some" if able else "no quantised type fits any, F16, BF16 and F32 do"
        raise ValueError(
            f"--types {kind.name} fits no matrix: its blocks of {kind.weights} do not divide "
            f"{_shown(of_parent, of_parent)}; {others}"
        )


def fit_notes(rows: RolesByLength, types: Sequence[WeightType]) -> list[str]:
    """Return notes on quantised ``types`` that do not fit the ``rows`` of a child."""
    kinds = [kind for kind in types if kind in QUANTISED]
    bare = [length for length in rows if not for_rows(kinds, length)] if kinds else []
    notes = [f"no quantised type fits {_shown(rows, bare)}: 16 bits a weight or more"] if bare else []
    for block in sorted({kind.weights for kind in kinds}):
        unfit = [length for length in rows if length % block and length not in bare]
        if unfit:
            large = [kind for kind in kinds if kind.weights == block]
            others = [kind for kind in QUANTISED if kind in for_rows(large, unfit[0])]
            notes.append(f"blocks of {block} do not fit {_shown(rows, unfit)}: {_names(others)} there")
    return notes


def in_blocks(checkpoint: Checkpoint, request: SizeRequest) -> tuple[list[str], SizeRequest]:
    """Return notes on rounded shares, and the request with FFN and stream shares rounded to multiples of 32.

    A request with ``multiple_of`` is not changed.
    """
    notes, shares = [], {}
    for kind, sizes in sizes_of(checkpoint, request).items():
        share = request.keep.get(kind, 1.0)
        if kind not in ("ffn", "hidden") or share >= 1.0 or request.multiple_of is not None:
            continue
        able = [size for size in sizes.possible if size % ROW_MULTIPLE == 0]
        length = replace(sizes, possible=tuple(able)).nearest(share) if able else 0
        if able and abs(length - share * sizes.whole) >= 1:
            shares[kind] = length / sizes.whole
            notes.append(
                f"--keep-{kind} {share:g} leaves {length:,} of {sizes.whole:,}, a multiple of {ROW_MULTIPLE}"
            )
    return notes, replace(request, shares=replace(request.shares, **shares))


def _shown(rows: RolesByLength, lengths: Iterable[int]) -> str:
    return "rows of " + " and ".join(f"{length:,} ({', '.join(rows[length])})" for length in lengths)


def _names(kinds: Iterable[WeightType]) -> str:
    return ", ".join(kind.name for kind in kinds)
