"""Every cost against a slow twin that counts matrix by matrix."""

from __future__ import annotations

import pytest
from drawn import architectures, ends, layers
from hypothesis import given
from hypothesis import strategies as st
from twin_costs import exact_costs

from zerolm.architecture import Architecture, Ends, Layer, Matrix, Shapes
from zerolm.costs import COSTS, CostModel, Latencies, TimedCosts

COST_MODELS = st.builds(
    CostModel,
    context=st.integers(1, 8192),
    batch=st.integers(1, 16),
    kv_bits=st.sampled_from((4, 4.5, 8, 8.5, 16, 32)),
    bits=st.sampled_from((4, 8, 16, 32)),
    group_size=st.sampled_from((1, 7, 32, 128)),
)


@given(architectures(), COST_MODELS)
def test_costs_equal_their_slow_twin(architecture: Architecture, model: CostModel) -> None:
    assert model.of(architecture) == exact_costs(architecture, model)


@given(architectures(), COST_MODELS)
def test_costs_add_up_over_layers(architecture: Architecture, model: CostModel) -> None:
    total = {name: int(value) for name, value in zip(COSTS, model.ends(architecture.ends), strict=True)}
    for layer in architecture.layers:
        alone = model.layers(Shapes.of([layer]))[0]
        total = {name: total[name] + int(value) for name, value in zip(COSTS, alone, strict=True)}
    assert model.of(architecture) == total


@given(st.lists(layers(), min_size=1, max_size=3), st.integers(1, 100), st.integers(1, 100))
def test_a_tied_head_is_computed_but_not_stored_again(drawn: list[Layer], vocab: int, width: int) -> None:
    model = CostModel(bits=4)
    none, tied, untied = (
        model.of(Architecture("drawn", {}, tuple(drawn), outside))
        for outside in (
            Ends(vocab * width),
            Ends(vocab * width, tied_head=vocab * width),
            Ends(vocab * width, head_matrices=(Matrix("head", vocab, width),)),
        )
    )
    assert tied == none | {"macs": none["macs"] + vocab * width}
    assert untied["macs"] == tied["macs"]
    assert untied["params"] - tied["params"] == vocab * width
    assert untied["body_params"] == tied["body_params"]


@given(ends())
def test_what_lies_outside_the_layers_caches_nothing(outside: Ends) -> None:
    assert CostModel().ends(outside)[COSTS.index("kv_bytes")] == 0


@pytest.mark.parametrize(("bits", "expected"), [(4, 512 + 16), (8, 1024 + 16), (16, 2048), (32, 4096)])
def test_weight_bytes_of_one_square_matrix(bits: int, expected: int) -> None:
    """1024 weights in 8 groups of 128, two bytes a group."""
    layer = Layer((Matrix("ffn", 32, 32),), 32, 32, 32)
    assert CostModel(bits=bits).layers(Shapes.of([layer]))[0, COSTS.index("weight_bytes")] == expected


@given(layers(), st.sampled_from((4, 8, 16, 32)))
def test_kv_bytes_grow_with_context_batch_and_bits(layer: Layer, kv_bits: int) -> None:
    column = COSTS.index("kv_bytes")
    shapes = Shapes.of([layer])
    one = CostModel(context=64, kv_bits=kv_bits).layers(shapes)[0, column]
    assert one == 2 * layer.kv_width * 64 * kv_bits // 8
    assert CostModel(context=192, batch=5, kv_bits=kv_bits).layers(shapes)[0, column] == 15 * one


@given(architectures(), COST_MODELS, st.data())
def test_latencies_are_one_more_cost_that_adds_up(
    architecture: Architecture, model: CostModel, data: st.DataObject
) -> None:
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
