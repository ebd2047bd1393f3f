"""The public API: its names, its weight, and signatures that are what the commands declare."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from importlib import import_module
from typing import get_type_hints

import pytest

import zerolm
from zerolm.api.report import Report, Shown
from zerolm.cli import main
from zerolm.commands import COMMANDS, Command
from zerolm.settings import REQUIRED

HELPERS = {"__version__", "load", "make_score", "make_space", "read_labels"}
VERBS = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())


def verb_of(command: Command) -> object:
    module, name = command.verb.split(":")
    return getattr(import_module(module), name)


def test_dir_is_the_public_api_and_nothing_else() -> None:
    verbs = {command.verb.split(":")[1] for command in COMMANDS.values()}
    assert set(dir(zerolm)) == set(zerolm.__all__) == verbs | HELPERS
    assert len(zerolm.__all__) == len(set(zerolm.__all__))
    for name in dir(zerolm):
        assert getattr(zerolm, name)


@VERBS
def test_zerolm_hands_on_the_verb_of_each_command(command: Command) -> None:
    assert getattr(zerolm, command.verb.split(":")[1]) is verb_of(command)


@VERBS
def test_a_verb_takes_the_settings_of_its_command(command: Command) -> None:
    parameters = dict(inspect.signature(verb_of(command)).parameters)  # type: ignore[arg-type]
    parameters.pop("progress", None)
    keywords = [p for p in parameters.values() if p.kind is not p.VAR_KEYWORD]
    by_place = {setting.name for setting in command.arguments} | {"out"}  # where a verb writes
    declared = sorted(command.settings, key=lambda setting: setting.name not in by_place)
    assert [p.name for p in keywords] == [setting.name for setting in declared]
    assert bool(command.owners) == (len(keywords) < len(parameters))
    for parameter, setting in zip(keywords, declared, strict=True):
        if setting.name not in by_place and command.arguments:
            assert parameter.kind is parameter.KEYWORD_ONLY
        default = None if setting.default is REQUIRED else setting.default
        told = None if parameter.default is parameter.empty else parameter.default
        assert (told, type(told)) == (default, type(default)), setting.name


@VERBS
def test_help_reads_well(command: Command) -> None:
    text = pydoc.plain(pydoc.render_doc(verb_of(command)))
    assert ("Parameters\n    ----------" in text) == bool(command.settings)
    for setting in command.settings:
        assert f"    {setting.name}\n" in text
        assert setting.help.split()[0] in text
    assert inspect.getdoc(verb_of(command)).startswith("Return")  # type: ignore[union-attr]


@VERBS
def test_a_verb_returns_something_that_shows_itself(command: Command) -> None:
    kind = get_type_hints(verb_of(command))["return"]
    kinds = getattr(kind, "__args__", (kind,))
    assert all(issubclass(one, Shown) for one in kinds)
    reports = [one for one in kinds if issubclass(one, Report)]
    assert [one.command for one in reports] == [command.name] * len(reports)
    assert bool(reports) == any(setting.name == "out" for setting in (*command.settings, *command.output))


@VERBS
def test_every_setting_is_a_sentence_and_every_command_has_examples(command: Command) -> None:
    assert 2 <= len(command.examples) <= 5
    for line, what in command.examples:
        assert line.startswith("zerolm ")
        assert what
    for setting in command.settings:
        assert len(setting.help.split()) >= 2
        assert not setting.help.endswith(".")


def test_importing_is_light() -> None:
    heavy = ("numpy", "torch", "typer", "rich", "pydantic", "yaml", "pandas")
    code = f"import sys, zerolm; dir(zerolm); assert not [m for m in sys.modules if m in {heavy}]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="prune"):
        zerolm.prune  # noqa: B018


@VERBS
def test_what_a_command_lacks_is_said_in_one_line(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = [setting.name for setting in command.settings if setting.default is REQUIRED]
    if needed:
        status, ran = main(command.name.split()), capsys.readouterr()
        assert (status, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
        assert f"{command.name} needs {needed[0]}" in ran.err


def test_signatures_show_no_address() -> None:
    for command in COMMANDS.values():
        assert " at 0x" not in str(inspect.signature(verb_of(command)))
