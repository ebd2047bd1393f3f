"""The price of training a network from scratch, and how long, how fast to train by published laws.

Operations go by the multiply-accumulates of a token, memory by what AdamW and the backward pass hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from zerolm.architecture import Ends, Ints, Layer, Shapes
from zerolm.cost_columns import TRAINING
from zerolm.costs import COSTS, CostModel

OPERATIONS: Final = 6
"""Operations of training a multiply-accumulate of the forward pass: 2 forward, 4 back (PaLM,
arXiv 2204.02311, appendix B, where attention is counted in full, as MACs count it here)."""
STATE_BYTES: Final = 16
"""Bytes a parameter: weight, gradient and both moments of AdamW in float32 (ZeRO, arXiv 1910.02054)."""
CAST_BYTES: Final = 2
"""Bytes a weight of a matrix: its copy in bfloat16, which autocast holds until the backward pass ends."""
LOGIT_BYTES: Final = 10
"""Bytes a logit when the backward pass begins: bfloat16, log softmax and gradient in float32."""
END_BYTES: Final = 10
"""Bytes a number of the stream at its ends: what the final norm and the head hold."""


@dataclass(frozen=True)
class LayerMemory:
    """Bytes that a layer holds of a token until the backward pass, by what they are proportional to.

    The ``width`` of the stream, of queries and of keys (``heads``, values counted with the keys), of the FFN.
    """

    width: int
    heads: int
    ffn: int


HELD: Final = {"llama": LayerMemory(26, 4, 8), "qwen3": LayerMemory(26, 10, 8)}
"""By space, of transformers' layers under autocast to bfloat16, attention without n x n (FlashAttention).

Counted from what autograd saves; what is kept by head and by norm, four bytes each, is left out."""
ALPHA: Final = 0.3478
BETA: Final = 0.3658
BALANCE: Final = ALPHA * 482.01 / (BETA * 2085.43)
"""a A / (b B) of Chinchilla's law as Besiroglu et al. fitted it."""
STEP_LAW_PARAMS: Final = (214_663_680, 1_073_741_824)
STEP_LAW_TOKENS: Final = (4_000_000_000, 100_000_000_000)
"""The least and the most of Step Law's published runs of dense networks (step-law/steplaw at 32a8f4c)."""


def train_flops(macs: int, tokens: int) -> int:
    """Return the operations of training: 6 x MACs a token x tokens."""
    return OPERATIONS * macs * tokens


def most_macs(flops: float, tokens: int) -> int:
    """Return the most MACs a token with which ``tokens`` are trained on within ``flops`` operations."""
    return int(flops) // (OPERATIONS * tokens)


@dataclass(frozen=True)
class Allocation:
    """Operations of training as a published law divides them: into ``macs`` a token and ``tokens``."""

    law: str
    source: str
    macs: float
    tokens: float


def chinchilla(flops: float) -> Allocation:
    """Return the allocation with the least loss within ``flops`` operations by E + A / N^a + B / D^b, N for
    MACs a token.

    Hoffmann et al. (arXiv 2203.15556, approach 3) as fitted again by Besiroglu et al. (arXiv 2404.10102).
    """
    both = flops / OPERATIONS
    macs = BALANCE ** (1 / (ALPHA + BETA)) * both ** (BETA / (ALPHA + BETA))
    return Allocation("Chinchilla", "arXiv 2404.10102", macs, both / macs)


def chinchilla_tokens(macs: int) -> int:
    """Return the tokens for which a network of ``macs`` MACs a token is the best for its operations."""
    return round(float((macs**ALPHA / BALANCE) ** (1 / BETA)))


def deepseek(flops: float) -> Allocation:
    """Return the division by DeepSeek LLM (arXiv 2401.02954, section 3.2): D = 5.8316 C^0.4757.

    Its measure of a network, operations a token with attention, is six times its MACs without the head.
    """
    tokens = 5.8316 * flops**0.4757
    return Allocation("DeepSeek LLM", "arXiv 2401.02954", flops / OPERATIONS / tokens, tokens)


def step_law(body_params: int, tokens: int) -> tuple[float, int]:
    """Return the peak rate of AdamW and the batch in tokens by Step Law (Li et al., arXiv 2503.04715).

    They are 1.79 N^-0.713 D^0.307 and 0.58 D^0.571, for N parameters without embeddings and D tokens in all;
    the rate falls to 1e-5 by a cosine after 2,000 steps of warming up.
    """
    return 1.79 * body_params**-0.713 * tokens**0.307, round(0.58 * tokens**0.571)


def step_law_depth(body_params: int) -> float:
    """Return the depth of a network of this size with the shapes of Step Law's runs.

    Their layers have 32 d^2 parameters (FFNs of 9.3 d), and d / L is 128 for all but two of five.
    """
    return float((body_params / (32 * 128**2)) ** (1 / 3))


@dataclass(frozen=True)
class TrainingPlan:
    """How long a network is to be trained: ``tokens``, chosen by a ``law`` where that is named.

    ``max_flops`` are the most operations, None where they are free.
    """

    tokens: int
    max_flops: float | None = None
    law: str = ""


@dataclass(frozen=True)
class TrainedCosts(CostModel):
    """Costs with one more: bytes that training needs on one device with ``sequences`` of ``context`` at once.

    AdamW with weights in float32, computed in bfloat16, nothing recomputed; of a space in ``HELD``, whose
    networks have ``vocab`` logits.
    """

    sequences: int = field(kw_only=True)
    vocab: int = field(kw_only=True)
    held: LayerMemory = field(kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        return (*COSTS, TRAINING)

    def rows(self, layers: Callable[[], Sequence[Layer]], shapes: Shapes) -> Ints:
        """Return the costs of each layer, (n, 7)."""
        costs, weights = self.layers(shapes), shapes.weights.sum(axis=1)
        ffn = (shapes.weights * shapes.ffn).sum(axis=1) // (3 * shapes.width)
        numbers = self.held.width * shapes.width + self.held.heads * (shapes.query_width + shapes.kv_width)
        numbers += self.held.ffn * ffn
        held = self.sequences * self.context * numbers
        params = costs[:, COSTS.index("params")]
        return np.column_stack([costs, STATE_BYTES * params + CAST_BYTES * weights + held])

    def ends(self, ends: Ends) -> Ints:
        costs, head = super().ends(ends), ends.tied_head + ends.head
        numbers = LOGIT_BYTES * self.vocab + END_BYTES * (head // self.vocab)
        held = self.sequences * self.context * numbers
        params = costs[COSTS.index("params")]
        return np.append(costs, STATE_BYTES * params + CAST_BYTES * head + held)
