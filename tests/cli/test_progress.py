"""Progress: silent for quick commands, lines in a pipe, a bar with the remaining time on a terminal."""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.cli import progress
from zerolm.cli.progress import Step, Steps
from zerolm.progress import about


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, to be set."""
    now = [0.0]
    monkeypatch.setattr(progress, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    return now


def waited(steps: Steps) -> None:
    steps._timer.join(10.0)


def test_quiet_ones_always(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(quiet=True, patience=0.0) as steps:
        steps("counting")
        time.sleep(0.05)
        steps("writing")
    assert capsys.readouterr() == ("", "")


def test_a_line_a_step_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(patience=0.0) as steps:
        waited(steps)
        steps("reading")
        steps("reading")
        for done in range(100):
            steps("counting", done, 100)
        steps("scoring a", 0, 2)
        steps("scoring b", 1, 2)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert [line.split(",")[0] for line in lines] == [
        "zerolm: reading ...", "zerolm: counting", "zerolm: scoring a", "zerolm: scoring b"
    ]  # fmt: skip


def test_what_came_before_the_patience_ended_is_said_then(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(patience=0.05) as steps:
        steps("searching")
        waited(steps)
    assert capsys.readouterr().err == "zerolm: searching ...\n"


def test_lines_on_one_step_keep_their_distance(clock: list[float]) -> None:
    step = Step("counting", 0, 1000)
    said = []
    for second in range(60):
        clock[0], step.done = float(second), second
        said += [second] if step.is_due() else []
    assert said == list(range(0, 60, int(progress.PAUSE)))


@given(st.integers(0, 50), st.integers(1, 50), st.integers(1, 50), st.floats(0.1, 1e5))
def test_the_remaining_time_is_at_this_rate(before: int, gained: int, left: int, seconds: float) -> None:
    """What was done before the run began says nothing of its speed."""
    now = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
        step = Step("counting", before, before + gained + left)
        now[0], step.done = seconds, before + gained
        match = re.fullmatch(r"counting, (\d+)%, about (\d+ \w+) left \.\.\.", step.line())
    assert match[2] == about(seconds / gained * left)
    assert abs(int(match[1]) - 100 * step.done / step.of) <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (89.0, "89 s"), (90.0, "2 min"), (5399.0, "90 min"), (5400.0, "2 h")]
)
def test_durations(seconds: float, said: str) -> None:
    assert about(seconds) == said


def test_without_a_rate_no_time_is_told() -> None:
    assert Step("counting", 3, 9).line() == "counting, 33% ..."
    assert Step("reading", 0, 0).line() == "reading ..."


CODE = """
import sys, time
from zerolm.cli.progress import Steps
with Steps(patience=0.0) as steps:
    for done in range(10):
        steps("counting [bold]things", done, 10)
        time.sleep(0.1)
    sys.stdout.write("42")
print("done", file=sys.stderr)
"""


def test_a_bar_on_a_terminal_that_goes_away() -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE], stderr=end, stdout=subprocess.PIPE, env=os.environ | {"COLUMNS": "80"}
    )
    os.close(end)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    assert process.communicate()[0] == b"42"
    text = shown.decode()
    assert "Counting [bold]things" in text  # no markup
    assert re.search(r"\d+%", text)
    assert re.search(r"0:00:0\d", text)
    after = text[text.rindex("\x1b[?25h") :]  # the cursor is back, the line is cleared
    assert "\x1b[2K" in after
    assert "Counting" not in after
    assert "done" in after


def test_python_callers_hear_of_it_only_if_they_ask(capsys: pytest.CaptureFixture[str]) -> None:
    import zerolm

    told: list[tuple[Any, ...]] = []
    hear: Callable[..., None] = lambda *step: told.append(step)  # noqa: E731
    zerolm.search("bert", hidden=128, depth=2, progress=hear)
    assert all(isinstance(step[0], str) for step in told)
    assert len(told) > 2
    zerolm.search("bert", hidden=128, depth=2)
    assert capsys.readouterr() == ("", "")
