"""``zerolm.carve``: the child's folder holds its report, and repeats the carving to the byte."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from carvings import carve as carve_alone
from refusals import Zerolm
from repeated import check_report
from tiny import saved, word_tokenizer

import zerolm as package
from zerolm.carving.experts.expert_scores import EXPERT_CRITERIA
from zerolm.carving.formats import FORMATS
from zerolm.carving.request import MethodRequest
from zerolm.costs import CostModel
from zerolm.lab.subnets.lonas import SPACES
from zerolm.planning.size_request import SizeRequest
from zerolm.repairing.rules import REPAIRS
from zerolm.settings.request import settings_of
from zerolm.units.importance.criteria import WEIGHTS_ONLY, WITH_TOKENS
from zerolm.verbs.carve import CarveSettings, CarvingReport

TOKENS: dict[str, Any] = {"text": "random", "sequences": 8, "length": 16}
BY_WEIGHTS: dict[str, Any] = {"criterion": "capacity"}
REPORT = {"report.html", "result.json", "run.yaml"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(Path("parent"), "llama")


def contents(folder: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.name not in REPORT}


CASES: dict[str, dict[str, Any]] = {
    "an amount": {"max_weight_bytes": "130kB", "multiple_of": 4, "bits": 16, **BY_WEIGHTS},
    "per layer": {
        "max_body_params": "0.6x", "shape": "per-layer", "format": "padded", **TOKENS
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_repeated_from_its_folder(case: str, zerolm: Zerolm) -> None:
    report = package.carve("parent", Path("child"), **CASES[case])
    assert report.verified
    assert CarvingReport.load("child").to_json() == report.to_json()
    assert CarvingReport.load("child").configuration == report.configuration
    flags = ("--config", "child/run.yaml", "--out", "again", "--json")
    ran = zerolm("carve", *flags)
    assert ran.status == 0, ran.err
    ours, theirs = contents("child"), contents("again")
    assert ours["model.safetensors"] == theirs["model.safetensors"]
    assert ours["config.json"] == theirs["config.json"]
    assert json.loads(ran.out) | {"parent": "parent"} == report.to_json()
    assert ran.err.splitlines()[-1] == "wrote again: the child, report.html, result.json, run.yaml"


@pytest.mark.usefixtures("opened_here")
def test_a_child_with_its_report_is_the_child_without() -> None:
    """In all but the list of its files; it opens, and doctor says so."""
    package.carve("parent", "child", keep_ffn=0.5, **BY_WEIGHTS)
    carve_alone("parent", "alone", keep_ffn=0.5)
    ours, theirs = contents("child"), contents("alone")
    recipes = [json.loads(files.pop("recipe.json")) for files in (ours, theirs)]
    assert ours == theirs
    assert set(recipes[0].pop("files")) - set(recipes[1].pop("files")) == REPORT
    assert recipes[0] == recipes[1]
    assert {file.name for file in Path("child").iterdir()} == {*ours, "recipe.json", *REPORT}
    _, info = transformers.AutoModelForCausalLM.from_pretrained("child", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert not info["missing_keys"]
    assert package.doctor("child").rows()[0]["verdict"] == "opens"
    grandchild = package.carve("child", "grandchild", keep_ffn=0.5, **BY_WEIGHTS)
    assert CarvingReport.load("grandchild").to_json() == grandchild.to_json()


def test_a_plan_alone_saves_loads_and_repeats(zerolm: Zerolm, tmp_path: Path) -> None:
    report = package.carve(str(tmp_path / "parent"), max_params="0.8x", shape="per-layer", **BY_WEIGHTS)
    assert report.verified is None
    check_report(report, zerolm, tmp_path / "out")
    assert {file.name for file in Path("out").iterdir()} == REPORT
    assert [list(row) for row in report.rows()] == [["layer", "heads", "kv_heads", "ffn"]] * 3


WIDTHS: dict[str, tuple[dict[str, Any], str]] = {
    "planned by losses": ({"max_params": "0.9x", **TOKENS}, "hidden size 48"),
    "named, from tokens": ({"keep_hidden": 0.75, **TOKENS}, "of energy, loss-weighted basis"),
    "named, from weights": ({"keep_hidden": 0.6, **BY_WEIGHTS}, "of energy, basis from weights"),
}


@pytest.mark.parametrize("case", WIDTHS)
def test_a_plan_tells_what_widths_of_the_stream_keep(case: str, zerolm: Zerolm) -> None:
    asked, words = WIDTHS[case]
    report = package.carve("parent", **asked)
    assert report.stream is not None or case == "planned by losses"  # which may keep all
    text = repr(report)
    assert words in text
    assert len(text) <= 1500
    assert text.count("\n") < 15
    energies = {row.hidden: row.kept_energy for row in report.spectrum}
    if report.stream:
        energies[report.stream.hidden] = report.stream.kept_energy
    flags = [flag for name, value in asked.items() for flag in (f"--{name.replace('_', '-')}", str(value))]
    ran = zerolm("carve", "parent", *flags)
    assert ran.status == 0, ran.err
    assert words in ran.out
    lines = ran.out.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("hidden size  energy kept"))
    assert lines[head].endswith("loss") == (case == "planned by losses")
    rows = [line.split() for line in lines[head + 1 :] if line[0].isdigit()]
    assert {42, 36, 30, 24} <= {int(row[0]) for row in rows}
    for hidden, *others in rows:
        assert f"{energies[int(hidden)]:.1%}" in others
    chosen = [int(row[0]) for row in rows if "chosen" in row]
    assert chosen == ([report.stream.hidden] if report.stream else [])
    child = package.carve("parent", "child", **asked)
    assert "energy kept" not in repr(child)
    assert CarvingReport.load("child").stream == child.stream == report.stream


def test_a_recipe_stands_alone() -> None:
    word_tokenizer(Path("parent"))
    package.carve("parent", "child", keep_ffn=0.5, repair="none", **TOKENS)
    report = package.carve("parent", "again", recipe=Path("child/recipe.json"))
    assert report.widths == CarvingReport.load("child").widths
    assert contents("again")["model.safetensors"] == contents("child")["model.safetensors"]
    for setting in (*settings_of(SizeRequest), *settings_of(MethodRequest)):
        name = setting.name
        if name in ("text", "text_field"):
            continue
        others = [choice for choice in setting.choices or () if choice != setting.default]
        other = others[0] if others else "none" if setting.kind == "text" else 1
        other = {"integer": 7, "flag": True, "path": "none"}.get(setting.kind, other)
        with pytest.raises(ValueError, match=f"fixes everything about the child; drop {setting.flag}$"):
            package.carve("parent", recipe="child/recipe.json", **{name: other})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such shape": ({"keep_ffn": 0.5, "shape": "round"}, "shape 'round' .* uniform, per-layer"),
    "no such format": ({"keep_ffn": 0.5, "format": "onnx"}, "format 'onnx' .* hf, padded"),
    "an output in nowhere": ({"keep_ffn": 0.5, "out": "nowhere/child"}, "does not exist"),
    "steps without healing": ({"keep_ffn": 0.5, "steps": 2}, "give --heal TOKENS too"),
    "a recipe, healed": (
        {"recipe": "child/recipe.json", "heal": 5000, "text": "parent"},
        "--heal cannot be combined with --recipe",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_said_in_one_line(case: str) -> None:
    """What other settings or registries make wrong; the rest is generated in test_wrong_input."""
    settings, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as told:
        package.carve(**({"parent": "parent", "out": "child"} | settings))
    assert "\n" not in str(told.value)
    assert sorted(file.name for file in Path().iterdir()) == ["parent"]


def test_the_declaration_names_what_the_registries_hold() -> None:
    """The declaration is read without them, for they are heavy."""
    settings = {setting.name: setting for setting in CarveSettings.settings()}
    assert [name for name in SPACES if name not in settings["space"].help] == []
    of_units, of_experts = settings["criterion"].help.split("For experts")
    from_tokens, from_weights = of_units.split("By weights alone")
    assert [entry.name for entry in EXPERT_CRITERIA.entries() if entry.name not in of_experts] == []
    assert [name for name in WEIGHTS_ONLY if name not in from_weights] == []
    assert [name for name in WITH_TOKENS if name not in from_tokens] == []
    assert [name for name in REPAIRS if name not in settings["repair"].help] == []
    assert [entry.name for entry in FORMATS.entries() if entry.name not in settings["format"].help] == []
    conditions = {name: settings[name].default for name in ("context", "batch", "kv_bits")}
    assert {name: getattr(CostModel(), name) for name in conditions} == conditions


def test_without_torch_the_extra_is_named() -> None:
    code = """import sys
sys.modules["torch"] = None
import zerolm
print(zerolm.carve("parent", keep_ffn=0.5, criterion="capacity").widths[0].ffn)
for more in ({}, {"out": "child", "criterion": "capacity"}, {"text": "random"}):
    try:
        zerolm.carve("parent", keep_ffn=0.5, **more)
    except ModuleNotFoundError as error:
        print(error)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plan, *lines = ran.stdout.splitlines()
    assert plan == "20"
    assert len(lines) == 3
    assert all(line.endswith("pip install 'zerolm[torch]'") for line in lines), lines
    assert not Path("child").exists()


def test_an_edited_result_is_an_error_that_names_the_field() -> None:
    document = package.carve("parent", keep_hidden=0.75, **BY_WEIGHTS).to_json()
    for name, value in (("widths", [{"layer": 0}]), ("stream", {"hidden": "36"}), ("costs", 3)):
        with pytest.raises(ValueError, match=name) as told:
            CarvingReport.from_json(document | {name: value})
        assert "\n" not in str(told.value)
