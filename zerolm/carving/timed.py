"""The time that carving a model takes here: foretold from some seconds of measurement, or carved (torch)."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from transformers import PreTrainedModel

from zerolm.carving.bits.typed_child import Types
from zerolm.carving.finished_child import finished
from zerolm.carving.pace import PACED_TOKENS, CarvingWork, Pace, quickest
from zerolm.carving.parent_and_request import Carving
from zerolm.carving.parent_model import ParentModel
from zerolm.carving.planned_child import FINALISTS, check_possible, planned
from zerolm.carving.request import BY_LOSS, Destination, MethodRequest, Methods, methods_of
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.identity import threads
from zerolm.checkpoints.ledger import best_summing
from zerolm.checkpoints.matrix_sums import sums_of
from zerolm.passes.fisher import Fisher
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.sensitivity import LossTable
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import budgets_of, costs_of, plan_of
from zerolm.progress import Progress, silent
from zerolm.settings.compute import ComputeRequest
from zerolm.text.defaults import RANDOM
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion, Indifferent
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import Place, Repaired
from zerolm.units.ridges import Ridges

OTHERS: Final = "files and planning"
"""Reading and writing weights, planning, opening the child again: whatever is in no other part."""
SHARE: Final = 0.8
SMALLER: Final = SizeRequest.of(budgets={"max_params": "0.8x"})
NARROWER: Final = SizeRequest.of({"ffn": 0.75})
WRITTEN: Final = 32 << 20
"""Bytes that are written to see how long it takes."""
COMPARED: Final = 128
"""Tokens that the child and the carved parent are compared on: layer by layer, and as a whole."""
HELD: Final = 4
"""Times that all weights are widened in memory to open a child again."""
ROTATED: Final = 2
"""Times that all weights are multiplied by the basis of a narrower stream."""
PLANNED: Final = 2
"""Times that sizes are planned: before the long work, to see whether they can be, and by what is lost."""


@dataclass(frozen=True)
class Command:
    """A carving by the words that follow ``zerolm carve MODEL``, and what it does."""

    words: str
    size: SizeRequest
    methods: Methods


def carving_commands(sequences: int, length: int) -> list[Command]:
    """Return the carvings that are foretold: by weights, and by so many sequences and four times as many."""
    by_weights = methods_of(NARROWER, MethodRequest("capacity"))
    commands = [Command("--keep-ffn .75 --criterion capacity", NARROWER, by_weights)]
    for plan in BY_LOSS:
        for count in (sequences, 4 * sequences):
            methods = methods_of(SMALLER, MethodRequest(None, plan, RANDOM, sequences=count, length=length))
            commands.append(Command(words_of(methods), SMALLER, methods))
    return commands


def words_of(methods: Methods) -> str:
    """Return the words of a carving by a text."""
    plan = "" if methods.plan == "prices" else f" --plan {methods.plan}"
    return f"--max-params .8x --text TEXT --sequences {methods.count} --length {methods.length}{plan}"


@dataclass(frozen=True)
class FilePace:
    """Seconds that a byte of weights takes to be summed up, hashed, written, and a weight to be widened.

    ``planned`` are those of finding the sizes within a budget.
    """

    summed: float
    hashed: float
    written: float
    widened: float
    planned: float


def paces(checkpoint: Checkpoint, length: int, request: ComputeRequest) -> tuple[Pace, FilePace]:
    """Return how long a layer, the head, sums and files of a checkpoint take here."""
    count = max(1, PACED_TOKENS // length)
    methods = methods_of(SMALLER, MethodRequest(None, None, RANDOM, sequences=count, length=length))
    session = Session(checkpoint, methods, silent, request)
    return session.pace, _file_pace(checkpoint)


def _file_pace(checkpoint: Checkpoint) -> FilePace:
    """Return how long files take, of the largest matrix of the first layer, and of a file beside it."""
    names = checkpoint.layout.layer(0).values()
    sample = max((checkpoint.tensors[name] for name in names), key=lambda tensor: tensor.count)
    size = sample.end - sample.start
    summing = best_summing(sum(shard.size for shard in checkpoint.shards))
    raw = checkpoint.raw(sample.name).tobytes()
    zeros = bytes(WRITTEN)

    def write() -> None:
        with tempfile.TemporaryFile() as file:
            file.write(zeros)
            file.flush()
            os.fsync(file.fileno())

    def plan() -> None:
        plan_of(checkpoint, Indifferent(-1.0), size_within(checkpoint), StoredCosts())

    return FilePace(
        quickest(lambda: sums_of(sample, summing)) / size,
        quickest(lambda: hashlib.sha256(raw)) / size,
        quickest(write) / WRITTEN,
        quickest(lambda: checkpoint.read(sample.name)) / sample.count,
        quickest(plan, times=1),
    )


def size_within(checkpoint: Checkpoint) -> SizeRequest:
    """Return the sizes of a child within its budgets, as numbers."""
    return SMALLER.within(budgets_of(SMALLER.budgets, costs_of(checkpoint, StoredCosts())))


def foretold(checkpoint: Checkpoint, command: Command, pace: Pace, files: FilePace) -> dict[str, float]:
    """Return the seconds that each part of a carving takes, its child written."""
    parent, methods = dimensions(checkpoint), command.methods
    tensors = [checkpoint.tensors[name] for name in checkpoint.layout.slots]
    size, count = (sum(tensor.end - tensor.start for tensor in tensors), sum(x.count for x in tensors))
    by_text = methods.text is not None
    narrows = by_text and checkpoint.family.cut.hidden
    seconds = size * ((files.summed + files.hashed) / threads() + SHARE * files.written)
    seconds += HELD * count * files.widened
    seconds += COMPARED * (4 * parent.depth * pace.layer + 2 * pace.head)
    seconds += ROTATED * narrows * 2 * count * parent.hidden * pace.operation
    if not by_text:
        return {OTHERS: seconds}
    seconds += PLANNED * files.planned
    work = CarvingWork(parent, methods, narrows, FINALISTS, True)
    return {OTHERS: seconds} | work.seconds(pace, methods.count)


class PartClock:
    """The seconds of parts, by the clock and of the processor; within a part another one may run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self._parts = [OTHERS]
        self._last = time.perf_counter(), time.process_time()

    def charge(self) -> None:
        """Add the time since the last call to the part that runs."""
        now = time.perf_counter(), time.process_time()
        part = self._parts[-1]
        for sums, end, start in zip((self.seconds, self.processor), now, self._last, strict=True):
            sums[part] = sums.get(part, 0.0) + end - start
        self._last = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Within, a part runs."""
        self.charge()
        self._parts.append(name)
        try:
            yield
        finally:
            self.charge()
            self._parts.pop()


class TimedSession(Session):
    """A session whose parts are timed."""

    clock: PartClock

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the parent's weights."""
        with self.clock.part(OTHERS):
            return super().fingerprint

    @cached_property
    def tokens(self) -> Tokens:
        """The calibration tokens."""
        with self.clock.part(OTHERS):
            return super().tokens

    @cached_property
    def model(self) -> PreTrainedModel:
        """The parent, whose weights stay in their files."""
        with self.clock.part(OTHERS):
            return super().model

    @cached_property
    def fisher(self) -> Fisher:
        """The Fisher information of the parent."""
        with self.clock.part("Fisher information"):
            return super().fisher

    def importance(self) -> Criterion:
        with self.clock.part("scoring units"):
            return super().importance()

    def table(self, by: Criterion, kinds: list[str], *, with_stream: bool) -> LossTable:
        name = "predicting cuts" if self.methods.plan == "prices" else "measuring cuts"
        with self.clock.part(name):
            return super().table(by, kinds, with_stream=with_stream)

    def repaired(
        self, cut: Cut, ridges: Mapping[Place, Ridges] | None = None, types: Types | None = None
    ) -> Repaired:
        with self.clock.part("repair"):
            return super().repaired(cut, ridges, types)

    def finals(self, cuts: Sequence[Cut]) -> list[float]:
        with self.clock.part("measuring the best plans"):
            return super().finals(cuts)

    def loss(self, cut: Cut, repaired: Repaired | None = None) -> float:
        with self.clock.part("losses"):
            return super().loss(cut, repaired)


def carve_timed(
    checkpoint: Checkpoint, command: Command, place: Path, request: ComputeRequest, progress: Progress
) -> PartClock:
    """Return the time that each part of a carving takes; the child is written to ``place``.

    Nothing that was computed before is used: what is kept for later lies in ``place`` too.
    """
    with _own_cache(place / "cache"):
        session = TimedSession(checkpoint, command.methods, progress, request)
        session.clock = clock = PartClock()
        target, costs, size = Destination(place / "child", "hf"), StoredCosts(), size_within(checkpoint)
        name, methods = str(checkpoint.root), command.methods
        parent = ParentModel(name, checkpoint)
        carving = Carving(parent, size, methods, target, costs, request, silent, session)
        check_possible(carving)
        finished(carving, planned(carving))
        clock.charge()
    return clock


@contextmanager
def _own_cache(folder: Path) -> Iterator[None]:
    """Within, the cache is another folder."""
    before = os.environ.get("ZEROLM_CACHE")
    os.environ["ZEROLM_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ZEROLM_CACHE"]
        else:
            os.environ["ZEROLM_CACHE"] = before
