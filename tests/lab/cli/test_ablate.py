"""``zerolm lab ablate``: what it prints, and one line when anything is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROWS = """\
space,architecture,ppl
gpt2,"{""n_layer"":1, ""d_model"":64, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",9
gpt2,"{""n_layer"":1, ""d_model"":128, ""d_inner"":[256], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",8
gpt2,"{""n_layer"":1, ""d_model"":128, ""d_inner"":[512], ""n_head"":[2], ""d_embed"":128, ""div_val"":1}",7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with two benchmarks, which ``ZEROLM_DATA`` names."""
    monkeypatch.setenv("ZEROLM_DATA", str(tmp_path))
    for name in ("mine", "yours"):
        (tmp_path / f"{name}.csv").write_text(ROWS)
    return tmp_path


def test_all_of_the_folder(folder: Path, zerolm: Callable[..., Any]) -> None:
    every = [zerolm("lab", "ablate", *more, "--json") for more in (["--all"], ["mine", "yours"])]
    assert [ran.status for ran in every] == [0, 0]
    assert every[0].out == every[1].out
    told = json.loads(every[0].out)
    assert set(told) == {"grid", "sections", "transfer"}
    assert [each["benchmark"] for each in told["sections"]] == ["mine", "yours"]
    assert [each["same_data"] for each in told["transfer"]] == [True, False, False, True]
    shown = zerolm("lab", "ablate", "mine", "yours").out
    for words in (
        "mine: ppl (lower is better), 3 architectures",
        "without q",
        "orthogonal",
        "ten seeds",
    ):
        assert words in shown


WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown benchmark": (("theirs",), ("'theirs'", "mine, ")),
    "names and all": (("mine", "--all"), ("mine and --all",)),
    "no names": ((), ("no benchmark is named; there are mine, yours, or --all of them",)),
    "no such metric": (("mine", "--metric", "bleu"), ("'bleu'", "ppl")),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_line_and_status_2(name: str, folder: Path, zerolm: Callable[..., Any]) -> None:
    arguments, words = WRONG[name]
    zerolm("lab", "ablate", *arguments).refused(*words)


def test_an_empty_folder(folder: Path, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    for command in (("bench", "run"), ("lab", "ablate")):
        for more in ([], ["--all"]):
            zerolm(*command, *more).refused("holds no benchmark; autoformer_vit, ")
