"""Verbs as functions of Python: their keywords, defaults and documentation are those of their settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from textwrap import indent, wrap
from types import SimpleNamespace
from typing import Any, Final

from zerolm.progress import silent
from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import Request
from zerolm.verbs import VERBS

WIDTH: Final = 96


def public_names() -> dict[str, str]:
    """Return the names of the package that stand for verbs, each with that of the command; "" for a group."""
    names = {(verb.function or name).split(" ")[0]: name for name, verb in reversed(VERBS.items())}
    groups = {name: "" for name, command in names.items() if " " in command}
    return names | groups


@cache
def public(name: str) -> Any:
    """Return the package's attribute of a name: a verb's function, with those of its group as attributes."""
    command = public_names()[name]
    value: Any = function_of(command) if command else SimpleNamespace()
    for other in VERBS:
        first, _, second = other.partition(" ")
        if first == name and second:
            setattr(value, second, function_of(other))
    return value


@cache
def function_of(command: str) -> Callable[..., Any]:
    """Return the function of a verb: it takes its settings as keywords, and ``progress``."""
    request = VERBS[command].request
    signature = signature_of(request)

    def verb(*values: Any, **keywords: Any) -> Any:
        bound = signature.bind(*values, **keywords).arguments
        progress = bound.pop("progress", silent)
        settings = bound | bound.pop("further", {})
        return request.parse(settings).run(progress)

    verb.__name__ = verb.__qualname__ = command.replace(" ", "_")
    verb.__doc__ = _documented(request)
    verb.__signature__ = signature  # type: ignore[attr-defined]
    verb.__module__ = "zerolm"
    return verb


def signature_of(request: type[Request]) -> inspect.Signature:
    """Return the keywords of a verb; ``out`` and arguments are taken by place, too."""
    placed = request.by_place()
    others = [setting for setting in request.settings() if setting not in placed]
    parameters = [
        *(_parameter(setting, inspect.Parameter.POSITIONAL_OR_KEYWORD) for setting in placed),
        *(_parameter(setting, inspect.Parameter.KEYWORD_ONLY) for setting in others),
    ]
    if request.takes_progress:
        parameters.append(inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=silent))
    if request.owners:
        parameters.append(inspect.Parameter("further", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _parameter(setting: Setting, kind: Any) -> inspect.Parameter:
    default = None if setting.default is REQUIRED else setting.default
    return inspect.Parameter(setting.name, kind, default=default)


def _documented(request: type[Request]) -> str:
    text = inspect.getdoc(request) or ""
    rows = "".join(f"\n{_told(setting)}" for setting in request.settings())
    return f"{text}\n\nParameters\n----------{rows}\n" if rows else text


def _told(setting: Setting) -> str:
    default = f"; {setting.default_text} by default" if setting.default_text else ""
    return f"{setting.name}\n" + indent("\n".join(wrap(f"{setting.help}{default}", WIDTH)), "    ")


def run(command: str, settings: Mapping[str, Any], progress: Any = silent) -> Any:
    """Return the result of a command for settings by name."""
    return VERBS[command].request.parse(settings).run(progress)
