"""Second moments of the matrices of a network whose stream is turned into other directions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.bits.kernels import Values
from zerolm.checkpoints import Checkpoint
from zerolm.passes.fisher import Fisher
from zerolm.passes.matrix_moments import MatrixMoments
from zerolm.units.stream.maps import stored_gain
from zerolm.units.stream.narrowing import energies, norm_before, writes


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions of the stream, columns of ``vectors`` (d, k), with shares of second moments, (k,).

    ``inputs`` are those of the normalised stream in the layers, ``last`` those before the head, and
    ``gradients`` those of the gradients in the outputs that are added to the stream.
    """

    vectors: Floats
    inputs: Floats
    last: Floats
    gradients: Floats

    @classmethod
    def of(cls, vectors: Floats, fisher: Fisher) -> Directions:
        """Return the shares along ``vectors`` (d, k), from the Fisher information."""
        every = fisher.stream["energy"], fisher.stream["last"], fisher.outputs
        return cls(vectors, *(np.maximum(energies(vectors, moments), 0.0) for moments in every))

    def matrix(self, values: Values, role: str, layer: int | None, checkpoint: Checkpoint) -> Values:
        """Return a parent's matrix, (n, d) or (d, n), along the directions, with the gain before it."""
        vectors = self.vectors.astype(np.float32)
        if writes(role):
            return vectors.T @ values
        gain = np.float32(1.0) if role == "embedding" else gain_before(role, layer, checkpoint)
        return np.asarray((values * gain) @ vectors, np.float32)

    def moments(
        self, moments: MatrixMoments, role: str, layer: int | None, checkpoint: Checkpoint
    ) -> MatrixMoments:
        """Return the moments of a matrix that is turned so."""
        if writes(role):
            return replace(moments, gradients=moments.gradients.sum() * self.gradients)
        if role == "embedding":
            return replace(moments, inputs=moments.inputs.sum() * self.gradients)
        gain = gain_before(role, layer, checkpoint).astype(np.float64)
        read = np.divide(moments.inputs, gain**2, out=np.zeros(len(gain)), where=gain != 0)
        return replace(moments, inputs=read.sum() * (self.last if role == "head" else self.inputs))


def gain_before(role: str, layer: int | None, checkpoint: Checkpoint) -> Values:
    """Return the gain (d,) of the norm before the matrix with a role."""
    return stored_gain(checkpoint, norm_before(role.split("+")[0]), layer)
