"""The command line: one thin file a command, errors in one line, results on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from zerolm.cli import bench, calibrate, carve, doctor, evaluate, ledger, proxies, score, search, spaces
from zerolm.registry import load_group

app = typer.Typer(
    name="zerolm",
    help="Choose and shrink transformer language models without training them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("search")(search.search)
app.command("score")(score.score)
app.command("calibrate")(calibrate.calibrate)
app.command("carve")(carve.carve)
app.command("eval")(evaluate.evaluate)
app.command("ledger")(ledger.ledger)
app.command("doctor")(doctor.doctor)
app.command("proxies")(proxies.proxies)
app.command("spaces")(spaces.spaces)
app.add_typer(bench.app, name="bench")

COMMANDS = (
    "search",
    "score",
    "calibrate",
    "carve",
    "eval",
    "ledger",
    "doctor",
    "proxies",
    "spaces",
    "bench ls",
    "bench download",
    "bench run",
    "bench ablate",
)
INTERRUPTED = 130
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of all errors in the way a command was typed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 2 for wrong input, with one line on stderr."""
    try:
        load_group("zerolm.scores")
        load_group("zerolm.spaces")
        status = int(app(args=None if arguments is None else list(arguments), standalone_mode=False) or 0)
        if status == INTERRUPTED:  # typer has caught it
            print("zerolm: interrupted", file=sys.stderr)
        return status
    except (ValueError, ModuleNotFoundError) as error:
        print(f"zerolm: {' '.join(str(error).split())}", file=sys.stderr)
    except ArithmeticError as error:
        print(f"zerolm: these numbers cannot be computed with: {error}", file=sys.stderr)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nobody reads any more
            return 0
        print(f"zerolm: {error}", file=sys.stderr)
    except (KeyboardInterrupt, typer.Abort):
        print("zerolm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _USAGE_ERROR as error:
        message = getattr(error, "format_message", error.__str__)()
        if message.lstrip().startswith("Usage:"):  # a command that needs another shows its help
            print(message, file=sys.stderr)
        else:
            hint = f" There are {', '.join(COMMANDS)}." if "No such command" in message else ""
            print(f"zerolm: {' '.join(message.split())}{hint}", file=sys.stderr)
    return 2
