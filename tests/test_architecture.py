"""Architectures are lists of shapes, and importing the package costs nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

from drawn import architectures, ends, layers
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture, Ends, Layer, Shapes


@given(st.lists(layers(), max_size=4))
def test_shapes_hold_every_matrix_of_every_layer(drawn: list[Layer]) -> None:
    shapes = Shapes.of(drawn)
    assert len(shapes) == len(drawn)
    assert shapes.present.sum() == sum(len(layer.matrices) for layer in drawn)
    for row, layer in enumerate(drawn):
        for column, matrix in enumerate(layer.matrices):
            assert shapes.rows[row, column] == matrix.rows
            assert shapes.cols[row, column] == matrix.cols
            assert shapes.parts[row, column] == matrix.parts
            assert shapes.attention[row, column] == (matrix.role == "attention")
            assert shapes.ffn[row, column] == (matrix.role == "ffn")
            assert shapes.scaled[row, column] == matrix.scaled
        assert shapes.weights[row].sum() == layer.weights
        assert not shapes.present[row, len(layer.matrices) :].any()
        assert (shapes.width[row], shapes.kv_width[row]) == (layer.width, layer.kv_width)
        assert shapes.query_width[row] == layer.query_width
        assert (shapes.vectors[row], shapes.body_vectors[row]) == (layer.vectors, layer.body_vectors)


@given(architectures(), st.randoms(use_true_random=False))
def test_permuted_layers_have_the_same_shape_key(architecture: Architecture, order: random.Random) -> None:
    shuffled = list(architecture.layers)
    order.shuffle(shuffled)
    permuted = Architecture("drawn", {}, tuple(shuffled), architecture.ends)
    assert permuted.shape_key() == architecture.shape_key()
    assert permuted.mean_width == architecture.mean_width


@given(architectures(), st.sampled_from(("", "q", "down")))
def test_the_name_of_a_matrix_is_no_shape(architecture: Architecture, name: str) -> None:
    renamed = tuple(
        replace(layer, matrices=tuple(replace(matrix, name=name) for matrix in layer.matrices))
        for layer in architecture.layers
    )
    assert {matrix.name for layer in renamed for matrix in layer.matrices} == {name}
    assert renamed == architecture.layers
    assert hash(renamed) == hash(architecture.layers)
    assert replace(architecture, layers=renamed[::-1]).shape_key() == architecture.shape_key()


@given(architectures(), layers())
def test_other_layers_have_another_shape_key(architecture: Architecture, extra: Layer) -> None:
    longer = Architecture("drawn", {}, (*architecture.layers, extra), architecture.ends)
    assert longer.shape_key() != architecture.shape_key()
    swapped = Architecture("drawn", {}, (*architecture.layers[1:], extra), architecture.ends)
    assert (swapped.shape_key() == architecture.shape_key()) == (extra == architecture.layers[0])


@given(ends())
def test_only_untied_heads_are_stored_beside_the_embedding(parts: Ends) -> None:
    assert parts.head == sum(matrix.rows * matrix.cols for matrix in parts.head_matrices)


def test_searching_imports_no_torch() -> None:
    command = "import sys, zerolm; zerolm.search; zerolm.make_space; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
