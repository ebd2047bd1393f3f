"""Facts of a healing for the result and the recipe."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from zerolm.carving.recipe import versions_of
from zerolm.healing.request import HealRequest
from zerolm.healing.result import Healed, HealedText, HealTraining
from zerolm.text.corpus import Sequences
from zerolm.training.request import TrainingRequest
from zerolm.training.train import Trained


def texts_of(data: Sequences, count: int) -> list[HealedText]:
    """Return the identity of each text, and its numbers of trained and held-out tokens.

    Trained on were the first ``count`` sequences.
    """
    corpus, pairs = data.corpus, data.pairs[:count]
    return [
        HealedText(
            source=text.source,
            sha256=text.sha256,
            tokens=len(text.ids),
            trained_on=corpus.tokens_in(number, pairs[pairs[:, 0] == number, 1]),
            held_out=corpus.tokens_in(number, np.arange(trained, trained + held)),
        )
        for number, (text, (trained, held)) in enumerate(zip(corpus.texts, corpus.counts, strict=True))
    ]


def training_of(
    request: HealRequest, plan: TrainingRequest, trained: Trained, losses: list[str], held_out: int
) -> HealTraining:
    """Return how a child was trained, by these losses, and on how many held-out sequences it was judged."""
    return HealTraining(
        tokens=trained.steps * plan.step_tokens,
        steps=trained.steps,
        seconds=round(trained.seconds, 1),
        rate=plan.schedule.rate,
        losses=losses,
        temperature=request.distillation.temperature,
        top=request.distillation.top,
        lora=request.lora,
        only=request.only,
        batch=plan.batch,
        length=plan.length,
        bfloat16=request.execution.bfloat16,
        seed=request.seed,
        held_out=held_out,
    )


def stage_of(healed: Healed) -> dict[str, Any]:
    """Return the entry of a healing in the recipe; its texts and teacher by name, without their folders."""
    return {
        "teacher": Path(healed.teacher).name,
        "texts": [{**asdict(text), "source": Path(text.source).name} for text in healed.texts],
        **asdict(healed.training),
        "losses_on_held_out": healed.losses,
        "versions": versions_of("torch", "transformers", "accelerate"),
    }
