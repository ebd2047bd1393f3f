"""``zerolm doctor``: a line for each runtime, whatever is in the folder."""

import json
from pathlib import Path

import pytest
from carvings import BY_WEIGHTS
from refusals import Zerolm
from repeated import check_report
from tiny import saved

import zerolm as package
from zerolm.diagnosis.opening import is_installed

pytestmark = pytest.mark.usefixtures("opened_here")


RUNTIMES = (
    *("transformers", "vLLM", "SGLang", "TensorRT-LLM", "MLX", "llama.cpp"),
    *(["ONNX Runtime"] if is_installed("onnx") else []),
)


def test_a_line_for_each_runtime(zerolm: Zerolm, tmp_path: Path) -> None:
    ran = zerolm("doctor", str(saved(tmp_path, "llama")))
    assert ran.status == 0
    printed = ran.out.splitlines()
    head = next(place for place, line in enumerate(printed) if line.startswith("runtime "))
    lines = [line.split(maxsplit=3) for line in printed[head + 1 : head + 1 + len(RUNTIMES)]]
    assert tuple(line[0] for line in lines) == RUNTIMES
    assert lines[0][1:3] == ["opens", "opened"]
    assert all(line[1] in ("opens", "refuses", "unknown") and line[2] == "rules" for line in lines[1:])
    assert "tensor-parallel ways" in ran.out


def test_it_saves_loads_and_repeats(zerolm: Zerolm, tmp_path: Path) -> None:
    report = package.doctor(str(saved(tmp_path / "model", "bert")))
    assert "opens: transformers, vLLM" in repr(report)
    check_report(report, zerolm, tmp_path / "out")
    found = report.to_json()
    assert [entry["runtime"] for entry in found["runtimes"]] == [*RUNTIMES, "sentence-transformers"]
    assert set(found["runtimes"][0]) == {"runtime", "verdict", "known", "reasons"}
    assert (found["model_type"], found["dtypes"], found["tied"]) == ("bert", {"F32": found["weights"]}, None)
    assert found["bytes"] == 4 * found["weights"]


def test_a_file_of_llama_cpp_alone(zerolm: Zerolm, tmp_path: Path) -> None:
    """By its name or in its folder: no other runtime is asked, and its header has the sizes."""
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    parent = saved(tmp_path / "parent", "llama")
    child = tmp_path / "child"
    ran = zerolm(
        "carve", str(parent), "--keep-ffn", "0.5", *BY_WEIGHTS, "--format", "gguf", "--out", str(child)
    )
    assert ran.status == 0, ran.err
    recipe = json.loads((child / "recipe.json").read_text())
    for path in (child, child / "parent-carved.gguf"):
        found = zerolm("doctor", str(path), "--json").document
        assert [(one["runtime"], one["verdict"]) for one in found["runtimes"]] == [
            ("llama.cpp: parent-carved.gguf", "opens")
        ]
        assert found["weights"] == recipe["costs"]["child"]["params"]
        assert found["bytes"] == recipe["costs"]["child"]["weight_bytes"]


def test_the_trained_models_open(zerolm: Zerolm, models_folder: Path) -> None:
    for name in ("pydec", "pyenc"):
        first = zerolm("doctor", str(models_folder / name), "--json").document["runtimes"][0]
        assert (first["verdict"], first["known"]) == ("opens", "opened"), first
