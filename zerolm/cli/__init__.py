"""The command line: one thin file a command, errors in one line, results on stdout.

This module imports next to nothing, so that Ctrl-C is answered in one line while the rest is imported.
"""

from __future__ import annotations

import sys

from zerolm.cli.process import owned


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit status: 2 for wrong input, with one line on stderr.

    Without arguments they are those of the process, which is then this command's own: signals end it.
    """
    if arguments is None:
        return owned(_run)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("zerolm: interrupted", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    from zerolm.cli.app import run

    return run(arguments)


__all__ = ["main"]
