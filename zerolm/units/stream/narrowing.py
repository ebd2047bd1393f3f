"""One orthonormal basis of the residual stream, and the part of it that a child keeps.

A norm without its gain (RMSNorm) commutes with an orthogonal Q. So with every gain folded into the matrices
behind it, the network in the coordinates y = Q^T x is the same. The first k columns R of Q give a plain
network of a smaller hidden size. With W_in behind a norm of gain g, and W_out that writes to the stream,

    E' = E R,  W_in' = W_in diag(g) R s,  W_out' = R^T W_out,  gains 1,

where s = sqrt(kept share of the energy x d / k) corrects for the norm's mean over k components.

The removed part of the final state is predicted from the kept one, x ~ B y, and the head is applied to the
prediction: it is multiplied by diag(g) B s. A tied head can only be scaled component by component. R is
therefore rotated within its span until R^T diag(g) R is diagonal, G. Then E diag(g) is E G in the kept
directions, and E' = E diag(g) B G^-1 serves as embedding and, times G s, as head. With all components kept B
is R and E' is E R: exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.families.config import in_ffn
from zerolm.families.family import BIAS, OUTPUT_ROLES

WRITERS: Final = (*OUTPUT_ROLES, *(role + BIAS for role in OUTPUT_ROLES))
"""The roles of tensors that add to the stream and are refitted."""
OTHER_WRITERS: Final = ("linear_o", "experts_down", "shared_down", "dense_down")
"""The roles of tensors that add to the stream in other kinds of layers, and in mixtures of experts."""
RIDGE: Final = 1e-4
"""A share of the mean energy of a component, for predicting the removed ones: rounding predicts nothing."""
EMPTY: Final = 1e-5
"""Largest share of the energy, and of its cost, in directions that contain only rounding to 16 bits."""
SMALL_GAIN: Final = 1e-2
"""Gains of a tied head below this share of the largest are not divided by."""


def writes(role: str) -> bool:
    """Return whether the tensor with a role adds to the stream."""
    return role in WRITERS or role.removesuffix(BIAS) in OTHER_WRITERS


def norm_before(role: str) -> str:
    """Return the norm before the matrix with a role; a router has the same norm as the experts."""
    return "final_norm" if role == "head" else "ffn_norm" if in_ffn(role) else "attention_norm"


@dataclass(frozen=True)
class Width:
    """A width of the residual stream, and whether the head is tied then."""

    hidden: int
    tied: bool


@dataclass(frozen=True, eq=False)
class Narrowing:
    """The maps from a parent's stream of d components to a child's of k.

    ``basis`` (d, k) has orthonormal columns, ``scale`` is s, ``embedding`` (d, k) maps the parent's embedding
    to the child's, ``predicted`` (d, k) is B. ``final_gain`` (k,) is the gain of the child's last norm where
    the head is tied, else None. ``kept`` is the share of the stream's energy in the basis; ``by`` names how
    the basis was chosen.
    """

    by: str
    basis: Floats
    scale: float
    embedding: Floats
    predicted: Floats
    final_gain: Floats | None
    kept: float

    @property
    def width(self) -> Width:
        return Width(self.basis.shape[1], self.final_gain is not None)

    def input_map(self, norm: str, gain: Floats) -> Floats:
        """Return the factor (d, k) of a matrix behind a ``norm`` of this ``gain`` (d,)."""
        stream = self.predicted if norm == "final_norm" else self.basis
        return gain[:, None] * stream * self.scale


@dataclass(frozen=True, eq=False)
class Basis:
    """Orthonormal directions of the residual stream of d components, the most important first.

    ``vectors`` (d, d) has them as columns; ``energy`` (d,) is their share of the energy of the normalised
    stream; ``last`` (d, d) are second moments of the normalised stream before the head; ``gain`` (d,) is the
    gain of the norm there. ``by`` names how they were chosen: ``loss``, ``weights``, or ``channels`` (not
    rotated).
    """

    by: str
    vectors: Floats
    energy: Floats
    last: Floats
    gain: Floats

    def kept(self, hidden: int) -> float:
        """Return the share of the stream's energy in the first ``hidden`` directions."""
        return min(1.0, float(self.energy[:hidden].sum()))

    def reordered(self, order: Ints) -> Basis:
        """Return the same directions in another ``order`` (d,)."""
        return replace(self, vectors=self.vectors[:, order], energy=self.energy[order])

    def narrowing(self, width: Width) -> Narrowing:
        """Return the maps to a child of this width."""
        whole, hidden = len(self.vectors), width.hidden
        basis, kept = self.vectors[:, :hidden], self.kept(hidden)
        scale = float(np.sqrt(kept * whole / hidden))
        if width.tied:
            gains, turn = np.linalg.eigh(basis.T @ (self.gain[:, None] * basis))
            basis = basis @ turn
        crossed = self.last @ basis  # (d, k)
        inner = basis.T @ crossed  # (k, k)
        ridge = RIDGE * np.trace(inner) / hidden * np.eye(hidden)
        predicted = basis + np.linalg.solve(inner + ridge, (crossed - basis @ inner).T).T  # B
        if not width.tied:
            return Narrowing(self.by, basis, scale, basis, predicted, None, kept)
        divides = np.abs(gains) >= SMALL_GAIN * np.abs(gains).max()
        embedding = self.gain[:, None] * predicted / np.where(divides, gains, 1.0)
        embedding = np.where(divides, embedding, basis)
        return Narrowing(self.by, basis, scale, embedding, predicted, gains * scale, kept)


