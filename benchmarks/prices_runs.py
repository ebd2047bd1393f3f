"""What ``prices.py`` measures of one model: tables of losses, joint cuts, plans, and the best of a grid."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from carved.parent import Texts
from measured_cuts import measured_losses, stream_losses
from parts import Parts

from zerolm.architecture import Ints
from zerolm.carving.finished_child import finished
from zerolm.carving.loss import LOSS_BATCH, Loss
from zerolm.carving.parent_and_request import Carving, ParentModel
from zerolm.carving.planned_child import planned
from zerolm.carving.request import Destination, Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.planning.loss_table import LossTable
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.plan import REMOVED
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import budgets_of, costs_of, plans_of
from zerolm.progress import silent
from zerolm.repairing.walk import repair
from zerolm.settings.compute import ComputeRequest
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.stream.narrowing import Width

KINDS: Final = ["groups", "ffn"]
NOWHERE: Final = Destination(form="hf")
LENGTH: Final = 256
SIXTEENTHS: Final = 16
WORSE: Final = 3.0
"""A candidate of the grid whose loss unrepaired is so many times the least is not repaired."""
BEST: Final = 3
"""So many candidates of the grid are repaired and measured as plans are."""
JOINT: Final = (0.01, 0.6)
"""Least and largest measured loss of a joint cut that counts, in nats a token."""


@dataclass(frozen=True)
class Scale:
    """How many sequences are calibrated on, judged on, fit a candidate of the grid, and judge it unrepaired.

    ``joint`` cuts are drawn.
    """

    calibrated: int = 96
    judged: int = 24
    fitted: int = 16
    glanced: int = 4
    joint: int = 60


@dataclass(frozen=True)
class Shape:
    """The KV groups and neurons of each layer of a parent, ``REMOVED`` for none, and the stream's width."""

    sizes: tuple[tuple[int, int], ...]
    hidden: int
    tied: bool

    @classmethod
    def of(cls, cut: Cut, tied: bool) -> Self:
        """Return the shape of a cut of a parent whose head is or is not ``tied``."""
        sizes = {layer.layer: (len(layer["groups"]), len(layer["ffn"])) for layer in cut.layers}
        head = cut.narrowing.width.tied if cut.narrowing else tied
        return cls(tuple(sizes.get(layer, REMOVED) for layer in range(cut.parent.depth)), cut.hidden, head)

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Self:
        """Return the shape that JSON holds."""
        return cls(tuple((groups, ffn) for groups, ffn in stored["sizes"]), stored["hidden"], stored["tied"])

    def cut(self, session: Session, by: Criterion) -> Cut:
        """Return the cut of this shape, its units chosen by a criterion."""
        parent = dimensions(session.checkpoint)
        layers = [layer for layer, size in enumerate(self.sizes) if size != REMOVED]
        cut = Cut.of(parent, layers, self.sizes.__getitem__, by.choose)
        if self.hidden == parent.hidden:
            return cut
        return replace(cut, narrowing=session.basis.narrowing(Width(self.hidden, self.tied)))

    @property
    def gone(self) -> list[int]:
        """Return the layers that go."""
        return [layer for layer, size in enumerate(self.sizes) if size == REMOVED]

    def __str__(self) -> str:
        sizes = [size for size in self.sizes if size != REMOVED]
        groups, ffn = (spans(sorted(set(kind))) for kind in zip(*sizes, strict=True))
        head = "" if self.tied else " and a head"
        gone = f", without {', '.join(map(str, self.gone))}" if self.gone else ""
        return f"{len(sizes)} x {self.hidden}{head}, kv {groups}, ffn {ffn}{gone}"


