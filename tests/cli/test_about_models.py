"""``zerolm doctor``, ``ledger`` and ``families``: what they show, and devices that are not here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import call, make_place
from covering import chosen
from refusals import Zerolm
from repeated import check_report
from tiny import saved

import zerolm as package
from zerolm.diagnosis.runtimes import RUNTIMES
from zerolm.families.known import FOLDER, families
from zerolm.networks.compute import devices
from zerolm.units.energies import strongest_share
from zerolm.verbs import commands
from zerolm.verbs.ledger_report import LedgerReport


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "ledgers"


def test_the_table_has_a_line_for_each_layer(zerolm: Zerolm, tmp_path: Path, cache: Path) -> None:
    ran = zerolm("ledger", str(saved(tmp_path / "model", "bert")))
    assert ran.status == 0
    lines = ran.out.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("layer "))
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == ["0", "1", "2", "all"]
    assert "one pass over the files" in ran.out
    assert str(cache) in lines[-1]


@pytest.mark.parametrize("shard", ["1GB", "20KB"])
def test_the_second_time_the_pass_is_kept(shard: str, tmp_path: Path) -> None:
    steps: list[tuple[Any, ...]] = []
    model = saved(tmp_path / "model", "llama", shard=shard)
    first = package.ledger(model, progress=lambda *step: steps.append(step))
    assert (first.from_cache, steps[-1]) == (False, (steps[0][0], first.bytes, first.bytes))
    assert package.ledger(model).from_cache


def test_no_energy_has_no_share() -> None:
    assert strongest_share(np.zeros(4), 2) is None
    assert strongest_share(np.array([1.0, 3.0]), 1) == 0.75


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_ledger_saves_loads_and_repeats(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    report = package.ledger(saved(tmp_path / "model", name))
    assert report.heading().lead == str(tmp_path / "model")
    assert repr(report).startswith(f"{name} of 3 layers")
    check_report(report, zerolm, tmp_path / "out", ("seconds", "from_cache"))
    document = report.to_json()
    del document["layers"][1]["ffn"]["strongest_half"]
    with pytest.raises(ValueError, match=r"layers.*strongest_half"):
        LedgerReport.from_json(document)
    rows, total = report.rows(), report.total
    assert [row["layer"] for row in rows] == [0, 1, 2]
    sums = [sum(row[f"{part}_energy"] for row in rows) for part in ("attention", "ffn")]
    assert sums == pytest.approx([total.attention.energy, total.ffn.energy])


def test_the_list_says_what_can_be_cut_of_each(zerolm: Zerolm) -> None:
    rows = {row["name"]: row for row in zerolm("families", "--json").document}
    assert list(rows) == list(families())
    assert rows["llama"]["cuts"] == ["layers", "heads", "ffn", "hidden"]
    assert rows["llama"]["gguf"] is True
    assert (rows["llama"]["hidden_note"], rows["bert"]["cuts"]) == ("", ["layers", "ffn"])
    assert "derives the head size" in rows["bert"]["note"]
    assert "norms act on the residual stream itself" in rows["bert"]["hidden_note"]
    assert (rows["vit"]["cuts"], rows["vit"]["counted"]) == ([], False)
    (line,) = (line for line in zerolm("families").out.splitlines() if line.startswith("stablelm "))
    assert line.split()[:6] == ["stablelm", "yes", "-", "yes", "-", "-"]


@pytest.mark.parametrize("name", chosen(families()))
def test_one_family_shows_all_that_its_document_says(name: str, zerolm: Zerolm) -> None:
    family, shown = families()[name], zerolm("families", name, "--json").document
    patterns = (*family.tensors.body, *family.tensors.head)
    assert [(row["name"], row["role"], tuple(row["axes"])) for row in shown["tensors"]] == [
        (pattern.name, pattern.role, pattern.axes) for pattern in patterns
    ]
    assert shown["config"]["sizes"].keys() == family.config.sizes.keys()
    assert shown["runtimes"].keys() == RUNTIMES.keys()
    for runtime, listed in shown["runtimes"].items():
        assert listed["lists"] == RUNTIMES[runtime].of_family(family)
        assert listed["version"] == RUNTIMES[runtime].source.version
    ran = zerolm("families", name)
    assert ran.status == 0
    fields = [size.field for size in family.config.sizes.values() if size.field]
    for word in (*fields, *family.config.flags, *family.config.only, *RUNTIMES, *family.head_classes):
        assert word in ran.out
    reasons = {kind: family.cut.note for kind in ("layers", "heads", "ffn")} | {
        "hidden": family.cut.hidden_note if family.tensors.body else family.cut.note
    }
    for kind, reason in reasons.items():
        assert f"{kind}: {'yes' if getattr(family.cut, kind) else f'no: {reason}'}" in ran.out


def test_a_users_family_is_listed(zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"model_type": "mine", "like": "qwen3", "head_classes": ["Mine"]}
    (tmp_path / "mine.json").write_text(json.dumps(document))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert "\nmine " in zerolm("families").out
    assert "self_attn.q_norm.weight" in zerolm("families", "mine").out


def test_a_family_that_is_not_known_is_told(zerolm: Zerolm) -> None:
    zerolm("families", "qwen33").refused("zerolm: family 'qwen33' is not known; did you mean 'qwen3'?")


RUNNING = [n for n, verb in commands().items() if "device" in {one.name for one in verb.request.settings()}]
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
def test_absent_devices(name: str, place: Path, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
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
