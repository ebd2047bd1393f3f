"""Search of a supernet's paths: by their losses in it, by principal components, or by scores of shapes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as File
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.costs import COSTS, LATENCY, CostModel, TimedCosts
from zerolm.io.kept_rows import KeptRows
from zerolm.lab.supernets.distillation import watched
from zerolm.lab.supernets.latency import Timing, measured_latencies, measured_whole
from zerolm.lab.supernets.learner import activated, pca_count
from zerolm.lab.supernets.request import ETA, SUPERNET_LOSS
from zerolm.lab.supernets.supernet import Path, Supernet, drawn_path, read_supernet
from zerolm.lab.supernets.text import network_loss, supernet_text
from zerolm.progress import Progress, silent
from zerolm.scores import ChoiceTable, Score, WholeScore
from zerolm.solvers import SearchResult, search
from zerolm.solvers.evolution import USUAL_SIZES, Evolution
from zerolm.training.losses import HELD_BATCH

DRAWS: Final = 8
"""Paths behind which every block is measured."""
MEASURED: Final = (SUPERNET_LOSS, "v_pca", "w_pca")
"""Scores that a supernet gives; all others are of shapes."""


@dataclass(frozen=True)
class ElasticSearch:
    """A question to a supernet: the ``score``, ``budgets`` as of ``zerolm search``, the ``method``.

    ``auto`` takes evolution for the losses and the cheapest proof for all else; ``sizes`` are those of the
    evolution, and ``random`` looks at as many architectures as it does. Latencies are measured where
    ``max_latency_us`` or ``min_latency_us`` is among the budgets.
    """

    score: str = SUPERNET_LOSS
    budgets: Mapping[str, int] | None = None
    method: str = "auto"
    sizes: Evolution = USUAL_SIZES
    seed: int = 0
    top: int = 10


def search_supernet(
    folder: File,
    question: ElasticSearch,
    *,
    source: str | None = None,
    sequences: int | None = None,
    costs: CostModel | None = None,
    store: File | None = None,
    progress: Progress = silent,
) -> SearchResult:
    """Return the best paths of the supernet in a folder, on the text that was held out of its training.

    As ``search_paths``, on this number of ``sequences``, also of another ``source``. ``ValueError`` where the
    folder is none of a supernet, or its text is another now.
    """
    supernet, _, facts = read_supernet(folder)
    text = supernet_text(folder, supernet.space, facts, source, progress=progress)
    inputs, labels = (part[:sequences] for part in text.held_out)
    return search_paths(supernet, inputs, labels, question, costs=costs, store=store, progress=progress)


def search_paths(
    supernet: Supernet,
    inputs: Tensor,
    labels: Tensor,
    question: ElasticSearch,
    *,
    costs: CostModel | None = None,
    store: File | None = None,
    progress: Progress = silent,
) -> SearchResult:
    """Return the best paths of a supernet within budgets, with a certificate.

    Principal components are counted before any training: at random weights of the same shapes.
    ``inputs`` and ``labels`` (n, t) are of text that it was not trained on. Losses that were measured are
    kept in the folder ``store``, so that a killed search goes on. With a limit of latency every block and the
    ends are timed, and the latency of a path is their sum. ``Infeasible`` where no path keeps the budgets.
    """
    space, costs, table = supernet.grown_space(), costs or CostModel(), None
    timing = Timing.of(space, costs)
    if any(name.endswith(LATENCY) for name in question.budgets or {}):
        latencies, table = measured_latencies(space, timing, progress)
        costs = TimedCosts(**costs.conditions, latencies=latencies)
    score: Score | str = question.score
    if question.score == SUPERNET_LOSS:
        score = loss_score(supernet, inputs, labels, store=store, progress=progress)
    elif question.score in MEASURED:
        untrained = Supernet(space, question.seed)
        counts = pca_counts(untrained, inputs[:HELD_BATCH], seed=question.seed, progress=progress)
        score = pca_score(supernet, counts, weighed=question.score == "w_pca")
    evolves = question.method == "auto" and question.score == SUPERNET_LOSS
    how: Any = {"seed": question.seed, "sizes": question.sizes, "compare": False, "progress": progress}
    method = "evolution" if evolves else question.method
    budgets = dict(question.budgets or {})
    result = search(space, score, budgets=budgets, costs=costs, top=question.top, method=method, **how)
    if table is None:
        return result
    progress("measuring the pick")
    whole = measured_whole(result.pick.architecture, space, timing)
    return replace(result, question=replace(result.question, latency=replace(table, whole=whole)))


def loss_score(
    supernet: Supernet,
    inputs: Tensor,
    labels: Tensor,
    *,
    store: File | None = None,
    progress: Progress = silent,
) -> WholeScore:
    """Return minus the loss of a path on what is labelled, in nats a token, with the supernet's weights.

    (Single-path supernets, arXiv 1904.00420; ELM, arXiv 2510.27037.) Each is measured once, and kept in the
    folder ``store``. ``ValueError`` where a loss is not finite.
    """
    if store is not None:
        store.mkdir(parents=True, exist_ok=True)
        store /= f"{_digest(supernet, inputs, labels)}.jsonl"  # of these weights and this text
    losses = KeptRows(store)

    def many(architectures: Sequence[Architecture]) -> Floats:
        names = []
        for number, path in enumerate(map(supernet.path_of, architectures)):
            progress("measuring paths", number, len(architectures))
            names.append(" ".join(map(str, path)))
            if names[-1] not in losses.results:
                loss = path_loss(supernet, path, inputs, labels)
                if not math.isfinite(loss):
                    diverged = "the training of the supernet has diverged"
                    raise ValueError(f"the loss of a path is {loss}: {diverged}")
                losses.add({names[-1]: loss})
        return -np.array([losses.results[name] for name in names], np.float64)

    how: Any = {"many": many, "sees_choices": True, "measured": True}
    return WholeScore(SUPERNET_LOSS, lambda one: float(many([one])[0]), "ELM, arXiv 2510.27037", **how)


def path_loss(supernet: Supernet, path: Path, inputs: Tensor, labels: Tensor) -> float:
    """Return the mean loss of a path on what is labelled in sequences (n, t), in nats."""
    was_training = supernet.training
    supernet.train(False)
    loss = network_loss(partial(supernet, path=path), inputs, labels, supernet.widths.device)
    supernet.train(was_training)
    return loss


@torch.no_grad()
def pca_counts(
    supernet: Supernet, ids: Tensor, *, draws: int = DRAWS, seed: int = 0, progress: Progress = silent
) -> Floats:
    """Return the principal components of every block's FFN, (layers, kinds): the mean behind drawn paths."""
    counts = np.zeros((draws, *supernet.shape))
    for draw in range(draws):
        progress("counting principal components", draw, draws)
        with watched([activated(block) for block in supernet.stack.layers]) as features:
            for layer, _ in enumerate(supernet.behind(ids, drawn_path(supernet.shape, seed, draw))):
                for kind, (block, _) in enumerate(supernet.space.kinds):
                    counts[draw, layer, kind] = pca_count(features[kind].flatten(0, 1), ETA[block])
                features.clear()
    mean: Floats = counts.mean(0)
    return mean


