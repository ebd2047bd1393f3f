"""The elastic spaces of LoNAS, with synthetic energies in place of a checkpoint's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.lab.subnets.lonas import SPACES
from zerolm.solvers.problem import Problem
from zerolm.spaces import CandidateTable

PARAMS, BODY, MACS, BYTES = (COSTS.index(n) for n in ("params", "body_params", "macs", "weight_bytes"))
LLAMA, BERT = SPACES["lonas-llama-7b"], SPACES["lonas-bert"]
LLAMA_RANKS = np.array([32, 28])
BERT_RANKS = np.array([8, 4, 2])
ADAPTER = 1e-3
"""Energy of an adapter's row beside that of a weight matrix's."""


@dataclass(frozen=True, eq=False)
class Elastic:
    """An elastic network: ``problem`` as the solvers see it, ``genes[b]`` as an evolution sees block b.

    A block whose candidates are all pairs of two choices has two genes, the first varying slowest.
    """

    name: str
    problem: Problem
    genes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return math.prod(len(table) for table, _ in self.problem.blocks)

    @cached_property
    def upper(self) -> Ints:
        """The largest value of each gene."""
        return np.array([options - 1 for block in self.genes for options in block])

    @cached_property
    def radix(self) -> Floats:
        """(genes, blocks): genomes (n, genes) times this are the candidates (n, blocks)."""
        matrix = np.zeros((len(self.upper), len(self.genes)))
        row = 0
        for column, block in enumerate(self.genes):
            for place in range(len(block)):
                matrix[row, column] = math.prod(block[place + 1 :])
                row += 1
        return matrix

    @cached_property
    def tables(self) -> tuple[Floats, Ints]:
        """Scores and MACs (blocks, candidates), padded with zeros."""
        shape = len(self.genes), max(len(table) for table, _ in self.problem.blocks)
        score, macs = np.zeros(shape), np.zeros(shape, np.int64)
        for row, (table, _) in enumerate(self.problem.blocks):
            score[row, : len(table)] = table.score
            macs[row, : len(table)] = table.costs[:, MACS]
        return score, macs

    def evaluate(self, genomes: Ints) -> tuple[Floats, Ints]:
        """Scores and MACs (n,) of integer genomes (n, genes)."""
        chosen = (genomes @ self.radix).astype(np.int64)
        blocks = np.arange(len(self.genes))
        score, macs = self.tables
        return score[blocks, chosen].sum(axis=1), macs[blocks, chosen].sum(axis=1) + self.problem.costs[MACS]


def llama(seed: int) -> Elastic:
    """LLaMA-7B: in each of 32 layers an FFN width and two adapter ranks, 2^64 x 5^32 networks."""
    rng, d, tokens = np.random.default_rng(seed), 4096, LLAMA.length
    widths = np.array(LLAMA.ffn[0])
    blocks: list[CandidateTable] = []
    for _ in range(32):
        bits = int(rng.choice([4, 8]))
        adapter = ADAPTER * rng.random(2) * LLAMA_RANKS[:, None]
        blocks.append(_table(adapter[:, 0], 0 * LLAMA_RANKS, LLAMA_RANKS * 3 * 2 * d, tokens, bits))
        width, rank = (grid.ravel() for grid in np.meshgrid(widths, LLAMA_RANKS, indexing="ij"))
        score = np.add.outer(_prefix_energy(widths, rng) / d, adapter[:, 1]).ravel()
        blocks.append(_table(score, width * 3 * d, rank * 2 * (d + width), tokens, bits))
    attention, head = 32 * 4 * d * d, 32000 * d
    fixed = _fixed(attention, head, tokens * (attention + head) + 2 * 32 * tokens**2 * d)
    return _elastic("LoNAS-LLaMA", blocks, fixed, ((2,), (5, 2)) * 32)


def bert(seed: int) -> Elastic:
    """BERT-base: in each of 12 layers an attention width, an adapter rank and an FFN width."""
    rng, d, tokens = np.random.default_rng(seed), 768, BERT.length
    blocks: list[CandidateTable] = []
    genes: list[tuple[int, ...]] = []
    for heads, ffn in zip(map(np.array, BERT.attention), map(np.array, BERT.ffn), strict=True):
        width, rank = (grid.ravel() for grid in np.meshgrid(heads, BERT_RANKS, indexing="ij"))
        score = np.add.outer(_prefix_energy(heads, rng) / d, ADAPTER * rng.random() * BERT_RANKS).ravel()
        matmuls = 2 * tokens * width
        blocks.append(_table(score, width * 4 * d, rank * 2 * (d + width), tokens, 8, matmuls))
        blocks.append(_table(_prefix_energy(ffn, rng) / d, ffn * 2 * d, 0 * ffn, tokens, 8))
        genes += [(len(heads), len(BERT_RANKS)), (len(ffn),)]
    return _elastic("LoNAS-BERT", blocks, np.zeros(len(COSTS), np.int64), genes)


def _prefix_energy(widths: Ints, rng: np.random.Generator) -> Floats:
    """Energy of the first ``widths`` rows of a random matrix whose rows and level differ by layer."""
    rows = rng.gamma(2.0, 1.0, int(widths.max())) * (0.5 + rng.random())
    return np.cumsum(rows)[widths - 1]


def _table(
    score: Floats, weights: Ints, adapter: Ints, tokens: int, bits: int, matmuls: Ints | int = 0
) -> CandidateTable:
    """Candidates with ``weights`` stored in ``bits`` bits and an ``adapter`` in 16, run on ``tokens``."""
    costs = np.zeros((len(score), len(COSTS)), np.int64)
    costs[:, PARAMS] = weights + adapter
    costs[:, BODY] = weights
    costs[:, MACS] = tokens * (weights + adapter + matmuls)
    costs[:, BYTES] = weights * bits // 8 + 2 * adapter
    return CandidateTable(score, costs, (1,) * len(score))


def _fixed(body: int, head: int, macs: int) -> Ints:
    costs = np.zeros(len(COSTS), np.int64)
    costs[[PARAMS, BODY, MACS, BYTES]] = body + head, body + head, macs, 2 * (body + head)
    return costs


def _elastic(
    name: str, blocks: Sequence[CandidateTable], fixed: Ints, genes: Sequence[tuple[int, ...]]
) -> Elastic:
    return Elastic(name, Problem(tuple((table, 1) for table in blocks), fixed), tuple(genes))
