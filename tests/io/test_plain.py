"""Plain JSON as typed values, and objects on one short line."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest
from drawn import architectures
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture
from zerolm.io.brief import LONGEST_REPR, brief
from zerolm.io.plain import checked

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
WHOLE = st.integers(-(2**80), 2**80)


@dataclass(frozen=True)
class Inner:
    count: int
    share: float
    name: str | None
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    several: tuple[Inner, ...]
    by_name: dict[str, int]
    either: int | str | None = None
    pairs: list[tuple[int, float]] = field(default_factory=list)
    flag: bool = False


INNER = st.builds(Inner, WHOLE, st.floats(allow_nan=False), st.none() | TEXT, st.sampled_from(("a", "b")))
OUTER = st.builds(
    Outer, INNER, st.lists(INNER, max_size=3).map(tuple), st.dictionaries(TEXT, WHOLE, max_size=3),
    st.none() | WHOLE | TEXT, st.lists(st.tuples(WHOLE, st.floats(allow_nan=False)), max_size=3),
    st.booleans(),
)  # fmt: skip


@given(OUTER)
def test_a_record_comes_back_from_its_json(outer: Outer) -> None:
    assert checked(Outer, json.loads(json.dumps(asdict(outer)))) == outer
    assert checked(list[Outer], [asdict(outer)]) == [outer]


INNERS = {"count": 1, "share": 2, "name": None}
GOOD: dict[str, Any] = {"inner": INNERS, "several": [INNERS], "by_name": {"x": 1}}
WRONG = [
    (("inner", "count"), 1.5, "inner.count must be an integer, not 1.5"),
    (("inner", "count"), True, "inner.count must be an integer, not True"),
    (("inner", "share"), "2", "inner.share must be a number, not '2'"),
    (("inner", "name"), 3, "inner.name must be text, not 3"),
    (("inner", "kind"), "c", "inner.kind must be 'a' or 'b', not 'c'"),
    (("inner",), [], "inner must be a JSON object, not []"),
    (("several",), {}, "several must be a list, not {}"),
    (("several", 0), 7, "several.0 must be a JSON object, not 7"),
    (("several", 0, "count"), None, "several.0.count must be an integer, not None"),
    (("by_name", "x"), [1], "by_name.x must be an integer, not [1]"),
    (("by_name", "a\nb"), "x", "by_name.'a\\nb' must be an integer, not 'x'"),
    (("either",), [], "either must be an integer or text, not []"),
    (("flag",), 0, "flag must be true or false, not 0"),
    (("pairs",), [[1, 2], [1]], "pairs.1.1 is required"),
    (("inner",), {"count": 1}, "inner.share is required"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_the_field_that_is_wrong_is_named(path: tuple[int | str, ...], value: Any, message: str) -> None:
    document = json.loads(json.dumps(GOOD))
    assert checked(Outer, document)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    for place in ("", "pick"):
        with pytest.raises(ValueError, match=r"^.") as caught:
            checked(Outer, document, place)
        assert str(caught.value) == (f"{place}." if place else "") + message


def test_what_is_no_document_is_named() -> None:
    for document, message in (
        ([], "it must be a JSON object, not []"),
        ({1, 2}, "it is no plain JSON: "),
        ("\ud800", "it: invalid json"),
    ):
        with pytest.raises(ValueError, match=r"^it") as caught:
            checked(Outer, document)
        assert str(caught.value).startswith(message)


@given(st.lists(st.text(max_size=400), max_size=4))
def test_any_text_becomes_one_line(parts: list[str]) -> None:
    text = brief(0, *parts)
    assert len(text) <= LONGEST_REPR
    assert len(text.splitlines()) == 1
    assert text.startswith("int(")
    assert text.endswith(")")


@given(architectures())
def test_an_architecture_says_its_shape(architecture: Architecture) -> None:
    weights = sum(layer.weights for layer in architecture.layers)
    size = f"{architecture.depth} x {architecture.mean_width:g}"
    assert repr(architecture) == f"Architecture(drawn, {size}; {weights:,} weights in its layers)"
