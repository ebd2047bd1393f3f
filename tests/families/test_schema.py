"""The JSON Schema says of a document what the reader says."""

from __future__ import annotations

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from zerolm.families.schema import schema

jsonschema = pytest.importorskip("jsonschema")

SHIPPED = {
    file.name: json.loads(file.read_text("utf-8"))
    for file in files("zerolm.families").iterdir()
    if file.name.endswith(".json") and "model_type" in file.read_text("utf-8")
}
CHECK = jsonschema.Draft202012Validator(schema())


def test_the_shipped_schema_is_that_of_the_classes() -> None:
    """``python -m zerolm.families.schema > docs/family.schema.json`` makes it again."""
    shipped = Path(__file__).parents[2] / "docs" / "family.schema.json"
    assert json.loads(shipped.read_text("utf-8")) == schema()
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_family_fits(name: str) -> None:
    CHECK.validate(SHIPPED[name])


FAULTS: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "an unknown entry": (("colour",), "red"),
    "a norm that is none": (("norm",), "before"),
    "a size that is no object": (("config", "sizes", "depth"), 3),
    "a flag that is a text": (("config", "flags", "mlp_bias"), "yes"),
    "a tensor without a role": (("tensors", "body", 0), {"name": "x", "axes": ["hidden"]}),
    "an unknown entry of a tensor": (("tensors", "body", 0, "shape"), [1]),
    "a cut that is a text": (("cut", "heads"), "yes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_reader_refuses_does_not_fit(fault: str) -> None:
    from zerolm.families.document import read_family

    place, value = FAULTS[fault]
    document = copy.deepcopy(SHIPPED["llama.json"])
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert not CHECK.is_valid(document)
    with pytest.raises(ValueError, match="family"):
        read_family(document)


def test_a_document_that_is_like_another_need_not_be_whole() -> None:
    assert CHECK.is_valid({"model_type": "mine", "like": "llama"})
    assert not CHECK.is_valid({"model_type": "mine"})
    assert not CHECK.is_valid({"model_type": "mine", "like": "llama", "cut": {"depth": True}})
