"""Documents of families: their schema, the table of the page, and types that are refused by name."""

import copy
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from zerolm.families.known import FOLDER, described, families, family_of, refused
from zerolm.families.reading import others_like

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from family_schema import schema

jsonschema = pytest.importorskip("jsonschema")

SHIPPED = {
    file.name: json.loads(file.read_text("utf-8"))
    for file in files("zerolm.families").iterdir()
    if file.name.endswith(".json") and "model_type" in file.read_text("utf-8")
}
CHECK = jsonschema.Draft202012Validator(schema())


def test_the_shipped_schema_is_that_of_the_classes() -> None:
    """``python docs/family_schema.py > docs/family.schema.json`` makes it again."""
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


DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from family_table import PAGE, renewed, table  # noqa: E402


def test_the_page_has_the_table_of_today() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), "run python docs/family_table.py"


def test_every_family_has_a_row_and_every_number_a_reason() -> None:
    lines = table().split("\n")
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(described())
    assert {len(row.split(" | ")) for row in rows} == {9}
    reasons = [line for line in lines if line[:1].isdigit()]
    used = {int(part.split("]")[0]) for row in rows for part in row.split("[")[1:]}
    assert used == set(range(1, len(reasons) + 1))


OWN_CODE = ("new",)
"""Types of files with code of their own, which transformers does not know."""


def test_no_family_is_refused() -> None:
    assert refused().keys().isdisjoint(families())
    assert list(refused()) == sorted(refused())


@pytest.mark.parametrize("kind", refused())
def test_a_type_is_refused_with_its_reason(kind: str) -> None:
    """In one line, also where it is to be read like another; and it is one that transformers has."""
    assert (kind in CONFIG_MAPPING) is (kind not in OWN_CODE)
    reason = refused()[kind]
    assert reason.isprintable()
    assert not reason.endswith(".")
    for other in (None, "llama"):
        with others_like(other), pytest.raises(ValueError, match="is refused: ") as caught:
            family_of({"model_type": kind})
        assert str(caught.value) == f"model_type {kind!r} is refused: {reason}"


@pytest.mark.parametrize("kind", ["albert", "t5"])
def test_commands_say_the_reason(kind: str, zerolm: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "num_hidden_layers": 2}))
    config = str(tmp_path / "config.json")
    for command in (("score", config), ("search", "--baseline", config), ("families", kind)):
        zerolm(*command).refused(refused()[kind])
    assert kind in zerolm("families").out


def test_a_document_of_ones_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zerolm: Any) -> None:
    """A user may know better."""
    (tmp_path / "mine.json").write_text(
        json.dumps({"model_type": "bloom", "like": "llama", "head_classes": []})
    )
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert family_of({"model_type": "bloom"}).name == "bloom"
    assert zerolm("families", "bloom").status == 0
