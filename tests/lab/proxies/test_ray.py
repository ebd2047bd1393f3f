"""A real Ray cluster of two nodes gives the table of one process, and is left as it was found."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zerolm.lab.zero_cost.job import Work, run
from zerolm.lab.zero_cost.store import Evaluation, Key, Store

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own
Asked = tuple[Key, ...]
NETWORKS = range(5)  # two rounds of two, and one


def keys(number: int) -> Asked:
    return tuple(Key(f"net {number}", proxy, "{}", "1") for proxy in ("snip", "synflow"))


def evaluated(failing: int = -1, log: Path | None = None) -> Work[int]:
    """Work that leaves its node in a file of the item's name; nested, for workers cannot import tests."""

    def work(number: int, lacking: Asked) -> list[Evaluation]:
        if number == failing:
            raise ValueError("too wide")
        if log is not None:
            (log / str(number)).write_text(ray.get_runtime_context().get_node_id())
        return [Evaluation(key, (math.sqrt(number), -0.0), len(key.proxy) / 3) for key in lacking]

    return work


def started_with(home: str) -> list[str]:
    """The processes of this home folder, but for joblib's own, which stays with this one."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOME={home}\0".encode() in environment.read_bytes():
                found.append((environment.parent / "cmdline").read_text())
        except OSError:  # it has ended, or is another's
            continue
    return [line for line in found if "joblib" not in line]


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
    """Two nodes with one CPU each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": home, "object_store_memory": 2**27}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=2**27)
        assert started_with(home)
        yield cluster
    finally:
        cluster.shutdown()


def test_where_there_is_no_cluster_one_is_started_and_ended(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")  # also where this machine has one
    with Store() as here, Store() as there:
        table = run([1, 2], evaluated(), here, keys)
        assert run([1, 2], evaluated(log=tmp_path), there, keys, backend="ray") == table
    assert not ray.is_initialized()
    check_ended(home)
    assert len({each.read_text() for each in tmp_path.iterdir()}) == 1


def test_two_nodes_give_the_table_of_one_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a connection of their own; one that is there is used, and stays."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    log = tmp_path / "log"
    log.mkdir()
    with Store() as here, Store(tmp_path / "s") as there:
        table = run(NETWORKS, evaluated(), here, keys)
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            with pytest.raises(ValueError, match=r"^3: too wide$"):
                run(NETWORKS, evaluated(failing=3), there, keys, backend="ray")
            assert ray.is_initialized()
        finally:
            ray.shutdown()
        kept = there.get(table)
        assert kept == {key: table[key] for number in (0, 1, 2) for key in keys(number)}  # the whole round
        for _ in range(2):  # the second finds all of it
            found = run(NETWORKS, evaluated(log=log), there, keys, backend="ray")
            assert repr(list(found.items())) == repr(list(table.items()))
            assert not ray.is_initialized()
    assert sorted(each.name for each in log.iterdir()) == ["3", "4"]
    nodes = {each.read_text() for each in log.iterdir()}
    assert nodes == {node.node_id for node in cluster.list_all_nodes()}
    assert len(nodes) == 2
