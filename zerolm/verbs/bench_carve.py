"""``zerolm bench carve``: what carving a model takes on this machine, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED
from zerolm.settings.compute import ComputeRequest
from zerolm.settings.request import Request, argument, part, setting
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet, pairs
from zerolm.show.text import base_name, show_amount
from zerolm.verbs.report import Report
from zerolm.verbs.shared import needing_torch

SHORT: Final = {
    "files and planning": "files, planning",
    "scoring units": "units",
    "Fisher information": "Fisher",
    "predicting cuts": "plan",
    "measuring cuts": "plan",
    "measuring the best plans": "best plans",
    "repair": "repair",
    "losses": "losses",
}
"""The column of each part."""
FORETOLD: Final = "Foretold from about a second of measurement, not measured."
PARTS: Final = (
    "files, planning: reading and writing weights, planning the sizes, opening the child again. Fisher: a "
    "pass forward and back for the choice of units and of directions. units: what goes, one by one. plan: "
    "predicted cuts, or cuts measured one by one. best plans: each repaired and measured."
)


@dataclass(frozen=True, kw_only=True)
class BenchCarveSettings(Request):
    """Return what carving a decoder takes on this machine: the seconds of each part of some commands.

    They are foretold from about a second of measurement. With ``run`` one of them is carried out too, on
    random tokens and in a temporary folder. A folder with a ``config.json`` alone stands for random weights
    of that shape, which lie on disk meanwhile. Raises ``ValueError``, in one line, for what is no decoder,
    and where there is no room.
    """

    name: ClassVar[str] = "bench carve"
    examples = (
        ("zerolm bench carve MODEL", "what commands take here, foretold from a second of measurement"),
        (
            "zerolm bench carve MODEL --run --sequences 16",
            "a carving on 16 sequences, beside what was foretold",
        ),
    )
    notes = (
        "A model does not have to be downloaded: of a folder with nothing but its config.json random weights "
        "are drawn, which take as long. Commands are foretold for --sequences and for four times as many."
    )
    model: str = argument(
        "path", REQUIRED, "a folder with a checkpoint, or with a config.json alone", metavar="MODEL"
    )
    sequences: int = setting(
        "integer", 64, "sequences of the text", group="How much is read", low=1, high=1 << 20
    )
    length: int = setting("integer", 256, "tokens of each", low=2, high=1 << 20)
    run_: bool = setting(
        "flag", False, "carve too, in a temporary folder, and print what it took", name="run"
    )
    compute: ComputeRequest = part(ComputeRequest, group="Where it runs")

    def run(self, progress: Progress = silent) -> CarvingTimes:
        with needing_torch("carving by a text runs networks"):
            from zerolm.verbs.bench_carve_run import times_of
        return times_of(self, progress)


@dataclass(frozen=True)
class MachineFacts:
    """The machine: its processor, cores and threads, the device, the type of products, and versions."""

    processor: str
    cores: int
    threads: int
    device: str
    dtype: str
    memory: int
    versions: dict[str, str]

    @property
    def words(self) -> str:
        """Return the machine in a few words."""
        cores = f"{self.cores} core{'s' * (self.cores > 1)}"
        threads = "" if self.threads == self.cores else f", {self.threads} thread{'s' * (self.threads > 1)}"
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.processor}, {cores}{threads}{device}, {self.dtype}"


@dataclass(frozen=True)
class PartTime:
    """The seconds of a part: ``foretold``, and ``measured`` by the clock and of the ``processor``, if it ran.

    A processor's seconds are those of all its cores.
    """

    part: str
    foretold: float
    measured: float | None = None
    processor: float | None = None


@dataclass(frozen=True)
class CommandTime:
    """The time of a command: the words behind ``zerolm carve MODEL``, tokens that it reads, its parts."""

    command: str
    tokens: int
    parts: list[PartTime]

    @property
    def seconds(self) -> float:
        """Return what is foretold in all."""
        return sum(each.foretold for each in self.parts)

    @property
    def label(self) -> str:
        """Return it in a few words."""
        if not self.tokens:
            return f"{self.command}, no text"
        plan = ", --plan measured" if self.command.endswith("measured") else ""
        return f"{show_amount(self.tokens)} tokens{plan}"

    def columns(self) -> dict[str, str]:
        """Return the time of each part by its column, and of all."""
        return {"all": show_seconds(self.seconds)} | {
            SHORT.get(each.part, each.part): show_seconds(each.foretold) for each in self.parts
        }


@dataclass(frozen=True)
class CarvedTime(CommandTime):
    """The time that a command took, and its peak of memory, where the system says it; on a device, too."""

    peak_memory: int | None
    device_memory: int | None

    @property
    def measured(self) -> float:
        """Return what was measured in all."""
        return sum(each.measured or 0.0 for each in self.parts)


@dataclass(frozen=True)
class MeasuredPace:
    """Seconds of a token in a layer, there and back, and in the head; of a product in sums (``Pace``)."""

    layer: float
    back: float
    head: float
    gram: float
    operation: float


@dataclass(frozen=True, repr=False, eq=False)
class CarvingTimes(Report):
    """The time that carving a model takes on a machine.

    ``drawn`` says whether its weights are random ones. ``commands`` are foretold; ``carved`` was carried out,
    None without ``--run``.
    """

    command: ClassVar[str] = "bench carve"
    model: str
    shape: str
    weights: int
    bytes: int
    drawn: bool
    machine: MachineFacts
    pace: MeasuredPace
    commands: list[CommandTime]
    carved: CarvedTime | None = None

    @property
    def documented(self) -> str:
        """Return a row of a table for the documentation: the machine, and what each command takes."""
        times = " | ".join(show_seconds(each.seconds) for each in self.commands)
        return f"| {self.machine.words} | {times} |"

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"command": each.command, "tokens": each.tokens, **vars(one)}
            for each in (*self.commands, *([self.carved] if self.carved else []))
            for one in each.parts
        ]

    def lines(self) -> list[str]:
        size, weights = show_amount(self.bytes, size=True), "random weights" if self.drawn else "weights"
        lines = [f"{self.shape}: {show_amount(self.weights)} {weights}, {size}", self.machine.words]
        if self.carved:
            lines.append(self._outcome(self.carved))
        return lines

    def _outcome(self, carved: CarvedTime) -> str:
        peak = show_amount(carved.peak_memory, size=True) if carved.peak_memory else "not known"
        return (
            f"carved on {show_amount(carved.tokens)} tokens in {show_seconds(carved.measured)}, foretold "
            f"{show_seconds(carved.seconds)}; peak memory {peak}"
        )

    def heading(self) -> Heading:
        first, most = self.commands[1], self.commands[-1]
        return Heading(
            f"What carving {base_name(self.model)} takes",
            f"{self.shape}, on {self.machine.words}.",
            f"A carving on {show_amount(first.tokens)} tokens takes about {show_seconds(first.seconds)}; on "
            f"{show_amount(most.tokens)} tokens, cuts measured one by one, {show_seconds(most.seconds)}.",
            "By weights alone, for research: "
            f"{show_seconds(self.commands[0].seconds)}, of which files are the most.",
            f"{self._outcome(self.carved).capitalize()}." if self.carved else FORETOLD,
            ("What it takes", "By weights alone", "How far to trust it"),
        )

    def sheets(self) -> list[Sheet]:
        return [
            self._foretold_sheet(),
            *([self._carved_sheet(self.carved)] if self.carved else []),
            pairs("Where it ran", self._facts(), on=(PAGE, TERMINAL)),
            Sheet("A row for a table of machines", sentences=[self.documented], on=(PAGE, TERMINAL)),
        ]

    def _foretold_sheet(self) -> Sheet:
        names = list(dict.fromkeys(["all", *SHORT.values()]))
        columns = [each.columns() for each in self.commands]
        rows: list[Row] = [
            [each.label, *(cells.get(name, "-") for name in names)]
            for each, cells in zip(self.commands, columns, strict=True)
        ]
        with_text = self.commands[1]
        sentences = [FORETOLD, f"With tokens: zerolm carve MODEL {with_text.command} --out child", PARTS]
        head = ["zerolm carve MODEL", *names]
        return Sheet("Foretold", head, rows, sentences, on=(PAGE, TERMINAL, NOTEBOOK))

    def _carved_sheet(self, carved: CarvedTime) -> Sheet:
        rows: list[Row] = [
            [each.part, *map(show_seconds, (each.foretold, each.measured or 0.0, each.processor or 0.0))]
            for each in carved.parts
        ]
        processor = sum(each.processor or 0.0 for each in carved.parts)
        rows.append(["all", *map(show_seconds, (carved.seconds, carved.measured, processor))])
        sentences = [
            f"zerolm carve MODEL {carved.command} --out child, on random tokens",
            "processor: the seconds of all cores; far fewer than cores x measured where others use them, too",
        ]
        if carved.device_memory is not None:
            size = show_amount(carved.device_memory, size=True)
            sentences.append(f"peak memory on the device: {size}")
        return Sheet("Carved", ["part", "foretold", "measured", "processor"], rows, sentences)

    def _facts(self) -> list[tuple[str, str]]:
        machine = self.machine
        return [
            ("machine", machine.words),
            ("memory", f"{show_amount(machine.memory, size=True)} free"),
            ("versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
            ("a layer", f"{1e6 * self.pace.layer:.3g} us a token"),
            ("the head", f"{1e6 * self.pace.head:.3g} us a token"),
            ("sums", f"{1e-9 / max(self.pace.operation, 1e-18):.3g} billion operations in float64 a second"),
        ]


def show_seconds(seconds: float) -> str:
    """Return a time in the unit that people would say, in two digits."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return (
                f"{seconds / length:.2g} {unit}"
                if seconds < 100 * length
                else f"{seconds / length:.0f} {unit}"
            )
    return f"{seconds:.2g} s" if seconds < 99.5 else f"{seconds:.0f} s"
