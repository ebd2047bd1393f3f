"""Modules that turn token ids into vectors, and the heads that share their matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from zerolm.architecture import Matrix
from zerolm.networks.modules.layer import Head


def places(ids: Tensor, positions: nn.Embedding) -> Tensor:
    """The vectors of the positions of token ids (b, t), (t, d)."""
    t = ids.shape[1]
    if t > positions.num_embeddings:
        raise ValueError(f"{t} tokens are given; this network has positions for {positions.num_embeddings}")
    vectors: Tensor = positions(torch.arange(t, device=ids.device))
    return vectors


class PositionedTokens(nn.Module):
    """Tokens and learned positions, (b, t) to (b, t, d), as GPT-2 has them."""

    def __init__(self, tokens: nn.Module, positions: int, d: int) -> None:
        super().__init__()
        self.tokens, self.positions, self.dropout = tokens, nn.Embedding(positions, d), nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.tokens(ids) + places(ids, self.positions))
        return out


class NormedTokens(nn.Module):
    """Tokens, learned positions and the first segment, normalised, (b, t) to (b, t, d), as BERT has them."""

    def __init__(self, tokens: int, positions: int, segments: int, d: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, d), nn.Embedding(positions, d)
        self.segments = nn.Embedding(segments, d)
        self.norm, self.dropout = nn.LayerNorm(d, eps=1e-12), nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        vectors = self.tokens(ids) + places(ids, self.positions) + self.segments(torch.zeros_like(ids))
        out: Tensor = self.dropout(self.norm(vectors))
        return out


class AdaptiveTokens(nn.Module):
    """Clusters of tokens, frequent ones first, each with vectors of a width of its own, projected to d.

    ``matrices`` are (tokens, width) and (d, width) of cluster after cluster, or the one matrix of tokens
    whose vectors are d wide already. What comes out is multiplied by ``scale``. Adaptive input
    representations, arXiv 1809.10853.
    """

    def __init__(self, matrices: Sequence[Matrix], scale: float = 1.0) -> None:
        super().__init__()
        clusters, projections = matrices[::2], matrices[1::2] or (None,)
        self.scale = scale
        self.tables = nn.ModuleList(nn.Embedding(table.rows, table.cols) for table in clusters)
        self.projections = nn.ModuleList(
            nn.Linear(matrix.cols, matrix.rows, bias=False) if matrix else nn.Identity()
            for matrix in projections
        )
        self.edges = list(accumulate((table.rows for table in clusters), initial=0))

    def forward(self, ids: Tensor) -> Tensor:
        if (highest := int(ids.max())) >= self.edges[-1]:
            raise ValueError(f"token {highest} is given; this network has tokens 0 to {self.edges[-1] - 1}")
        vectors = []
        for table, project, (low, high) in zip(
            self.tables, self.projections, pairwise(self.edges), strict=True
        ):
            embedding = (ids >= low) & (ids < high)
            rows = table((ids - low).clamp(0, high - low - 1))  # (b, t, width)
            vectors.append(torch.where(embedding[..., None], project(rows), 0.0))
        return self.scale * torch.stack(vectors).sum(0)


class AdaptiveHead(Head):
    """The softmax tied to adaptive embeddings: the logits of cluster i are (x P_i) E_i^T."""

    def __init__(self, tokens: AdaptiveTokens) -> None:
        super().__init__()
        self.tokens, self.classes = tokens, tokens.edges[-1]

    def forward(self, hidden: Tensor, classes: int | None = None) -> Tensor:
        wanted, logits = self.classes if classes is None else classes, []
        for table, project, low in zip(
            self.tokens.tables, self.tokens.projections, self.tokens.edges[:-1], strict=True
        ):
            if low < wanted:
                assert isinstance(table, nn.Embedding)
                narrow = hidden @ project.weight if isinstance(project, nn.Linear) else hidden
                logits.append(narrow @ table.weight[: wanted - low].T)
        return torch.cat(logits, dim=-1)


class TiedHead(Head):
    """Logits by the matrix of an embedding; where that was projected to d, first back by the transpose."""

    def __init__(self, tokens: nn.Embedding, project: nn.Linear | None = None) -> None:
        super().__init__()
        self.tokens, self.project, self.classes = tokens, project, tokens.num_embeddings

    def forward(self, hidden: Tensor, classes: int | None = None) -> Tensor:
        narrow = hidden if self.project is None else hidden @ self.project.weight
        return narrow @ self.tokens.weight[:classes].T


class LinearHead(Head):
    """A head with a matrix of its own."""

    def __init__(self, d: int, classes: int, bias: bool = True) -> None:
        super().__init__()
        self.linear, self.classes = nn.Linear(d, classes, bias), classes

    def forward(self, hidden: Tensor, classes: int | None = None) -> Tensor:
        bias = None if self.linear.bias is None else self.linear.bias[:classes]
        return linear(hidden, self.linear.weight[:classes], bias)
