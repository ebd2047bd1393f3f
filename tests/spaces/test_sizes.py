"""How large the spaces are: against the published numbers, and against listing them."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from catalogue import SETTINGS, catalogue, members
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from portion import portion
from transformers import AutoConfig, AutoModelForCausalLM

from zerolm.costs import COSTS, CostModel
from zerolm.families.config import from_config
from zerolm.families.known import families
from zerolm.scores import make_score
from zerolm.solvers.problem import compile_problems
from zerolm.spaces import Candidates, ColumnCandidates, make_space, space_names
from zerolm.spaces.decoders import SPACE_OF, Decoder, decoders
from zerolm.spaces.membership import exclusions


@pytest.mark.parametrize("view", ["declared", "published", "trained"])
def test_flexibert_has_the_published_size(view: str) -> None:
    """10,621,440: ZeroLM, arXiv 2503.18646, Table VIII; two hidden sizes, 48 layers, depths 2 and 4."""
    assert make_space("flexibert", view=view).size() == 10_621_440 == 2 * (48**2 + 48**4)


@pytest.mark.parametrize("corpus", ["wt103", "lm1b"])
@pytest.mark.parametrize("name", ["gpt2", "transformer_xl"])
def test_table_vii_has_the_published_size(name: str, corpus: str) -> None:
    """3.348e37: ZeroLM, Table VII, counted from its ranges."""
    total = 0
    for d_model in range(128, 1025, 64):
        d_inner = range(max(256, 2 * d_model), 4097, 64)
        total += 9 * sum((3 * len(d_inner)) ** n_layer for n_layer in range(2, 17))
    assert total == 33475650863462411705404173477556309557
    assert make_space(name, corpus=corpus).size() == total


def test_table_vii_has_the_published_number_of_distinct_states() -> None:
    """93,375 states (L, d, sum of widths) differ for a score at random initialisation."""
    found = set()
    for backbone in make_space("gpt2").backbones():
        (block,) = backbone.blocks
        widths = sorted(choice["d_inner"] for choice in block.candidates.choices)
        assert {high - low for low, high in pairwise(widths)} <= {64}
        lowest, highest = block.count * widths[0], block.count * widths[-1]
        found |= {(backbone.depth, backbone.width, total) for total in range(lowest, highest + 1, 64)}
    assert len(found) == 93_375


@pytest.mark.parametrize(
    ("size", "widths", "layer", "depths"),
    [("tiny", 3, 2 * 2, (12, 13, 14)), ("small", 3, 3 * 3, (12, 13, 14)), ("base", 3, 2 * 3, (14, 15, 16))],
)
def test_autoformer_has_published_size(size: str, widths: int, layer: int, depths: tuple[int, ...]) -> None:
    """Chen et al., arXiv 2107.00651, table 2: a layer chooses its heads and its FFN ratio."""
    assert make_space("autoformer", size=size).size() == widths * sum(layer**depth for depth in depths)


def test_pit_has_the_size_of_auto_prox() -> None:
    """4 head sizes, 4 ratios, 3 depths in each of 3 stages, and the 10 rising triples of 2, 4 and 8 heads."""
    assert make_space("pit").size() == 4 * 4 * 3**3 * 10


@pytest.mark.parametrize("name", SETTINGS)
def test_a_small_space_is_as_large_as_its_list(name: str) -> None:
    listed = [str(choices) for choices in members(catalogue(name).space)]
    assert len(set(listed)) == len(listed) == catalogue(name).space.size()


def ranges(low: int, high: int, step: float, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.integers(low, high).map(lambda n: n * step), min_size=1, max_size=most, unique=True)


def intervals(low: float, high: float) -> st.SearchStrategy[list[float]]:
    """A lower end in the lower half, an upper end in the upper half: most leave something to choose."""
    middle = (low + high) / 2
    return st.tuples(st.floats(low, middle), st.floats(middle, high)).map(list)


CUSTOM: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "gpt2": {
        "depth": ranges(1, 3, 1), "hidden": ranges(1, 4, 64), "ffn": ranges(2, 16, 32),
        "ffn_per_hidden": intervals(0.5, 6), "heads": ranges(0, 2, 1).map(lambda n: [2**k for k in n]),
        "d_embed": ranges(1, 4, 64, 2), "div_val": ranges(1, 4, 1, 2),
    },
    "llama": {
        "depth": ranges(1, 3, 1), "hidden": ranges(1, 4, 64), "head_size": ranges(1, 2, 64),
        "heads_per_kv": ranges(1, 4, 1), "ffn": ranges(2, 16, 32), "ffn_per_hidden": intervals(0.5, 6),
        "hidden_per_depth": intervals(20, 256), "per_layer": st.booleans(),
        "query_per_hidden": intervals(0.25, 4), "multiple_of": st.sampled_from((1, 32, 64, 128)),
        "tensor_parallel": st.sampled_from((1, 2, 4)),
    },
    "qwen3": {
        "depth": ranges(1, 3, 1), "hidden": ranges(1, 4, 32), "head_size": ranges(1, 2, 16),
        "heads_per_kv": ranges(1, 4, 1), "ffn": ranges(2, 16, 32), "ffn_per_hidden": intervals(0.5, 6),
        "hidden_per_depth": intervals(10, 256), "query_per_hidden": intervals(0.25, 4),
    },
    "gpt2-uniform": {
        "depth": ranges(1, 8, 1), "hidden": ranges(1, 6, 64), "ffn": ranges(2, 16, 32),
        "ffn_per_hidden": intervals(0.5, 6), "hidden_per_depth": intervals(10, 256),
    },
    "flexibert": {
        "depth": ranges(1, 2, 1, 2), "hidden": ranges(1, 4, 64), "heads": ranges(0, 2, 1, 1).map(
            lambda n: [2**k for k in n]), "ffn": ranges(1, 8, 64, 2), "stacks": ranges(1, 3, 1, 1),
    },
    "autoformer": {
        "size": st.sampled_from(("tiny", "small", "base")), "depth": ranges(1, 4, 1, 2),
        "hidden": ranges(1, 9, 24), "heads": ranges(1, 12, 1), "mlp_ratio": ranges(2, 8, 0.5),
    },
    "elastic": {
        "depth": st.integers(1, 3), "hidden": st.just(24), "heads": st.sampled_from((1, 2, 3)),
        "blocks": st.sampled_from((["bert"], ["mobile", "bert"])), "steps": st.integers(1, 3),
        "shares": st.lists(st.sampled_from(("none", "kv", "qv", "qk")), min_size=1, unique=True),
    },
    "pit": {
        "base_dim": ranges(1, 6, 8), "mlp_ratio": ranges(1, 16, 0.5), "depth1": ranges(1, 3, 1),
        "depth2": ranges(1, 8, 1), "depth3": ranges(1, 6, 1), "heads": ranges(1, 12, 1, 5),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CUSTOM)
@settings(max_examples=portion(40), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_a_customised_space_is_as_large_as_its_list(name: str, data: st.DataObject) -> None:
    drawn = data.draw(st.fixed_dictionaries(CUSTOM[name]))
    try:
        space = make_space(name, **drawn)
    except ValueError:  # nothing fits these ranges, or heads do not divide
        assume(False)
    if space.size() > 5000:
        assume(False)
    assert space.size() == sum(1 for _ in members(space))
    assert space.size() == sum(backbone.size for backbone in space.backbones())


def test_the_default_llama_space_spans_ten_million_to_ten_billion() -> None:
    backbones = list(make_space("llama").backbones())
    score = make_score("geo").terms
    costs = [problem.extreme_costs for problem in compile_problems(backbones, score, CostModel())]
    column = COSTS.index("params")
    assert 8e6 < min(low[column] for low, _ in costs) < 12e6
    assert 1e10 < max(high[column] for _, high in costs) < 3e10


def content(candidates: Candidates) -> tuple[Any, ...]:
    """What two candidates have alike only where they give the same layers by the same choices."""
    if not isinstance(candidates, ColumnCandidates):
        return candidates.layers, str(candidates.choices)
    shapes, columns = vars(candidates.shapes), candidates.columns
    arrays = (np.ascontiguousarray(column) for column in (*columns.values(), *shapes.values()))
    return (*columns, *(array.tobytes() for array in arrays))


@pytest.mark.parametrize("name", space_names())
def test_backbones_with_the_same_candidates_share_them(name: str) -> None:
    backbones = list(make_space(name).backbones())
    shared = {id(block.candidates): block.candidates for b in backbones for block in b.blocks}
    assert len(set(map(content, shared.values()))) == len(shared)


EIGHT = (
    *("SmolLM2-135M", "SmolLM2-360M", "SmolLM2-1.7B", "MobileLLM-125M"),
    *("Qwen2.5-0.5B", "Qwen3-0.6B", "Llama-3.2-1B", "TinyLlama-1.1B"),
)
"""Those that the default space of their family holds."""
EVERY = pytest.mark.parametrize("decoder", decoders().values(), ids=decoders().keys())


def config(decoder: Decoder) -> dict[str, object]:
    """Return the shape in its ``config.json``."""
    biases = {"attention_bias": False} if decoder.family == "olmo" else {}
    return {
        "vocab_size": decoder.vocab, "hidden_size": decoder.choices["hidden"],
        "intermediate_size": decoder.choices["ffn"], "num_hidden_layers": decoder.choices["depth"],
        "num_attention_heads": decoder.choices["heads"], "num_key_value_heads": decoder.choices["kv_heads"],
        "head_dim": decoder.choices["head_size"], "max_position_embeddings": decoder.positions,
        "tie_word_embeddings": decoder.tied, "pad_token_id": 0, **biases,
    }  # fmt: skip


def test_names_are_told_apart() -> None:
    names = [name.casefold() for d in decoders().values() for name in (d.name, d.hub)]
    assert len(set(names)) == len(names) == 2 * len(decoders())
    assert all("/" in decoder.hub for decoder in decoders().values())
    assert decoders().keys() >= set(EIGHT)


@EVERY
def test_counts_are_the_published_ones(decoder: Decoder) -> None:
    """Rounded, or cut off, to the last digit that is published."""
    costs = CostModel().of(decoder.architecture)
    number, unit = Decimal(decoder.published[:-1]), {"M": 10**6, "B": 10**9}[decoder.published[-1]]
    digit = Decimal(1).scaleb(int(number.as_tuple().exponent))
    assert (number - digit / 2) * unit <= costs["params"] < (number + digit) * unit
    if decoder.published_body is not None:
        assert costs["body_params"] == decoder.published_body
    assert decoder.source


@EVERY
def test_counts_are_what_transformers_builds(decoder: Decoder) -> None:
    stock = AutoConfig.for_model(decoder.family, **config(decoder))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(stock)
    assert model.num_parameters() == CostModel().of(decoder.architecture)["params"]


@EVERY
def test_its_space_and_its_family_count_the_same(decoder: Decoder) -> None:
    model = CostModel(context=2048)
    costs = model.of(decoder.architecture)
    assert (decoder.space is None) == (decoder.family not in SPACE_OF)
    if decoder.space is not None:
        assert model.of(decoder.space.read(decoder.choices)) == costs
    if decoder.family in families():
        assert model.of(from_config({"model_type": decoder.family, **config(decoder)})) == costs


@pytest.mark.parametrize("name", EIGHT)
def test_the_default_space_holds_eight(name: str) -> None:
    decoder = decoders()[name]
    space = decoder.space
    assert exclusions(space, decoder.choices) == []
    assert space.settings == {
        **type(space)().settings,
        **decoder.document["settings"],
    }  # ranges are the defaults
