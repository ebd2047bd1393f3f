"""Sub-networks with their results as a benchmark file, and with sizes for a report."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
import transformers

import zerolm
from zerolm.checkpoints.origin import origin_of
from zerolm.costs import CostModel
from zerolm.groundtruth.reader import quality
from zerolm.groundtruth.truth import check
from zerolm.lab.subnets.judging import HIGHER_IS_BETTER
from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgedSlice, JudgingRequest, Slices
from zerolm.lab.subnets.slicing import Sliced
from zerolm.planning.sizes import costs_of
from zerolm.scores import make_score
from zerolm.spaces import make_space, shape_text
from zerolm.spaces.choices import alike
from zerolm.spaces.subnetworks import config_text
from zerolm.statistics import agreement, defined
from zerolm.training.result import Unlabelled
from zerolm.units.kept_units import dimensions

SPACE_OF: Final = {"next": "sliced-decoder", "masked": "sliced-encoder"}
RIVALS: Final = ("body_params", "geo")
"""Scores computed without results, whose rank agreement with each result is reported."""


def slices_of(
    name: str, sliced: Sliced, draw: DrawRequest, cutting: CutRequest, judging: JudgingRequest
) -> Slices:
    """Return sub-networks with their results; ``ValueError`` where fewer than two have finite ones."""
    checkpoint, depth = sliced.checkpoint, dimensions(sliced.checkpoint).depth
    options = zip(*(sliced.choices.of(layer) for layer in range(depth)), strict=True)
    lists = {
        kind: ["/".join(map(str, sizes)) for sizes in layers]
        for kind, layers in zip(("kv_heads", "ffn"), options, strict=True)
    }
    settings = {kind: texts if len(set(texts)) > 1 else texts[:1] for kind, texts in lists.items()}
    space_name = SPACE_OF[checkpoint.family.task]
    space = make_space(space_name, parent_config=config_text(checkpoint.config), **settings)
    entries: list[dict[str, Any]] = []
    left_out: list[Unlabelled] = []
    for number, (sizes, results) in enumerate(zip(sliced.sizes, sliced.results, strict=True), 1):
        odd = next((metric for metric, value in results.items() if not math.isfinite(value)), None)
        if odd is not None:
            left_out.append(Unlabelled(str(number), f"{odd} is no number"))
            continue
        choices = {kind: alike([layer[at] for layer in sizes]) for at, kind in enumerate(lists)}
        entries.append({"id": str(number), "architecture": choices, "results": results})
    if len(entries) < 2:
        raise ValueError(f"{len(left_out)} of {len(sliced.sizes)} sub-networks give no number: nothing ranks")
    metrics = list(entries[0]["results"])
    networks = [space.read(entry["architecture"]) for entry in entries]
    parent = costs_of(checkpoint, CostModel(), space=sliced.space)
    benchmark = {
        "name": name,
        "space": space.name,
        "settings": space.settings,
        "task": f"sub-networks of {origin_of(checkpoint.root).name}, cut and judged untrained",
        "metric": metrics[0],
        "higher_is_better": HIGHER_IS_BETTER[metrics[0]],
        "directions": {one: "higher" if HIGHER_IS_BETTER[one] else "lower" for one in metrics},
        "source": {
            "made_by": f"zerolm {zerolm.__version__} lab slice",
            "parent": origin_of(checkpoint.root).name,
            "parent_weights": sliced.fingerprint,
            "parent_macs": parent["macs"],
            **{f"parent_{metric}": value for metric, value in sliced.parent.items()},
            "sizes": sliced.space,
            **draw.budgets,
            "seed": draw.seed,
            "criterion": cutting.criterion,
            "repair": cutting.repair,
            **sliced.judged,
            "sequences": judging.sequences,
            "length": judging.length,
            "libraries": f"torch {torch.__version__}, transformers {transformers.__version__}",
        },
        "count": len(entries),
        "architectures": entries,
    }
    truth = check(benchmark)
    costs = {cost: make_score(cost).of_many(networks).tolist() for cost in ("body_params", "macs")}
    scores = {rival: make_score(rival).of_many(networks) for rival in RIVALS}
    labels = {metric: quality(truth, metric) for metric in metrics}
    taus = {
        metric: {rival: defined(agreement(values, result).tau) for rival, values in scores.items()}
        for metric, result in labels.items()
    }
    slices = [
        JudgedSlice(entry["id"], shape_text(network), int(body), int(macs), entry["results"])
        for entry, network, body, macs in zip(entries, networks, *costs.values(), strict=True)
    ]
    return Slices(benchmark, sliced.parent, taus, sliced.seconds, left_out, slices)
