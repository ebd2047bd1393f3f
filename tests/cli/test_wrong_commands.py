"""Wrong commands, generated from what the commands declare, and commands that are cut off.

No traceback, the right status, nothing half written. By default a sample; ``ZEROLM_WRONG=all`` tries every
wrong call, ``ZEROLM_INTERRUPTS=N`` interrupts each command N times.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from commands import SOUND, all_wrong_calls, call, make_place
from refusals import Zerolm

from zerolm.verbs import commands

SAMPLE = 10**6 if os.environ.get("ZEROLM_WRONG") == "all" else 15
INTERRUPTS = int(os.environ.get("ZEROLM_INTERRUPTS", "1"))
NOBODY = 65534
LONGEST = 120.0
"""Seconds for a command on a busy machine."""


@pytest.fixture(scope="module")
def filled() -> Iterator[Path]:
    """A folder that all may enter, with everything that the commands are called with."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        make_place(folder)
        yield folder


@pytest.fixture
def place(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(filled)
    monkeypatch.setenv("ZEROLM_CACHE", str(filled / "cache"))
    monkeypatch.setenv("ZEROLM_MIRROR", "http://127.0.0.1:9")  # nobody answers
    monkeypatch.delenv("ZEROLM_DATA", raising=False)
    return filled


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"cache"}


def check_refused(zerolm: Zerolm, place: Path, arguments: list[str]) -> None:
    before = contents(place)
    ran = zerolm(*arguments)
    said = [text[:80] for text in arguments]
    assert (ran.status, ran.out) == (2, ""), said
    assert ran.err.startswith("zerolm: "), said
    assert ran.err.count("\n") == 1, said
    assert len(ran.err) < 5000, said
    assert contents(place) == before, said


@pytest.mark.parametrize("name", commands())
def test_wrong_values_are_one_line(name: str, zerolm: Zerolm, place: Path) -> None:
    calls = all_wrong_calls()[name]
    for arguments in random.Random(name).sample(calls, min(SAMPLE, len(calls))):
        check_refused(zerolm, place, arguments)


def test_hundreds_are_generated() -> None:
    calls = all_wrong_calls()
    assert sum(map(len, calls.values())) >= 300
    assert calls.keys() == commands().keys()


@pytest.mark.parametrize("name", ["search", "score", "calibrate", "eval"])
def test_paths_that_this_user_may_not_read(name: str, zerolm: Zerolm, place: Path) -> None:
    closed = [words for words in all_wrong_calls()[name] if words[-1].endswith(("closed", "=closed"))]
    assert closed
    for arguments in closed:
        check_refused(zerolm, place, arguments)  # imports what it needs, as who may
        user = os.geteuid()
        if user == 0:  # nothing is closed to root
            os.seteuid(NOBODY)
        try:
            check_refused(zerolm, place, arguments)
        finally:
            os.seteuid(user)


def started(arguments: list[str], **more: Any) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
    return subprocess.Popen([sys.executable, "-m", "zerolm", *arguments], start_new_session=True, **streams)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_nobody_reads(arguments: list[str], place: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    process = started(arguments, stdout=write)
    os.close(write)
    assert (process.communicate(timeout=LONGEST)[1], process.returncode) == ("", 0)
    line = f"'{sys.executable}' -m zerolm {' '.join(arguments)}"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        ran = subprocess.run(f"{line} {closed}", shell=True, capture_output=True, text=True, timeout=LONGEST)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_message_never_goes_to_stdout(place: Path) -> None:
    line = f"'{sys.executable}' -m zerolm serch 2>&-"
    ran = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=LONGEST)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_a_full_disk_is_told(place: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    with open("/dev/full", "w") as full:
        process = started(["spaces"], stdout=full)
        said = process.communicate(timeout=LONGEST)[1]
    assert process.returncode == 2
    assert said.startswith("zerolm: ")
    assert said.count("\n") == 1


def wait_until_it_listens(process: subprocess.Popen[str]) -> None:
    """Wait until the process answers signals itself: while Python starts, no program can."""
    status, deadline = Path(f"/proc/{process.pid}/status"), time.monotonic() + LONGEST
    while time.monotonic() < deadline and process.poll() is None:
        caught = next((line for line in status.read_text().splitlines() if line.startswith("SigCgt")), "")
        if caught and int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.001)


def has_out(name: str) -> bool:
    request = commands()[name].request
    return any(setting.name == "out" for setting in (*request.settings(), *request.output()))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see what is caught")
@pytest.mark.parametrize("name", [name for name in commands() if has_out(name)])
def test_interrupted_in_run(name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(name)
    for number in range(INTERRUPTS):
        monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / f"cache-{number % 2}"))  # some find theirs filled
        folder = tmp_path / str(number)
        folder.mkdir()
        process = started(call(name, "--out", str(folder / "out")))
        which = signal.SIGTERM if number % 4 == 3 else signal.SIGINT
        wait_until_it_listens(process)
        time.sleep(generator.choice((0.05, 0.3, 1.0, 3.0)) * generator.random())
        with suppress(ProcessLookupError):
            os.killpg(process.pid, which)
        err = process.communicate(timeout=LONGEST)[1]
        left = contents(folder)
        assert "Traceback" not in err, err
        if process.returncode in (0, -signal.SIGTERM):  # all was done, and Python perhaps on its way out
            assert left == {"out"}
            continue
        said = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[which]
        assert (process.returncode, err.splitlines()[-1:]) == (128 + which, [f"zerolm: {said}"])
        assert left <= {"out"}  # which came when it was complete
        assert not left or (folder / "out" / "run.yaml").is_file()
        shutil.rmtree(folder)


def test_torch_starts_before_interrupts(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its C++ calls Python, and an exception that comes there aborts the process."""
    body = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nopen('started', 'w').close()\n"
    (tmp_path / "torch.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = started(call("lab proxies ls"))
    err = process.communicate(timeout=LONGEST)[1]
    assert (process.returncode, err) == (130, "zerolm: interrupted\n")
    (place / "started").unlink()


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_sound_call(name: str, zerolm: Zerolm, place: Path, tmp_path: Path) -> None:
    """Else its wrong calls would be wrong for another reason."""
    assert SOUND.keys() <= commands().keys()
    arguments = call(name)
    if "--out" in arguments:
        arguments += ["--out", str(tmp_path / "out")]
    ran = zerolm(*arguments)
    assert ran.status == 0, ran.err
