"""Requests: what a field declares is a flag, a key of YAML, a keyword, a check and a value; said once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.cli.complete import completion
from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import OUTPUT, PLACED, Request, argument, part, setting, settings_of, values_of
from zerolm.settings.units import parse_amount
from zerolm.verbs import commands
from zerolm.verbs.run_file import plain, read_yaml, write_run


@dataclass(frozen=True)
class Sizes:
    width: int = setting("integer", 8, "how wide it is", group="How large", low=1, high=64)
    seconds: int | None = setting("duration", None, "how long it takes", name="for_")


@dataclass(frozen=True, kw_only=True)
class Example(Request):
    name: ClassVar[str] = "example"
    folder: str = argument("path", REQUIRED, "where it lies", metavar="DIR")
    sizes: Sizes = part(Sizes, width=16)
    texts: tuple[str, ...] | None = setting("paths", None, "what it reads", group="Text")
    text: str | None = setting("path", None, "what it reads first", metavar="FILE|random")
    out: str | None = setting("path", None, "where it goes", by_place=True, group="Result")


def test_a_part_is_declared_once_and_arrives_whole() -> None:
    assert {title: [one.name for one in settings] for title, settings in Example.groups().items()} == {
        PLACED: ["folder"], "How large": ["width", "for_"], "Text": ["texts", "text"], "Result": ["out"]
    }  # fmt: skip
    assert [one.flag for one in Example.settings()] == [
        "--folder", "--width", "--for", "--texts", "--text", "--out"
    ]  # fmt: skip
    assert [one.name for one in Example.by_place()] == ["folder", "out"]
    assert {one.name for one in Example.output()} == {one.name for one in OUTPUT} - {"out"}
    request = Example.parse({"folder": "x", "for_": "1.5m", "texts": "a,b"})
    assert request.sizes == Sizes(16, 90)
    assert (request.texts, request.out) == (("a", "b"), None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "example needs folder: where it lies"),
        ({"folder": "x", "widht": 3}, "example has no setting 'widht'; did you mean 'width'?"),
        ({"folder": "x", "width": 65}, "width must be an integer from 1 to 64, not 65"),
        ({"folder": "x", "width": True}, "width cannot be true"),
        ({"folder": "x", "for_": "soon"}, "for must be a number with a unit"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.split("'")[0]) as raised:
        Example.parse(values)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_run_is_repeated_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing paths are absolute, words in place of a path stay, and so does what is no file."""
    for name in ("here", "random"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    request = Example.parse({"folder": "here", "text": "random", "texts": ["here", "owner/set"], "out": "o"})
    assert request.configuration() == {
        "folder": str(tmp_path / "here"), "width": 16, "texts": [str(tmp_path / "here"), "owner/set"],
        "text": "random",
    }  # fmt: skip
    assert values_of(Example.parse({**request.configuration()})) == values_of(request) | {
        "folder": str(tmp_path / "here"), "texts": (str(tmp_path / "here"), "owner/set"), "out": None
    }  # fmt: skip


NEEDS = {"teacher_only": "teacher"}
"""Settings that say nothing without another."""


@pytest.mark.parametrize("name", commands())
@given(st.data())
def test_a_configuration_is_parsed_to_the_same_settings(name: str, data: st.DataObject) -> None:
    """Of any sound values of any command: what run.yaml holds makes the request that was run."""
    request = commands()[name].request
    values = {one.name: data.draw(sound(one)) for one in request.settings()}
    values |= {name: None for name, other in NEEDS.items() if values.get(other) is None}
    if name == "heal":  # such a request is never made where its settings contradict each other
        length = {"tokens": 10**6, "for_": None} if values["tokens"] else {"tokens": None, "for_": "30m"}
        values |= {**dict.fromkeys(("mix", "lora", "batch", "length")), **length}
    made = request.parse({key: value for key, value in values.items() if value is not None})
    repeated = plain(name, made.configuration())
    assert repeated.pop("command") == name
    places = {key: value for key, value in values_of(made).items() if key in request.places}
    assert values_of(request.parse({**repeated, **places})) == values_of(made)


def test_a_configuration_has_a_line_for_each_setting(tmp_path: Path) -> None:
    long = "sentences of a text, " * 20
    document = {
        "command": "carve",
        "keep_ffn": 0.5,
        "text": long,
        "depth": "4:8",
        "tied": True,
        "sizes": [1, 3],
    }
    write_run(tmp_path / "run.yaml", document, {})
    lines = (tmp_path / "run.yaml").read_text().splitlines()
    assert [line.split(":")[0] for line in lines] == list(document)
    assert "sizes: [1, 3]" in lines
    assert read_yaml(tmp_path / "run.yaml") == read_yaml(tmp_path) == document


def sound(one: Any) -> st.SearchStrategy[Any]:
    """Return values that a setting takes."""
    if one.choices:
        return st.sampled_from(one.choices)
    low = 1 if one.low is None else max(int(one.low), 1)
    high = 1000 if one.high is None else min(int(one.high), 1000)
    numbers = {
        "integer": st.integers(low, max(low, high)),
        "amount": st.sampled_from([7, "8kB" if one.name.endswith("bytes") else "8k", "0.5x"]),
        "number": st.just(one.high if one.high is not None and one.high < 1 else 1.0),
        "percent": st.sampled_from(["10%", 0.25]),
        "cache bits": st.sampled_from(["q8_0", "q4_0", 16, 4.5]),
        "duration": st.sampled_from(["90s", "1.5h", 60]),
        "integers": st.sampled_from(["300,400", "300:600:100", [512]]),
        "numbers": st.sampled_from(["1,2", [0.5]]),
        "shares": st.sampled_from(["3,1", [0.5, 0.5]]),
        "interval": st.just("1:2"),
        "flag": st.booleans(),
        "names": st.sampled_from(["a,b", ["c"]]),
        "paths": st.sampled_from(["a,b", ["c"]]),
        "texts": st.sampled_from(["a", "a=b,c=d", {"a": "b"}, ["a=b", "c=d"]]),
    }
    optional = st.none() if one.default is not REQUIRED else st.nothing()
    return optional | numbers.get(one.kind, st.sampled_from(["nowhere", "a b"]))


def test_every_setting_stands_under_one_heading() -> None:
    for verb in commands().values():
        names = [one.name for group in verb.request.groups().values() for one in group]
        assert sorted(names) == sorted({one.name for one in settings_of(verb.request)})


def test_units_of_counts_and_sizes() -> None:
    counts = {"30M": 30_000_000, "0.03G": 30_000_000, "30000k": 30_000_000, "30000000": 30_000_000}
    sizes = {"64MB": 64_000_000, "64MiB": 64 << 20, "1.5kB": 1500, "2GiB": 2 << 30}
    for name, amounts in (("max_params", counts), ("max_kv_bytes", sizes)):
        assert {text: parse_amount(name, text) for text in amounts} == amounts


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("max_params", "500MB", "did you mean 500M?"),
        ("max_params", "5GiB", "did you mean 5G?"),
        ("max_kv_bytes", "80M", "did you mean 80MB?"),
        ("max_kv_bytes", "80Q", ""),
    ],
)
def test_a_count_is_no_size(name: str, text: str, hint: str) -> None:
    with pytest.raises(ValueError, match="optional unit") as raised:
        parse_amount(name, text)
    assert str(raised.value).endswith(hint or "'80Q'")
    assert not hint or parse_amount(name, hint.split()[-1].rstrip("?")) > 0


