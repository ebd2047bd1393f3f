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

from zerolm.cli.complete import completion
from zerolm.cli.help import SHORT
from zerolm.commands import OUTPUT, Command
from zerolm.settings import Setting

if TYPE_CHECKING:
    from zerolm.api.report import Shown


def function_of(command: Command, further: Mapping[str, tuple[Setting, ...]]) -> Any:
    """Return a function of the flags of a command, those of ``further`` groups of settings too."""

    def run(**given: Any) -> None:
        _run(command, {name: _typed(value, flags.get(name)) for name, value in given.items()})

    own = [setting for group in command.groups.values() for setting in group]
    others = [setting for group in further.values() for setting in group]
    flags = {setting.name: setting for setting in (own if command.repeated else [*others, *own])}
    parameters = [_parameter(setting, typer.Argument) for setting in command.arguments]
    parameters += [_parameter(setting, typer.Option) for setting in (*own, *command.output)]
    parameters += [_parameter(setting, typer.Option, command.repeated) for setting in others]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = command.summary
    return run


def _run(command: Command, given: dict[str, Any]) -> None:
    from zerolm.api.configuration import configured
    from zerolm.cli.logs import logged
    from zerolm.cli.progress import Steps
    from zerolm.io.folders import check_new

    settings = {setting.name: setting for setting in command.output}
    config = given.pop("config", None)
    asked = configured(command, None if config is None else settings["config"].parse(config), given)
    output = {setting.name: setting.default for setting in OUTPUT}
    output |= {s.name: s.parse(asked.pop(s.name)) for s in command.output if s.name in asked}
    command.check(asked)
    folder = Path(output["out"]) if output["out"] is not None else None
    if folder is not None:
        check_new(folder, output["force"])
    module, name = command.verb.split(":")
    verb = getattr(import_module(module), name)
    with logged(output["verbose"]), Steps(output["quiet"]) as progress:
        told = {"progress": progress} if "progress" in inspect.signature(verb).parameters else {}
        result = verb(**asked, **told)
        if folder is not None:
            result.save(folder, force=output["force"])
    if not _is_first():
        return
    for remark in result.remarks:
        print(f"zerolm: {remark}", file=sys.stderr)
    if output["json"]:
        print(json.dumps(result.to_json()))
    else:
        _show(result, name)
    place = folder or asked.get("out")
    if place is not None:
        print(f"wrote {place}: {', '.join(result.written)}", file=sys.stderr)


def _is_first() -> bool:
    """Return whether this process is the first of those that ``accelerate launch`` started, or alone."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is None or not distributed.is_initialized() or distributed.get_rank() == 0


def _show(result: Shown, name: str) -> None:
    """Print a result by the view of its verb; what only lists something is its lines."""
    from zerolm.api.report import Report

    if isinstance(result, Report):
        import_module(f"zerolm.cli.show_{name}").show(result)
    else:
        for line in result.lines():
            print(line)


def _typed(value: Any, setting: Setting | None) -> Any:
    """Return what was typed: a flag of names that was repeated as A,B,C, an empty list as nothing."""
    if isinstance(value, list) and setting is not None and setting.kind == "names":
        value = ",".join(value) if value else None
    return None if value == [] else value


def _parameter(setting: Setting, kind: Callable[..., Any], repeated: bool = False) -> inspect.Parameter:
    """Return a parameter of typer, always optional: the verb knows what is missing, whoever calls it."""
    annotation: Any = list[str] if repeated or setting.kind == "names" else str
    names = [] if kind is typer.Argument else [setting.flag]
    if setting.kind == "flag":
        annotation = bool
        names = [f"{names[0]}/--{setting.off}"] if setting.off else names
    names += [SHORT[setting.name]] if setting.name in SHORT else []
    if setting.name == "verbose":
        annotation = int
    declared = kind(
        *names,
        **({"count": True} if annotation is int else {}),
        metavar=setting.placeholder or None,
        help=setting.help,
        autocompletion=None if setting.kind == "flag" else completion(setting),
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation | None, declared],
    )
