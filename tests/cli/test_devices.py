"""Devices that are not here are refused by every command in one line, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call, make_place
from refusals import Zerolm

from zerolm.networks.compute import devices
from zerolm.verbs import commands

RUNNING = [
    name for name, verb in commands().items() if "device" in {one.name for one in verb.request.settings()}
]
ABSENT = [name for name in ("cuda", "cuda:7", "npu") if name not in devices()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    make_place(folder)
    return folder


def test_they_are_those_that_run_networks() -> None:
    training = {"heal", "lab elastic train", "lab elastic export", "bench train"}
    assert set(RUNNING) == {"carve", "lab slice", "eval", "lab proxies", *training}
    assert ABSENT


@pytest.mark.parametrize("name", RUNNING)
def test_an_absent_device_is_refused(
    name: str, place: Path, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("ZEROLM_CACHE", str(place / "cache"))
    before = {path.name for path in place.iterdir()}
    more = ["--out", "out"] if "--out" not in call(name) else []
    for device in ABSENT:
        text = ["--text", "text.txt", "--length", "8"] if name == "carve" else []
        ran = zerolm(*call(name, *more, *text, "--device", device))
        words = f"zerolm: there is no device {device!r} here; possible are {', '.join(devices())}\n"
        assert (ran.status, ran.out, ran.err) == (2, "", words)
    assert {path.name for path in place.iterdir()} == before