@pytest.mark.parametrize("name", ["max_params", "max_kv_bytes"])
def test_an_amount_is_not_negative(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be a number of at least 0, not '-5M'$"):
        parse_amount(name, "-5M")


@pytest.mark.parametrize("name", commands())
def test_only_an_argument_is_given_by_place(name: str) -> None:
    """A flag behind an argument stands under a heading of its own, else it would be an argument, too."""
    request = commands()[name].request
    assert set(request.groups()[PLACED]) <= set(request.by_place())


def test_names_and_choices_keep_their_case() -> None:
    texts = (
        "recipe.json of a child",
        "elastic (encoders) or elastic-causal",
        "random seed",
        "epochs; widths grow",
    )
    settings = [Setting("name", "text", None, text) for text in texts]
    assert [setting.sentence for setting in settings] == [*texts[:2], "Random seed", "Epochs; widths grow"]
    assert Setting("name", "text", None, "hf for all", choices=("hf", "gguf")).sentence == "hf for all"


def test_each_of_several_names_is_one_of_the_choices() -> None:
    parts = Setting("parts", "names", None, "parts to show", choices=("head", "body"))
    assert parts.parse("head, body") == parts.parse(["head", "body"]) == ("head", "body")
    assert parts.check(None) is None
    with pytest.raises(ValueError, match="parts 'boddy' is not known; did you mean 'body'"):
        parts.parse("head,boddy")
    with pytest.raises(ValueError, match="parts must be names, not 3"):
        parts.parse(3)
    complete = completion(parts)
    assert complete(None, None, "head,b") == ["head,body"]
