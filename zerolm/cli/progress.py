"""Progress on stderr: a bar with the remaining time on a terminal, a plain line a step in a pipe."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from zerolm.progress import about

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

logger = logging.getLogger("zerolm.steps")
LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
"""What ``-v`` shows, by how often it is given."""
PATIENCE: Final = {True: 1.5, False: 5.0}
"""Seconds within which a command is quick, on a terminal and in a pipe: nothing is shown of it."""
PAUSE: Final = 5.0
"""Seconds between two lines on the same step in a pipe."""


class Steps:
    """Shows the steps of a command to those who wait; a ``with`` statement ends it and removes the bar."""

    def __init__(self, quiet: bool = False, patience: float | None = None) -> None:
        self._quiet, self._lock = quiet, threading.RLock()
        self._step = Step("", 0, 0)
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        wait = PATIENCE[self._is_terminal] if patience is None else patience
        self._timer = threading.Timer(wait, self._begin)
        self._timer.daemon = True
        self._bar: TerminalBar | None = None
        self._begun = self._ended = False

    def __enter__(self) -> Self:
        if not self._quiet:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._step.log()
            self._ended = True
            self._timer.cancel()
            if self._bar is not None:
                self._bar.close()

    def __call__(self, text: str, done: int = 0, of: int = 0, /) -> None:
        """Say what is done now, and how much of it is done of how much where that is known."""
        with self._lock:
            if not self._step.goes_on(text, done, of):
                self._step.log()
                self._step = Step(text, done, of)
            self._step.text, self._step.done = text, done
            if self._begun and not self._ended and not self._quiet:
                self._show()

    def announce(self, text: str) -> None:
        """Print a line that stays."""
        if self._quiet:
            return
        with self._lock:
            if self._bar is not None:
                self._bar.line(text)
            else:
                print(f"zerolm: {text}", file=sys.stderr, flush=True)

    def _begin(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._begun = True
            if self._is_terminal:
                self._bar = TerminalBar()
            if self._step.text:
                self._show()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.show(self._step)
        elif self._step.is_due():
            print(f"zerolm: {self._step.line()}", file=sys.stderr, flush=True)


class Step:
    """One step: its text, how far it is, and when it began."""

    def __init__(self, text: str, done: int, of: int) -> None:
        self.text, self.done, self.of = text, done, of
        self._first, self._start = done, time.monotonic()
        self._said, self._told = -math.inf, ""

    def goes_on(self, text: str, done: int, of: int) -> bool:
        """Return whether this is the same step, further on; the text of one that is counted may change."""
        return of == self.of and done >= self.done and (of > 0 or text == self.text)

    def is_due(self) -> bool:
        """Return whether a line is due: for other words at once, and else, as for figures behind a comma, now
        and then."""
        now, words = time.monotonic(), self.text.partition(",")[0]
        if words == self._told and (self.done >= self.of or now - self._said < PAUSE):
            return False
        self._said, self._told = now, words
        return True

    def log(self) -> None:
        """Log that the step is over, and how long it took."""
        if self.text:
            logger.info("%s took %.2f s", self.text, time.monotonic() - self._start)

    def line(self) -> str:
        """Return the step as one line, with the remaining time where it can be estimated."""
        if not self.of:
            return f"{self.text} ..."
        share = f"{self.text}, {self.done / self.of:.0%}"
        gained = self.done - self._first
        if gained <= 0 or self.done >= self.of:
            return f"{share} ..."
        left = (time.monotonic() - self._start) / gained * (self.of - self.done)
        return f"{share}, about {about(left)} left ..."


class TerminalBar:
    """The bar of ``rich``: a spinner where the duration of a step is unknown."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
        )
        self._task: TaskID | None = None
        self._step: Step | None = None
        self._progress.start()

    def show(self, step: Step) -> None:
        """Show a step, which takes the place of the one before."""
        if step is not self._step or self._task is None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._step = step
            self._task = self._progress.add_task("", total=None, completed=step.done)
        total = step.of or None
        self._progress.update(self._task, description=_plain(step.text), completed=step.done, total=total)

    def line(self, text: str) -> None:
        """Print a line above the bar, which stays."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text[:1].upper() + text[1:])


class OneLine(logging.Handler):
    """Prints every record as one line on what stderr is now: a bar may have taken its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = " ".join(record.getMessage().split())
            place = record.name.removeprefix("zerolm.")
            print(f"zerolm: {record.relativeCreated / 1000:.2f} s, {place}: {text}", file=sys.stderr)
        except Exception:
            self.handleError(record)


@contextmanager
def logged(verbosity: int) -> Iterator[None]:
    """Within, show what the package logs: nothing, what it does (1), or each thing that it looks at (2)."""
    logger, handler = logging.getLogger("zerolm"), OneLine()
    before = logger.level
    if verbosity:
        logger.addHandler(handler)
        logger.setLevel(LEVELS[min(verbosity, 2)])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
