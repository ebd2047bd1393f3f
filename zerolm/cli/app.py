"""The command line: one thin file a command, errors in one line, results on stdout."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from zerolm.cli.run import function_of
from zerolm.commands import COMMANDS, GROUPS
from zerolm.commands.command import Command
from zerolm.registry import PluginWarning
from zerolm.settings import Setting


def application(arguments: Sequence[str]) -> typer.Typer:
    """Return the commands; that which the arguments name takes the settings of plug-ins, too."""
    app = typer.Typer(
        name="zerolm",
        help="Choose and shrink transformer language models without training them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    groups = {"": app}
    for command in COMMANDS.values():
        words = command.name.split()
        further = _further(command, arguments) if list(arguments[: len(words)]) == words else {}
        group, name = words if len(words) > 1 else ("", words[0])
        if group not in groups:
            groups[group] = typer.Typer(help=GROUPS[group], no_args_is_help=True)
            app.add_typer(groups[group], name=group)
        groups[group].command(name)(function_of(command, further))
    _older(app, groups["bench"])
    return app


def _further(command: Command, arguments: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """Return the settings of spaces and scores: of those that are named for help, else of all."""
    if not command.owners or arguments[len(command.name.split()) :] in (["--help"], ["-h"]):
        return {}
    from zerolm.cli.plugin_flags import further_settings

    return further_settings(command, arguments)


def _older(app: typer.Typer, group: typer.Typer) -> None:
    from zerolm.cli import bench, proxies

    app.command("proxies")(proxies.proxies)
    bench.application(group)


INTERRUPTED = 130
LONGEST = 4000
"""Characters of a message, which clips the values that it shows; this clips what escaped that."""
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of all errors in the way a command was typed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 2 for wrong input, with one line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = _show_warning
        return _run(sys.argv[1:] if arguments is None else list(arguments))


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if category.__module__.startswith("zerolm."):
        _say(message)
    else:
        print(warnings.formatwarning(message, category, *where[:2]), file=sys.stderr, end="")


def _say(message: object) -> None:
    """Print one line on stderr, cut where it is absurdly long."""
    text = " ".join(str(message)[:LONGEST].split())
    print(f"zerolm: {text}" + (" ..." if len(str(message)) > LONGEST else ""), file=sys.stderr)


def _run(arguments: list[str]) -> int:
    try:
        status = int(application(arguments)(args=arguments, standalone_mode=False) or 0)
        if status == INTERRUPTED:  # typer has caught it
            print("zerolm: interrupted", file=sys.stderr)
        return status
    except (ValueError, ModuleNotFoundError) as error:
        _say(error)
    except ArithmeticError as error:
        _say(f"these numbers cannot be computed with: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nobody reads any more
            return 0
        _say(error)
    except (KeyboardInterrupt, typer.Abort):
        print("zerolm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _USAGE_ERROR as error:
        message = getattr(error, "format_message", error.__str__)()
        if message.lstrip().startswith("Usage:"):  # a command that needs another shows its help
            print(message, file=sys.stderr)
        else:
            hint = f" There are {', '.join(COMMANDS)}." if "No such command" in message else ""
            _say(f"{message}{hint}")
    return 2
