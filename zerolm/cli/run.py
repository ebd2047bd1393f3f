"""A declared command as a function of typer: flags in, the verb, its result shown and saved."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zerolm.commands import Command
from zerolm.settings import Setting

if TYPE_CHECKING:
    from zerolm.api.report import Shown


def function_of(command: Command, further: Mapping[str, tuple[Setting, ...]]) -> Callable[..., None]:
    """Return a function of the flags of a command, those of ``further`` groups of settings too."""

    def run(**given: Any) -> None:
        _run(command, given)

    groups = {**command.groups, **further}
    groups["Output"] = (*groups.pop("Output", ()), *command.output)
    parameters = [_parameter(setting, typer.Argument) for setting in command.arguments]
    for name, settings in groups.items():
        repeated = command.repeated and name in further
        parameters += [_parameter(setting, typer.Option, name, repeated) for setting in settings]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    examples = "\n\n".join(f"{line}\n    {what}" for line, what in command.examples)
    run.__doc__ = f"{command.summary}\n\n{command.notes}\n\n{examples}"
    return run


def _run(command: Command, given: dict[str, Any]) -> None:
    from zerolm.api.configuration import configured
    from zerolm.cli.progress import patient
    from zerolm.io.folders import check_new

    asked = configured(command, given.pop("config", None), _typed(command, given))
    output = {s.name: s.parse(asked.pop(s.name, s.default)) for s in command.output if s.name != "config"}
    folder = Path(output["out"]) if output.get("out") is not None else None
    if folder is not None:
        check_new(folder, output["force"])
    module, name = command.verb.split(":")
    verb = getattr(import_module(module), name)
    told = {"progress": patient()} if "progress" in inspect.signature(verb).parameters else {}
    result = verb(**asked, **told)
    for notice in result.notices:
        print(f"zerolm: {notice}", file=sys.stderr)
    if folder is not None:
        result.save(folder, force=output["force"])
    if output["json"]:
        print(json.dumps(result.to_json()))
    else:
        _show(result, name)
    place = folder or asked.get("out")
    if place is not None:
        print(f"wrote {place}: {', '.join(result.written)}", file=sys.stderr)


def _show(result: Shown, name: str) -> None:
    """Print a result by the view of its verb; what only lists something is its lines."""
    from zerolm.api.report import Report

    if isinstance(result, Report):
        import_module(f"zerolm.cli.show_{name}").show(result)
    else:
        print("\n".join(result.lines()))


def _typed(command: Command, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was typed: flags of names that were repeated as one list, empty lists as nothing."""
    listed = {s.name for group in command.groups.values() for s in group if s.kind == "names"}
    typed = {name: None if value == [] else value for name, value in given.items()}
    for name in listed:
        names = typed.get(name)
        if names is not None:
            typed[name] = ",".join(names)
    return typed


def _parameter(
    setting: Setting, kind: Callable[..., Any], panel: str | None = None, repeated: bool = False
) -> inspect.Parameter:
    help_ = setting.help[:1].upper() + setting.help[1:] + "."
    names = [] if kind is typer.Argument else ["--" + setting.name.replace("_", "-")]
    annotation: Any = list[str] if repeated or setting.kind == "names" else str
    if setting.kind == "flag":
        annotation = bool
        names = [f"{names[0]}/--{setting.off}"] if setting.off else names
    declared = kind(
        *names,
        metavar=None if setting.kind == "flag" else setting.placeholder,
        help=help_,
        show_default=setting.default_text if setting.kind != "flag" and setting.default_text else False,
        rich_help_panel=panel,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation | None, declared],
    )
