"""The program: a command is parsed by its declared settings and run; errors are one line."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final

import click

from zerolm.cli.complete import install, is_asked, script_of, user_shell
from zerolm.cli.help import program_help
from zerolm.cli.parser import Commands, unknown_option
from zerolm.cli.process import interruptions, nowhere
from zerolm.progress import TrainingFailed
from zerolm.registry import PluginWarning
from zerolm.settings import REQUIRED, nearest
from zerolm.settings.request import PLACED
from zerolm.verbs import beginning, commands

HELP: Final = ("-h", "--help")
EXTRA: Final = re.compile(r"Got unexpected extra arguments? \((.*)\)$", re.DOTALL)
EXTRA_NAME: Final = re.compile(r"[\w.-]+")
EXTRA_OF: Final = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")
"""A required package, and the extra that requires it."""
LONGEST: Final = 4000
"""Characters of a message, which clips the values that it shows; this clips what escaped that."""


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
    text = " ".join(str(message)[:LONGEST].split()).encode("utf-8", "backslashreplace").decode()
    print(f"zerolm: {text}" + (" ..." if len(str(message)) > LONGEST else ""), file=sys.stderr)


def _run(arguments: list[str]) -> int:
    try:
        if not is_asked() and _is_about_the_program(arguments):
            return _about_the_program(arguments)
        status = int(Commands("zerolm").main(arguments, "zerolm", standalone_mode=False) or 0)
        sys.stdout.flush()
        return status
    except (BrokenPipeError, SystemExit) as error:
        is_unread = type(sys.stdout).__module__.startswith("click.")  # it puts its own for a closed pipe
        if isinstance(error, SystemExit) and not is_unread:
            return int(error.code or 0)
        sys.stdout = nowhere()  # nobody reads any more
        return 0
    except click.Abort:
        raise KeyboardInterrupt from None
    except (ValueError, ModuleNotFoundError, ArithmeticError, OSError, click.UsageError) as error:
        if interruptions.signal:  # it comes of that
            raise KeyboardInterrupt from None
        say(_message(error))
        return 2
    except TrainingFailed as error:
        say(error)
        return 1
    except Exception as error:
        from zerolm.io.full_disk import is_full

        if not is_full(error):
            raise
        say(_message(error))
        return 2


def _is_about_the_program(arguments: list[str]) -> bool:
    """Return whether no command is named: an option of the program, or the first words of several."""
    if not arguments or arguments[0].startswith("-"):
        return True
    words = arguments[:-1] if arguments[-1] in HELP else arguments
    begun = beginning(words)
    return bool(begun) and " ".join(words) not in begun


def _about_the_program(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if arguments and arguments[-1] in HELP:
        print(program_help(arguments[:-1]), end="")
    elif first == "--version":
        print(version_text())
    elif first == "--install-completion":
        print(install())
    elif first == "--show-completion":
        print(script_of(user_shell()))
    elif first.startswith("-"):
        options = ("--help", "--version", "--install-completion", "--show-completion")
        raise ValueError(f"zerolm has no option {first}{nearest(first, options)}")
    else:
        print(program_help(arguments), end="", file=sys.stderr)
        return 2
    return 0


def _message(error: Exception) -> str:
    error = _of_a_disk(error)
    if isinstance(error, ArithmeticError):
        return f"these numbers cannot be computed with: {error}"
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        return unknown_option(error.ctx.command.name or "", error.option_name)
    return _of_click(error) if isinstance(error, click.UsageError) else str(error)


def _of_click(error: click.UsageError) -> str:
    """Say what is wrong with the words of a command, and what to do."""
    message = error.format_message()
    if isinstance(error, click.BadOptionUsage):
        needs = "requires an argument" in message
        return f"{error.option_name} " + (
            "needs a value after it" if needs else "is a switch and takes no value"
        )
    extra = EXTRA.match(message)
    if extra is None:
        return message
    name = error.ctx.command.name if error.ctx is not None else "zerolm"
    missing = _missing_flags(error.ctx) if error.ctx is not None else []
    if len(missing) == 1:
        return f"{name} takes no argument {extra[1]!r}; did you mean {missing[0]} {extra[1]}?"
    return f"{name} takes no further argument {extra[1]!r}: give it after a flag of zerolm {name} --help"


def _missing_flags(context: click.Context) -> list[str]:
    """Return the flags that a command requires and was not given."""
    verb = commands().get(context.command.name or "")
    if verb is None:
        return []
    placed = verb.request.groups()[PLACED]
    return [
        each.flag
        for each in verb.request.settings()
        if each.default is REQUIRED and each not in placed and context.params.get(each.name) is None
    ]


def _of_a_disk(error: Exception) -> Exception:
    """Return an error of a full disk in our words: of the file that it names, else of the fullest place."""
    import tempfile
    from pathlib import Path

    from zerolm.io.files import cache_folder
    from zerolm.io.full_disk import DiskFull, free, is_full

    if isinstance(error, DiskFull) or not is_full(error):
        return error
    name = getattr(error, "filename", None)
    places = [Path(str(name))] if name else [Path.cwd(), Path(tempfile.gettempdir()), cache_folder("")]
    return DiskFull(min(places, key=free))


def version_text() -> str:
    """Return the versions of zerolm and Python, and of what brings each extra; nothing is imported."""
    import platform
    from importlib import metadata

    from zerolm import __version__

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    lines = [f"zerolm {__version__}, Python {platform.python_version()}"]
    extras: dict[str, list[str]] = {}  # those of extras that one includes are left out
    for line in metadata.requires("zerolm") or [] if version("zerolm") else []:
        name, extra = EXTRA_NAME.match(line), EXTRA_OF.search(line)
        if name and extra and name[0] != "zerolm":
            extras.setdefault(extra[1], []).append(name[0])
    width = max(map(len, extras), default=0)
    for extra_name, names in sorted(extras.items()):
        versions = {name: version(name) for name in names}
        missing = [name for name, number in versions.items() if number is None]
        text = ", ".join(f"{name} {number}" for name, number in versions.items())
        if missing:
            text = f"not installed: pip install 'zerolm[{extra_name}]' (lacks {', '.join(missing)})"
        lines.append(f"  {extra_name:<{width}}  {text}")
    return "\n".join(lines)
