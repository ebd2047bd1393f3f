"""What the hub is asked, and that nobody waits long for it."""

import threading
from typing import Any

import pytest
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

from zerolm.io import hub
from zerolm.io.hub import UNREACHED, hub_problem


def failing(error: Exception) -> Any:
    def ask(api: Any) -> None:
        raise error

    return ask


def test_an_answer_is_no_problem() -> None:
    assert hub_problem(lambda api: api.endpoint) == ""


def test_problems_are_one_sentence() -> None:
    absent = RepositoryNotFoundError.__new__(RepositoryNotFoundError)  # its response takes a connection
    assert "nothing of this name that you may read" in hub_problem(failing(absent))
    assert hub_problem(failing(HFValidationError("Repo id must ..."))) == "the hub has no such names"
    assert hub_problem(failing(OSError("Name or service not known"))) == UNREACHED


def test_a_question_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PATIENCE", 0.01)
    over = threading.Event()
    try:
        assert hub_problem(lambda api: over.wait()) == UNREACHED
    finally:
        over.set()
