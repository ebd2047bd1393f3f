"""Backbones (global choices), their choice blocks, and the candidates of one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ends, Floats, Ints, Layer, Shapes

Column = NDArray[Any]
"""A choice of each candidate (n,): integers or names."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of one layer, grouped by shape.

    ``alternatives[i]`` are all ways to choose ``layers[i]``, the preferred one first.
    """

    alternatives: tuple[tuple[dict[str, Any], ...], ...]
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, options: Sequence[tuple[dict[str, Any], Layer]]) -> Self:
        """Group (choice, layer) pairs by layer; the first choice of a shape is preferred."""
        ways: dict[Layer, list[dict[str, Any]]] = {}
        for choice, layer in options:
            ways.setdefault(layer, []).append(choice)
        return cls(tuple(map(tuple, ways.values())), tuple(ways))

    @cached_property
    def choices(self) -> Sequence[dict[str, Any]]:
        """Return the preferred way to choose each layer."""
        return tuple(choices[0] for choices in self.alternatives)

    @cached_property
    def multiplicity(self) -> tuple[int, ...]:
        return tuple(map(len, self.alternatives))

    @cached_property
    def shapes(self) -> Shapes:
        return Shapes.of(self.layers)

    @property
    def ways(self) -> int:
        return sum(self.multiplicity)

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def apart(self) -> Candidates:
        """Return every way to choose a layer as a candidate of its own."""
        pairs = [
            (way, layer) for ways, layer in zip(self.alternatives, self.layers, strict=True) for way in ways
        ]
        return Candidates(tuple((way,) for way, _ in pairs), tuple(layer for _, layer in pairs))


class ColumnCandidates(Candidates):
    """Candidates that are columns of numbers and names: a million of them need no objects.

    ``make`` gives the layer of choices: of the ``columns`` (n,) as a whole, or of those of one row.
    No two rows give the same layer.
    """

    def __init__(self, make: Callable[..., Layer], columns: Mapping[str, Column]) -> None:
        vars(self).update(make=make, columns=dict(columns))

    make: Callable[..., Layer]
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @cached_property
    def shapes(self) -> Shapes:
        return Shapes.of_columns(self.make(**self.columns), len(self))

    @cached_property
    def choices(self) -> Sequence[dict[str, Any]]:
        return _Rows(self.columns, len(self))

    @cached_property
    def alternatives(self) -> tuple[tuple[dict[str, Any], ...], ...]:
        return tuple((choice,) for choice in self.choices)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(self.make(**choice) for choice in self.choices)

    @cached_property
    def multiplicity(self) -> tuple[int, ...]:
        return (1,) * len(self)

    @property
    def apart(self) -> Candidates:
        return self


class _Rows(Sequence[dict[str, Any]]):
    """Columns by name, a row at a time, as Python integers and text."""

    def __init__(self, columns: Mapping[str, Column], length: int) -> None:
        self.columns, self.length = columns, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self.length:
            raise IndexError(row)
        return {name: column[row].item() for name, column in self.columns.items()}


@dataclass(frozen=True, eq=False)
class ChoiceBlock:
    """``count`` layers that choose among the same candidates: each for itself, or all alike (``tied``)."""

    candidates: Candidates
    count: int
    tied: bool = False

    @property
    def size(self) -> int:
        return self.candidates.ways if self.tied else self.candidates.ways**self.count


@dataclass(frozen=True, eq=False)
class Backbone:
    """Global choices (plain JSON), the parts outside the layers, and the blocks of layers.

    ``width`` is the mean over the layers of the residual stream's size.
    """

    choices: dict[str, Any]
    width: float
    ends: Ends
    blocks: tuple[ChoiceBlock, ...]

    @property
    def depth(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def size(self) -> int:
        return math.prod(block.size for block in self.blocks)

    @property
    def merged(self) -> Backbone:
        """Return the backbone with neighbours of the same candidates as one block: a sum sees no order."""
        if len(self.blocks) == 1:
            return self
        blocks: list[ChoiceBlock] = []
        for block in self.blocks:
            last = blocks[-1] if blocks else None
            if last and last.candidates is block.candidates and not last.tied and not block.tied:
                blocks[-1] = ChoiceBlock(block.candidates, last.count + block.count)
            else:
                blocks.append(block)
        return replace(self, blocks=tuple(blocks))

    @property
    def apart(self) -> Backbone:
        """Return the same architectures, no two of them with the same picks: layers have places, and ways are
        distinct."""
        blocks = tuple(
            ChoiceBlock(block.candidates.apart, block.count if block.tied else 1, block.tied)
            for block in self.blocks
            for _ in range(1 if block.tied else block.count)
        )
        return replace(self, blocks=blocks)


@dataclass(frozen=True, eq=False)
class CandidateTable:
    """The columns of a choice block that solvers see.

    ``score`` (c,) float64 and ``costs`` (c, k) int64 are what one chosen candidate adds;
    ``multiplicity`` (c,) counts the ways to choose each.
    """

    score: Floats
    costs: Ints
    multiplicity: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.score)

    @cached_property
    def least(self) -> Ints:
        least: Ints = self.costs.min(axis=0)
        return least

    @cached_property
    def most(self) -> Ints:
        most: Ints = self.costs.max(axis=0)
        return most

    @cached_property
    def peak(self) -> float:
        return float(np.abs(self.most).max(initial=0))


class RepeatedTable(CandidateTable):
    """A table whose choice is taken ``times`` times at once; its columns are made when they are read."""

    def __init__(self, once: CandidateTable, times: int) -> None:
        vars(self).update(once=once, times=times, multiplicity=once.multiplicity)

    once: CandidateTable
    times: int

    def __len__(self) -> int:
        return len(self.once)

    @cached_property
    def score(self) -> Floats:
        return self.once.score * self.times

    @cached_property
    def costs(self) -> Ints:
        return self.once.costs * self.times

    @cached_property
    def least(self) -> Ints:
        return self.once.least * self.times

    @cached_property
    def most(self) -> Ints:
        return self.once.most * self.times
