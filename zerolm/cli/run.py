"""A declared command as a function of typer: flags in, the verb, its result shown and saved."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.commands import Command
from zerolm.settings import Setting


def function_of(command: Command, further: Mapping[str, tuple[Setting, ...]]) -> Callable[..., None]:
    """Return a function of the flags of a command, those of ``further`` groups of settings too."""

    def run(**given: Any) -> None:
        _run(command, given)

    groups = {**command.groups, **further}
    groups["Output"] = (*groups.pop("Output", ()), *command.output)
    parameters = [_parameter(setting, typer.Argument) for setting in command.arguments]
    for name, settings in groups.items():
        parameters += [_parameter(setting, typer.Option, name, command.repeated) for setting in settings]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    examples = "\n\n".join(f"{line}\n    {what}" for line, what in command.examples)
    run.__doc__ = f"{command.summary}\n\n{command.notes}\n\n{examples}"
    return run


def _run(command: Command, given: dict[str, Any]) -> None:
    from zerolm.api.configuration import configured
    from zerolm.cli.progress import patient
    from zerolm.io.folders import check_new

    asked = configured(command, given.pop("config", None), given)
    output = {s.name: s.parse(asked.pop(s.name)) if s.name in asked else s.default for s in command.output}
    folder = Path(output["out"]) if output.get("out") is not None else None
    if folder is not None:
        check_new(folder, output["force"])
    module, name = command.verb.split(":")
    result = getattr(import_module(module), name)(**asked, progress=patient())
    if folder is not None:
        result.save(folder, force=output["force"])
    for remark in result.remarks:
        print(f"zerolm: {remark}", file=sys.stderr)
    if output["json"]:
        print(json.dumps(result.to_json()))
    else:
        import_module(f"zerolm.cli.show_{name}").show(result)
    place = folder or asked.get("out")
    if place is not None:
        print(f"wrote {place}: {', '.join(result.written)}", file=sys.stderr)


def _parameter(
    setting: Setting, kind: Callable[..., Any], panel: str | None = None, repeated: bool = False
) -> inspect.Parameter:
    help_ = setting.help[:1].upper() + setting.help[1:] + "."
    names = [] if kind is typer.Argument else ["--" + setting.name.replace("_", "-")]
    annotation: Any = list[str] if repeated else str
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
