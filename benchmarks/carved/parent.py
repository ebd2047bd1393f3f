"""A trained model on the bench: what it is carved by, and what came of each carving, all made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from parts import Parts
from timing import note

from carved.judging import Judge, Quality, mean
from carved.rivals import group_magnitude
from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import CostModel
from zerolm.networks.opener import is_decoder, open_model
from zerolm.networks.pooling import TokenPooling
from zerolm.passes.loss_moments import loss_moments
from zerolm.planning.sizes import costs_of
from zerolm.repairing.walk import repair
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criteria import WITH_TOKENS, criterion_of, needs_gradients
from zerolm.units.importance.criterion import Additive, Criterion
from zerolm.units.importance.token_pass import importances
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, apply_in_memory, dimensions_of

LENGTH: Final = 256
RIVAL: Final = "Torch-Pruning, group magnitude"


@dataclass(frozen=True)
class Scale:
    """How many sequences (or sentences) are calibrated on, and how many sequences and sentences at most are
    judged on; how many seeds chance has; how many random plans are drawn."""

    calibration: int = 256
    judged: int = 256
    sentences: int = 1024
    seeds: int = 5
    plans: int = 60


@dataclass(frozen=True)
class Texts:
    """Files of what the models have seen and of what they have not."""

    seen: Path
    unseen: Path


@dataclass(frozen=True)
class Trial:
    """The same shares of KV groups and neurons in all layers, by what they are chosen, how repaired.

    ``worst`` keeps what the criterion would drop first, and ``tokens`` are from the ``text`` or ``random``.
    """

    criterion: str
    groups: float
    ffn: float
    repair: str = "none"
    tokens: str = "text"
    worst: bool = False
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Worst(Criterion):
    """Keeps what another criterion drops."""

    by: Criterion
    units: dict[str, int]

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        units = np.arange(self.units[kind])
        if count == len(units):
            return units
        return np.setdiff1d(units, self.by.choose(layer, kind, len(units) - count))

    def score(self, layer: int, kind: str, count: int) -> float:
        return -self.by.score(layer, kind, self.units[kind] - count)


@dataclass(eq=False)
class Parent:
    """A folder with a trained model, its calibration tokens and its judge."""

    folder: Path
    texts: Texts
    scale: Scale
    parts: Parts
    criteria: dict[tuple[str, str, int], Criterion] = field(default_factory=dict)
    results: dict[Trial, Quality] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint = Checkpoint.open(self.folder)
        self.decoder = is_decoder(self.checkpoint)
        self.model = open_model(self.checkpoint)
        self.sizes = dimensions_of(self.model)

    @cached_property
    def calibration(self) -> dict[str, Tokens]:
        """Tokens by where they come from."""
        note(f"{self.folder.name}: tokenizing")
        sources = {"text": str(self.texts.seen), "random": "random"}
        count = self.scale.calibration
        return {
            name: tokens_of(self.checkpoint, source, sequences=count, length=LENGTH)
            for name, source in sources.items()
        }

    @cached_property
    def unseen(self) -> Tokens:
        """What children are judged on."""
        count = self.scale.judged if self.decoder else self.scale.sentences
        return tokens_of(self.checkpoint, str(self.texts.unseen), sequences=count, length=LENGTH)

    @cached_property
    def judge(self) -> Judge:
        return self.judge_on(self.unseen)

    @cached_property
    def own(self) -> Quality:
        """The parent by its own measure."""
        return self.judge.of(self.model)

    def judge_on(self, tokens: Tokens) -> Judge:
        return Judge(self.model, tokens, None if self.decoder else TokenPooling.of(self.checkpoint))

    def criterion(self, name: str, tokens: str = "text", seed: int = 0) -> Criterion:
        """A criterion by name; ``ImportError`` where its package is not installed."""
        key = (name, tokens, seed)
        if key not in self.criteria:
            self.criteria[key] = self._criterion(name, tokens, seed)
        return self.criteria[key]

    def _criterion(self, name: str, tokens: str, seed: int) -> Criterion:
        if name == RIVAL:
            return group_magnitude(self.model)
        if name in WITH_TOKENS:
            note(f"{self.folder.name}: {name} with {tokens} tokens")
            text, pooling = self.calibration[tokens], TokenPooling.of(self.checkpoint)
            back = needs_gradients(name)
            felt = loss_moments(self.model, text, pooling=pooling).fisher if back else None
            return Additive(importances(self.model, text, name, fisher=felt))
        return criterion_of(name, self.checkpoint, ledger_of(self.checkpoint), seed=seed)

    def cut(self, by: Criterion, widths: Sequence[tuple[int, int]]) -> Cut:
        """So many groups and neurons in each layer."""
        layers = (
            LayerCut.of(layer, by.choose(layer, "groups", groups), by.choose(layer, "ffn", ffn))
            for layer, (groups, ffn) in enumerate(widths)
        )
        return Cut(self.sizes, tuple(layers))

    def uniform(self, trial: Trial) -> Cut:
        """The cut of a trial."""
        by, units = (
            self.criterion(trial.criterion, trial.tokens, trial.seed),
            {"groups": self.sizes.kv_heads, "ffn": self.sizes.ffn},
        )
        widths = (round(trial.groups * units["groups"]), round(trial.ffn * units["ffn"]))
        return self.cut(Worst(by, units) if trial.worst else by, [widths] * self.sizes.depth)

    def repaired(self, cut: Cut, how: str, tokens: str = "text") -> Repaired:
        """New output matrices for a cut."""
        parts = self.calibration[tokens].divided()
        return repair(self.model, cut, parts.fitted, how, held=parts.compared)

    def judged(self, cut: Cut, how: str = "none", tokens: str = "text") -> Quality:
        """What a cut is worth on unseen text."""
        return self.judge.of(apply_in_memory(self.model, cut, self.repaired(cut, how, tokens)))

    def result(self, trial: Trial) -> Quality:
        """What came of a trial, now or in an earlier run with the same ``parts``."""
        if trial not in self.results:
            name = f"{self.folder.name}: {trial}"
            self.results[trial] = Quality(**self.parts.measured(name, partial(self._tried, trial)))
        return self.results[trial]

    def _tried(self, trial: Trial) -> dict[str, Any]:
        quality = self.judged(self.uniform(trial), trial.repair, trial.tokens)
        note(f"{self.folder.name}: {trial} {quality}")
        return asdict(quality)

    def average(self, trial: Trial) -> Quality:
        """What came of a trial, by chance the mean over all seeds, over two of them where it is repaired."""
        if trial.criterion != "random":
            return self.result(trial)
        seeds = self.scale.seeds if trial.repair == "none" else min(2, self.scale.seeds)
        trials = (Trial(**{**vars(trial), "seed": seed}) for seed in range(seeds))
        return mean([self.result(each) for each in trials])

    def cost(self, name: str, cut: Cut | None = None) -> int:
        """A cost by name of a cut, without one of the whole parent."""
        return costs_of(self.checkpoint, CostModel(), cut)[name]
