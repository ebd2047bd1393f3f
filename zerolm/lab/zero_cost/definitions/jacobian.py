"""Proxies of gradients by what the first layer gets: do samples look alike to the network?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.registry import LeftOut, proxy

SMALL = 1e-5


@proxy("jacobian_covariance", source="NASWOT v1, arXiv 2006.04647v1, equations 2-4", needs=["jacobian"])
def jacobian_covariance(passes: Passes) -> float:
    """-sum of ln(v + 1e-5) + 1 / (v + 1e-5) over the eigenvalues v of the rows' correlations.

    A row is the gradient of the sum of a sample's outputs.
    """
    return covariance(_rows(passes, passes.loss.jacobian))


@proxy("jacobian_cosine", source="Celotti et al., arXiv 2006.12463", needs=["jacobian"])
def jacobian_cosine(passes: Passes) -> float:
    """1 - 1/2 mean |cosine|^(1/20) over ordered pairs of the same rows."""
    return cosine(_rows(passes, passes.loss.jacobian))


@proxy(
    "loss_jacobian_covariance",
    source="jacobian_covariance with the loss in the place of the outputs",
    needs=["loss_jacobian"],
)
def loss_jacobian_covariance(passes: Passes) -> float:
    """The same of rows that are gradients of the loss."""
    return covariance(_rows(passes, passes.loss.loss_jacobian))


@proxy(
    "loss_jacobian_cosine",
    source="jacobian_cosine with the loss in the place of the outputs",
    needs=["loss_jacobian"],
)
def loss_jacobian_cosine(passes: Passes) -> float:
    """The same of rows that are gradients of the loss."""
    return cosine(_rows(passes, passes.loss.loss_jacobian))


def covariance(rows: Tensor) -> float:
    """Return equation 4 of NASWOT v1 of rows (m, k)."""
    values = torch.linalg.eigvalsh(cosines(rows - rows.mean(1, keepdim=True))).clamp_min(0) + SMALL
    return -float((values.log() + 1 / values).sum())


def cosine(rows: Tensor) -> float:
    """Return 1 - 1/2 mean |cosine|^(1/20) over the ordered pairs of rows (m, k)."""
    similar = cosines(rows)
    m = len(similar)
    return 1 - float(similar.fill_diagonal_(0).abs().pow(1 / 20).sum()) / 2 / (m * m - m)


def cosines(rows: Tensor) -> Tensor:
    """Return cosines (m, m) between rows; a row of zeros has cosine 0 with all others."""
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
    return unit @ unit.T


def _rows(passes: Passes, parts: Sequence[Tensor]) -> Tensor:
    """Return a row a sample, (n, t d). Faithful: a row a feature, added over samples, (d, t)."""
    if passes.loss.samples < 2:
        raise LeftOut("it compares samples: the batch must have two at least")
    wide = torch.cat(list(parts)).double()
    return wide.sum(0).view(passes.loss.tokens, -1).T if passes.protocol.faithful else wide
