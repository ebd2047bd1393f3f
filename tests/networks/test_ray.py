"""A real Ray cluster of two nodes gives what one process gives, and is left as it was found."""

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from zerolm.networks.workers import finished

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own


def work(failing: int = -1, log: Path | None = None) -> Callable[[int], float]:
    def root(number: int) -> float:
        if number == failing:
            raise ValueError("too wide")
        if log is not None:
            (log / str(number)).write_text(ray.get_runtime_context().get_node_id())
        return math.sqrt(number)

    return root


def started_with(home: str) -> list[str]:
    lines = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another's
            if f"HOME={home}\0".encode() in environment.read_bytes():
                lines.append((environment.parent / "cmdline").read_text())
    return [line for line in lines if "joblib" not in line]


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    """A folder for all that Ray writes; in the end none of its processes is left."""
    folder = tempfile.mkdtemp(prefix="ray-")  # pytest's own have names too long for sockets
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", folder)
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield folder
    check_ended(folder)
    shutil.rmtree(folder)


def check_ended(home: str) -> None:
    deadline = time.monotonic() + 180  # a busy machine takes its time to end them
    while left := started_with(home):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(home: str) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": home, "object_store_memory": 2**27}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=2**27)
        assert started_with(home)
        yield cluster
    finally:
        cluster.shutdown()


def test_without_a_cluster_one_is_started(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")  # also where this machine has one
    assert dict(finished([1, 2], work(log=tmp_path), backend="ray")) == {0: 1.0, 1: math.sqrt(2)}
    assert not ray.is_initialized()
    check_ended(home)
    assert len({each.read_text() for each in tmp_path.iterdir()}) == 1


def test_two_nodes_work_in_rounds(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a connection of their own; one that is there is used, and stays."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    ray.init(address=cluster.address, log_to_driver=False)
    outcomes = []
    try:
        with pytest.raises(ValueError, match=r"^3: too wide$"):
            outcomes.extend(finished(range(5), work(failing=3), backend="ray"))
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert sorted(outcomes) == [(i, math.sqrt(i)) for i in range(3)]  # rounds of two, the whole round
    assert dict(finished([3, 4], work(log=tmp_path), backend="ray")) == {0: math.sqrt(3), 1: 2.0}
    assert not ray.is_initialized()
    nodes = {each.read_text() for each in tmp_path.iterdir()}
    assert nodes == {node.node_id for node in cluster.list_all_nodes()}
    assert len(nodes) == 2


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match=r"RAY_ADDRESS '127\.0\.0\.1:1'"):
        list(finished([1], work(), backend="ray"))