def channel_basis(energy: Floats, gain: Floats) -> Basis:
    """Return the basis whose directions are the channels themselves, so that nothing is rotated.

    Channels are sorted by ``energy`` (d,), the largest first; ``gain`` (d,) is that of the last norm.
    """
    order = np.argsort(-energy, kind="stable")
    moments = np.eye(len(energy))
    return Basis("channels", moments[:, order], energy[order] / energy.sum(), moments, gain)


def ordered_basis(energy: Floats, metric: Floats) -> Floats:
    """Return orthonormal columns (d, d) whose first k span the best subspace to keep, for every k.

    ``energy`` (d, d) are second moments of what is projected, ``metric`` (d, d) is the cost of an error e,
    e^T metric e. The best subspaces are spanned by metric^1/2 V, V the eigenvectors of metric^1/2 energy
    metric^1/2, the largest first; orthonormalised in this order.

    These subspaces may include directions without energy, which does not change predictions from the others.
    But a child has the projection itself, not a prediction from it. So the basis is computed within the
    directions that have energy, where the best subspaces are as good; the empty directions come last.
    """
    held, empty = _by_content(energy, metric)
    if not empty.shape[1]:
        return _by_loss(energy, metric)
    inside = held @ _by_loss(held.T @ energy @ held, held.T @ metric @ held)
    return np.hstack([inside, empty @ np.linalg.eigh(empty.T @ metric @ empty)[1][:, ::-1]])


def _by_content(energy: Floats, metric: Floats) -> tuple[Floats, Floats]:
    """Return orthonormal directions (d, r) with energy, and (d, d - r) without.

    The empty ones are the weakest principal components whose total share is at most ``EMPTY``, both of the
    energy and of its cost in the loss.
    """
    values, vectors = np.linalg.eigh(energy)  # ascending
    values = np.maximum(values, 0.0)
    costs = values * np.einsum("ij,ij->j", vectors, metric @ vectors)
    shares = np.maximum(values / values.sum(), costs / max(costs.sum(), 1e-300))
    count = int((np.cumsum(shares) <= EMPTY).sum())
    return vectors[:, count:], vectors[:, :count]


def _by_loss(energy: Floats, metric: Floats) -> Floats:
    """Return the orthonormal columns of ``ordered_basis`` where every direction has energy."""
    values, vectors = np.linalg.eigh(metric / np.trace(metric) * len(metric))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    wanted = np.linalg.eigh(root @ energy @ root)[1][:, ::-1]
    basis, triangle = np.linalg.qr(root @ wanted)
    return np.asarray(basis * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def energies(basis: Floats, moments: Floats) -> Floats:
    """Return the share of each direction, (d,), in the energy of second ``moments`` (d, d)."""
    return np.asarray(np.einsum("ij,ij->j", basis, moments @ basis) / np.trace(moments))
