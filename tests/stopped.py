"""A run that is stopped at a step of its progress."""

from collections.abc import Callable


class Stopped(Exception):
    """Raised where a run is stopped."""


def stopping_at(moment: int) -> Callable[..., None]:
    """Return a progress that stops the run at this step."""

    def stop(words: str, step: int = 0, of: int = 0) -> None:
        if step == moment:
            raise Stopped

    return stop