def pca_score(supernet: Supernet, counts: Floats, *, weighed: bool) -> WholeScore:
    """Return V-PCA, the sum over layers of the counts (layers, kinds), or W-PCA, ``weighed`` by parameters.

    (W-PCA, arXiv 2504.15983, equations 2 and 3.) A table has them, so the best path is proven. They differ
    from the proxies of these names in that a block is measured behind drawn paths, not behind its own.
    """
    kinds, params = supernet.space.kinds, COSTS.index("params")

    def term(layer: int, choice: Mapping[str, Any]) -> float:
        return float(counts[layer, kinds.index((choice["block"], choice["share"]))])

    def weigh(sums: Floats, costs: Ints) -> Floats:
        return sums * costs[:, params] if weighed else sums

    def whole(architecture: Architecture) -> float:
        total = sum(term(layer, choice) for layer, choice in enumerate(architecture.choices["layers"]))
        return total * CostModel().of(architecture)["params"] if weighed else total

    name = "w_pca" if weighed else "v_pca"
    source = "W-PCA, arXiv 2504.15983"
    return WholeScore(name, whole, source, sees_choices=True, table=ChoiceTable(term, weigh))


def _digest(supernet: Supernet, *texts: Tensor) -> str:
    """Return the SHA-256 of the weights of a supernet, its widths, and texts."""
    total = hashlib.sha256()
    for name, value in supernet.state_dict().items():
        total.update(name.encode())
        total.update(value.detach().cpu().contiguous().numpy().tobytes())
    for text in texts:
        total.update(text.numpy().tobytes())
    return total.hexdigest()
