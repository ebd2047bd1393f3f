"""What all tests share: how many examples properties get, published results, the command in this process."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from covering import ASKED
from hypothesis import HealthCheck, settings

from zerolm.cli import main
from zerolm.groundtruth.reader import same_folders
from zerolm.planning.size_spaces import SIZE_SPACES
from zerolm.spaces import SPACES
from zerolm.verbs.plugins import PLUGINS

for registry in (SPACES, SIZE_SPACES, PLUGINS):
    registry.load_plugins()  # else a test that puts a registry back would lose those that it loaded

if "ZEROLM_DATA" in os.environ:  # it may be relative to here, and many a test goes elsewhere
    os.environ["ZEROLM_DATA"] = same_folders(os.environ["ZEROLM_DATA"])

os.environ.setdefault("OMP_NUM_THREADS", "1")  # on tiny matrices several threads would wait for each other

settings.register_profile(
    "zerolm", deadline=None, derandomize=True, max_examples=15, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile(
    "nightly", settings.get_profile("zerolm"), derandomize=False, max_examples=600, print_blob=True
)
settings.load_profile("zerolm")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell without job control starts what is in the background so, and every child would inherit it: tests
    # that interrupt a command would wait for one that is deaf.
    signal.signal(signal.SIGINT, signal.default_int_handler)


CORE: Final = {
    *("calibration", "families", "scores", "solvers", "spaces", "statistics"),
    "test_costs.py",
}
"""Folders and files whose coverage is measured: to trace other tests takes half their time again."""
SLOW: Final = {
    *("carving", "encoders", "healing", "training", "lab", "report", "examples"),
    *("networks", "doctor"),
    *("test_documentation.py", "test_llama_small.py", "test_train_models.py", "test_elastic.py"),
    *("test_wrong_commands.py", "test_wrong_input.py", "test_bench_train.py", "test_proxies.py"),
    *("test_carve.py", "test_evaluate.py", "test_ablate.py", "test_bench.py", "test_plugin_package.py"),
}
"""Folders and files whose tests train networks, start processes or run whole commands."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-families", action="store_true", help="run on every family, not on a covering few")


def pytest_configure(config: pytest.Config) -> None:
    ASKED.all = config.getoption("--all-families")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, without which the inner loop runs, and those that are not traced."""
    for item in items:
        parts = item.path.relative_to(Path(__file__).parent).parts
        if SLOW & {*parts}:
            item.add_marker("slow")
        if parts[0] not in CORE:
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """Exempt what imports made from garbage collection, which takes longer than a small training."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed torch: a test's networks depend neither on the tests before it nor on the worker that runs it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What fixtures of whole modules measure is kept in a cache of the run, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLM_CACHE", str(tmp_path_factory.getbasetemp() / "session_cache"))
        yield


TESTS = count()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a cache of its own, which is made when something is kept."""
    folder = tmp_path_factory.getbasetemp() / "caches" / str(next(TESTS))
    monkeypatch.setenv("ZEROLM_CACHE", str(folder))
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a test, in which it stands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``doctor`` opens is opened in this process: another takes seconds, and these files do no harm."""
    from zerolm.diagnosis import examine, opening

    monkeypatch.setattr(examine, "attempt", opening.opened)


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

    @property
    def document(self) -> Any:
        """The JSON that it printed; it must have succeeded."""
        assert self.status == 0, self.err
        return json.loads(self.out)

    def refused(self, *words: str) -> None:
        """Check that it ended with status 2 and one line, beside those of progress, which has these words."""
        lines = [line for line in self.err.splitlines() if not line.endswith(" ...")]
        assert (self.status, self.out, len(lines)) == (2, "", 1), (self.out, self.err)
        for word in words:
            assert word in self.err


@pytest.fixture
def zerolm(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line with these arguments."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        status = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts a file system of a given number of 4 KiB pages, where that is allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mounted(pages: int) -> Path:
        settings = ["mount", "-t", "tmpfs", "-o", f"size={pages * 4}k", "tmpfs", str(disk)]
        if not shutil.which("mount") or subprocess.run(settings, capture_output=True).returncode:
            pytest.skip("no small file system can be mounted here")
        return disk

    yield mounted
    if os.path.ismount(disk):
        subprocess.run(["umount", str(disk)], check=True)
