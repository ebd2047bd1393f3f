"""Weights that are no numbers, or infinite: every command that computes with them names the tensor."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from changed_folders import stored
from tiny import saved, word_tokenizer

import zerolm

pytest.importorskip("accelerate", reason="healing needs accelerate")

SHORT = {"length": 16}
FEW = SHORT | {"sequences": 8}


def spoiled(folder: Path, out: Path, tensor: str, value: float) -> Path:
    shutil.copytree(folder, out)
    return stored(out, lambda tensors: tensors[tensor].view(-1)[3].fill_(value))


Places = dict[str, Any]


def heal(at: Places, child: str, parent: str, **more: Any) -> Any:
    run = {"text": at["text"], "tokens": "4k", "out": at["out"], **SHORT, **more}
    return zerolm.heal(at[child], parent=at[parent], **run)


CALLS: dict[str, Callable[[Places], Any]] = {
    "carve": lambda at: zerolm.carve(at["bad"], keep_ffn=0.5, criterion="capacity"),
    "carve, planned": lambda at: zerolm.carve(at["bad"], max_params="0.8x", criterion="capacity"),
    "carve on a text": lambda at: zerolm.carve(at["bad"], max_params="0.8x", text=at["text"], **FEW),
    "carve by shares": lambda at: zerolm.carve(at["bad"], keep_hidden=0.5, text=at["text"], **FEW),
    "carve and heal": lambda at: zerolm.carve(
        at["bad"], keep_ffn=0.5, text=at["text"], heal="4k", out=at["out"], **FEW
    ),
    "rebuild": lambda at: zerolm.carve(at["bad"], recipe=at["child"] / "recipe.json", out=at["out"]),
    "ledger": lambda at: zerolm.ledger(at["bad"]),
    "eval, parent": lambda at: zerolm.eval(at["child"], parent=at["bad"], text=at["text"], **SHORT),
    "eval, child": lambda at: zerolm.eval(at["bad"], parent=at["good"], text=at["text"], **SHORT),
    "eval, beside": lambda at: zerolm.eval(
        at["child"], parent=at["good"], beside=[at["bad"]], text=at["text"], **SHORT
    ),
    "heal, parent": lambda at: heal(at, "child", "bad"),
    "heal, teacher": lambda at: heal(at, "child", "good", teacher=at["bad"]),
    "heal, child": lambda at: heal(at, "bad child", "good"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    folder = tmp_path_factory.mktemp("models")
    good, text = saved(folder / "good", "llama"), folder / "text.txt"
    word_tokenizer(good)
    text.write_text(" ".join(f"w{i * i % 63}" for i in range(20_000)))
    zerolm.carve(good, out=folder / "child", keep_ffn=0.5, criterion="capacity")
    return {"folder": folder, "good": good, "child": folder / "child", "text": text}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("tensor", "value"),
    [("model.layers.1.mlp.down_proj.weight", float("nan")), ("model.norm.weight", -float("inf"))],
)
def test_the_tensor_is_named(call: str, tensor: str, value: float, places: Places, tmp_path: Path) -> None:
    bad = spoiled(places["good"], tmp_path / "bad", tensor, value)
    child = spoiled(places["child"], tmp_path / "bad child", tensor, value)
    out = tmp_path / "out"
    words = f"tensor '{tensor}' in .*bad.* has weights that are not finite"
    with pytest.raises(ValueError, match=words) as error:
        CALLS[call](places | {"bad": bad, "bad child": child, "out": out})
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "bad child"]
