"""The program: its commands, each built when it is named, and what becomes of errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from zerolm.cli.complete import words
from zerolm.cli.help import command_help, program_help
from zerolm.cli.process import interruptions, nowhere
from zerolm.cli.run import function_of
from zerolm.commands import COMMANDS
from zerolm.commands.command import Command
from zerolm.registry import PluginWarning
from zerolm.settings import Setting, nearest

CONTEXT: Final = {"help_option_names": ["-h", "--help"]}

BEGUN: Final = "zerolm.begun"
"""Where a context keeps the words of a command's name that are typed already."""


class DeclaredCommand(TyperCommand):
    """A declared command, which shows its own help."""

    command: Command
    further: Mapping[str, tuple[Setting, ...]]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(command_help(self.command, self.further))


class Commands(TyperGroup):
    """All commands by their names, of one word or two; that which is named is built with its flags."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the words that may come next: these are completed."""
        return list(words(ctx.meta.get(BEGUN, [])))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command for its help alone."""
        return TyperCommand(cmd_name, help=words(ctx.meta.get(BEGUN, [])).get(cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command whose name the arguments begin with, the longest, and the other arguments."""
        names = list(COMMANDS)
        completing = ["--help"] if ctx.resilient_parsing else []
        for count in (2, 1):
            name = " ".join(args[:count])
            if name in names:
                return name, built(name, [*args[count:], *completing]), args[count:]
        if not completing:
            raise ValueError(unknown_command(args, names))
        ctx.meta[BEGUN] = args
        return None, None, args

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(program_help(""))


def unknown_command(arguments: Sequence[str], names: Sequence[str]) -> str:
    """Return the message for arguments that begin with no command."""
    begun = [name for name in names if name.split()[0] == arguments[0]]
    typed = " ".join(arguments[:2]) if begun else arguments[0]
    return f"no command {typed!r}{nearest(typed, begun or names)}"


def built(name: str, arguments: Sequence[str]) -> Any:
    """Return a command with its flags; ``arguments`` say which plug-ins are named."""
    command = COMMANDS[name]
    further = _further(command, arguments)
    app = typer.Typer(add_completion=False)
    app.command(name, cls=DeclaredCommand, context_settings=CONTEXT)(function_of(command, further))
    made = typer.main.get_command(app)
    assert isinstance(made, DeclaredCommand)
    made.command, made.further = command, further
    return made


def _further(command: Command, arguments: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """Return the settings of spaces and scores: of those that are named for help, else of all."""
    if not command.owners or not arguments or list(arguments) in (["--help"], ["-h"]):
        return {}
    from zerolm.cli.plugin_flags import further_settings

    return further_settings(command, arguments)


def _version(asked: bool) -> None:
    if asked:
        from zerolm.cli.version import version_text

        print(version_text())
        raise typer.Exit


def _help(asked: bool) -> None:
    if asked:
        print(program_help(""), end="")
        raise typer.Exit


def _install(ctx: typer.Context, param: typer.CallbackParam, asked: bool) -> None:
    if asked:
        from typer.completion import install_callback

        install_callback(ctx, param, True)


def _show(ctx: typer.Context, param: typer.CallbackParam, asked: bool) -> None:
    if asked:
        from typer.completion import show_callback

        show_callback(ctx, param, True)


def application() -> Any:
    """Return the program with all commands."""
    if "_ZEROLM_COMPLETE" in os.environ:  # a shell asks what the Tab key offers
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    app = typer.Typer(
        name="zerolm", cls=Commands, no_args_is_help=True, add_completion=False, add_help_option=False
    )

    # Switches with a default of False: for one of None typer would import pydantic, its own --help too.
    @app.callback()
    def program(
        help_: Annotated[bool, typer.Option("--help", "-h", callback=_help, is_eager=True)] = False,
        version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
        install: Annotated[bool, typer.Option("--install-completion", callback=_install)] = False,
        show: Annotated[bool, typer.Option("--show-completion", callback=_show)] = False,
    ) -> None:
        """Choose and shrink transformer language models without training them."""

    return typer.main.get_command(app)


INTERRUPTED: Final = 130
LONGEST: Final = 4000
"""Characters of a message, which clips the values that it shows; this clips what escaped that."""
FAILED: Final = "TrainingFailed"
"""The name of the error of a training that came to nothing, known without importing torch."""
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of all errors in the way a command was typed."""


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status: 2 for wrong input, with one line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = _show_warning
        return _run(list(arguments))


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if category.__module__.startswith("zerolm."):
        say(message)
    else:
        print(warnings.formatwarning(message, category, *where[:2]), file=sys.stderr, end="")


def say(message: object) -> None:
    """Print one line on stderr, cut where it is absurdly long."""
    text = " ".join(str(message)[:LONGEST].split())
    print(f"zerolm: {text}" + (" ..." if len(str(message)) > LONGEST else ""), file=sys.stderr)


def _run(arguments: list[str]) -> int:
    if arguments in (["bench"], ["bench", "--help"], ["bench", "-h"]):
        alone = len(arguments) == 1
        print(program_help("bench"), end="", file=sys.stderr if alone else sys.stdout)
        return 2 if alone else 0
    try:
        status = int(application()(args=arguments, prog_name="zerolm", standalone_mode=False) or 0)
        if status == INTERRUPTED:  # typer has caught it
            raise KeyboardInterrupt
        sys.stdout.flush()
        return status
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            return int(error.code or 0)
        sys.stdout = nowhere()  # nobody reads any more
        return 0
    except typer.Abort:
        raise KeyboardInterrupt from None
    except (ValueError, ModuleNotFoundError, ArithmeticError, OSError, _USAGE_ERROR) as error:
        if interruptions.signal:  # it comes of that
            raise KeyboardInterrupt from None
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
        else:
            say(_message(error))
    except RuntimeError as error:
        if type(error).__name__ != FAILED:
            raise
        say(error)
        return 1
    return 2


def _message(error: Exception) -> str:
    if isinstance(error, ArithmeticError):
        return f"these numbers cannot be computed with: {error}"
    return _usage_message(error) if isinstance(error, _USAGE_ERROR) else str(error)


def _usage_message(error: Any) -> str:
    """Return the message of a command that was typed wrongly, with the flag that was meant."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if type(error).__name__ != "NoSuchOption" or context is None:
        return str(error.format_message())
    flags = [flag for param in context.command.params for flag in (*param.opts, *param.secondary_opts)]
    close = nearest(option, [flag for flag in flags if flag.startswith("--")]).split(";")[1].split("?")
    meant = f";{close[0]}?" if len(close) > 1 else ""
    return f"{context.command.name} has no option {option}{meant}"
