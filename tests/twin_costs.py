"""The costs of an architecture, counted matrix by matrix in fractions."""

from fractions import Fraction
from math import ceil

from zerolm.architecture import Architecture
from zerolm.costs import CostModel


def exact_costs(architecture: Architecture, model: CostModel) -> dict[str, int]:
    """The costs as the specification words them, in fractions."""
    outside = architecture.ends
    matrices = [matrix for layer in architecture.layers for matrix in layer.matrices]
    quantised = [matrix.rows * matrix.cols for matrix in (*matrices, *outside.head_matrices)]
    body = sum(matrix.rows * matrix.cols for matrix in matrices)
    head = sum(matrix.rows * matrix.cols for matrix in outside.head_matrices)
    rest = outside.embedding + outside.vectors + sum(layer.vectors for layer in architecture.layers)
    attending = sum(layer.query_width for layer in architecture.layers)
    idle, idle_vectors = (
        sum(getattr(layer, name) for layer in architecture.layers) for name in ("idle", "idle_vectors")
    )
    bytes_stored = sum(ceil(Fraction(count * model.bits, 8)) for count in quantised)
    if model.bits not in (16, 32):
        bytes_stored += sum(2 * ceil(Fraction(count, model.group_size)) for count in quantised)
    cached = (Fraction(2 * layer.kv_width * model.context * model.batch) for layer in architecture.layers)
    kv_bytes = sum(ceil(numbers * Fraction(model.kv_bits) / 8) for numbers in cached)
    return {
        "params": body + head + rest,
        "active_params": body + head + rest - idle - idle_vectors,
        "body_params": body + outside.body_vectors + sum(layer.body_vectors for layer in architecture.layers),
        "macs": body - idle + head + outside.tied_head + 2 * model.context * attending,
        "kv_bytes": kv_bytes,
        "weight_bytes": bytes_stored + rest * (4 if model.bits == 32 else 2),
    }
