"""The loss of every type that a matrix may take, at every size that a cut may leave it.

Of a matrix W that reads x and whose outputs feel G, rounding loses 1/2 f sum_rc E[G_r^2] e_rc^2 E[x_c^2]
(``zerolm.passes.matrix_moments``). The errors of a type are a share of the weights, nearly the same
everywhere in a matrix: the ratio of the two sums, with e and with w, is measured once, on some rows. The sum
with w falls into what each unit has in it, and along the directions of a narrower stream, so that a matrix of
any size is priced by adding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats, Ints
from zerolm.carving.bits.kernels import Values, rounded, sum_of_squares
from zerolm.carving.bits.row_blocks import (
    ATTENTION,
    FFN,
    WRITTEN,
    as_stored,
    first_part,
    roles_of,
    types_of_rows,
)
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, IN_SMALLER_BLOCKS, WeightType, from_largest
from zerolm.io.cache import ArrayCache
from zerolm.passes.fisher import OUTPUT_ROLES, Fisher
from zerolm.passes.matrix_moments import EMBEDDING, UNTIED, FeltMatrix, Place, outside_layers
from zerolm.progress import Counted, Progress, silent
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Dimensions, dimensions
from zerolm.units.stream.maps import stored_gain
from zerolm.units.stream.narrowing import Basis, Width, energies, norm_before

SAMPLED: Final = 128
"""Rows of a matrix whose errors are measured; of the embedding and the head those felt most."""
SAMPLED_WEIGHTS: Final = 1 << 17
FEWEST_ROWS: Final = 64
"""Of long rows fewer are measured: so many weights, but no fewer rows than these."""
ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True, eq=False)
class Directions:
    """A basis of the stream, as columns of ``vectors`` (d, d), and what is read and felt of each, (d,).

    ``read`` is of the normalised stream in the layers, ``last`` before the head; ``felt`` is of what is added
    to the stream, of a trace of 1, and ``shares`` (layers, 2) what ``o`` and ``down`` of a layer feel in all.
    """

    vectors: Floats
    read: Floats
    last: Floats
    felt: Floats
    shares: Floats

    @classmethod
    def of(cls, basis: Basis, fisher: Fisher) -> Directions:
        """Return what the loss feels along a basis."""
        vectors, whole = basis.vectors, len(basis.vectors)
        read, last = (shares_along(vectors, each) * whole for each in (fisher.stream["energy"], basis.last))
        return cls(vectors, read, last, shares_along(vectors, fisher.outputs), felt_in_all(fisher))


def _kind(role: str) -> str:
    """Return what a role's units are."""
    return "groups" if first_part(role) in ATTENTION else "ffn"


def shares_along(vectors: Floats, moments: Floats) -> Floats:
    """Return the share of each direction in second ``moments``, (k,), none below 0 by rounding."""
    return np.maximum(energies(vectors, moments), 0.0)


def felt_in_all(fisher: Fisher) -> Floats:
    """Return what is felt of the outputs of ``o`` and ``down`` in all, (layers, 2)."""
    return np.asarray(fisher.shares * float(np.trace(fisher.outputs)))


@dataclass(frozen=True, eq=False)
class Weighed:
    """Of a matrix: ``energy`` (units, widths), weighed squares of its weights, and the ``ratio`` (types,).

    The widths are those of the stream, the whole last; that has a ratio of its own, ``ratio_whole``. Where
    the head is to stay the embedding, the kept directions are turned among themselves, which spreads what is
    read and felt evenly over them: ``turned`` (units, widths) are the energies then.
    """

    energy: Floats
    turned: Floats
    ratio: Floats
    ratio_whole: Floats

    def beside(self, width: Width | None, at: int) -> tuple[Floats, Floats]:
        """Return the energies (units,) and ratios beside a width, which has the place ``at``."""
        if width is None:
            return self.energy[:, at], self.ratio_whole
        return (self.turned if width.tied else self.energy)[:, at], self.ratio


