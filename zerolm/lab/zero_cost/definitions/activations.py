"""Proxies of which units are active, and of the spread of activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Ints
from zerolm.lab.zero_cost.definitions.matrix_terms import total
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.passes.record import WORD
from zerolm.lab.zero_cost.registry import LeftOut, proxy

ETA: Final = 0.99
ROWS: Final = 4
"""Rows of a covariance for each of its columns."""


@proxy("activation_distance", source="Serianni and Kalita, ACL 2023, after NASWOT", needs=["distances"])
def activation_distance(passes: Passes) -> float:
    """Over FFN activations, how often a pair of tokens lies on the same side of a unit, mean over samples.

    Faithful: of the first sample only.
    """
    distances = passes.activations.distances.values()
    return total(pairs[0] if passes.protocol.faithful else pairs.mean() for pairs in distances)


@proxy("naswot", source="NASWOT, arXiv 2006.04647, equation 2", needs=["codes"])
def naswot(passes: Passes) -> float:
    """ln |det K|: K counts the units on whose side two samples agree."""
    some_units(passes)
    kernel = torch.stack([agreements(x).double() for x in _bits(passes)]).sum(0)
    return float(torch.linalg.slogdet(kernel)[1])


def agreements(active: Tensor) -> Tensor:
    """Return the number of units, of (n, u), on which each two samples agree, (n, n)."""
    return active @ active.T + (1 - active) @ (1 - active).T


def _bits(passes: Passes) -> Iterator[Tensor]:
    """Yield which units (n, u) each sample activates, layer by layer, as 0 and 1."""
    for words in passes.activations.codes.values():
        samples = range(passes.loss.samples)
        yield torch.stack([(words[s // WORD] >> (s % WORD)) & 1 for s in samples]).float()


@proxy("swap", source="SWAP, arXiv 2403.04161, definition 3.2", needs=["codes"])
def swap(passes: Passes) -> float:
    """How many different patterns of samples activate a unit, over all units."""
    enough_patterns(passes)
    return float(len(np.unique(np.concatenate(patterns(passes)))))


def patterns(passes: Passes) -> list[Ints]:
    """Return numbers for the units of each activated matrix, equal where the same samples activate them."""
    words = [codes.cpu().numpy() for codes in passes.activations.codes.values()]
    lengths = np.cumsum([codes.shape[1] for codes in words])[:-1]
    together = np.concatenate(words, axis=1)
    numbers = together[0]
    for more in together[1:]:
        _, numbers = np.unique(numbers, return_inverse=True)
        kinds, kind = np.unique(more, return_inverse=True)
        numbers = numbers * len(kinds) + kind
    return list(np.split(numbers, lengths))


def some_units(passes: Passes) -> None:
    """``LeftOut`` where the network has no FFN, and so no units."""
    if not passes.activations.codes:
        raise LeftOut("the network has no FFN, whose units it looks at")


def enough_patterns(passes: Passes) -> None:
    """``LeftOut`` without units, or with more than the samples give patterns, for then all are full."""
    some_units(passes)
    units = sum(codes.shape[1] for codes in passes.activations.codes.values())
    if passes.loss.samples < 62 and 2**passes.loss.samples < units:
        raise LeftOut(
            f"{passes.loss.samples} samples make {2**passes.loss.samples} patterns, too few for {units} units"
        )


def components(passes: Passes) -> int:
    """Return V-PCA: over FFNs, the principal components that hold 99 % of the first matrix's output variance.

    The output's covariance W C W^T, C that of the input, has the eigenvalues of R^T W^T W R where C = R R^T,
    which is as small as the input is wide.
    """
    count = 0
    for linear, covariance in passes.activations.covariances.items():
        w, rows = passes.weight(linear).double(), passes.activations.rows[linear]
        width = min(w.shape)
        if rows < ROWS * width:
            enough = f"{ROWS * width} suffice"
            raise LeftOut(f"{rows} tokens are too few for {width} principal components: {enough}")
        count += spread(output_spectrum(w, covariance))
    return count


def output_spectrum(w: Tensor, covariance: Tensor) -> Tensor:
    """Return the eigenvalues, ascending, of W C W^T (f, f) from the smaller side, (min(f, d),)."""
    gram = w @ covariance @ w.T
    if w.shape[0] >= w.shape[1]:
        values, vectors = torch.linalg.eigh(covariance)
        half = w @ (vectors * values.clamp_min(0).sqrt())  # (f, d), half half^T = W C W^T
        gram = half.T @ half
    spectrum: Tensor = torch.linalg.eigvalsh(gram)
    return spectrum


def spread(eigenvalues: Tensor, eta: float = ETA) -> int:
    """Return the smallest number of the largest whose share of the sum exceeds ``eta``."""
    falling = eigenvalues.clamp_min(0).flip(0)
    shares = falling.cumsum(0) / falling.sum()
    return min(int((shares <= eta).sum()) + 1, len(falling))


@proxy("v_pca", source="W-PCA, arXiv 2504.15983, equation 2", needs=["covariances"])
def v_pca(passes: Passes) -> float:
    """Sum over layers of the principal components of FFN."""
    return float(components(passes))


@proxy("w_pca", source="W-PCA, arXiv 2504.15983, equation 3", needs=["covariances"])
def w_pca(passes: Passes) -> float:
    """V-PCA times the number of parameters."""
    return float(components(passes) * passes.network.params)
