"""From a child and its parent to the healed child on the disk, opened again and compared."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import PreTrainedModel

import zerolm
from zerolm.carving.formats import FORMATS, write
from zerolm.carving.request import Destination
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.identity import fingerprint
from zerolm.children.child_tensors import Child
from zerolm.children.trained import TrainedWeights
from zerolm.healing.compact import Compact
from zerolm.healing.held_out import HeldOut
from zerolm.healing.patient import Patient
from zerolm.healing.rate import damage_of, rate_of
from zerolm.healing.record import stage_of, texts_of, training_of
from zerolm.healing.request import BATCH, SENTENCES, HealRequest
from zerolm.healing.result import Healed
from zerolm.io.files import write_json
from zerolm.io.folders import REPORT, check_new, new_folder, work_folder
from zerolm.io.plain import as_plain, checked
from zerolm.networks.opener import is_decoder, open_model, stock_tokenizer, without_deprecations
from zerolm.networks.pooling import TokenPooling, settings_notes
from zerolm.passes.walk import predicted_step
from zerolm.progress import Progress, about, silent
from zerolm.text.calibration import longest_line
from zerolm.text.corpus import Corpus, Sequences, batch_of, token_file
from zerolm.text.encoding import edges
from zerolm.text.line_corpus import LineCorpus
from zerolm.training.learner import EMBEDDING, OF_TEACHER, Objective, Student, Teacher
from zerolm.training.processes import check_whole, device_for, of_first, owned_by_first, processes
from zerolm.training.randomness import seeded
from zerolm.training.request import Schedule, TrainingRequest, micro_batch
from zerolm.training.teacher import CachedTeacher, LiveTeacher, fill, teacher_cache
from zerolm.training.train import TRIALS, recompute_activations, step_seconds, train
from zerolm.training.watch import EVENTS, LOG, TrainingRun

LORA_ALPHA: Final = 2
"""The scale of an adapter."""
EAGER: Final = 1024
"""Up to this length plain attention is faster on a CPU than fused, whose backward pass is slow."""
PLAN: Final = "plan.json"
MOST_TOKENS: Final = 1 << 26
"""Half of the tokens read of each text where a time is given: their number is not known yet."""
WORSE: Final = (
    "on text that is held out the child is no better than before: give more --tokens, or a smaller --rate"
)
LOGS: Final = "training"
"""The folder of a healed child that holds the log of its training."""


def heal(
    child: str | Path,
    parent: str | Path,
    request: HealRequest,
    destination: Destination,
    *,
    teacher: str | Path | None = None,
    progress: Progress = silent,
) -> Healed:
    """Train a child to predict what its parent predicts, and write it.

    ``teacher`` takes the parent's place in training; the parent still judges. A run that was killed goes on
    to the same weights when it is started again. Under ``accelerate launch`` the first process writes. Raises
    ``ValueError``, in one line, for what cannot be done, and ``TrainingFailed`` where the loss is not finite.
    """
    begun = time.monotonic()
    device_for(request.execution)
    check_whole()
    if not processes().is_main_process:
        progress = silent
    out, force = destination.place, destination.force
    of_first(lambda: check_new(out, force))
    with ExitStack() as stack:
        patient = Patient.of(child, parent, teacher, stack, progress)
        healing = Healing(patient, request, progress, begun)
        form = destination.form or patient.recipe.fields.written_as
        FORMATS[form].check(patient.child, healing.compact.cut)
        identity = of_first(lambda: healing.identity)
        with owned_by_first(lambda: work_folder(out, identity, force)) as work:
            healed = healing.healed(work)
            written = of_first(lambda: as_plain(healing.put(healed, destination, form, work)))
            return checked(Healed, written)


class Healing:
    """One healing, ``begun`` at a time of the clock: its networks, its texts, and what is measured."""

    def __init__(self, patient: Patient, request: HealRequest, progress: Progress, begun: float) -> None:
        self.patient, self.request, self.progress, self.begun = patient, request, progress, begun
        self.batch = request.batch or (SENTENCES if self._reads_sentences else BATCH)
        """Sequences of a step, over all processes."""
        micro_batch(self.batch, processes().num_processes, request.execution.accumulate)

    @cached_property
    def device(self) -> torch.device:
        return device_for(self.request.execution)

    @cached_property
    def compact(self) -> Compact:
        """The child as it is trained."""
        self.progress("opening the child")
        compact = Compact.of(self.patient.child, self.patient.recipe)
        compact.model.requires_grad_(self.request.only is None)
        if self.request.only is not None:
            compact.train_only(self.request.only)
        elif self._every > 1 and compact.cut.hidden == self.patient.parent.layout.hidden:
            # a step sees few tokens, and Adam would move the rows of all others as far
            model: Any = compact.model
            for embedding in (model.get_input_embeddings(), model.get_output_embeddings()):
                embedding.requires_grad_(False)
        return compact

    @cached_property
    def objective(self) -> Objective:
        """The losses; ``ValueError`` for what does not go together."""
        child = self.patient.child
        pooling = TokenPooling.of(child) if self._reads_sentences else None
        objective = self.request.distillation.objective(
            is_decoder(child),
            self.patient.layers,
            pooling,
            by_predictions=self.request.only is not None,
            every=self._every,
        )
        sizes = child.layout.hidden, self.patient.teacher.layout.hidden
        if EMBEDDING in objective.weights and sizes[0] != sizes[1]:
            raise ValueError(
                f"embeddings of {sizes[0]} and {sizes[1]} dimensions cannot be compared: give --losses hidden"
            )
        return objective

    @property
    def _every(self) -> int:
        """Return how far apart predicted positions are: more than 1 in a decoder with a large vocabulary."""
        child = self.patient.child
        return predicted_step(child.layout.vocab) if is_decoder(child) else 1

    @property
    def _reads_sentences(self) -> bool:
        """Whether the child is an encoder of sentences, which are then read one by one."""
        return self.patient.child.sentences is not None and not is_decoder(self.patient.child)

    @cached_property
    def corpus(self) -> Corpus:
        """The sequences of the texts; ``ValueError`` where there are too few."""
        texts, layout = self.request.texts, self.patient.child.layout
        tokenizer = stock_tokenizer(self.patient.child.folder)
        most = 2 * (self.request.tokens or MOST_TOKENS)
        length = longest_line(self.patient.child, texts.length)
        if self._reads_sentences:
            prompt = self.patient.child.prompt
            run: dict[str, Any] = {"prompt": prompt, "shares": texts.mix, "progress": self.progress}
            corpus: Corpus = LineCorpus.read(texts.sources, tokenizer, length, most, **run)
        else:
            files = tuple(
                token_file(source, tokenizer, most, self.progress, vocabulary=layout.vocab)
                for source in texts.sources
            )
            corpus = Corpus(files, length, *edges(tokenizer), texts.mix)
        largest = max(int(text.ids.max()) for text in corpus.texts)
        if largest >= layout.vocab:
            raise ValueError(f"the tokenizer gives token {largest}, but the model has {layout.vocab}")
        sequences = sum(train for train, _ in corpus.counts)
        if sequences < self.batch:
            raise ValueError(
                f"the texts have {sequences} sequences of {corpus.length} tokens to train on, fewer than a "
                f"batch of {self.batch}: give more text, or a smaller --batch"
            )
        return corpus

    @cached_property
    def held_out(self) -> HeldOut:
        """The sequences that are never trained on."""
        child = self.patient.child
        pooling = None if is_decoder(child) else TokenPooling.of(child)
        return HeldOut(self.corpus.held_out(), pooling, self._every)

    @property
    def identity(self) -> dict[str, Any]:
        """Return the identity of the run: its checkpoints are resumed only by a run with the same."""
        request, patient = self.request, self.patient
        identity = asdict(request)
        identity["texts"] = [[text.sha256, len(text.ids)] for text in self.corpus.texts]
        identity |= {"mix": request.texts.mix, "length": self.corpus.length, "batch": self.batch}
        identity |= {"losses": list(self.objective.weights), "pooling": repr(self.held_out.pooling)}
        identity["child"], identity["teacher"] = map(fingerprint, (patient.child, patient.teacher))
        return {**identity, "zerolm": zerolm.__version__}

    def healed(self, work: Path) -> Healed:
        """Train; the network of ``compact`` is then the healed one."""
        model, opening = self.compact.model, time.monotonic()
        parent = self._opened(self.patient.parent)
        model.to(self.device)  # type: ignore[arg-type]
        of_parent, before = self._measured(parent)
        checking = time.monotonic() - opening
        judge = self.held_out.judge(model, parent) if processes().is_main_process else None
        if self.patient.teacher is not self.patient.parent:
            parent = self._opened(self.patient.teacher)
        with seeded(self.request.seed):
            learner = self._learner(model, parent)
        plan = self._request(**of_first(partial(self._pace, work / PLAN, before, checking, learner, parent)))
        data = Sequences(self.corpus, plan.sequences, plan.seed, plan.batch)
        teacher = self._teacher(parent, data)
        del parent
        run = TrainingRun(work, judge, self.progress)
        trained = train(learner, data, plan, run, teacher=teacher)
        del teacher
        model.cpu()
        if self.request.lora:
            learner.model.merge_and_unload()  # type: ignore[operator]
        model.to(self.device)  # type: ignore[arg-type]
        _, after = self._measured(self._opened(self.patient.parent))
        model.cpu()
        patient = self.patient
        return Healed(
            child=str(patient.child.whole.place),
            parent=str(patient.parent.whole.place),
            teacher=str(patient.teacher.whole.place),
            family=patient.child.family.name,
            format="",  # it is written later
            texts=texts_of(data, trained.steps * plan.batch),
            training=training_of(
                self.request, plan, trained, list(self.objective.weights), len(self.held_out.tokens)
            ),
            losses={"before": before, "after": after, "parent": of_parent},
            curve=[{name: float(value) for name, value in row.items()} for row in trained.rows],
        )

    def _measured(self, parent: PreTrainedModel) -> tuple[dict[str, float], dict[str, float]]:
        """Return the losses of the parent and of the child as it is, in the first process."""
        if not processes().is_main_process:
            return {}, {}
        return self.held_out.measured(self.compact.model, parent, self.progress)

    def put(self, healed: Healed, destination: Destination, form: str, work: Path) -> Healed:
        """Write the healed child and what goes with it to its destination."""
        finish = destination.finish
        logs = [file for file in (work / LOG, *(work / EVENTS).glob("*")) if file.is_file()]
        names = [f"{LOGS}/{file.name}" for file in logs]
        with new_folder(destination.place, destination.force) as folder:
            healed = self.written(healed, folder, form, (*names, *(REPORT if finish else ())))
            (folder / LOGS).mkdir()
            for file in logs:
                shutil.copyfile(file, folder / LOGS / file.name)
            if finish:
                finish(folder, healed)
        return healed

    def written(self, healed: Healed, folder: Path, form: str, more: tuple[str, ...]) -> Healed:
        """Write the healed child into an empty folder, open it again and compare."""
        compact, document = self.compact, self.patient.recipe.document
        weights = TrainedWeights(compact.values(), compact.model)
        stages = [*document.get("healing", []), stage_of(healed)]
        recipe = {**document, "written_as": form, "healing": stages}
        child = Child(compact.checkpoint, compact.cut, weights)
        write(child, recipe, folder, more, progress=self.progress)
        self.progress("reopening the child")
        proof = FORMATS[form].verified_trained(compact.checkpoint, compact.cut, weights, folder)
        before, after = (damage_of(healed.losses[when]) for when in ("before", "after"))
        settings = settings_notes(self.patient.child, in_file=FORMATS[form].has_tokenizer)
        notes = [*([WORSE] if after >= before > 0 else []), *proof.notes, *settings]
        return replace(healed, verified=proof.distances, notes=notes, format=form)

    def _opened(self, checkpoint: Checkpoint) -> PreTrainedModel:
        model = self._attending(open_model(checkpoint))
        model.to(self.device)  # type: ignore[arg-type]
        return model

    def _attending(self, model: PreTrainedModel) -> PreTrainedModel:
        if self.device.type == "cpu" and self.corpus.length <= EAGER:
            model.set_attn_implementation("eager")
        return model

    def _adapted(self, model: PreTrainedModel) -> nn.Module:
        """Return the trained model: with all weights, or with adapters of all matrices in the layers."""
        self._attending(model)
        if self.request.execution.checkpointing:
            recompute_activations(model)
        rank = self.request.lora
        if rank is None:
            return model
        try:
            from peft import LoraConfig, get_peft_model
        except ModuleNotFoundError:
            raise ModuleNotFoundError("adapters need peft: pip install 'zerolm[train]'") from None
        config = LoraConfig(r=rank, lora_alpha=LORA_ALPHA * rank, target_modules="all-linear")
        with without_deprecations():
            return get_peft_model(model, config)

    def _learner(self, model: PreTrainedModel, teacher: PreTrainedModel) -> Student:
        """Return the child with its losses, each weighted to begin as large as the first."""
        widths = self.compact.checkpoint.layout.hidden, int(teacher.config.hidden_size)
        learner = Student(self._adapted(model), self.objective, widths)
        batch = Sequences(self.corpus, self.batch, self.request.seed)
        live = LiveTeacher(teacher, self.objective)
        if len(self.objective.weights) > 1 or learner.fit is not None:
            learner.balance(*batch_of(batch), live)
        return learner

    def _pace(
        self,
        file: Path,
        before: dict[str, float],
        checking: float,
        learner: Student,
        teacher: PreTrainedModel,
    ) -> dict[str, Any]:
        """Return ``tokens``, ``rate`` and the ``seconds`` of training, from the file if it has them.

        The time of the request includes that until now, and ``checking``: the seconds to check the child at
        the end. ``ValueError`` where it leaves none for a step.
        """
        if file.is_file():
            return dict(json.loads(file.read_text(encoding="utf-8")))
        request, execution = self.request, self.request.execution
        tokens, seconds = request.tokens, None
        if tokens is None:
            assert request.seconds is not None
            self.progress("timing a step")
            sequences = micro_batch(self.batch, processes().num_processes, execution.accumulate)
            data = Sequences(self.corpus, TRIALS * sequences, request.seed, sequences)
            live = LiveTeacher(teacher, self.objective, execution.bfloat16)
            took = step_seconds(learner, data, live, execution) * execution.accumulate
            seconds = request.seconds - checking - (time.monotonic() - self.begun)
            if seconds < took:
                raise ValueError(
                    f"--for {about(request.seconds)} is too short: opening the models, checking the child "
                    f"and a step of training take about {about(request.seconds - seconds + took)}"
                )
            tokens = int(seconds / took) * self._request(0, rate=0.0).step_tokens
        steps = self._request(tokens, rate=0.0).steps
        rate = rate_of(damage_of(before), steps, request.lora, large=self._every > 1)
        pace = {"tokens": tokens, "rate": request.rate or rate, "seconds": seconds}
        write_json(file, pace)
        return pace

    def _request(self, tokens: int, rate: float, seconds: float | None = None) -> TrainingRequest:
        request, sizes = self.request, (tokens, self.batch, self.corpus.usual_length)
        if request.distillation.top is not None:  # the teacher runs on all sequences first
            seconds = None
        return TrainingRequest(*sizes, Schedule(rate), request.seed, request.execution, seconds=seconds)

    def _teacher(self, model: PreTrainedModel, data: Sequences) -> Teacher | None:
        """Return the teacher for the losses: the model itself, or its predictions on the disk."""
        request, bfloat16 = self.request.distillation, self.request.execution.bfloat16
        if not set(OF_TEACHER) & self.objective.weights.keys():
            return None
        top = request.top
        if top is None:
            return LiveTeacher(model, self.objective, bfloat16)
        identity = f"{fingerprint(self.patient.teacher)} {bfloat16}"
        vocabulary = self.patient.teacher.layout.vocab

        def cache() -> CachedTeacher:
            return teacher_cache(identity, self.corpus, vocabulary, request.temperature, top)

        of_first(
            lambda: fill(
                cache(), model, self.corpus, data.pairs, request.temperature, self.progress, bfloat16=bfloat16
            )
        )
        return cache()
