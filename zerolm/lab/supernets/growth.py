"""Growth of FFN widths where features are rich: principal components, how many grow, budget, diversity.

After Elastic Language Model (ELM, arXiv 2510.27037) and the code of its training-free sibling W-PCA.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from zerolm.architecture import Floats, Ints
from zerolm.lab.zero_cost.definitions.activations import spread

CONSTANT: Final = 1e-12
"""Features whose deviations are less than this share of their size do not vary: it is rounding."""


def pca_count(features: Tensor, eta: float) -> int:
    """Return the smallest number of principal components whose share of the variance exceeds ``eta``.

    Of features (n, f), n tokens by f neurons, centred, in float64; 0 where nothing varies. ``ValueError`` for
    features that are not finite.
    """
    values = features.detach().double()
    centred = values - values.mean(0)
    if not bool(torch.isfinite(centred).all()):
        raise ValueError("the features are not finite: the training has diverged")
    if float(centred.abs().max()) <= CONSTANT * float(values.abs().max()):
        return 0
    n, f = centred.shape
    gram = centred.T @ centred if f <= n else centred @ centred.T  # the same eigenvalues but for zeros
    return spread(torch.linalg.eigvalsh(gram), eta)


def growths(depth: int, kinds: int, average: int = 3, epochs: int = 10) -> int:
    """Return the number of widths that grow after an epoch: K = L a n // E, 21 of 12 layers by 6 blocks."""
    return depth * average * kinds // epochs


def grown(widths: Ints, scores: Floats, step: int, largest: int, count: int) -> Ints:
    """Return the widths (layers, kinds) after the ``count`` of best scores that can grow by a ``step`` did.

    Each grows at most once and up to ``largest``; fewer grow where no more can. Of equal scores the earlier
    layer comes first, then the earlier kind; what was never measured has score 0 and comes last.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    able = order[widths.ravel()[order] + step <= largest][: max(count, 0)]
    wider = widths.flatten()
    wider[able] += step
    return wider.reshape(widths.shape)


def mean_params(params: Ints, ends: int = 0) -> float:
    """Return the mean parameters of all paths, each equally likely, exactly: growth stops beyond a budget.

    ``params`` (layers, kinds) are those of each block at its width, ``ends`` those outside the layers. The
    mean of 1000 drawn paths, by which the authors' code decides, is an estimate of it.
    """
    return ends + int(params.sum()) / int(params.shape[1])


def diversity(outputs: Sequence[Tensor]) -> float:
    """Return the mean cosine similarity of each two blocks' outputs (b, t, d) for the same input.

    The mean over tokens and pairs, from -1 to 1; less is more diverse (ELM, arXiv 2510.27037, figure 6).
    """
    pairs = combinations([output.detach().double() for output in outputs], 2)
    return float(torch.stack([cosine_similarity(a, b, dim=-1).mean() for a, b in pairs]).mean())
