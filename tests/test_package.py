"""The package as users get it: an sdist with its tests, a wheel that runs on its own dependencies alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import zerolm

pytestmark = pytest.mark.built
ROOT = Path(__file__).parents[1]
NEWER = ("3.12", "3.13")
SDIST = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
LOCAL = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "demo", "site")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed, without the checkout on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


@dataclass(frozen=True)
class Built:
    """The sdist, the wheel that was built from it, and an environment with the wheel and what it requires."""

    folder: Path
    sdist: Path
    wheel: Path
    python: Path

    @property
    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(wheel.read(name).decode("utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("package")
    checkout = shutil.copytree(ROOT, folder / "checkout", ignore=LOCAL)
    run(sys.executable, "-c", SDIST, folder, cwd=checkout)
    (sdist,) = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    alone = ("--no-index", "--no-deps")
    run(*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", folder, sdist, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    link_requirements(site)
    python = environment / "bin" / "python"
    run(*pip, "--python", python, "install", *alone, wheel, cwd=folder)
    return Built(folder, sdist, wheel, python)


def requirements(name: str, known: set[str]) -> set[str]:
    """Return a distribution and all that it requires here without extras, by their plain names."""
    packaging = pytest.importorskip("packaging.requirements")
    if name in known:
        return known
    known.add(name)
    for text in distribution(name).requires or ():
        requirement = packaging.Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirements(re.sub(r"[-_.]+", "-", requirement.name).lower(), known)
    return known


def link_requirements(site: Path) -> None:
    """Put what zerolm requires, and nothing else that is installed here, into an empty environment."""
    for name in requirements("zerolm", set()) - {"zerolm"}:
        try:
            parts = distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
        for top in {file.parts[0] for file in parts.files or () if ".." not in file.parts}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(Path(str(parts.locate_file(top))))


def test_the_wheel_searches_on_its_own_requirements(built: Built) -> None:
    command = built.python.parent / "zerolm"
    where = run(built.python, "-c", "import zerolm; print(zerolm.__file__)", cwd=built.folder)
    assert Path(where.stdout.strip()).is_relative_to(built.folder / "environment")
    assert zerolm.__version__ in run(command, "--version", cwd=built.folder).stdout
    run(command, "search", "llama", "--max-params", "60M", "--out", "searched", cwd=built.folder)
    assert (built.folder / "searched" / "pick" / "config.json").is_file()
    assert (built.folder / "searched" / "report.html").is_file()


@pytest.mark.parametrize("version", NEWER)
def test_the_wheel_runs_on_newer_pythons(version: str, built: Built) -> None:
    python = shutil.which(f"python{version}")
    imports = "import click, huggingface_hub, numpy, pydantic, rich, scipy, yaml"
    if not python or subprocess.run([python, "-c", imports], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version} with what zerolm requires")
    folder = built.folder / f"python{version}"
    with zipfile.ZipFile(built.wheel) as wheel:
        wheel.extractall(folder)
    assert zerolm.__version__ in run(python, "-m", "zerolm", "--version", cwd=folder).stdout
    assert "pick" in run(python, "-m", "zerolm", "search", "llama", "--max-params", "60M", cwd=folder).stdout


def test_the_metadata_say_what_people_look_for(built: Built) -> None:
    metadata = built.metadata
    assert (metadata["Author"], metadata["License-Expression"]) == ("the zerolm authors", "Apache-2.0")
    assert metadata["Requires-Python"] == ">=3.11"
    assert not metadata.get_all("Project-URL")
    classifiers = metadata.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)
    extras = set(metadata.get_all("Provides-Extra") or ())
    assert {"all", "dev", "docs", "test", "torch"} <= extras
    optional = extras - {"all", "dev", "docs", "test"}
    (everything,) = (
        line
        for line in metadata.get_all("Requires-Dist") or ()
        if line.startswith("zerolm[") and "'all'" in line.replace('"', "'")
    )
    assert set(everything[len("zerolm[") : everything.index("]")].split(",")) == optional


def test_the_sdist_holds_its_tests_and_they_run_there(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        sdist.extractall(built.folder / "unpacked", filter="data")
    (folder,) = (built.folder / "unpacked").iterdir()
    names = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    for name in ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "SECURITY.md"):
        assert name in names
    assert {"mkdocs.yml", "docs/index.md", "benchmarks/leaderboard.md", "constraints.txt"} <= names
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("*.py")} <= names
    ran = run(
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/scores/test_registry.py", cwd=folder
    )
    assert "passed" in ran.stdout
