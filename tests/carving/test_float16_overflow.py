"""Float16 parents with weights at the end of their type: one line that names the layer, and no warnings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carvings import BY_WEIGHTS
from refusals import refused
from safetensors.torch import load_file, save_file
from tiny import saved, word_tokenizer

Zerolm = Callable[..., Any]
TOKENS = ("--text", "text.txt", "--sequences", "8", "--length", "12")
MATRIX = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A parent in float16, in the folder in which commands run."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    folder = saved(Path("parent"), "llama", dtype="float16")
    word_tokenizer(folder)
    Path("text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(400)))
    return folder


def scaled(folder: Path, change: Callable[[str], float | None]) -> None:
    """Scale each weight so that its largest is what ``change`` gives for its name, if anything."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    for name, weight in weights.items():
        largest = change(name)
        if largest is not None:
            weights[name] = (weight.float() * (largest / weight.float().abs().max())).half()
    save_file(weights, file, {"format": "pt"})


def test_a_repaired_matrix_that_its_type_does_not_hold(parent: Path, zerolm: Zerolm) -> None:
    scaled(parent, lambda name: 65_504.0 if name == MATRIX else None)
    cut = ("carve", "parent", "--keep-ffn", ".5", *TOKENS, "--out", "child")
    refused(zerolm, *cut, words=f"the repaired '{MATRIX}' ")
    refused(zerolm, *cut, words="give --repair none, or save the parent in bfloat16 first")
    ran = zerolm(*cut, "--repair", "none")
    assert ran.status == 0, ran.err
    assert "Warning" not in ran.err


@pytest.mark.parametrize(
    ("where", "words"),
    [(".layers.1.", "the gradients of layer 0 are not finite"), (".layers.", "the activations of layer 0")],
)
def test_activations_that_overflow_name_their_layer(
    where: str, words: str, parent: Path, zerolm: Zerolm
) -> None:
    scaled(parent, lambda name: 60_000.0 if where in name else None)
    for cut in ("--max-params", "--keep-ffn"):
        share = ".9x" if cut == "--max-params" else ".5"
        refused(zerolm, "carve", "parent", cut, share, *TOKENS, "--out", "child", words=words)
    alone = zerolm(
        "carve", "parent", "--keep-ffn", ".5", *BY_WEIGHTS, "--out", "child"
    )  # by weights, as the remedy says
    assert "Warning" not in alone.err
    assert alone.status == 0, alone.err
