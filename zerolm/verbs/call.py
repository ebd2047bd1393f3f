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
from zerolm.verbs import VERBS, Verb, commands, verb_of

WIDTH: Final = 96


def public_names() -> list[str]:
    """Return the names of the package that stand for verbs of zerolm itself, or for groups of them."""
    return list(dict.fromkeys(_path(name, verb)[0] for name, verb in VERBS.items()))


@cache
def public(name: str) -> Any:
    """Return the package's attribute of a name: a verb's function, with those of its group as attributes.

    Raises ``AttributeError`` where no command begins with it, those of plug-ins included.
    """
    verbs = VERBS if name in public_names() else commands()
    paths = {_path(command, verb): command for command, verb in verbs.items()}
    value = _attribute((name,), paths)
    if value is None:
        raise AttributeError(f"module 'zerolm' has no attribute {name!r}")
    return value


def _path(command: str, verb: Verb) -> tuple[str, ...]:
    return tuple((verb.function or command).split(" "))


def _attribute(begun: tuple[str, ...], paths: Mapping[tuple[str, ...], str]) -> Any:
    """Return the function of the path ``begun``, or an object for several that begin so; None for none."""
    further = {path[: len(begun) + 1] for path in paths if path[: len(begun)] == begun != path}
    if begun not in paths and not further:
        return None
    value: Any = function_of(paths[begun]) if begun in paths else SimpleNamespace()
    for path in further:
        setattr(value, path[-1], _attribute(path, paths))
    return value


@cache
def function_of(command: str) -> Callable[..., Any]:
    """Return the function of a verb: it takes its settings as keywords, and ``progress``."""
    request = verb_of(command).request
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
    text, rows = inspect.getdoc(request) or "", ""
    for setting in request.settings():
        default = f"; {setting.default_text} by default" if setting.default_text else ""
        rows += f"\n{setting.name}\n" + indent("\n".join(wrap(f"{setting.help}{default}", WIDTH)), "    ")
    return f"{text}\n\nParameters\n----------{rows}\n" if rows else text
