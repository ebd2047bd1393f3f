"""A document that is like another: merged before it is read, in any order of files and of plug-ins."""

import json
import re
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.families import known
from zerolm.families.document import read_family
from zerolm.families.like import NOT_INHERITED, merged, whole
from zerolm.registry import PluginWarning

LLAMA = json.loads((files("zerolm.families") / "llama.json").read_text("utf-8"))
NAMES = st.sampled_from("abcd")
VALUES = st.recursive(st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2),
                      lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)  # fmt: skip
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
PATTERNS = st.lists(
    st.builds(
        lambda role, place, axes: {"name": place + role, "role": role, "axes": axes},
        st.sampled_from("qkv"), st.sampled_from(("", "l.{layer}.")), st.lists(NAMES, min_size=1, max_size=2),
    ),
    unique_by=lambda pattern: pattern["name"], max_size=4,
)  # fmt: skip


def values_at(document: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return what is no object, or an empty one, by its path."""
    if not isinstance(document, dict) or not document:
        return {path: document}
    return {one: v for name, part in document.items() for one, v in values_at(part, (*path, name)).items()}


@given(OBJECTS, OBJECTS)
def test_the_other_says_what_a_document_does_not(base: dict[str, Any], document: dict[str, Any]) -> None:
    both, ours, theirs = (values_at(x) for x in (merged(base, document), document, base))
    for path, value in ours.items():
        assert value == {} or both[path] == value
    for path, value in both.items():
        assert path == () or ours.get(path, theirs.get(path)) == value
    for path, value in theirs.items():
        if path and not any(
            path[:n] in ours or path == place[:n] for place in ours for n in range(1, len(path) + 1)
        ):
            assert both[path] == value


@given(OBJECTS, OBJECTS, OBJECTS)
def test_chains_may_be_merged_from_either_end(
    a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]
) -> None:
    documents = {"a": a, "b": {**b, "like": "a"}, "c": {**c, "like": "b"}}
    assert whole("c", documents) == merged(merged(a, b), c)
    assert merged(a, {}) == a
    assert merged(a, a) == a


@given(PATTERNS, PATTERNS)
def test_a_tensor_replaces_that_of_its_role(base: list[dict[str, Any]], change: list[dict[str, Any]]) -> None:
    result = merged({"tensors": {"body": base}}, {"tensors": {"body": change}})["tensors"]["body"]
    names = [pattern["name"] for pattern in base]
    assert [pattern["name"] for pattern in result] == names + [
        p["name"] for p in change if p["name"] not in names
    ]
    by_name = {pattern["name"]: pattern for pattern in (*base, *change)}
    assert result == [by_name[pattern["name"]] for pattern in result]


@pytest.mark.parametrize("entry", NOT_INHERITED)
def test_support_for_a_family_says_nothing_of_another(entry: str) -> None:
    document = {"runtimes": {"vLLM": {"known": ["Llama"]}}} | LLAMA
    assert entry in document
    assert entry not in merged(document, {"model_type": "other"})


def test_roles_are_left_out_before_others_are_put_in() -> None:
    change = {
        "without": ["gate", "gate_bias"],
        "body": [{"name": "norm.bias", "role": "final_norm_bias", "axes": ["hidden"]}],
    }
    tensors = merged(LLAMA, {"tensors": change})["tensors"]
    roles = [pattern["role"] for pattern in tensors["body"]]
    before = [pattern["role"] for pattern in LLAMA["tensors"]["body"]]
    assert roles == [role for role in before if role not in ("gate", "gate_bias")] + ["final_norm_bias"]
    assert tensors["prefixes"] == LLAMA["tensors"]["prefixes"]
    family = read_family(merged(LLAMA, {"model_type": "x", "head_classes": ["X"], "tensors": change}))
    assert not family.gated
    assert family.runtimes == {}
    assert family.gguf is None


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"a": {"like": "nothing"}}, "family 'a' is like 'nothing', which is not known"),
    ({"a": {"like": 3}}, "family 'a' is like '3', which is not known"),
    ({"a": {"like": "a"}}, "families are like each other: a like a"),
    ({"a": {"like": "b"}, "b": {"like": "c"}, "c": {"like": "b"}}, "families are like each other: b like c"),
    ({"a": {"like": "llama", "tensors": {"without": ["x"]}}}, "tensors.without names the role 'x', which no"),
    ({"a": {"like": "llama", "tensors": {"without": "q"}}}, "tensors.without is 'q', not a list"),
    ({"a": {"like": "llama", "tensors": {"body": [3]}}}, "tensors.body is no list of objects"),
    ({"a": {"like": "llama", "head_classes": ["A"], "tensors": 3}}, "family.tensors is '3', not an object"),
    ({"a": {"like": "llama"}}, "family lacks 'head_classes'"),
]


@pytest.mark.parametrize(("documents", "message"), BROKEN)
def test_what_cannot_be_merged_is_told_in_one_line(
    documents: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"model_type": name, **document}))
    monkeypatch.setenv(known.FOLDER, str(tmp_path))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        known.families()
    assert re.match(r"family '.*\.json' cannot be read: ", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
def test_files_may_be_like_each_other_in_any_order(
    order: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``one`` is like llama, ``two`` like ``one``, ``three`` like ``two``; files are read by their names."""
    changes: dict[str, dict[str, Any]] = {
        "one": {"like": "llama", "config": {"sizes": {"vocab": {"default": 7}}}},
        "two": {"like": "one", "config": {"sizes": {"ffn": {"field": "inner"}}}},
        "three": {"like": "two", "norm": "pre"},
    }
    for file, (name, change) in zip(order, changes.items(), strict=True):
        document = {"model_type": name, "head_classes": [name.title()], **change}
        (tmp_path / f"{file}.json").write_text(json.dumps(document))
    monkeypatch.setenv(known.FOLDER, str(tmp_path))
    three = known.families()["three"]
    assert (three.config.sizes["vocab"].default, three.config.sizes["ffn"].field) == (7, "inner")
    assert three.config.sizes["ffn"].default == LLAMA["config"]["sizes"]["ffn"]["default"]
    assert three.head_classes == ("Three",)


def test_plug_ins_may_be_like_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is like what is not there is left out, with a warning, and so is what is like it."""
    (tmp_path / "likes.py").write_text(
        "A = {'model_type': 'aa', 'like': 'bb', 'head_classes': ['A']}\n"
        "B = {'model_type': 'bb', 'like': 'llama', 'head_classes': ['B']}\n"
        "C = {'model_type': 'cc', 'like': 'nothing', 'head_classes': ['C']}\n"
        "D = {'model_type': 'dd', 'like': 'cc', 'head_classes': ['D']}\n"
    )
    info = tmp_path / "likes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: likes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[zerolm.families]\na = likes:A\nb = likes:B\nc = likes:C\nd = likes:D\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(known.FOLDER, raising=False)
    known._families.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names = set(known.families())
    known._families.cache_clear()
    assert {"aa", "bb", "llama"} <= names
    assert not {"cc", "dd"} & names
    messages = [str(warning.message) for warning in caught if warning.category is PluginWarning]
    assert len(messages) == 2
    assert all("'nothing', which is not known" in message for message in messages)