def spans(sizes: list[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


@dataclass(frozen=True)
class Filled(Criterion):
    """Keeps the units that another criterion chooses; more of them are worth more, and all layers stay."""

    by: Criterion

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return self.by.choose(layer, kind, count)

    def score(self, layer: int, kind: str, count: int) -> float:
        return float(count)

    def narrower(self, width: Width) -> float | None:
        return 0.0


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """Return what was made, and the processor seconds that it took."""
    start = time.process_time()
    return make(), time.process_time() - start


@contextmanager
def cold(work: Path) -> Iterator[None]:
    """Begin with nothing in the cache; what comes into it then is in that of ``work`` too."""
    usual, fresh = os.environ["ZEROLM_CACHE"], work / "cold"
    shutil.rmtree(fresh, ignore_errors=True)
    os.environ["ZEROLM_CACHE"] = str(fresh)
    try:
        yield
    finally:
        os.environ["ZEROLM_CACHE"] = usual
    shutil.copytree(fresh, usual, dirs_exist_ok=True)
    shutil.rmtree(fresh)


class PartedSession(Session):
    """A session whose finalists are parts: each is repaired and measured once, and its seconds are stored."""

    def __init__(self, checkpoint: Checkpoint, methods: Methods, parts: Parts, name: str) -> None:
        super().__init__(checkpoint, methods, silent)
        self.parts, self.name = parts, name
        self.finalists: list[dict[str, float]] = []

    def finals(self, cuts: Sequence[Cut]) -> list[float]:
        names = [f"{self.name}: finalist {Shape.of(cut, self.checkpoint.layout.tied)}" for cut in cuts]
        self.finalists = [
            self.parts.measured(name, partial(self._final, cut))
            for name, cut in zip(names, cuts, strict=True)
        ]
        return [row["loss"] for row in self.finalists]

    def _final(self, cut: Cut) -> dict[str, float]:
        with cold(self.parts.file.parent):
            losses, seconds = timed(lambda: super(PartedSession, self).finals([cut]))
        return {"loss": losses[0], "seconds": seconds}


class Parent:
    """A model, and all that is measured of it; what is long is a part."""

    def __init__(self, folder: Path, sources: Texts, scale: Scale, parts: Parts) -> None:
        self.folder, self.sources, self.scale, self.parts = folder, sources, scale, parts
        self.name = folder.resolve().name

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.open(self.folder)

    @cached_property
    def session(self) -> PartedSession:
        methods = Methods(
            "surgeon",
            "prices",
            str(self.sources.seen),
            sequences=self.scale.calibrated,
            length=LENGTH,
            repair="least-squares",
        )
        return PartedSession(self.checkpoint, methods, self.parts, self.name)

    @cached_property
    def criterion(self) -> Criterion:
        return self.session.importance()

    @cached_property
    def unseen(self) -> Tokens:
        text, count = str(self.sources.unseen), self.scale.judged
        return tokens_of(self.checkpoint, text, sequences=count, length=LENGTH, seed=0)

    @cached_property
    def judge(self) -> Loss:
        """The loss on text that nobody has seen."""
        return self.loss(self.unseen)

    @cached_property
    def calibrated(self) -> Loss:
        """The loss on as many calibration sequences."""
        return self.loss(self.session.tokens.spread(self.scale.judged))

    def loss(self, tokens: Tokens) -> Loss:
        """Return the loss on these tokens."""
        return Loss(Blocks(self.session.model, tokens.batches(LOSS_BATCH)))

    def sizes(self) -> dict[str, int]:
        """Return the sizes and the parameters of the model."""
        costs = costs_of(self.checkpoint, StoredCosts())
        return asdict(dimensions(self.checkpoint)) | {"params": costs["params"]}

    def timed_table(self) -> dict[str, float]:
        """Return the processor seconds of all that prices need, with nothing in the cache."""
        with cold(self.parts.file.parent):
            session = PartedSession(self.checkpoint, self.session.methods, self.parts, self.name)
            _, felt = timed(lambda: (session.fisher, session.basis))
            by, units = timed(session.importance)
            _, table = timed(lambda: session.table(by, KINDS, with_stream=True))
        return {"felt": felt, "units": units, "table": table}

    @cached_property
    def tables(self) -> dict[str, LossTable]:
        """Losses foretold and measured, both of cuts that are not repaired, and foretold of repaired ones.

        They are of the cache where they were made before.
        """
        session, by, model = self.session, self.criterion, self.session.model
        priced = session.table(by, KINDS, with_stream=True)
        assert priced.repaired is not None
        compared, tied, cache = session.divided.compared, self.checkpoint.layout.tied, session.cache
        measured = replace(
            measured_losses(model, compared, by, KINDS, cache=cache("measured cuts")),
            stream=stream_losses(model, compared, session.basis, tied=tied, cache=cache("measured widths")),
        )
        return {"prices": priced, "measured": measured, "repaired": priced.repaired}

    def single_cuts(self) -> dict[str, list[tuple[float, float]]]:
        """Return the foretold and the measured loss of every single cut that was measured, by its kind."""
        priced, measured = self.tables["prices"], self.tables["measured"]
        assert priced.stream is not None
        assert measured.stream is not None
        cuts = {
            kind: [
                (-priced.score(layer, kind, int(size)), float(loss))
                for layer, losses in enumerate(measured.losses[kind])
                for size, loss in zip(measured.sizes[kind][:-1], losses[:-1], strict=True)
            ]
            for kind in KINDS
        }
        cuts["stream"] = [
            (priced.stream.loss(Width(int(size), head)), float(loss))
            for head, losses in measured.stream.losses.items()
            for size, loss in zip(measured.stream.sizes[:-1], losses[:-1], strict=True)
        ]
        cuts["gone"] = list(zip(priced.without_layer.tolist(), measured.without_layer.tolist(), strict=True))
        return cuts

    def joint_cut(self, number: int) -> dict[str, Any]:
        """Return a random cut of several things at once, by its number: foretold losses, and measured ones.

        Drawn until its loss on calibration text, not repaired, lies in ``JOINT``.
        """
        generator, low, high = np.random.default_rng(number), *JOINT
        calibrated = 0.0
        while not low <= calibrated <= high:
            shape = self._drawn(generator, uniform=number % 2 == 0, drops=number % 5 == 4)
            cut = shape.cut(self.session, self.criterion)
            calibrated = self.calibrated.of_cut(cut)
        foretold = {name: table.predicted(cut) for name, table in self.tables.items()}
        model, rule = self.session.model, self.session.methods.repair
        some = self.session.tokens.spread(2 * self.scale.fitted)
        fitted, judged = (some.rows(range(start, len(some), 2)) for start in range(2))
        after = self.loss(judged).of_cut(cut, repair(model, cut, fitted, rule))
        losses = {"calibrated": calibrated, "unseen": self.judge.of_cut(cut), "after": after}
        return {"shape": asdict(shape), **foretold, **losses}

    def _drawn(self, generator: np.random.Generator, *, uniform: bool, drops: bool) -> Shape:
        """Return a random shape, one size in all layers or each its own; it may lack a layer."""
        parent, tied = dimensions(self.checkpoint), self.checkpoint.layout.tied
        cut = np.exp(generator.uniform(np.log(0.03), np.log(0.6)))  # the share that goes, about
        narrower = generator.random() < 0.6
        sixteenths = SIXTEENTHS - int(generator.integers(0, 1 + round(SIXTEENTHS * cut))) * narrower

        def size() -> tuple[int, int]:
            groups = parent.kv_heads - int(generator.binomial(parent.kv_heads - 1, cut / 2))
            return groups, max(1, round(parent.ffn * (1 - cut * generator.uniform(0, 1.5))))

        one = size()
        sizes = [one if uniform else size() for _ in range(parent.depth)]
        if drops:
            sizes[int(generator.integers(1, parent.depth))] = REMOVED
        head = tied and (sixteenths == SIXTEENTHS or bool(generator.random() < 0.5))
        return Shape(tuple(sizes), max(1, sixteenths) * parent.hidden // SIXTEENTHS, head)

    def plan(self, cost: str, share: str) -> dict[str, Any]:
        """Return a plan by prices: its shape, its child's loss, and what it took."""
        session, size = self.session, self._request(cost, share)
        session.importance()
        carving = Carving(
            ParentModel(str(self.folder), self.checkpoint),
            size,
            session.methods,
            NOWHERE,
            StoredCosts(),
            ComputeRequest(),
            silent,
            session,
        )
        carved = finished(carving, planned(carving))
        shape = Shape.of(carved.cut, self.checkpoint.layout.tied)
        finalists = session.finalists
        return {
            "shape": asdict(shape),
            "predicted": next(loss for name, loss in carved.losses.items() if name.startswith("predicted")),
            "finalists": len(finalists),
            "seconds": sum(row["seconds"] for row in finalists),
            "kl": self.child(carved.cut)["kl"],
        }

    def _request(self, cost: str, share: str) -> SizeRequest:
        limits = budgets_of({f"max_{cost}": share}, costs_of(self.checkpoint, StoredCosts()))
        return SizeRequest.of(budgets=limits)

    def child(self, cut: Cut) -> dict[str, float]:
        """Return the loss of a repaired child on unseen text, and the processor seconds of both."""
        shape = Shape.of(cut, self.checkpoint.layout.tied)

        def measure() -> dict[str, float]:
            tokens, model, rule = self.session.tokens, self.session.model, self.session.methods.repair
            kl, seconds = timed(lambda: self.judge.of_cut(cut, repair(model, cut, tokens, rule)))
            return {"kl": kl, "seconds": seconds}

        child: dict[str, float] = self.parts.measured(f"{self.name}: child {shape}", measure)
        return child

    def grid(self, cost: str, share: str) -> dict[str, Any]:
        """Return the grid's candidates that were repaired, the best first, and what ranking them took."""
        shapes, seconds = timed(lambda: list(self._grid(cost, share)))
        ranked, more = timed(lambda: self._ranked(shapes))
        return {"tried": len(shapes), "seconds": seconds + more, "ranked": ranked}

    def _grid(self, cost: str, share: str) -> Iterator[Shape]:
        """Yield each width of the stream beside each number of KV groups, the FFN as the budget lets."""
        parent, by, request = dimensions(self.checkpoint), Filled(self.criterion), self._request(cost, share)
        seen = set()
        for sixteenths in range(1, SIXTEENTHS + 1):
            for groups in range(1, parent.kv_heads + 1):
                keep = {"hidden": sixteenths / SIXTEENTHS, "heads": groups / parent.kv_heads, "layers": 1.0}
                try:
                    plans = plans_of(
                        self.checkpoint, by, SizeRequest.of(keep, request.budgets), StoredCosts()
                    )
                except ValueError:  # no FFN is narrow enough
                    continue
                for plan in plans:
                    width = plan.width or Width(parent.hidden, self.checkpoint.layout.tied)
                    shape = replace(Shape.of(plan.cut, width.tied), hidden=width.hidden)
                    if shape not in seen:
                        seen.add(shape)
                        yield shape

    def _ranked(self, shapes: list[Shape]) -> list[dict[str, Any]]:
        """Return the shapes that were repaired, with their losses before and after, the least first."""
        some = self.session.tokens.spread(2 * self.scale.fitted)
        fitted, judged = (some.rows(range(start, len(some), 2)) for start in range(2))
        glance, loss = self.loss(judged.spread(self.scale.glanced)), self.loss(judged)
        cuts = {shape: shape.cut(self.session, self.criterion) for shape in shapes}
        losses = {shape: glance.of_cut(cut) for shape, cut in cuts.items()}
        least, model, rule = min(losses.values()), self.session.model, self.session.methods.repair
        ranked = []
        for shape, unrepaired in losses.items():
            if unrepaired <= WORSE * least:
                repaired = loss.of_cut(cuts[shape], repair(model, cuts[shape], fitted, rule))
                ranked.append({"shape": asdict(shape), "unrepaired": unrepaired, "repaired": repaired})
        return sorted(ranked, key=lambda row: row["repaired"])

    def plan_by_grid(self, cost: str, share: str) -> dict[str, Any]:
        """Return the best of the grid's best, measured as plans are, and what ranking and measuring took."""
        ranking = self.parts.measured(f"{self.name}: grid {share} of {cost}", lambda: self.grid(cost, share))
        shapes = [Shape.read(row["shape"]) for row in ranking["ranked"][:BEST]]
        children = [self.child(shape.cut(self.session, self.criterion)) for shape in shapes]
        best = min(range(len(children)), key=lambda i: children[i]["kl"])
        return {
            "shape": asdict(shapes[best]),
            "tried": ranking["tried"],
            "repaired": len(ranking["ranked"]),
            "seconds": ranking["seconds"] + sum(child["seconds"] for child in children),
            "kl": children[best]["kl"],
        }
