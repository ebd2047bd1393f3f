"""What all tests share: reproducible hypothesis runs, published results, the command in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from zerolm.cli import main

settings.register_profile(
    "zerolm", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "random", settings.get_profile("zerolm"), derandomize=False, max_examples=600, print_blob=True
)
settings.load_profile("zerolm")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell without job control starts what is in the background so, and every child would inherit it: tests
    # that interrupt a command would wait for one that is deaf.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the seven older benchmarks; tests that need it are skipped where there is none."""
    return _folder_with("flexibert_glue.json")


@pytest.fixture(scope="session")
def decoders_folder() -> Path:
    """The folder with the Gemstones; tests that need it are skipped where there is none."""
    return _folder_with("gemstones.json")


def _folder_with(file: str) -> Path:
    for folder in os.environ.get("ZEROLM_DATA", "").split(os.pathsep):
        if folder and (Path(folder) / file).is_file():
            return Path(folder).resolve()
    pytest.skip(f"no folder of ZEROLM_DATA holds {file}")


@pytest.fixture(scope="session")
def models_folder() -> Path:
    """The folder with the trained models pydec and pyenc; tests that need them are skipped without."""
    folder = os.environ.get("ZEROLM_MODELS")
    if not folder:
        pytest.skip("ZEROLM_MODELS does not name a folder with trained models")
    return Path(folder).resolve()


@dataclass(frozen=True)
class Ran:
    """What a command returned and printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def zerolm(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line with these arguments."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        status = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run
