"""``zerolm.train_labels``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.architecture import Architecture
from zerolm.commands.bench_train import BENCH_TRAIN, SIZES
from zerolm.groundtruth.reader import GroundTruth, read, thinned, views
from zerolm.io.files import write_json
from zerolm.io.folders import new_file, new_folder
from zerolm.progress import Progress, silent
from zerolm.report.label_training import label_training_fragment, label_training_page
from zerolm.settings import setting_of, shown
from zerolm.solvers.drawing import drawn
from zerolm.spaces import SPACES, SearchSpace

if TYPE_CHECKING:
    from zerolm.training.request import TrainingRequest

Amount = int | str
Text = str | PathLike[str]
FILE: Final = "labels.json"
COUNT: Final = 60
BUDGETS: Final = tuple(f"{side}_{cost}" for side in ("max", "min") for cost in SIZES)


class LabelsReport(DocumentReport):
    """Architectures that were trained the same way, with the loss of each on text held out."""

    command: ClassVar[str] = BENCH_TRAIN.name

    @property
    def benchmark(self) -> dict[str, Any]:
        """Return the benchmark file, which ``bench run``, ``calibrate`` and ``search`` take."""
        return dict(self.document["benchmark"])

    @property
    def noise(self) -> dict[str, Any] | None:
        """Return the noise ceiling: ``tau``, ``rho``, ``deviation``; None where no seed was repeated."""
        return self.document["noise"]  # type: ignore[no-any-return]

    def lines(self) -> list[str]:
        rows = sorted(self.document["rows"], key=lambda row: row["loss"])
        source = self.benchmark["source"]
        lines = [
            f"{len(rows)} architectures of {self.benchmark['space']}, {source['tokens']:,} tokens each",
            f"best: {rows[0]['shape']}: loss {rows[0]['loss']:.4f}",
            f"worst: {rows[-1]['shape']}: loss {rows[-1]['loss']:.4f}",
        ]
        taus = [f"{name} {tau:.3f}" for name, tau in self.document["agreement"].items() if tau is not None]
        lines += [f"tau-b with the losses: {', '.join(taus)}"] if taus else []
        if self.noise:
            lines.append(
                f"noise: deviation {self.noise['deviation']:.4f}, ceiling of tau-b {self.noise['tau']:.3f} "
                f"({self.noise['runs']} runs of {self.noise['networks']})"
            )
        return lines

    @property
    def remarks(self) -> list[str]:
        return [f"left out: architecture {row['id']}: {row['reason']}" for row in self.document["left_out"]]

    @property
    def written(self) -> list[str]:
        return [f"labels of {len(self.document['rows'])} architectures"]

    def rows(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if name != "repeats"} for row in self.document["rows"]
        ]

    def page(self) -> str:
        return label_training_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return label_training_fragment(self.document)

    def write_more(self, folder: Path) -> None:
        """Write what ``--labels`` of ``calibrate`` and ``search``, and ``bench run``, read."""
        write_json(folder / FILE, self.benchmark)


@documented(BENCH_TRAIN)
def train_labels(
    space: str | None = None,
    out: Text | None = None,
    *,
    rows: Text | None = None,
    count: Amount | None = None,
    max_params: Amount | None = None,
    max_body_params: Amount | None = None,
    min_params: Amount | None = None,
    min_body_params: Amount | None = None,
    text: Text | None = None,
    held_out: Text | None = None,
    tokens: Amount = 3_000_000,
    batch: int = 8,
    length: int = 256,
    rate: float = 0.002,
    precision: str = "auto",
    compile: bool = False,
    seed: int = 0,
    seeds: int = 1,
    repeated: int = 6,
    jobs: int = 1,
    backend: str = "loky",
    force: bool = False,
    progress: Progress = silent,
    **settings: Any,
) -> LabelsReport:
    """Return architectures of a space with the loss of each, all trained the same way on one text.

    ``settings`` are those of the space (``hidden="64,96"``). Every finished architecture is kept in the
    cache, and is not trained again. Raises ``ValueError``, in one line, for what makes no sense, and
    ``TrainingFailed`` where fewer than two architectures could be trained.
    """
    given = {name: value for name, value in locals().items() if name not in ("progress", "settings")}
    own = BENCH_TRAIN.values(given)
    truth = read(Path(own["rows"])) if own["rows"] is not None else None
    name, of_space = _space(own, truth, settings)
    with needing_torch("training runs networks", "train"):
        from zerolm.training.label_document import label_document
        from zerolm.training.labels import LabelText, train_all
    request = _request(own)
    with _place(own["out"], own["force"]) as place:
        reading = LabelText.of(own["text"], name, of_space, request, progress, own["held_out"])
        architectures = _architectures(own, truth, reading.space)
        again = _spread(len(architectures), own["repeated"]) if own["seeds"] > 1 else []
        runs = [(i, 0) for i in range(len(architectures))]
        runs += [(i, further) for further in range(1, own["seeds"]) for i in again]
        labels = train_all(
            [(architectures[i], own["seed"] + further, f"architecture {i + 1}") for i, further in runs],
            reading,
            request,
            jobs=own["jobs"],
            backend=own["backend"],
            progress=progress,
        )
        by_architecture = [
            [label for (of, _), label in zip(runs, labels, strict=True) if of == i]
            for i in range(len(architectures))
        ]
        file = own["out"] if str(own["out"]).endswith(".json") else FILE
        title = Path(file).stem
        document = label_document(title, reading, request, architectures, by_architecture)
        places = {key: absolute(own[key]) for key in ("rows", "text", "held_out")}
        ran = own | of_space | places | {"space": name}
        kept = {key: value for key, value in ran.items() if value is not None and key not in ("out", "force")}
        report = LabelsReport.of(document, kept)
        if place is not None and place.suffix == ".json":
            write_json(place, report.benchmark)
        elif place is not None:
            report.write_into(place)
    return report


@contextmanager
def _place(out: str | None, force: bool) -> Iterator[Path | None]:
    """Yield the file or folder to write into, which nobody else writes; None where nothing is written."""
    if out is None:
        yield None
        return
    with (new_file if out.endswith(".json") else new_folder)(Path(out), force) as place:
        yield place


def _space(
    own: Mapping[str, Any], truth: GroundTruth | None, given: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the space that is meant and its settings; ``ValueError`` where it is none or is not clear."""
    name = own["space"] or (truth.space if truth else None)
    if name is None:
        raise ValueError("no space is named; `zerolm spaces` lists them")
    declared = SPACES[name].declared
    values = {
        key: setting_of(f"space {name!r}", declared, key).parse(value)
        for key, value in given.items()
        if value is not None
    }
    if truth is None:
        return name, values
    if truth.space != name:
        raise ValueError(f"the rows in {own['rows']!r} are of space {truth.space!r}, not of {name!r}")
    budgets = [budget for budget in BUDGETS if own[budget] is not None]
    if budgets:
        raise ValueError(
            f"{budgets[0]} is of architectures that are drawn; the rows name theirs: leave it out"
        )
    return name, {**views(truth)[0].settings, **values}