@dataclass(frozen=True, eq=False)
class TypePrices:
    """Bytes and losses of the matrices of a checkpoint by type, beside each of the ``hidden`` widths.

    ``felt`` has what the loss feels of each matrix; without it the errors of a matrix count relative to its
    weights. ``hidden`` ascend, the parent's last; ``directions`` are needed where there are others.
    """

    checkpoint: Checkpoint
    types: tuple[WeightType, ...]
    felt: Mapping[Place, FeltMatrix] | None
    hidden: tuple[int, ...]
    directions: Directions | None = None
    progress: Progress = silent
    cache: ArrayCache = field(default_factory=ArrayCache)

    @cached_property
    def parent(self) -> Dimensions:
        return dimensions(self.checkpoint)

    @cached_property
    def attention(self) -> tuple[str, ...]:
        """The roles of the matrices of attention, ``q+k+v`` where they are one."""
        return roles_of(self.checkpoint, ATTENTION)

    @cached_property
    def ffn(self) -> tuple[str, ...]:
        """The roles of an FFN's matrices."""
        return roles_of(self.checkpoint, FFN)

    @property
    def _ends(self) -> tuple[str, ...]:
        """The roles outside the layers that something is felt of."""
        return outside_layers(predicts=self.checkpoint.family.task == "next")

    def candidates(self, name: str) -> tuple[WeightType, ...]:
        """Return the types that a tensor of the parent may take at some length of its rows."""
        smaller = {BY_NAME[IN_SMALLER_BLOCKS.get(kind.name, kind.name)] for kind in self.types}
        return from_largest({*self.types, *smaller, *as_stored(self.checkpoint, name)})

    def of_rows(self, name: str, row: int) -> tuple[WeightType, ...]:
        """Return the types that a tensor of the parent may take where its rows have this length."""
        return types_of_rows(self.checkpoint, self.types, name, row)

    def of_layers(self, width: Width | None, role: str, counts: Ints, by: Criterion) -> RolePrices:
        """Return the prices of a role in all layers at numbers of units (s,) that ``by`` chooses."""
        parent, hidden = self.parent, self._hidden(width)
        types, sizes, possible = self._sizes(width, role, counts)
        at = self.hidden.index(hidden)
        losses = np.empty((parent.depth, len(counts), len(types)))
        for layer in range(parent.depth):
            measured = self._measured[layer, role]
            kept = _kept(by, layer, _kind(role), counts, len(measured.energy))
            energy, ratio = measured.beside(width, at)
            losses[layer] = np.outer(kept @ energy, ratio)
        return RolePrices(types, sizes, np.where(possible, losses, np.inf))

    def fewest(self, width: Width | None, role: str, counts: Ints) -> Smallest:
        """Return the fewest bytes that a role has at numbers of units (s,), and in which types."""
        types, sizes, possible = self._sizes(width, role, counts)
        able = np.where(possible, sizes, np.iinfo(np.int64).max)
        return Smallest(able.min(1), [types[at].name for at in able.argmin(1)])

    def _sizes(
        self, width: Width | None, role: str, counts: Ints
    ) -> tuple[tuple[WeightType, ...], Ints, NDArray[np.bool_]]:
        """Return the types of a role, its bytes (s, types) at numbers of units, and which are possible."""
        layout, hidden = self.checkpoint.layout, self._hidden(width)
        in_layer = role not in UNTIED
        name = layout.name(role, 0 if in_layer else None) or layout.name("embedding")
        assert name is not None
        types = self.candidates(name)
        unit = self._unit(role) if in_layer else self.checkpoint.tensors[name].shape[0]
        rows, columns = (hidden, counts * unit) if role in WRITTEN else (counts * unit, hidden)
        across = np.broadcast_arrays(rows, columns, counts)
        return types, *self._bytes(name, across[0], across[1])

    def _bytes(self, name: str, rows: Ints, columns: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the bytes (s, types) of a tensor cut to these sizes (s,), and which types it may have."""
        types, pairs = self.candidates(name), list(zip(rows.tolist(), columns.tolist(), strict=True))
        sizes = np.array([[one.size(column) * row for one in types] for row, column in pairs])
        able = [self.of_rows(name, column) for _, column in pairs]
        return sizes.astype(np.int64), np.array([[one in each for one in types] for each in able])

    def outside(self, width: Width | None) -> dict[str, RolePrices]:
        """Return the prices of the embedding and of a head of its own, in one layer of one size each.

        A tied embedding is felt as both.
        """
        tied = self.checkpoint.layout.tied if width is None else width.tied
        at, prices = self.hidden.index(self._hidden(width)), {}
        for role in EMBEDDING if tied else self._ends:
            types, sizes, possible = self._sizes(width, role, np.array([1]))
            losses = np.zeros(len(types))
            for part in self._ends if tied else (role,):
                energy, ratio = self._measured[None, part].beside(width, at)
                losses += energy[0] * ratio
            prices[role] = RolePrices(types, sizes, np.where(possible, losses, np.inf)[None])
        return prices

    def _hidden(self, width: Width | None) -> int:
        return self.parent.hidden if width is None else width.hidden

    def _unit(self, role: str) -> int:
        """Return how many elements of its axis belong to a unit."""
        return sum(self._parts(role))

    def _parts(self, role: str) -> list[int]:
        """Return how many elements of a unit each of its parts has, as they are fused."""
        parent, parts = self.parent, role.split("+")
        if _kind(role) == "ffn":
            return [1] * len(parts)
        return [parent.head_size * (parent.heads_per_group if part in ("q", "o") else 1) for part in parts]

    def _by_unit(self, role: str, rows: int) -> Ints:
        """Return the rows of a fused matrix unit by unit, where they are stored part by part."""
        parts = self._parts(role)
        units, starts = rows // sum(parts), np.cumsum([0, *parts[:-1]]) * (rows // sum(parts))
        places = [np.arange(units * size).reshape(units, size) + start
                  for size, start in zip(parts, starts, strict=True)]  # fmt: skip
        return np.concatenate(places, axis=1).ravel()

    @cached_property
    def _measured(self) -> dict[Place, Weighed]:
        depth = self.parent.depth
        places: list[Place] = [
            (layer, role) for layer in range(depth) for role in (*self.attention, *self.ffn)
        ]
        places += [(None, role) for role in self._ends]
        step = Counted(self.progress, "rounding every matrix to every type", len(places))
        measured = {}
        for place in places:
            name = "-".join(map(str, place))
            row = self.cache.get(name)
            if row is None:
                result = self._measure(place)
                row = vars(result)
                self.cache.put(name, row)
            measured[place] = Weighed(**row)
            step()
        return measured

    def _measure(self, place: Place) -> Weighed:
        """Return the energies and ratios of a matrix, in the parent's channels and along the directions."""
        layer, role = place
        name = self.checkpoint.layout.name(role, layer) or self.checkpoint.layout.name("embedding")
        assert name is not None
        values, types = self.checkpoint.read(name), self.candidates(name)
        felt = self._felt(place, values)
        if "+" in role:
            order = self._by_unit(role, len(values))
            values, felt = values[order], replace(felt, felt=felt.felt[order])
        units, is_written = self._units(place, values), role in WRITTEN
        energy, turned = np.zeros((2, units, len(self.hidden)))
        energy[:, -1:] = _energies(values, felt.read, felt.felt, units, self.hidden[-1:], across=is_written)
        ratio = whole = _ratios(values, felt.read, felt.felt, types, most_felt=layer is None)
        if len(self.hidden) > 1:
            assert self.directions is not None
            along, read, rows = self._turned(place, values, felt)
            widths = self.hidden[:-1]
            energy[:, :-1] = _energies(along, read, rows, units, widths, across=is_written)
            stream = rows if is_written else read
            evenly = np.ones(len(stream))
            pair = (read, evenly) if is_written else (evenly, rows)
            turned[:, :-1] = _energies(along, pair[0], pair[1], units, widths, across=is_written)
            turned[:, :-1] *= (stream.cumsum() / np.arange(1, len(stream) + 1))[np.array(widths) - 1]
            ratio = _ratios(along, read, rows, types, most_felt=layer is None)
        half = 0.5 * felt.factor
        return Weighed(half * energy, half * turned, ratio, whole)

    def _felt(self, place: Place, values: Values) -> FeltMatrix:
        if self.felt is None:
            rows, columns = values.shape
            return FeltMatrix(np.ones(columns), np.ones(rows), 1.0 / max(sum_of_squares(values), 1e-300))
        return self.felt[place]

    def _turned(self, place: Place, values: Values, felt: FeltMatrix) -> tuple[Values, Floats, Floats]:
        """Return a matrix along the directions of the stream, and what it reads and what is felt there."""
        layer, role = place
        directions = self.directions
        assert directions is not None
        vectors = directions.vectors.astype(np.float32)
        if role in WRITTEN:
            assert layer is not None
            share = directions.shares[layer, OUTPUT_ROLES.index(role)]
            return vectors.T @ values, felt.read, directions.felt * share
        if role == "embedding":
            return values @ vectors, directions.felt * felt.read.sum(), felt.felt
        gain = stored_gain(self.checkpoint, norm_before(first_part(role)), layer)
        read = directions.last if role == "head" else directions.read
        return np.asarray((values * gain) @ vectors, np.float32), read, felt.felt

    def _units(self, place: Place, values: Values) -> int:
        layer, role = place
        axis = 1 if role in WRITTEN else 0
        return 1 if layer is None else values.shape[axis] // self._unit(role)


@dataclass(frozen=True, eq=False)
class RolePrices:
    """Of a role: ``bytes`` (sizes, types), and ``loss`` (layers, sizes, types), infinite where none is."""

    types: tuple[WeightType, ...]
    bytes: Ints
    loss: Floats


@dataclass(frozen=True, eq=False)
class Smallest:
    """Of a role: the fewest ``bytes`` at each size (s,), and the ``types`` that they are of."""

    bytes: Ints
    types: list[str]


def _energies(
    values: Values, read: Floats, felt: Floats, units: int, widths: Sequence[int], *, across: bool
) -> Floats:
    """Return felt_r read_c w_rc^2 summed within each unit and the first components of the stream, (units, w).

    Of a matrix (n, k) units are rows and the stream its columns; ``across``: the other way round.
    """
    along, weights = (felt, read) if across else (read, felt)
    turned = values.T if across else values
    ends = np.array(widths) - 1
    summed = np.empty((len(turned), len(ends)))
    for start in range(0, len(turned), ROWS_AT_ONCE):
        part = np.square(turned[start : start + ROWS_AT_ONCE]) * along.astype(np.float32)
        columns = np.add.accumulate(part, axis=1, dtype=np.float64)[:, ends]
        summed[start : start + ROWS_AT_ONCE] = columns * weights[start : start + ROWS_AT_ONCE, None]
    total: Floats = summed.reshape(units, -1, len(ends)).sum(1)
    return total


def _kept(by: Criterion, layer: int, kind: str, counts: Ints, whole: int) -> Floats:
    """Return 1 where a number of units keeps one, (sizes, units)."""
    kept = np.ones((len(counts), whole))
    for place, count in enumerate(counts.tolist()):
        if count < whole:
            kept[place] = 0.0
            kept[place, by.choose(layer, kind, count)] = 1.0
    return kept


def _ratios(
    values: Values, read: Floats, felt: Floats, types: Sequence[WeightType], *, most_felt: bool
) -> Floats:
    """Return the weighed squares of the errors of each type over those of the weights, (types,)."""
    most = rows_of_weights(SAMPLED, values.shape[1], SAMPLED_WEIGHTS)
    first = np.argsort(-felt, kind="stable")[:most] if most_felt else spread_rows(len(values), most)
    taken = np.sort(first)
    some, weights = values[taken], felt[taken]
    return np.array([_ratio(some, read, weights, each) for each in types])


def rows_of_weights(most: int, columns: int, weights: int) -> int:
    """Return how many rows hold about so many weights: ``most`` at most, and some at least."""
    return min(most, max(FEWEST_ROWS, weights // columns))


def spread_rows(rows: int, most: int) -> Ints:
    """Return so many rows at most, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(np.int64))


def _ratio(values: Values, read: Floats, felt: Floats, kind: WeightType) -> float:
    columns = values.shape[1] // kind.weights * kind.weights
    if columns == 0:
        return np.inf
    some, importances = np.ascontiguousarray(values[:, :columns]), read[:columns]
    whole = float(felt @ (np.square(some, dtype=np.float64) @ importances))
    errors = rounded(some, kind, as_importances(importances)) - some
    return float(felt @ (np.square(errors, dtype=np.float64) @ importances)) / max(whole, 1e-300)


def as_importances(read: Floats) -> Values:
    """Return importances (k,) for the quantiser: positive, of mean 1; all 1 where nothing is read."""
    mean = float(read.mean())
    if not mean > 0.0:
        return np.ones(len(read), np.float32)
    return np.maximum(read / mean, 1e-6).astype(np.float32)
