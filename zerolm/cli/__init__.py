"""The command line: one thin file a command, errors in one line, results on stdout.

This module imports nothing, so that Ctrl-C is answered in one line while the rest is being imported.
"""

INTERRUPTED = 130


def main(arguments: "list[str] | None" = None) -> int:
    """Run a command and return its exit status: 2 for wrong input, with one line on stderr."""
    try:
        from zerolm.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        import sys

        print("zerolm: interrupted", file=sys.stderr)
        return INTERRUPTED


__all__ = ["main"]
