"""What each runtime lists: of a version and a day; what is not listed is unknown, and refusals are known."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tiny_families
from changed_folders import configured
from covering import chosen
from tiny import saved

from zerolm.diagnosis import examine
from zerolm.diagnosis.evidence import gather
from zerolm.diagnosis.examine import diagnose
from zerolm.diagnosis.opening import Opened, is_installed, opened
from zerolm.diagnosis.result import OPENS, REFUSES, UNKNOWN, RuntimeVerdict
from zerolm.diagnosis.rules import by_rules
from zerolm.diagnosis.runtimes import RUNTIMES, UNREAD
from zerolm.families.known import FOLDER, described, families

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from runtime_table import PAGE, renewed


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_list_has_a_version_a_day_and_a_source(name: str) -> None:
    source = RUNTIMES[name].source
    assert date.fromisoformat(source.released or source.read) <= date.fromisoformat(source.read)
    assert any(letter.isdigit() for letter in source.version)
    repository, _, files = source.files.partition(": ")
    assert (repository.count("/"), bool(files)) == (1, True)
    assert source.version in source.dated
    assert (source.released or source.read) in source.dated


@pytest.mark.parametrize("name", RUNTIMES)
def test_what_is_said_of_sizes_is_of_known_families_and_of_one_kind(name: str) -> None:
    runtime = RUNTIMES[name]
    assert runtime.head_size_read | runtime.head_size_derived | runtime.ffn_derived <= families().keys()
    assert not runtime.head_size_read & runtime.head_size_derived
    for kind in runtime.head_size_read | runtime.head_size_derived:
        assert families()[kind].config.sizes["head_size"].field, kind


def test_the_page_has_the_lists_of_today() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), "run python docs/runtime_table.py"
    sources = [runtime.source for runtime in RUNTIMES.values()]
    assert all(each.version in page and (each.released or each.read) in page for each in sources)


def ruled(folder: Path) -> dict[str, RuntimeVerdict]:
    evidence = gather(folder)
    return {name: by_rules(runtime, evidence) for name, runtime in RUNTIMES.items()}


def with_sentencepiece(folder: Path) -> Path:
    (folder / "tokenizer.model").write_bytes(b"")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_gemma_3_opens_everywhere(tmp_path: Path) -> None:
    verdicts = ruled(with_sentencepiece(tiny_families.saved(tmp_path / "model", "gemma3_text")))
    assert {verdict.verdict for verdict in verdicts.values()} == {OPENS}
    for name, verdict in verdicts.items():
        assert verdict.reasons[0].startswith(f"{RUNTIMES[name].dated} lists it")


@pytest.mark.parametrize("kind", chosen(sorted(described().keys() & tiny_families.TINY.keys())))
def test_what_a_family_is_refused_for_is_known_of_its_sizes(kind: str, tmp_path: Path) -> None:
    """Folders of every family are sound: only a size that a runtime derives refuses one."""
    folder, family = with_sentencepiece(tiny_families.saved(tmp_path / "model", kind)), described()[kind]
    for name, verdict in ruled(folder).items():
        runtime, is_listed = RUNTIMES[name], bool(RUNTIMES[name].of_family(family))
        if verdict.verdict == REFUSES:
            assert runtime.head_size(family) == "derived" or runtime.derives_ffn(family), verdict
        elif verdict.verdict == OPENS:
            assert is_listed, verdict
        else:
            assert not is_listed or runtime.head_size(family) == UNREAD, verdict


@pytest.mark.parametrize("name", [name for name in RUNTIMES if name != "transformers"])
def test_a_class_that_is_not_listed_is_unknown(name: str, tmp_path: Path) -> None:
    folder = with_sentencepiece(saved(tmp_path, "llama"))
    configured(folder, architectures=["OtherForCausalLM"])
    assert ruled(folder)["TensorRT-LLM"].verdict == UNKNOWN
    if RUNTIMES[name].by == "class":
        verdict = ruled(folder)[name]
        words = f"OtherForCausalLM is not in the list of {RUNTIMES[name].dated}"
        assert (verdict.verdict, verdict.reasons[0]) == (UNKNOWN, words)


def test_code_of_a_listed_class_is_no_reason_to_refuse(tmp_path: Path) -> None:
    code = {"AutoConfig": "configuration.Config"}
    changes = {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "auto_map": code}
    verdicts = ruled(configured(saved(tmp_path, "llama"), **changes))
    assert verdicts["transformers"].verdict == REFUSES
    for name in ("vLLM", "SGLang", "MLX"):
        assert verdicts[name].verdict == UNKNOWN
        assert "auto_map" in verdicts[name].reasons[0]


def test_a_plug_in_adds_to_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "vLLM": {"known": ["MineForCausalLM"]},
        "SGLang": {"known": ["MineForCausalLM"], "head_size": "either"},
    }
    document = {"model_type": "mine", "like": "llama", "head_classes": ["MineForCausalLM"], "runtimes": known}
    (tmp_path / "mine.json").write_text(json.dumps(document))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    folder = saved(tmp_path / "model", "llama")
    verdicts = ruled(configured(folder, model_type="mine", architectures=["MineForCausalLM"]))
    assert (verdicts["vLLM"].verdict, verdicts["TensorRT-LLM"].verdict) == (OPENS, UNKNOWN)
    assert RUNTIMES["SGLang"].head_size(families()["mine"]) == "either"


class Attempts:
    """Stands for opening: transformers really opens, ONNX ends as it is told."""

    def __init__(self, ends: Opened) -> None:
        self.ends, self.asked = ends, list[str]()

    def __call__(self, how: str, path: Path) -> Opened:
        self.asked.append(how)
        return self.ends if how == "onnx" else opened(how, path)


@pytest.mark.parametrize("end", [OPENS, UNKNOWN, REFUSES])
def test_an_export_is_tried_of_what_transformers_opens(
    end: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts(Opened(end, ("so it ended",)))
    monkeypatch.setattr(examine, "is_installed", lambda how: True)
    monkeypatch.setattr(examine, "attempt", attempts)
    row = next(one for one in diagnose(saved(tmp_path, "llama")).runtimes if one.runtime == "ONNX Runtime")
    assert (row.verdict, row.known, row.reasons) == (end, "opened", ("so it ended",))
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    attempts.asked.clear()
    row = next(one for one in diagnose(tmp_path).runtimes if one.runtime == "ONNX Runtime")
    assert (row.verdict, row.known, attempts.asked) == (UNKNOWN, "rules", [])


@pytest.mark.usefixtures("opened_here")
def test_no_export_is_tried_without_its_software(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "is_installed", lambda how: how == "transformers")
    assert "ONNX Runtime" not in {one.runtime for one in diagnose(saved(tmp_path, "llama")).runtimes}


@pytest.mark.skipif(not is_installed("onnx"), reason="onnxruntime or onnxscript is not installed")
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "bert"])
def test_onnx_runtime_computes_what_torch_does(kind: str, tmp_path: Path) -> None:
    found = opened("onnx", saved(tmp_path, kind))
    assert found.verdict == OPENS, found.reasons


@pytest.mark.skipif(not is_installed("onnx"), reason="onnxruntime or onnxscript is not installed")
def test_what_is_not_exported_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise ValueError("\x1b[96mno such function\x1b[0m\nmore")
        except ValueError as error:
            raise RuntimeError("it went wrong") from error

    monkeypatch.setattr("torch.onnx.export", fail)
    found = opened("onnx", saved(tmp_path, "llama"))
    assert found.verdict == UNKNOWN
    assert found.reasons[0].endswith("does not export it: no such function")


@pytest.mark.skipif(not is_installed("onnx"), reason="onnxruntime or onnxscript is not installed")
def test_an_export_that_computes_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.diagnosis.onnx_export.difference", lambda model: 0.1)
    assert opened("onnx", saved(tmp_path, "llama")).verdict == REFUSES
