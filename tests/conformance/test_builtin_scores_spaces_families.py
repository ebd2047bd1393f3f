"""Every score, space and family of zerolm satisfies what it asks of others; broken ones are told."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import chosen, with_tensors
from tiny_families import TINY

from zerolm.architecture import Architecture
from zerolm.registry import Entry
from zerolm.scores import SCORES, closed_form, score_names, score_settings
from zerolm.settings import REQUIRED
from zerolm.spaces import SPACES, make_space, space_names
from zerolm.spaces.llama import Llama
from zerolm.testing import check_family, check_score, check_space

DESCRIBED = with_tensors()


@pytest.mark.parametrize("name", score_names())
def test_a_score(name: str) -> None:
    check_score(name, **{s.name: s.examples[0] for s in score_settings(name) if s.default is REQUIRED})


@pytest.mark.parametrize("name", space_names())
def test_a_space(name: str) -> None:
    check_space(name)


@pytest.mark.parametrize("name", chosen(DESCRIBED))
def test_a_family(name: str) -> None:
    check_family(name, TINY[name])


@pytest.mark.parametrize(("default", "rule"), [({}, None), ({"null": 7}, "num_key_value_heads is 4 in")])
def test_a_users_family(
    default: dict[str, Any], rule: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family whose null stands for another number than the stock class takes is told."""
    norms = [
        {"name": f"layers.{{layer}}.{name}.weight", "role": role, "axes": ["hidden"]}
        for name, role in (("post_norm1", "attention_post_norm"), ("post_norm2", "ffn_post_norm"))
    ]
    document = {
        "model_type": "hyperclovax", "like": "granite", "norm": "sandwich",
        "head_classes": ["HyperCLOVAXForCausalLM"], "tensors": {"body": norms},
        "cut": {"hidden": False},
        "config": {"sizes": {"kv_heads": default}},
    }  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(document))
    monkeypatch.setenv("ZEROLM_FAMILIES", str(tmp_path))
    config = TINY["granite"] | {"num_attention_heads": 4, "num_key_value_heads": None}
    if rule is None:
        check_family("hyperclovax", config)
        return
    with pytest.raises(AssertionError, match=f"family 'hyperclovax': {rule}"):
        check_family("hyperclovax", config)


@pytest.fixture
def registered() -> Iterator[None]:
    before = {registry: dict(registry._entries) for registry in (SCORES, SPACES)}
    yield
    for registry, entries in before.items():
        registry._entries = entries  # type: ignore[assignment]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (lambda shapes, depth: np.full(len(shapes), np.inf), "finite scores"),
        (
            lambda shapes, depth: shapes.weights.sum(axis=1) * (1.0 + np.arange(len(shapes))),
            "the same scores",
        ),
        (
            lambda shapes, depth: np.random.default_rng().normal(size=len(shapes)),
            "the same scores at every call",
        ),
    ],
)
def test_a_broken_score_is_told(function: Any, rule: str) -> None:
    closed_form("broken", source="a test")(function)
    with pytest.raises(AssertionError, match=f"score 'broken': {rule}"):
        check_score("broken")


class Forgetful(Llama):
    """It reads whatever it is given."""

    name = "forgetful"

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        return super().read({name: value for name, value in choices.items() if not name.startswith("no ")})


class Narrow(Llama):
    """It reads other layers than its candidates are."""

    name = "narrow"

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        whole = super().read(choices)
        return replace(whole, layers=tuple(replace(layer, vectors=0) for layer in whole.layers))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Forgetful, "a choice that it does not know must be refused"),
        (Narrow, "must have the layers and ends of its candidates"),
    ],
)
def test_a_broken_space_is_told(kind: type[Llama], rule: str) -> None:
    SPACES.add(Entry(kind.name, kind))
    with pytest.raises(AssertionError, match=rule):
        check_space(kind.name)


def test_a_space_is_checked_with_its_settings() -> None:
    check_space("llama", hidden=[256], depth=[4], vocab=64)
    assert make_space("llama", hidden=[256], depth=[4], vocab=64).size()
