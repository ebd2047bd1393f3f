"""From a backbone and picks to an architecture, its choices, its document, and back."""

import json
from functools import lru_cache
from typing import Any

import pytest
from catalogue import SETTINGS, catalogue
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

from zerolm.architecture import Architecture
from zerolm.costs import COSTS, CostModel
from zerolm.scores import ClosedForm, make_score
from zerolm.solvers.problem import Problem, compile_problems
from zerolm.spaces import Backbone, SearchSpace, make_space
from zerolm.spaces.document import from_document, to_document

SPACES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}), "gpt2 on lm1b": ("gpt2", {"corpus": "lm1b"}),
    "transformer_xl": ("transformer_xl", {}),
    "transformer_xl on lm1b": ("transformer_xl", {"corpus": "lm1b"}), "flexibert declared": ("flexibert", {}),
    "flexibert published": ("flexibert", {"view": "published"}),
    "flexibert trained": ("flexibert", {"view": "trained"}), "llama": ("llama", {}),
    "llama per layer": ("llama", {"per_layer": True, "tied": False}), "gpt2-uniform": ("gpt2-uniform", {}),
    "bert": ("bert", {}), "autoformer": ("autoformer", {}),
    "small autoformer": ("autoformer", {"size": "small", "classes": 1000}), "pit": ("pit", {}),
    "elastic": ("elastic", {}),
    "elastic, grown": ("elastic", {"depth": 3, "widths": [132 * (i * 5 % 6 + 1) for i in range(18)]}),
    "elastic-causal": ("elastic-causal", {"shares": ["none", "qk"]}),
}  # fmt: skip
MODEL = CostModel(context=100, bits=4)
SCORES = [
    make_score("zerolm", alpha=1.1), make_score("geo_saturating"), make_score("log_complexity"),
    make_score("params", MODEL), make_score("width"),
]  # fmt: skip


@lru_cache
def parts(name: str) -> tuple[SearchSpace, list[Backbone]]:
    kind, custom = SPACES[name]
    space = make_space(kind, **custom)
    return space, list(space.backbones())


@lru_cache
def problems(name: str, score: int) -> list[Problem]:
    made = SCORES[score]
    assert isinstance(made, ClosedForm)
    return compile_problems(parts(name)[1], made, MODEL)


@st.composite
def picked(draw: st.DrawFn, name: str) -> tuple[int, list[list[int]]]:
    """The index of a backbone of the space, and a pick for every layer."""
    backbones = parts(name)[1]
    index = draw(st.integers(0, len(backbones) - 1))
    picks = []
    for block in backbones[index].blocks:
        count = 1 if block.tied else block.count
        candidate = st.integers(0, len(block.candidates.layers) - 1)
        picks.append(draw(st.lists(candidate, min_size=count, max_size=count)))
    return index, picks


@pytest.mark.parametrize("name", SPACES)
@settings(max_examples=portion(40))
@given(data=st.data())
def test_what_is_assembled_has_the_picked_layers_and_reads_back(name: str, data: st.DataObject) -> None:
    space, backbones = parts(name)
    index, picks = data.draw(picked(name))
    backbone = backbones[index]
    architecture = space.assemble(backbone, picks)

    expected = []
    for block, chosen in zip(backbone.blocks, picks, strict=True):
        for pick in chosen:
            expected += [block.candidates.layers[pick]] * (block.count if block.tied else 1)
    assert list(architecture.layers) == expected
    assert architecture.ends == backbone.ends
    assert (architecture.space, architecture.depth) == (space.name, backbone.depth)
    assert architecture.mean_width == backbone.width
    assert backbone.choices.items() <= architecture.choices.items()
    assert space.read(architecture.choices) == architecture
    assert from_document(json.loads(json.dumps(to_document(space, architecture)))) == architecture


@pytest.mark.parametrize("name", SPACES)
@settings(max_examples=portion(10))
@given(data=st.data())
def test_tables_cost_and_score_what_the_architecture_does(name: str, data: st.DataObject) -> None:
    space, backbones = parts(name)
    index, picks = data.draw(picked(name))
    architecture: Architecture = space.assemble(backbones[index], picks)
    for place, score in enumerate(SCORES):
        problem = problems(name, place)[index]
        assert dict(zip(COSTS, problem.cost(picks).tolist(), strict=True)) == MODEL.of(architecture)
        assert problem.score(picks) == pytest.approx(score.of(architecture), rel=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_listed_architecture_is_a_state_of_its_space(name: str) -> None:
    """The list does not use the tables, so that what both hold is the space."""
    listed = catalogue(name)
    tables: dict[tuple[int, object], set[object]] = {}
    for backbone in listed.space.backbones():
        layers = {layer for block in backbone.blocks for layer in block.candidates.layers}
        tables.setdefault((backbone.depth, backbone.ends), set()).update(layers)
    reached: dict[tuple[int, object], set[object]] = {}
    for architecture in listed.architectures:
        reached.setdefault((architecture.depth, architecture.ends), set()).update(architecture.layers)
    assert reached == tables
