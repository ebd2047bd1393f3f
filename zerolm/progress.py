"""How long work says how far it is: a line of text, and where it is known how much is done of how much."""

from __future__ import annotations

from typing import Final, Protocol


class TrainingFailed(RuntimeError):
    """A training came to nothing: its loss is not finite, or too little of it is left to judge."""


class Progress(Protocol):
    """Called as ``progress("reading the weights", 3, 12)``: what is done now, how much of it, of how much.

    The two numbers count anything, bytes or layers or networks; without them the duration is unknown.
    """

    def __call__(self, text: str, done: int = 0, of: int = 0, /) -> None: ...


class _Silent:
    """Progress that is not shown."""

    def __call__(self, text: str, done: int = 0, of: int = 0, /) -> None:
        return

    def __repr__(self) -> str:
        return "silent"


silent: Final[Progress] = _Silent()
"""Says nothing; signatures show it by this name."""


class Counted:
    """Progress of work in equal steps: each call is one more, of ``of``, where ``done`` are behind."""

    def __init__(self, progress: Progress, text: str, of: int, done: int = 0) -> None:
        self.progress, self.text, self.of, self.done = progress, text, of, done
        progress(text, done, of)

    def __call__(self) -> None:
        self.done += 1
        self.progress(self.text, self.done, self.of)


def announce(progress: Progress, text: str) -> None:
    """Report a line that should remain visible, where the receiver of progress can keep it."""
    keep = getattr(progress, "announce", progress)
    keep(text)


def about(seconds: float) -> str:
    """Return seconds in the unit that people would say."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"
