"""The scores of a layer's experts, from the sums of one pass of tokens or from their weights alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts.fewer_experts import expert_matrices
from zerolm.carving.request import SUMMED
from zerolm.checkpoints import Checkpoint, TensorInfo
from zerolm.checkpoints.ledger import Ledger, best_summing
from zerolm.checkpoints.matrix_sums import sums_of
from zerolm.checkpoints.packed import PackedTensor
from zerolm.checkpoints.packed_values import sums_of_packed
from zerolm.io.cache import Arrays
from zerolm.registry import Entry, Registry

Worth = Callable[[Arrays], Floats]
AIMER: Final = "aimer"
RANDOM: Final = "random"
TOKENS: Final = "tokens"
PAIRS: Final = "pairs"

EXPERT_CRITERIA: Final[Registry[Worth | None]] = Registry("criterion of experts")
"""From the sums of a layer (``ExpertSums``) to the scores of its experts, (e,), or to the losses of removing
pairs of them, (e, e); None for criteria without sums."""


def _mean(name: str) -> Worth:
    """Return the mean of a sum over the tokens of an expert; 0 for an expert without tokens."""
    return lambda sums: sums[name] / np.maximum(sums["count"], 1)


def _total(name: str) -> Worth:
    return lambda sums: np.asarray(sums[name], np.float64)


def _together(sums: Arrays) -> Floats:
    """Return F (e, e) of https://arxiv.org/abs/2609.18916: means over tokens routed to both, else 0."""
    return np.asarray(sums["product"] / np.maximum(sums["together"], 1), np.float64)


for _name, _scores, _source in (
    ("reap", _mean("share_norm"), "mean of gate times norm of the output, gates of a token adding up to 1"),
    ("gated_norm", _mean("gate_norm"), "the same with the gates that the model applies"),
    ("frequency", _total("count"), "the number of its tokens"),
    ("gate_mass", _total("gate"), "sum of the gates that the model applies"),
    ("mean_norm", _mean("norm"), "mean norm of the output, without the gate"),
    ("mean_square", _mean("square"), "mean squared norm of the output, without the gate"),
    ("total_norm", _total("norm"), "sum of the norms of the output, without the gate"),
):
    EXPERT_CRITERIA.add(Entry(_name, _scores, _source, (TOKENS,)))
for _name, _scores, _source in (
    ("hope", _together, "mean product of what two experts send to a token that meets both"),
    (SUMMED, _total("product"), "sum of that product over all tokens: positive semidefinite"),
):
    EXPERT_CRITERIA.add(Entry(_name, _scores, _source, (TOKENS, PAIRS)))
EXPERT_CRITERIA.add(Entry(AIMER, None, "how unevenly the weights are spread: even ones go first"))
EXPERT_CRITERIA.add(Entry(RANDOM, None, "drawn by --seed"))


def needs_tokens(name: str) -> bool:
    """Return whether a criterion of experts needs tokens; ``ValueError`` for an unknown one."""
    return TOKENS in EXPERT_CRITERIA.entry(name).needs


def is_of_pairs(name: str) -> bool:
    """Return whether a criterion of experts scores pairs of removed experts, whose sum is minimised."""
    return PAIRS in EXPERT_CRITERIA.entry(name).needs


def by_weights(checkpoint: Checkpoint, layer: int, ledger: Ledger) -> Floats:
    """Return scores (e,) from weights alone: minus the mean absolute value over the root mean square (AIMER).

    The ratio is over gate, up and down projections together, as in https://arxiv.org/abs/2603.18492: experts
    with the highest ratio are removed first. The ``ledger`` has the sums of matrices that are separate
    tensors; those of packed ones are summed here, one at a time.
    """
    ratios = []
    for matrices in expert_matrices(checkpoint, layer):
        count = sum(matrix.count for matrix in matrices)
        sums = [_sums(checkpoint, matrix, ledger) for matrix in matrices]
        absolute, squares = (sum(column) / count for column in zip(*sums, strict=True))
        ratios.append(absolute / np.sqrt(squares) if squares else 1.0)
    return -np.array(ratios)


def _sums(checkpoint: Checkpoint, matrix: TensorInfo, ledger: Ledger) -> tuple[float, float]:
    """Return the sums of absolute values and of squares of a matrix."""
    if isinstance(matrix, PackedTensor):
        return sums_of_packed(matrix)
    if matrix.name in checkpoint.tensors:
        totals = ledger.total(matrix.name)
    else:
        totals = sums_of(matrix, best_summing(matrix.end - matrix.start))[0].totals(matrix.count)
    return totals.absolute, totals.squares


def drawn(seed: int, layer: int, experts: int) -> Floats:
    """Return random scores (e,) of the experts of a layer."""
    return np.random.default_rng((seed, layer)).random(experts)
