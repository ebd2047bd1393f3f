"""Which types fit which matrices: the block size of a type has to divide the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from zerolm.units.within_layers import UNITS

STREAM: Final = "stream"
ROW_MULTIPLE: Final = 32
"""The smallest block size of types."""
SIZES: Final = {STREAM: "hidden", **{unit.share: unit.axis for unit in UNITS}}


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
    """Return the possible widths of the stream in a plan, None for the parent's.

    The head is tied where llama.cpp's architecture has no other.
    """
    family, tied = checkpoint.family, checkpoint.layout.tied
    only_tied = tied and family.task == "next" and "head" not in roles_in(family)
    every = widths(checkpoint, criterion, request)
    return [width for width in every if width is None or width.tied or not only_tied]


@dataclass(frozen=True)
class Rows:
    """The matrices of some ``roles`` with rows of one length: ``whole`` in the parent.

    ``axis`` is ``stream``, or the ``share`` of some units, or the length of rows that are not cut. After a
    cut the length is one of ``possible``.
    """

    axis: str
    roles: tuple[str, ...]
    whole: int
    possible: frozenset[int]


def check_rows(axes: Sequence[Rows], names: str) -> None:
    """Raise ``ValueError`` for types of these names that fit no matrix with any of these rows."""
    whole = _by_length(replace(rows, possible=frozenset({rows.whole})) for rows in axes)
    for kind in types_named(names, with_importances=True):
        if any(kind.holds(length) for rows in axes for length in rows.possible):
            continue
        able = [one for one in QUANTISED if any(map(one.holds, whole))]
        others = f"{_names(able)} fit some" if able else "no quantised type fits any, F16, BF16 and F32 do"
        raise ValueError(
            f"--types {kind.name} fits no matrix: its blocks of {kind.weights} do not divide "
            f"{_rows(whole, whole)}; {others}"
        )


def fit_notes(axes: Sequence[Rows], types: Sequence[WeightType], *, named: bool) -> list[str]:
    """Return notes on types that do not fit matrices of a child, and on cut sizes that they do fit.

    ``axes`` has the child's rows; ``named`` where the user named the ``types``.
    """
    kinds = [kind for kind in types if kind in QUANTISED]
    if not kinds:
        return []
    notes, of_length = [], _by_length(axes)
    bare = [length for length in of_length if not for_rows(kinds, length)]
    if bare:
        notes.append(f"no quantised type fits {_rows(of_length, bare)}: 16 bits a weight or more")
    for block in sorted({kind.weights for kind in kinds}):
        unfit = [length for length in of_length if length % block and length not in bare]
        if unfit and named:
            large = [kind for kind in kinds if kind.weights == block]
            others = [kind for kind in QUANTISED if kind in for_rows(large, unfit[0])]
            notes.append(
                f"blocks of {block} ({_names(large)}) do not fit {_rows(of_length, unfit)}: {_names(others)} "
                "there, as llama.cpp's quantiser has it"
            )
        elif unfit:
            notes.append(f"only blocks of {ROW_MULTIPLE} fit {_rows(of_length, unfit)}, not those of {block}")
        cut = [
            f"{SIZES[rows.axis]} {_span(sorted(rows.possible))} of {rows.whole:,}"
            + (" (--keep-hidden 1 keeps it)" if rows.axis == STREAM else "")
            for rows in axes
            if rows.whole % block and all(length % block == 0 for length in rows.possible)
        ]
        if cut:
            notes.append(f"blocks of {block} fit what is cut, and not the parent's: {', '.join(cut)}")
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


def _by_length(axes: Iterable[Rows]) -> dict[int, list[str]]:
    """Return the roles with rows of each length, the shortest first."""
    of_length: dict[int, list[str]] = {}
    for rows in axes:
        for length in rows.possible:
            of_length.setdefault(length, []).extend(rows.roles)
    return {length: list(dict.fromkeys(of_length[length])) for length in sorted(of_length)}


def _rows(of_length: Mapping[int, Sequence[str]], lengths: Iterable[int]) -> str:
    return "rows of " + " and ".join(f"{length:,} ({', '.join(of_length[length])})" for length in lengths)


def _names(kinds: Iterable[WeightType]) -> str:
    return ", ".join(kind.name for kind in kinds)


def _span(sizes: Sequence[int]) -> str:
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
