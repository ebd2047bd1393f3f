"""Types without cuts, for families whose files store matrices differently from their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from zerolm.carving.bits.file_child import TypedFile, WeighedFile, size_of
from zerolm.carving.bits.kernels import chunk
from zerolm.carving.bits.options import All, Options, least_bytes, least_loss
from zerolm.carving.bits.plan import TypedPlan
from zerolm.carving.bits.planner import ALONE, Chosen, EqualBytes, TypesRequest
from zerolm.carving.bits.row_blocks import Rows, check_rows, fit_notes, types_of_rows
from zerolm.carving.bits.typed_child import Types
from zerolm.carving.session import Session
from zerolm.carving.vocabulary.fewer_tokens import AXES
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import rearrangement
from zerolm.checkpoints.weight_types import ALL, QUANTISED, WeightType, types_named
from zerolm.children.child_tensors import Child
from zerolm.io.cache import ArrayCache
from zerolm.passes.matrix_moments import Place
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import Counted, Progress
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import Repaired


class FileTypePlanner(TypesRequest):
    """Plans the types of an uncut child; ``session`` is None without tokens."""

    def __init__(
        self, checkpoint: Checkpoint, size: SizeRequest, session: Session | None, progress: Progress
    ) -> None:
        self.checkpoint, self.size, self.session, self.progress = checkpoint, size, session, progress
        self.types = types_named(size.weights.types or ALL, with_importances=session is not None)
        self.budget = int(size.budgets["max_weight_bytes"])
        self.cut = Cut.whole(dimensions(checkpoint))

    def check(self, by_loss: bool) -> None:
        """Raise ``ValueError`` before the long computation for a request that would fail after it.

        Raises ``ModuleNotFoundError`` without llama-cpp-python.
        """
        del by_loss
        chunk()
        family = self.checkpoint.family
        others = [name for name in self.size.budgets if name != "max_weight_bytes"]
        cuts = [f"--keep-{name} {share:g}" for name, share in self.size.keep.items() if share < 1]
        cuts += [f"--{name.replace('_', '-')}" for name in others]
        if cuts:
            raise ValueError(
                f"a {family.name} cannot have cuts and quantisation types together: its gguf file holds "
                f"{rearrangement(family)}: drop {cuts[0]}, or give --types stored for cuts alone"
            )
        self.check_imatrix()
        if self.names_types:
            check_rows(self._rows, str(self.size.weights.types))
        smallest = {place: min(sizes) for place, sizes in self._sizes.items()}
        least = self._without_moments.plain_bytes + sum(smallest.values())
        if least > self.budget:
            raise ValueError(self.too_few(least, "with all units"))

    @property
    def keeps_all(self) -> bool:
        """Whether all units are kept: always, since only types are planned."""
        return True

    def best(self, tables: Sequence[Criterion]) -> Chosen:
        """Return the plan of least loss, with the loss of the best single type; measured with tokens."""
        del tables
        plan, session = self._plan, self.session
        if session is None:
            return Chosen(plan, [])
        typed = TypedFile(self._weighed, plan.types)
        self.progress("measuring the plan, quantised")
        loss = session.compared_loss(typed, Repaired())
        rows = [EqualBytes(ALONE, plan.bytes, plan.loss, loss), *self._single(session)]
        return Chosen(plan, rows, loss)

    def narrowed(self, plan: TypedPlan) -> Cut:
        """Return the cut of a plan."""
        return plan.cut

    def types_of(self, session: Session, cut: Cut, repaired: Repaired) -> Types:
        """Return the types of a child to be written."""
        del session, cut, repaired
        return self._plan.types

    def fit(self, plan: TypedPlan) -> list[str]:
        """Return notes on types that do not fit matrices, and on the lack of a repair."""
        del plan
        lengths = {rows.axis: {rows.whole} for rows in self._rows}
        notes = fit_notes(self._rows, lengths, self.types, named=self.names_types)
        family = self.checkpoint.family
        if not self.size.keep:
            notes.append(f"types alone: of a {family.name} a gguf file holds {rearrangement(family)}")
        if self.session is not None:
            notes.append(f"errors of rounding are not refitted in a {family.name}")
        return notes

    @cached_property
    def _without_moments(self) -> WeighedFile:
        return WeighedFile(Child(self.checkpoint, self.cut), None)

    @cached_property
    def _weighed(self) -> WeighedFile:
        return self._without_moments if self.session is None else self.session.weighed_file()

    @cached_property
    def _rows(self) -> list[Rows]:
        """The rows of matrices by their length."""
        roles: dict[int, list[str]] = {}
        for (_, role), every in self._without_moments.matrices.items():
            for matrix in every:
                roles.setdefault(matrix.columns, []).append(role)
        return [
            Rows(str(length), tuple(dict.fromkeys(roles[length])), length, frozenset({length}))
            for length in sorted(roles)
        ]

    @cached_property
    def _candidates(self) -> dict[Place, tuple[WeightType, ...]]:
        """The possible types of each place's stored tensors, common to all their pieces, largest first."""
        types = {}
        for place, every in self._without_moments.matrices.items():
            able = [
                types_of_rows(self.checkpoint, self.types, matrix.stack.first.source, matrix.columns)
                for matrix in every
            ]
            types[place] = tuple(kind for kind in able[0] if all(kind in other for other in able))
        return types

    @cached_property
    def _sizes(self) -> dict[Place, list[int]]:
        """The bytes of the stored tensors of each place by type."""
        return {
            place: [sum(size_of(matrix, kind) for matrix in every) for kind in self._candidates[place]]
            for place, every in self._without_moments.matrices.items()
        }

    @cached_property
    def _options(self) -> dict[Place, Options]:
        """The bytes and losses of each place by type."""
        cache = ArrayCache()
        if self.session is not None:
            cache = self.session.cache("file types", [kind.name for kind in self.types])
        step = Counted(self.progress, "rounding every matrix to every type", len(self._candidates))
        options_of = {}
        for place, kinds in self._candidates.items():
            name = "-".join(map(str, place))
            row = cache.get(name)
            if row is None:
                options = self._weighed.losses(place, kinds)
                row = {"bytes": options.bytes, "loss": options.loss}
                cache.put(name, row)
            options_of[place] = Options(place, row["bytes"], row["loss"])
            step()
        return options_of

    @cached_property
    def _plan(self) -> TypedPlan:
        plain = self._weighed.plain_bytes
        best = least_loss(All(tuple(self._options.values())), self.budget - plain)
        assert best is not None  # check() proved that some types are small enough
        types = {place: self._candidates[place][row].name for place, row in best.picks.items()}
        return TypedPlan(self.cut, None, types, plain + best.bytes, best.loss, is_proven=True)

    def predicted(self, tokens: int) -> tuple[int, float]:
        """Return the bytes of the best types with this number of tokens, and their loss in nats per token.

        Rows of removed tokens are assumed to lose nothing. Raises ``ValueError`` where no types keep the
        bytes.
        """
        plain = self._weighed.plain_bytes
        options = All(tuple(self._with_tokens(each, tokens) for each in self._options.values()))
        best = least_loss(options, self.budget - plain)
        if best is None:
            raise ValueError(self.too_few(plain + least_bytes(options), f"with {tokens:,} tokens"))
        return plain + best.bytes, best.loss

    def _with_tokens(self, options: Options, tokens: int) -> Options:
        """Return the options of a place with this number of tokens, if its matrices have a row for each."""
        every = self._without_moments.matrices[options.name]
        stored = [tensor.slot for matrix in every for tensor in matrix.stack.tensors]
        if not any(label in AXES for slot in stored for label in slot.axes):
            return options
        return replace(options, bytes=options.bytes * tokens // self.checkpoint.layout.vocab)

    def _single(self, session: Session) -> list[EqualBytes]:
        """Return the loss of the best single type with which all matrices keep the bytes, if there is one."""
        rows: list[EqualBytes] = []
        for kind in self.types:
            if kind not in QUANTISED or not all(kind in kinds for kinds in self._candidates.values()):
                continue
            types = dict.fromkeys(self._candidates, kind.name)
            size = self._weighed.bytes_of(types)
            if size > self.budget:
                continue
            losses = (each.loss[self._candidates[place].index(kind)] for place, each in self._options.items())
            rows.append(EqualBytes(kind.name, size, float(np.sum(list(losses))), None))
        if not rows:
            return []
        best = min(rows, key=lambda row: row.predicted)
        self.progress(f"measuring {best.name} everywhere")
        typed = TypedFile(self._weighed, dict.fromkeys(self._candidates, best.name))
        measured = session.compared_loss(typed, Repaired())
        return [EqualBytes(f"{best.name} everywhere", best.bytes, best.predicted, measured)]
