"""Flags of declared settings: one option of a command for each, whatever declares it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any

import typer

from zerolm.registry import Entry, PluginWarning
from zerolm.settings import Setting, nearest


def with_flags(
    function: Callable[..., None], settings: Iterable[Setting], repeated: bool = False
) -> Callable[..., None]:
    """Return a command that takes a flag for each setting, as keywords; None where it is not given.

    With ``repeated`` a flag may be given several times: its value is a list.
    """

    @wraps(function)
    def command(**given: Any) -> None:
        function(**given)

    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    flags = [
        inspect.Parameter(
            s.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(s, repeated)
        )
        for s in settings
    ]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own] + flags
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _option(setting: Setting, repeated: bool) -> Any:
    flag = "--" + setting.name.replace("_", "-")
    help_ = setting.help[:1].upper() + setting.help[1:]
    if setting.kind == "flag":
        off = setting.off or f"no-{setting.name}".replace("_", "-")
        return Annotated[bool | None, typer.Option(f"{flag}/--{off}", help=help_, show_default=False)]
    kind = list[str] if repeated else str
    return Annotated[kind | None, typer.Option(flag, metavar=setting.placeholder, help=help_)]


def declared(entries: Iterable[Entry[Any]], taken: Collection[str]) -> list[Setting]:
    """Return the settings of spaces or scores, each name once, its help saying whose it is.

    Names that are ``taken`` by the command itself cannot be given: a ``PluginWarning`` says so.
    """
    first, owners = dict[str, Setting](), dict[str, list[str]]()
    for entry in entries:
        for setting in entry.options:
            if setting.name in taken:
                said = f"setting {setting.name!r} of {entry.name!r} cannot be given: it is the command's own"
                warnings.warn(said, PluginWarning, stacklevel=2)
                continue
            first.setdefault(setting.name, setting)
            owners.setdefault(setting.name, []).append(entry.name)
    return [replace(s, help=f"{s.help} ({', '.join(owners[s.name])})") for s in first.values()]


def parsed_options(entries: Sequence[Entry[Any]], given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of repeated flags by name, those that are given."""
    known = {setting.name: setting for entry in reversed(entries) for setting in entry.options}
    options = {}
    for name, values in given.items():
        if values is None or values == []:
            continue
        if name not in known:
            raise ValueError(f"no score has an option {name!r}{nearest(name, known)}")
        options[name] = [known[name].parse(v) for v in (values if isinstance(values, list) else [values])]
    return options
