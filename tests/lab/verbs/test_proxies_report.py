"""``zerolm.lab.proxies``: proxies of a space, a benchmark and a model, saved, loaded and repeated."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from repeated import check_report
from small_benchmarks import llamas
from tiny import saved

import zerolm as package
from zerolm.lab.verbs.proxies import ProxiesSettings
from zerolm.lab.verbs.proxies_report import ProxiesReport
from zerolm.lab.zero_cost.result import Mode, Upstream
from zerolm.lab.zero_cost.settings import Settings
from zerolm.networks.workers import Backend

FEW: dict[str, Any] = {"batch": 16, "length": 8, "micro_batches": 4, "proxies": "snip, synflow,params"}


@pytest.fixture(autouse=True)
def without_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROLM_DATA", raising=False)


@pytest.mark.parametrize("target", ["llama", "mine.csv", "model"])
def test_it_saves_loads_and_repeats(target: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    llamas(Path("mine.csv"), 24)
    saved(Path("model"), "llama")
    more: dict[str, Any] = {"count": 3, "max_params": "60M"} if target == "llama" else {}
    if target == "llama":
        more["proxies"] = ["params", "zerolm_weights"]
    given = Path(target) if target == "model" else target
    report = package.lab.proxies(given, **(FEW | more), store="store.jsonl")
    assert Path("store.jsonl").is_file()
    check_report(report, zerolm, tmp_path / "out", ("title", "networks"))
    count = {"llama": 3, "mine.csv": 24, "model": 1}[target]
    rows = report.rows()
    assert len(rows) == count
    assert set(rows[0]) >= {"network", "params"}
    assert ("result" in rows[0]) == (target == "mine.csv")


def test_a_folder_of_the_command_is_read_without_torch(zerolm: Callable[..., Any]) -> None:
    llamas(Path("mine.csv"), 24)
    flags = ("--batch", "16", "--length", "8", "--micro-batches", "4", "--proxies", "snip,synflow")
    assert zerolm("lab", "proxies", "mine.csv", *flags, "--out", "out", "--json").document == json.loads(
        Path("out/result.json").read_text()
    )
    code = """import sys
sys.modules["torch"] = None
import zerolm
report = zerolm.load("out")
print(len(report.rows()), report.section.title, len(report.page()) > 1000)
report.save("again")
for verb in (lambda: zerolm.lab.proxies("mine.csv"), zerolm.lab.proxies.ls):
    try:
        verb()
    except ModuleNotFoundError as error:
        print(error)"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *lines = told.stdout.splitlines()
    assert first == "24 mine True"
    assert len(lines) == 2
    assert all(line.endswith("pip install 'zerolm[torch]'") for line in lines), lines
    for file in Path("out").iterdir():
        assert Path("again", file.name).read_bytes() == file.read_bytes(), file.name


def test_the_declaration_names_what_the_passes_take() -> None:
    """The declaration is read without torch."""
    settings = {setting.name: setting for setting in ProxiesSettings.settings()}
    assert settings["mode"].choices == get_args(Mode)
    assert settings["upstream"].choices == get_args(Upstream)
    assert settings["backend"].choices == get_args(Backend)
    usual = Settings()
    named = {name: getattr(usual, name) for name in ("mode", "upstream", "batch", "length", "seed", "device")}
    assert {name: settings[name].default for name in named} == named
    assert settings["micro_batches"].default == usual.parts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"networks": []}, "is not of its 0 networks"),
        ({"networks": ["one"] * 4}, "is not of its 4 networks"),
        ({"params": [1.0]}, "is not of its 3 networks"),
        ({"proxies": {"params": [1.0, 2.0]}}, "is not of its 3 networks"),
        ({"seconds": {}}, "the time of a proxy is missing"),
        ({"settings": {}}, "settings"),
        ({"values": {"params": [["x"]]}}, "values.params.0.0"),
    ],
)
def test_an_edited_result_is_refused(change: dict[str, Any], words: str) -> None:
    llamas(Path("mine.csv"), 3)
    document = package.lab.proxies("mine.csv", **(FEW | {"proxies": "params"})).to_json()
    assert ProxiesReport.from_json(document).to_json() == document
    with pytest.raises(ValueError, match=words) as caught:
        ProxiesReport.from_json(document | change)
    assert "\n" not in str(caught.value)
