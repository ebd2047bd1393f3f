"""Questions to the hub that are answered in seconds, or given up."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any, Final

PATIENCE: Final = 5.0
"""Seconds that the hub may take to answer; its client would try for a minute."""
UNREACHED: Final = "the hub cannot be reached"


def hub_problem(ask: Callable[[Any], object]) -> str:
    """Return why a question to the hub (``ask(HfApi())``) has no answer; empty where it has one.

    A thread asks, for looking up the name of a host knows no limit of time.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    problems: list[str] = []

    def answer() -> None:
        try:
            ask(HfApi())
            problems.append("")
        except RepositoryNotFoundError:
            problems.append("the hub has nothing of this name that you may read (hf auth login for your own)")
        except HFValidationError:
            problems.append("the hub has no such names")
        except Exception:  # the client raises those of the HTTP library beneath it, too
            problems.append(UNREACHED)

    thread = Thread(target=answer, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return problems[0] if problems else UNREACHED
