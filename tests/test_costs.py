"""Architectures are lists of shapes; every cost against a slow twin that counts matrix by matrix."""

import random
import subprocess
import sys
from dataclasses import replace

import pytest
from catalogue import SETTINGS, catalogue
from drawn import architectures, layers
from hypothesis import given
from hypothesis import strategies as st
from tiny_families import stock_config
from twin_costs import exact_costs

from zerolm.architecture import Architecture, Layer, Matrix, Shapes
from zerolm.costs import COSTS, CostModel, Latencies, TimedCosts
from zerolm.families.config import from_config
from zerolm.solvers import search
from zerolm.spaces.document import task_of


@given(st.lists(layers(), max_size=4))
def test_shapes_hold_every_matrix_of_every_layer(drawn: list[Layer]) -> None:
    shapes = Shapes.of(drawn)
    assert len(shapes) == len(drawn)
    assert shapes.present.sum() == sum(len(layer.matrices) for layer in drawn)
    for row, layer in enumerate(drawn):
        for column, matrix in enumerate(layer.matrices):
            assert (shapes.rows[row, column], shapes.cols[row, column]) == (matrix.rows, matrix.cols)
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


def test_searching_imports_no_torch() -> None:
    command = "import sys, zerolm; zerolm.search; zerolm.make_space; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


COST_MODELS = st.builds(
    CostModel, context=st.integers(1, 8192), batch=st.integers(1, 16),
    kv_bits=st.sampled_from((4, 4.5, 8, 8.5, 16, 32)), bits=st.sampled_from((4, 8, 16, 32)),
    group_size=st.sampled_from((1, 7, 32, 128)),
)  # fmt: skip


@given(architectures(), COST_MODELS)
def test_costs_equal_their_slow_twin(architecture: Architecture, model: CostModel) -> None:
    assert model.of(architecture) == exact_costs(architecture, model)


@pytest.mark.parametrize(("bits", "expected"), [(4, 512 + 16), (8, 1024 + 16), (16, 2048), (32, 4096)])
def test_weight_bytes_of_one_square_matrix(bits: int, expected: int) -> None:
    """1024 weights in 8 groups of 128, two bytes a group."""
    layer = Layer((Matrix("ffn", 32, 32),), 32, 32, 32)
    assert CostModel(bits=bits).layers(Shapes.of([layer]))[0, COSTS.index("weight_bytes")] == expected


@given(architectures(), COST_MODELS, st.data())
def test_latencies_are_a_cost(architecture: Architecture, model: CostModel, data: st.DataObject) -> None:
    table = {layer: data.draw(st.integers(1, 10**6)) for layer in architecture.layers}
    ends = data.draw(st.integers(1, 10**6))
    timed = TimedCosts(**model.conditions, latencies=Latencies(table, ends))
    total = ends + sum(table[layer] for layer in architecture.layers)
    assert timed.of(architecture) == {**model.of(architecture), "latency_us": total}
    assert list(timed.of(architecture)) == [*COSTS, "latency_us"] == list(timed.names)
    assert timed.conditions == model.conditions
    assert CostModel(**timed.conditions) == model
    strange = Layer((Matrix("ffn", 1, 999_983),), 1, 0, 0)
    with pytest.raises(ValueError, match=r"no latency was measured of a layer of 999,983 weights"):
        timed.rows(lambda: [strange], Shapes.of([strange]))


@pytest.mark.parametrize("name", SETTINGS)
def test_only_networks_that_predict_the_next_token_keep_a_cache(name: str) -> None:
    listed = catalogue(name)
    for architecture in listed.architectures[:2]:
        costs, task = CostModel().of(architecture), listed.space.task
        kept = costs["kv_bytes"] if task == "next" else 0
        assert listed.model.of(architecture) == {**costs, "kv_bytes": kept}
        assert task_of(architecture) == task
    if task != "next":
        with pytest.raises(ValueError, match="predicts no next token and keeps no KV cache"):
            search(listed.space, budgets={"max_kv_bytes": 1 << 30})


@pytest.mark.parametrize(("kind", "task"), [("bert", "masked"), ("llama", "next")])
def test_tasks_of_families(kind: str, task: str) -> None:
    assert task_of(from_config(stock_config(kind).to_dict())) == task