def _request(own: Mapping[str, Any]) -> TrainingRequest:
    from zerolm.training.request import Execution, Schedule, TrainingRequest

    return TrainingRequest(
        own["tokens"],
        own["batch"],
        own["length"],
        Schedule(own["rate"]),
        seed=own["seed"],
        execution=Execution(own["precision"], compile=own["compile"]),
        checkpoints=8,
        measured=4,
    )


def _architectures(
    own: Mapping[str, Any], truth: GroundTruth | None, space: SearchSpace
) -> list[Architecture]:
    """Return the architectures to train, each once."""
    if truth is None:
        budgets = {name: own[name] for name in BUDGETS if own[name] is not None}
        return drawn(space, own["count"] or COUNT, own["seed"], budgets=budgets, distinct=True)
    few = thinned(truth, own["count"])
    read_rows = [space.read(entry.architecture) for entry in few.architectures]
    distinct = list({one.identity: one for one in read_rows}.values())
    if len(distinct) < 2:
        raise ValueError(
            f"the rows in {own['rows']!r} are all the same architecture {shown(distinct[0].choices)}"
        )
    return distinct


def _spread(total: int, count: int) -> list[int]:
    """Return at most so many of the places 0 to ``total`` - 1, evenly."""
    return [place * total // count for place in range(count)] if count < total else list(range(total))
