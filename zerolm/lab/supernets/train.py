"""From a text to a trained supernet in a folder: one run of ``zerolm.training.train``, which resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from zerolm.io.folders import check_new, new_folder, work_folder
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.distillation import taught
from zerolm.lab.supernets.learner import SupernetLearner
from zerolm.lab.supernets.request import Growth, Teaching, TrainedSupernet, TrainingFacts
from zerolm.lab.supernets.supernet import Supernet, drawn_path, write_supernet
from zerolm.lab.supernets.text import SUPERNET_VOCABULARY, ElasticText
from zerolm.progress import Progress, silent
from zerolm.spaces import SPACES, make_space
from zerolm.training.losses import HELD_BATCH
from zerolm.training.processes import device_for, processes
from zerolm.training.randomness import without_dropout
from zerolm.training.request import TrainingRequest
from zerolm.training.train import Trained, train
from zerolm.training.watch import Judge, TrainingRun

JUDGED: Final = 4
"""Paths whose mean loss on held-out text measures the progress of a supernet."""


@dataclass(frozen=True)
class SupernetRequest:
    """A supernet of a ``space`` with these ``settings``, trained on a ``text``.

    ``tokenizer`` is a folder with one, None for the teacher's, or one of ``vocabulary`` tokens trained on the
    text where there is no teacher; the space's own vocabulary follows from it.
    """

    text: str
    training: TrainingRequest
    space: str = "elastic"
    settings: Mapping[str, Any] = field(default_factory=dict)
    growth: Growth = field(default_factory=Growth)
    teaching: Teaching = field(default_factory=Teaching)
    tokenizer: str | None = None
    vocabulary: int = SUPERNET_VOCABULARY


Finish = Callable[[Path, TrainedSupernet], None]
"""Writes further files into the folder of a supernet."""


def train_supernet(
    request: SupernetRequest,
    out: Path,
    *,
    force: bool = False,
    finish: Finish | None = None,
    progress: Progress = silent,
) -> TrainedSupernet:
    """Train a supernet into a new folder; a killed run is resumed, to the same result.

    ``ValueError`` where text, tokenizer, teacher and space do not fit, ``TrainingFailed`` where the loss is
    not finite: the checkpoints before it are left.
    """
    device_for(request.training.execution)
    if processes().num_processes > 1:
        raise ValueError("a supernet is trained in one process: every step takes another path through it")
    check_new(out, force)
    run = request.training
    text = _text(request, progress)
    space = _space(request, text)
    supernet = Supernet(space, run.seed)
    without_dropout(supernet)
    teacher, compare = taught(request.teaching, text, space, space.depth, run)
    how: Any = {"seed": run.seed, "accumulate": run.execution.accumulate, "compare": compare}
    learner = SupernetLearner(supernet, request.teaching, request.growth, run.steps, **how)
    identity = {**asdict(request), "text_sha256": text.sha256, "settings": space.settings}
    with work_folder(out, identity, force) as work:
        watched = TrainingRun(work, _judge(supernet, text, run.seed), progress)
        trained = train(learner, text.data(run.sequences, run.seed), run, watched, teacher=teacher)
        learner.to("cpu").train(False)
        last = drawn_path(supernet.shape, run.seed, run.steps)
        learner.end_epoch(request.growth.epochs - 1, text.held_out[0][:HELD_BATCH], last)
        done = _outcome(learner, request, text, trained)
        facts = {"training": identity, "text": asdict(text.source), "log": trained.rows}
        with new_folder(out, force) as place:
            if finish:
                finish(place, done)
            write_supernet(place, supernet, text.tokenizer, facts, done.history)
    return done


def _text(request: SupernetRequest, progress: Progress) -> ElasticText:
    if request.space not in SPACES or not issubclass(SPACES[request.space], Elastic):
        raise ValueError(f"space {request.space!r} has no supernets; elastic and elastic-causal have")
    folder = request.tokenizer or request.teaching.teacher
    return ElasticText.of(
        request.text,
        SPACES[request.space].task,
        length=request.training.length,
        batch=request.training.batch,
        most=request.training.tokens_read,
        tokenizer=None if folder is None else Path(folder),
        vocabulary=request.vocabulary,
        progress=progress,
    )


def _space(request: SupernetRequest, text: ElasticText) -> Elastic:
    """Return the space with the vocabulary of the tokenizer; ``ValueError`` where it is too short."""
    vocab, length = len(text.tokenizer), request.training.length
    if request.settings.get("vocab", vocab) != vocab:
        raise ValueError(
            f"vocab {request.settings['vocab']} is not that of the tokenizer, {vocab}: leave it out"
        )
    space = make_space(request.space, **{**request.settings, "vocab": vocab})
    assert isinstance(space, Elastic)
    if length > space.positions:
        raise ValueError(f"sequences of {length} tokens are longer than the {space.positions} positions")
    return space


def _outcome(
    learner: SupernetLearner, request: SupernetRequest, text: ElasticText, trained: Trained
) -> TrainedSupernet:
    run, growth, teaching = request.training, request.growth, request.teaching
    space, sizes = learner.supernet.grown_space(), (run.steps, run.batch, run.length)
    facts = TrainingFacts(
        run.steps * run.step_tokens, *sizes, run.schedule.rate, run.seed, growth.epochs, growth.growth,
        round(trained.seconds, 1),
    )  # fmt: skip
    distillation = teaching.distillation if teaching.teacher else None
    return TrainedSupernet(
        space.name, space.settings, space.depth, list(space.kinds), text.source, teaching.teacher,
        distillation, facts, learner.history(), trained.rows,
    )  # fmt: skip


def _judge(supernet: Supernet, text: ElasticText, seed: int) -> Judge:
    """Return the measure of a supernet: the mean loss of a few paths, the same ones throughout."""
    paths = [drawn_path(supernet.shape, seed + 1, number) for number in range(JUDGED)]

    def judge() -> dict[str, float]:
        device = supernet.widths.device
        losses = [text.loss(partial(supernet, path=path), device) for path in paths]
        return {"held_out": sum(losses) / len(losses)}

    return judge
