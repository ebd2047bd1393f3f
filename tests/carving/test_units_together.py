"""Every two kinds of units in one child: carved, written, proven, and built again by its recipe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
from carvings import carve, rebuild
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import NAMED, ROWS
from saved_mixtures import mixture
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import zerolm
from zerolm.carving.result import Carved
from zerolm.carving.vocabulary import byte_losses

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from gguf_parents import in_blocks

UNITS: Final[dict[str, dict[str, Any]]] = {
    "layers": {"keep_layers": 0.5},
    "groups": {"keep_heads": 0.5},
    "ffn": {"keep_ffn": 0.5},
    "stream": {"keep_hidden": 0.5},
    "experts": {"keep_experts": "0.5"},
    "neurons": {"keep_expert_ffn": "0.5"},
    "tokens": {"keep_vocab": "used"},
    "types": {"max_weight_bytes": "0.5x", "types": "all"},
}
NAMES: Final = {
    "layers": "layers", "groups": "KV groups", "ffn": "FFN neurons", "stream": "hidden size",
    "experts": "experts", "neurons": "neurons of experts", "tokens": "tokens",
}  # fmt: skip
OF_EXPERTS: Final = ("experts", "neurons")
CUTS: Final = ("layers", "groups", "ffn", "stream")
QUICK: Final[dict[str, Any]] = {"sequences": 6, "length": 16}
PAIRS: Final = list(combinations([unit for unit in UNITS if unit != "types"], 2))
"""Types are chosen beside all others at once, below."""


def is_of_mixture(pair: tuple[str, ...]) -> bool:
    return any(unit in OF_EXPERTS for unit in pair)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A dense decoder, and a mixture whose shared experts have neurons of their own, by whether it is one."""
    root = tmp_path_factory.mktemp("parents")
    for name in ("llama", "granitemoeshared"):
        sizes = in_blocks(name) | {"vocab_size": ROWS, "num_hidden_layers": 4}
        mixture(root / name, name, **sizes | ({"num_experts_per_tok": 2} if name != "llama" else {}))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(byte_level()), **NAMED)
        tokenizer.save_pretrained(root / name)
    (root / "text.txt").write_text(CORPUS[0] * 3, "utf-8")
    return {False: root / "llama", True: root / "granitemoeshared"}


def checked(parent: Path, folder: Path, form: str, units: Sequence[str], **more: Any) -> Carved:
    """Carve a child of these units, and build it again."""
    text = str(parent.parent / "text.txt")
    flags = {name: value for unit in units for name, value in UNITS[unit].items()}
    child = carve(parent, folder / "child", form=form, text=text, **QUICK | flags | more)
    assert child.verified is not None
    gave = [row["params"] for row in child.units]
    assert sum(gave) == child.costs["parent"]["params"] - child.costs["child"]["params"]
    files = [*folder.glob("child/*.gguf"), *folder.glob("child/*.safetensors")]
    assert files
    rebuild(folder / "child" / "recipe.json", parent, folder / "again", text=text)
    for file in files:
        assert file.read_bytes() == (folder / "again" / file.name).read_bytes()
    return child


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 512)


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_kinds_of_units_stand_together(
    pair: tuple[str, str], parents: dict[bool, Path], tmp_path: Path
) -> None:
    """Each pair in one form; all kinds at once are written in both."""
    form = ("hf", "gguf")[PAIRS.index(pair) % 2]
    child = checked(parents[is_of_mixture(pair)], tmp_path, form, pair)
    smaller = {row["unit"] for row in child.units if row["after"] < row["before"]}
    assert smaller >= {NAMES[unit] for unit in pair}
    assert not child.types


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_all_kinds_but_types_stand_together(form: str, parents: dict[bool, Path], tmp_path: Path) -> None:
    """And the one judge compares the child with its parent, whose tokens are others."""
    child = checked(parents[True], tmp_path, form, [unit for unit in UNITS if unit != "types"])
    assert all(row["after"] < row["before"] for row in child.units)
    text = str(parents[True].parent / "text.txt")
    file = next((tmp_path / "child").glob("*.gguf"), tmp_path / "child")
    judged = zerolm.eval(file, parent=parents[True], text=text, sequences=8, length=16)
    ours, theirs = judged.rows()
    assert ours["kl"] > theirs["kl"] == 0
    assert ours["params"] == child.costs["child"]["params"]


def test_types_and_all_kinds_that_they_are_weighed_against(parents: dict[bool, Path], tmp_path: Path) -> None:
    assert checked(parents[False], tmp_path, "gguf", [*CUTS, "tokens", "types"]).types


def test_types_of_fewer_and_narrower_experts_and_tokens(parents: dict[bool, Path], tmp_path: Path) -> None:
    units = [*OF_EXPERTS, "tokens", "types"]
    assert checked(parents[True], tmp_path, "gguf", units, max_weight_bytes="0.2x").types


def test_a_text_and_budgets_weigh_experts_against_all_else(parents: dict[bool, Path], tmp_path: Path) -> None:
    """The number of least loss is taken, and its child is the one that is asked for by that number."""
    parent = parents[True]
    text = str(parent.parent / "text.txt")
    flags: dict[str, Any] = QUICK | {"text": text, "max_params": "0.6x"}
    child = carve(parent, tmp_path / "child", **flags)
    losses = dict(re.findall(r"(all|\d+ of \d+(?: neurons of each)?) ([\d.e-]+)", child.note))
    assert len(losses) > 2
    assert "all" in losses
    count, _, of = min(losses, key=lambda name: float(losses[name])).partition(" of ")
    assert child.costs["child"]["params"] <= 0.6 * child.costs["parent"]["params"]
    given = {"keep_expert_ffn" if "neurons" in of else "keep_experts": count}
    named = carve(parent, tmp_path / "named", **given, **flags)
    assert named.widths == child.widths
    files = (tmp_path / name / "model.safetensors" for name in ("child", "named"))
    assert len({file.read_bytes() for file in files}) == 1
    for more in ({"keep_experts": "all"}, {"plan": "weights"}, {"for_": 60.0}):
        assert carve(parent, **flags | {"max_params": "0.95x"} | more).experts is None
    assert "no text is given" in carve(parent, max_params="0.95x", criterion="capacity").note
