"""The public API: its names, its weight, and signatures that are what the requests declare."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import zerolm
from zerolm.cli import main
from zerolm.settings import REQUIRED
from zerolm.settings.request import PLACED
from zerolm.verbs import VERBS, commands
from zerolm.verbs.call import function_of, public_names
from zerolm.verbs.report import Report, Shown

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from stubs import stub

HELPERS = {"__version__", "load", "make_score", "make_space", "read_labels"}
NAMES = pytest.mark.parametrize("name", commands())


def test_dir_is_the_public_api_and_nothing_else() -> None:
    verbs = {(verb.function or name).split()[0] for name, verb in VERBS.items()}
    assert set(dir(zerolm)) == set(zerolm.__all__) == verbs | HELPERS
    assert len(zerolm.__all__) == len(set(zerolm.__all__))
    for name in dir(zerolm):
        assert getattr(zerolm, name)


@NAMES
def test_a_verb_is_called_as_its_command(name: str) -> None:
    verb = zerolm
    for word in (commands()[name].function or name).split():
        verb = getattr(verb, word)
    assert verb is function_of(name)


def test_no_room_bears_the_name_of_a_public_function() -> None:
    """Else the function is gone as soon as the room is imported."""
    rooms = {path.stem for path in Path(zerolm.__file__).parent.iterdir()}
    assert not rooms & set(public_names())


@NAMES
def test_a_function_takes_the_settings_of_its_request(name: str) -> None:
    request, parameters = commands()[name].request, dict(inspect.signature(function_of(name)).parameters)
    assert ("progress" in parameters) == request.takes_progress
    parameters.pop("progress", None)
    assert bool(request.owners) == (parameters.pop("further", None) is not None)
    placed = request.by_place()
    declared = [*placed, *(setting for setting in request.settings() if setting not in placed)]
    assert list(parameters) == [setting.name for setting in declared]
    for parameter, setting in zip(parameters.values(), declared, strict=True):
        assert (parameter.kind is parameter.KEYWORD_ONLY) == (setting not in placed)
        default = None if setting.default is REQUIRED else setting.default
        assert (parameter.default, type(parameter.default)) == (default, type(default))


@NAMES
def test_help_reads_well(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(function_of(name)))
    settings = commands()[name].request.settings()
    assert ("Parameters\n    ----------" in text) == bool(settings)
    for setting in settings:
        assert f"    {setting.name}\n" in text
        assert setting.help.split()[0] in text
    first = (inspect.getdoc(function_of(name)) or "").splitlines()[0]
    assert first[:1].isupper()
    assert first.endswith(".")
    assert " at 0x" not in text


@NAMES
def test_a_verb_returns_something_that_shows_itself(name: str) -> None:
    verb = commands()[name]
    assert issubclass(verb.report, Shown)
    assert issubclass(verb.report, Report) == (not verb.request.writes_no_result)
    if issubclass(verb.report, Report):
        assert verb.report.command == name


def test_type_checkers_read_the_settings_of_today() -> None:
    file = Path(zerolm.__file__).with_suffix(".pyi")
    assert file.read_text("utf-8") == stub(), "run: python docs/stubs.py > zerolm/__init__.pyi"
    file = file.parent / "lab" / file.name
    assert file.read_text("utf-8") == stub("lab"), "run: python docs/stubs.py lab > its file"


def test_importing_is_light() -> None:
    heavy = ("numpy", "torch", "click", "rich", "pydantic", "yaml", "pandas", "typing", "inspect")
    code = f"import sys; import zerolm; assert not set(sys.modules) & set({heavy})"
    place = {"PYTHONPATH": str(Path(zerolm.__file__).parents[1])}
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env=place)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="prune"):
        zerolm.prune  # noqa: B018


@NAMES
def test_what_a_command_lacks_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are named as a user types them: capitals of an argument, a flag of what else is needed."""
    request = commands()[name].request
    placed = request.groups()[PLACED]
    needed = [
        setting.placeholder if setting in placed else setting.flag
        for setting in request.settings()
        if setting.default is REQUIRED
    ]
    if needed:
        status, ran = main(name.split()), capsys.readouterr()
        assert (status, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
        assert f"{name} needs {needed[0]}" in ran.err
