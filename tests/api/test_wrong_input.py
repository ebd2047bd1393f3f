"""Wrong values of any keyword of any verb: a ``ValueError`` in one line, and nothing written."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import labelled
from portion import portion

import zerolm
from zerolm.settings import REQUIRED, Setting
from zerolm.verbs import commands
from zerolm.verbs.call import function_of

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(),
    st.sampled_from([0, -1, 10**400, -(10**400), 2**63, math.nan, math.inf, -math.inf, 1e308, -0.0]),
    st.floats(), st.text(max_size=12), st.binary(max_size=6),
    st.sampled_from(["\0", "nan", "1:2:3:4", "9" * 5000, "x" * 300, "../..", "\ud800", "1e999", "a,,b"]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), st.just(object()),
    st.just(Path("nowhere")),
)  # fmt: skip
LASTING = {"lab proxies", "lab bench"}
"""Commands that go to the user's cache with what is right."""


def nowhere(name: str) -> dict[str, Any]:
    """Return a target that does not exist: whatever else is given, the verb cannot begin."""
    request = commands()[name].request
    needed = {*request.by_place(), *(s for s in request.settings() if s.default is REQUIRED)}
    optional_out = {s for s in needed if s.name == "out" and s.default is not REQUIRED}
    return {setting.name: "nowhere-at-all/x.csv" for setting in needed - optional_out}


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand in an empty folder, without data and with an empty cache; all stay empty."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "data").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ZEROLM_DATA", str(folder / "data"))
    monkeypatch.setenv("ZEROLM_CACHE", str(folder / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield
    assert [file.name for file in folder.rglob("*")] == ["data"]


@pytest.mark.parametrize("name", [name for name, verb in commands().items() if verb.request.settings()])
@settings(max_examples=portion(120))
@given(data=st.data())
def test_junk_is_a_value_error_in_one_line(name: str, data: st.DataObject) -> None:
    request = commands()[name].request
    setting: Setting = data.draw(st.sampled_from(request.settings()))
    keywords = nowhere(name) | {setting.name: data.draw(JUNK)}
    if request.owners and data.draw(st.booleans()):
        keywords[data.draw(st.sampled_from(["alpha", "init", "hidden", "nothing"]))] = data.draw(JUNK)
    if name in LASTING and not isinstance(next(iter(keywords.values())), str):
        return
    try:
        function_of(name)(**keywords)
    except ValueError as error:
        message = str(error)
    else:
        return
    assert message.strip()
    assert "\n" not in message
    assert len(message) < 3000


CHOICES = {"depth": 2, "hidden": 128, "head_size": 64, "heads": 2, "ffn": 512}
ARCHITECTURE = {"space": "bert", "architecture": CHOICES}


@settings(max_examples=portion(150))
@given(data=st.data())
def test_junk_beside_a_right_target(data: st.DataObject) -> None:
    setting = data.draw(st.sampled_from(commands()["score"].request.settings()[1:]))
    options = data.draw(st.dictionaries(st.sampled_from(["alpha", "init", "beta"]), JUNK, max_size=2))
    try:
        report = zerolm.score(ARCHITECTURE, **{setting.name: data.draw(JUNK)}, **options)
    except ValueError as error:
        message = str(error)
        assert "\n" not in message
    else:
        assert json.dumps(report.to_json())
        assert len(repr(report)) <= 1500


TAKEN = {
    ("score", "architecture"), ("score", "calibration"), ("search", "calibration"), ("calibrate", "labels"),
}  # fmt: skip
"""Commands with their settings that take, for a path, the object of that name."""


def test_what_one_setting_takes_for_a_path_no_other_does() -> None:
    labels = labelled("gpt2", 14)
    calibration = zerolm.calibrate(labels, method="dictionary")
    objects = {"architecture": labels.pool.architectures[0], "labels": labels, "calibration": calibration}
    for command, verb in commands().items():
        for setting in (setting for setting in verb.request.settings() if setting.kind == "path"):
            for name, value in objects.items():
                if name == setting.name and (command, name) in TAKEN:
                    continue
                with pytest.raises(ValueError, match=r"must be (a path|a number|an integer|a duration)"):
                    function_of(command)(**nowhere(command) | {setting.name: value})


@given(JUNK)
def test_junk_in_place_of_a_folder(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        zerolm.load(value)
