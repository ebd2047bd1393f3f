"""Labels from training: architectures of a space, each trained the same way and kept when it is finished."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.io.files import cache_folder
from zerolm.io.folders import locked
from zerolm.io.kept_rows import KeptRows
from zerolm.io.memory import free_memory
from zerolm.networks.build import build, network_function
from zerolm.networks.workers import Backend, check_workers, finished
from zerolm.progress import Progress, silent
from zerolm.spaces import SPACES, SearchSpace, make_space
from zerolm.text.corpus import Corpus
from zerolm.text.encoding import tokenizer_of
from zerolm.text.predictions import PredictedText
from zerolm.training.learner import Labelled
from zerolm.training.losses import HELD_BATCH, mean_loss
from zerolm.training.processes import device_for
from zerolm.training.randomness import without_dropout
from zerolm.training.request import TrainingRequest
from zerolm.training.scaling import BASE, BASE_DEPTH, check_depth_rule, scaled
from zerolm.training.train import TrainingFailed, train
from zerolm.training.watch import Judge, TrainingRun

LABELS_VERSION: Final = 1
"""Counts changes of how architectures are trained: what an earlier version kept is not used."""
KEPT: Final = "labels.jsonl"
LABELS_VOCABULARY: Final = 2048
"""The vocabulary where a space has a setting for it that is not given, or networks with more tokens."""
MOST_JUDGED: Final = 1 << 24
"""Tokens of a text to judge on, at most."""
TRAINED_BYTES: Final = 16
"""Bytes of a parameter in training at least: weight, gradient and two moments in float32."""


@dataclass(frozen=True)
class Label:
    """The loss on held-out text after a number of tokens, in nats a token, or why there is none."""

    losses: dict[int, float]
    seconds: float
    failure: str = ""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Label:
        """Return a label from JSON, whose keys are texts."""
        return cls(
            {int(tokens): loss for tokens, loss in kept["losses"].items()}, kept["seconds"], kept["failure"]
        )

    @property
    def loss(self) -> float:
        return self.losses[max(self.losses)]


@dataclass(frozen=True, eq=False)
class LabelText(PredictedText):
    """A text as the networks of a space read it, and the ``space`` with the vocabulary that it has so.

    ``classes`` is what the softmax runs over, None for all that a network has. Networks are judged on all of
    ``judged``, another text; where there is none, on the end of this one.
    """

    space: SearchSpace
    classes: int | None
    judged: Corpus | None = None

    @property
    def held_ids(self) -> Tensor:
        """Return the sequences (n, t) that networks are judged on: of another text, whole batches."""
        if self.judged is None:
            return super().held_ids
        ids = self.judged.whole().ids
        return ids[: len(ids) // HELD_BATCH * HELD_BATCH or None]

    @classmethod
    def of(
        cls,
        source: str,
        space: str,
        settings: Mapping[str, Any],
        request: TrainingRequest,
        progress: Progress,
        held_out: str | None = None,
    ) -> LabelText:
        """Return a text for a space with these settings; ``ValueError`` where its networks read none.

        ``held_out`` is another text, to judge on.
        """
        network_function(space)
        task = SPACES[space].task
        if task == "image":
            others = ", ".join(sorted(name for name in SPACES.names() if SPACES[name].task != "image"))
            raise ValueError(f"networks of {space!r} read images, and are trained on none; text: {others}")
        sets_vocabulary = any(setting.name == "vocab" for setting in SPACES[space].declared)
        size = int(settings.get("vocab", LABELS_VOCABULARY)) if sets_vocabulary else LABELS_VOCABULARY
        progress("training a tokenizer")
        tokenizer = tokenizer_of(source, size)
        assert isinstance(tokenizer.mask_token_id, int)
        corpus = Corpus.of(source, tokenizer, request.length, request.tokens_read, progress)
        judged = None
        if held_out is not None:
            judged = Corpus.of(held_out, tokenizer, request.length, MOST_JUDGED, progress)
        vocabulary = {"vocab": len(tokenizer)} if sets_vocabulary else {}
        return cls(
            corpus,
            task,
            tokenizer.mask_token_id,
            0,
            make_space(space, **{**settings, **vocabulary}),
            None if sets_vocabulary else len(tokenizer),
            judged,
        )


@dataclass(frozen=True)
class LabelRun:
    """One architecture to train from one seed, and the folder of what is kept of it."""

    architecture: Architecture
    seed: int
    folder: Path
    name: str


@dataclass(frozen=True, eq=False)
class LabelTraining:
    """Trains one architecture after the other; it can be pickled for another process."""

    text: LabelText
    request: TrainingRequest

    def __call__(self, run: LabelRun) -> Label:
        """Return the label from training; a killed run resumes from its last checkpoint."""
        text, request = self.text, replace(self.request, seed=run.seed)
        network = build(run.architecture, run.seed)
        without_dropout(network.module)  # no text is seen so often that it could be learned by heart
        width, rate = run.architecture.layers[-1].width, request.schedule.rate
        module, groups = scaled(network, width, rate, depth_rule=request.depth_rule)
        learner = Labelled(module, text.classes)
        if request.execution.compile:
            learner.compile_parts()
            request = replace(request, execution=replace(request.execution, compile=False))
        data = text.data(request.sequences, run.seed)
        run.folder.mkdir(parents=True, exist_ok=True)
        try:
            trained = train(
                learner, data, request, TrainingRun(run.folder, self._judge(learner)), groups=groups
            )
        except TrainingFailed as error:
            return Label({}, 0.0, str(error))
        except OSError as error:
            raise ValueError(str(error)) from None
        losses = {int(row["tokens"]): row["held_out"] for row in trained.rows if row["step"]}
        return Label(losses, trained.seconds)

    def _judge(self, learner: nn.Module) -> Judge:
        def loss(ids: Tensor, labels: Tensor) -> Tensor:
            losses: dict[str, Tensor] = learner(ids, labels)
            return losses["cross-entropy"]

        def judge() -> dict[str, float]:
            return {"held_out": mean_loss(loss, *self.text.held_out, next(learner.parameters()).device)}

        return judge


def train_all(
    runs: Sequence[tuple[Architecture, int, str]],
    text: LabelText,
    request: TrainingRequest,
    *,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> list[Label]:
    """Return the label of each architecture with a seed and a name, in their order: ``labels_as_trained``."""
    trained = labels_as_trained(runs, text, request, jobs=jobs, backend=backend, progress=progress)
    labels = dict(trained)
    return [labels[place] for place in range(len(runs))]


def labels_as_trained(
    runs: Sequence[tuple[Architecture, int, str]],
    text: LabelText,
    request: TrainingRequest,
    *,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Progress = silent,
) -> Generator[tuple[int, Label], None, None]:
    """Yield the place and the label of each architecture with a seed and a name, as soon as it is known.

    What is kept comes first and is not trained again; the others start in their order. ``loky`` trains in
    ``jobs`` processes, ``ray`` on every CPU of a cluster; each uses one thread, or the device that is asked
    for. ``ValueError`` while another command trains the same way, for a rule of depth that does not hold, and
    for architectures that are too large for the memory.
    """
    check_workers(jobs, backend)
    check_depth_rule([architecture for architecture, _, _ in runs], request.depth_rule)
    folder = cache_folder("labels") / _digest(_circumstances(text, request))
    names = [_digest([architecture.identity, seed]) for architecture, seed, _ in runs]
    with locked(folder, "another command trains architectures in the same way; wait for it"):
        kept = KeptRows(folder / KEPT)
        labels = {
            place: Label.of(kept.results[name]) for place, name in enumerate(names) if name in kept.results
        }
        lacking = [place for place in range(len(runs)) if place not in labels]
        if backend == "loky":
            _check_memory([runs[place][0] for place in lacking], request, jobs)
        yield from list(labels.items())
        progress(_summary(labels.values()), len(labels), len(runs))
        waiting = list[LabelRun]()
        for place in lacking:
            architecture, seed, name = runs[place]
            waiting.append(LabelRun(architecture, seed, folder / names[place], name))
        work = LabelTraining(text, request)
        trained = finished(waiting, work, name=lambda run: run.name, jobs=jobs, backend=backend)
        with closing(trained) as results:
            for number, label in results:
                place = lacking[number]
                labels[place] = label
                kept.add({names[place]: asdict(label)})
                shutil.rmtree(waiting[number].folder, ignore_errors=True)  # the checkpoints that led to it
                progress(_summary(labels.values()), len(labels), len(runs))
                yield place, label


def _summary(labels: Iterable[Label]) -> str:
    losses = [label.loss for label in labels if label.losses]
    return f"training architectures, best loss {min(losses):.3f}" if losses else "training architectures"


def _check_memory(architectures: Sequence[Architecture], request: TrainingRequest, jobs: int) -> None:
    """Raise ``ValueError`` where weights, gradients and moments of one would not fit into free memory."""
    if device_for(request.execution).type != "cpu":
        return
    largest = max((CostModel().of(architecture)["params"] for architecture in architectures), default=0)
    most = free_memory() // jobs // TRAINED_BYTES
    if largest > most:
        raise ValueError(
            f"training an architecture of {largest / 1e6:,.0f}M parameters takes "
            f"{TRAINED_BYTES * largest / 1e9:,.3g} GB of memory; {most / 1e6:,.0f}M parameters fit"
            f"{f' with {jobs} jobs' if jobs > 1 else ''}"
        )


def _circumstances(text: LabelText, request: TrainingRequest) -> list[Any]:
    """Return all that a label depends on, besides its architecture and its seed."""
    token_counts = [len(part.ids) for part in text.corpus.texts]
    device = device_for(request.execution).type
    conditions = asdict(request) | {"seed": None, "bfloat16": request.execution.bfloat16}
    conditions["execution"]["compute"]["device"] = device  # of several its kind, not its number
    libraries = [torch.__version__, transformers.__version__]
    vocabulary = [text.space.settings.get("vocab"), text.classes]
    judged = [(part.sha256, len(part.ids)) for part in text.judged.texts] if text.judged else []
    reading = [text.sha256, token_counts, text.task, vocabulary]
    return [LABELS_VERSION, BASE, BASE_DEPTH, *reading, conditions, libraries, *judged]


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]
