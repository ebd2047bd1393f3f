"""The command line as a process of its own: signals, closed streams, the exit status.

It is imported first, and imports nothing but what Python has in itself, so that Ctrl-C is answered in one
line from then on: ``signal`` and ``threading`` would take some milliseconds.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import NoReturn, TextIO
else:
    import _signal

GRACE = 5.0
"""Seconds within which an interrupted command cleans up; then it is ended."""
AGAIN = 0.02
"""Seconds after which an interruption comes again that came where nothing can be raised."""


def _is_torch_starting() -> bool:
    """Return whether torch is being imported: an exception in what its C++ calls aborts the process."""
    module = sys.modules.get("torch")
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class Interruptions:
    """Answers signals: the first raises ``KeyboardInterrupt``, so that everything cleans up after itself."""

    def __init__(self) -> None:
        self.signal = 0
        """The number of the signal that came, 0 where none did."""

    def install(self) -> None:
        """Let the signals that end a process come here."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(_signal, name, None)
            if number is not None and _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, self._came)
        sys.unraisablehook = self._swallowed

    def _came(self, number: int, frame: object) -> None:
        if self.signal:  # it is cleaning up
            return
        self.signal = number
        if _is_torch_starting():
            _thread.start_new_thread(self._again, ())
            return
        _thread.start_new_thread(self._wait, ())
        raise KeyboardInterrupt

    def _wait(self) -> None:
        time.sleep(GRACE)
        self.end()

    def _swallowed(self, error: sys.UnraisableHookArgs) -> None:
        """Let an interruption come again that came where nothing can be raised, as in ``__del__``."""
        if self.signal:
            if error.exc_type is KeyboardInterrupt:
                _thread.start_new_thread(self._again, ())
        else:
            sys.__unraisablehook__(error)

    def _again(self) -> None:
        time.sleep(AGAIN)
        number, self.signal = self.signal, 0
        _thread.interrupt_main(number)  # type: ignore[arg-type]

    def end(self) -> NoReturn:
        """End the process at once: nothing that is left of it is worth a wait, or a traceback."""
        number = self.signal or _signal.SIGINT
        end = "interrupted" if number == _signal.SIGINT else "terminated"
        try:
            if sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h\r\x1b[2K")  # a bar has hidden the cursor
            sys.stderr.write(f"zerolm: {end}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass
        os._exit(128 + number)


interruptions = Interruptions()
"""Those of this process; none come where ``zerolm`` is a guest in another program."""


def owned(run: Callable[[list[str]], int]) -> int:
    """Return the status of the command that this process was started for."""
    interruptions.install()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the user
            setattr(sys, name, nowhere())
    try:
        status = flushed(run(sys.argv[1:]))
    except BaseException as error:  # Python turns some interruptions into other errors
        if interruptions.signal or isinstance(error, KeyboardInterrupt):
            interruptions.end()
        raise
    if interruptions.signal:
        interruptions.end()
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # all is done, and Python's end is not to be cut short
    return status


def nowhere() -> TextIO:
    """Return a stream that forgets what is written to it."""
    return open(os.devnull, "w", encoding="utf-8")


def flushed(status: int) -> int:
    """Return the status when all output is written: a closed pipe is ignored, a full disk is reported."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = nowhere()
    except OSError as error:
        sys.stdout = nowhere()
        sys.stderr.write(f"zerolm: the output cannot be written: {error.strerror}\n")
        return 2
    return status
