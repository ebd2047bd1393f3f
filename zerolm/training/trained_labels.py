"""Architectures and their labels as a benchmark file, with how they were trained and the noise of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, Final

import numpy as np
import torch
import transformers

import zerolm
from zerolm.architecture import Architecture, Floats
from zerolm.groundtruth.truth import check
from zerolm.io.plain import as_plain
from zerolm.scores import make_score
from zerolm.spaces import shape_text
from zerolm.statistics import agreement, defined, noise_ceiling
from zerolm.training.labels import Label, LabelText
from zerolm.training.processes import device_for
from zerolm.training.request import DEPTH_RULES, TrainingRequest
from zerolm.training.result import LabelledArchitecture, SeedNoise, TrainedLabels, Unlabelled
from zerolm.training.scaling import BASE, BASE_DEPTH
from zerolm.training.train import BETAS, CLIP, TrainingFailed

METRIC: Final = "loss"
TASKS: Final = {"next": "next token", "masked": "masked tokens"}
RIVALS: Final = ("params", "body_params", "geo")
"""Scores without labels, whose agreement with the losses is reported."""
Runs = Sequence[Label]
"""Of one architecture: from the first seed, and from the others where it was repeated."""


def trained_labels(
    name: str,
    text: LabelText,
    request: TrainingRequest,
    architectures: Sequence[Architecture],
    labels: Sequence[Runs],
    names: Sequence[str],
) -> TrainedLabels:
    """Return architectures by their ``names`` with their labels; ``TrainingFailed`` for fewer than two."""
    trained = [i for i, runs in enumerate(labels) if runs[0].losses]
    failed = [i for i, runs in enumerate(labels) if not runs[0].losses]
    if len(trained) < 2:
        raise TrainingFailed(
            f"{len(failed)} of {len(labels)} architectures could not be trained, the first: "
            f"{labels[failed[0]][0].failure}"
        )
    repeats = {i: [run.loss for run in labels[i][1:] if run.losses] for i in trained}
    chosen = [architectures[i] for i in trained]
    quality = -np.array([labels[i][0].loss for i in trained])
    sizes = {cost: make_score(cost).of_many(chosen) for cost in ("params", "body_params")}
    noise = _noise(quality, [repeats[i] for i in trained])
    entries = [
        {
            "id": names[i],
            "architecture": architectures[i].choices,
            "results": _results(labels[i][0]),
            **({"repeats": {METRIC: repeats[i]}} if repeats[i] else {}),
        }
        for i in trained
    ]
    benchmark = {
        "name": name,
        "space": text.space.name,
        "settings": text.space.settings,
        "task": f"{TASKS[text.task]} of a text",
        "metric": METRIC,
        "higher_is_better": False,
        "source": _source(text, request) | {"noise": as_plain(noise)},
        "count": len(entries),
        "architectures": entries,
    }
    check(benchmark)
    taus = {rival: agreement(make_score(rival).of_many(chosen), quality).tau for rival in RIVALS}
    return TrainedLabels(
        benchmark,
        noise,
        {rival: defined(tau) for rival, tau in taus.items()},
        [Unlabelled(names[i], labels[i][0].failure) for i in failed],
        [
            LabelledArchitecture(
                names[i],
                shape_text(architectures[i]),
                **{cost: int(values[place]) for cost, values in sizes.items()},
                loss=labels[i][0].loss,
                repeats=repeats[i],
                seconds=round(sum(run.seconds for run in labels[i]), 2),
            )
            for place, i in enumerate(trained)
        ],
    )


def _results(label: Label) -> dict[str, float]:
    """Return the loss at the end, and those after fewer tokens of the same run, before its rate decayed."""
    *earlier, _ = sorted(label.losses)
    return {METRIC: label.loss} | {
        f"{METRIC} after {tokens} tokens": label.losses[tokens] for tokens in earlier
    }


def _source(text: LabelText, request: TrainingRequest) -> dict[str, Any]:
    schedule = request.schedule
    return {
        "made_by": f"zerolm {zerolm.__version__} bench train",
        "text_sha256": text.sha256,
        **({"held_out_sha256": text.judged.texts[0].sha256} if text.judged else {}),
        "vocabulary": text.classes or text.space.settings["vocab"],
        "tokenizer": "byte-level BPE, trained on the text",
        "tokens": request.steps * request.step_tokens,
        "batch": request.batch,
        "length": request.length,
        "seed": request.seed,
        "optimiser": f"AdamW, betas {BETAS[0]:g} and {BETAS[1]:g}, gradients of norm {CLIP:g} at most",
        "rate": schedule.rate,
        "rate_by_width": f"muP of width {BASE}",
        "branches_and_rates_by_depth": _depth(request),
        "warmup": schedule.warmup,
        "decay": schedule.decay,
        "weight_decay": schedule.weight_decay,
        "dropout": 0.0,
        "compiled": request.execution.compile,
        "precision": "bfloat16" if request.execution.bfloat16 else "float32",
        "device": device_for(request.execution).type,
        "libraries": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }


def _depth(request: TrainingRequest) -> str:
    exponent = DEPTH_RULES[request.depth_rule]
    if exponent is None:
        return "none"
    power = f"(depth / {BASE_DEPTH})^"
    return f"{request.depth_rule}: branches x {power}{-exponent:g}, rates in layers x {power}{exponent - 1:g}"


def _noise(quality: Floats, repeats: Sequence[Sequence[float]]) -> SeedNoise | None:
    """Return the noise ceiling by repeated runs, and the mean tau-b of the orders of any two seeds."""
    further = [(-loss, i) for i, losses in enumerate(repeats) for loss in losses]
    if not further:
        return None
    results, labels = (np.array(column) for column in zip(*further, strict=True))
    places = np.arange(len(quality))
    ceiling = noise_ceiling(np.append(quality, results), np.append(places, labels.astype(np.int64)))
    assert ceiling is not None
    most = max(map(len, repeats))
    complete = [i for i, losses in enumerate(repeats) if len(losses) == most]
    by_seed = np.array([[quality[i], *(-loss for loss in repeats[i])] for i in complete]).T
    taus = [agreement(one, other).tau for one, other in combinations(by_seed, 2)] if len(complete) > 1 else []
    between = float(np.mean(taus)) if taus and not np.isnan(taus).any() else None
    return SeedNoise(**asdict(ceiling), tau_between_seeds=between)
