"""The parent in its child's bytes: counted, rounded and chosen as plain loops do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from divergences import perplexity_and_kl
from saved_mixtures import mixture
from tiny import word_tokenizer

from zerolm.carving.bits.kernels import rounded
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME, QUANTISED
from zerolm.evaluation.evaluate import evaluate
from zerolm.evaluation.quantised_parent import QuantisedParent, quantised_parent, stored_bytes
from zerolm.networks.opener import open_model
from zerolm.text.calibration import tokens_of

pytest.importorskip("llama_cpp", reason="quantisation types need llama-cpp-python (zerolm[gguf])")

SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
KINDS: dict[str, dict[str, Any]] = {
    "qwen3_moe": SIZES | {"moe_intermediate_size": 32, "mlp_only_layers": []},
    "granitemoe": SIZES | {"num_attention_heads": 4},
    "gpt_oss": SIZES | {"layer_types": ["full_attention"] * 2},
}
"""The first stores each expert, the second all experts stacked, the third stacked and turned."""


def parent_of(folder: Path, kind: str, dtype: str = "bfloat16") -> Checkpoint:
    return Checkpoint.open(mixture(folder / "parent", kind, dtype, **KINDS[kind]))


def counted(model: Any, types: Any) -> int:
    """The bytes of a model by its parameters and buffers that are stored, row after row."""
    total = 0
    for name, tensor in model.state_dict().items():
        rows = math.prod(tensor.shape[:-1])
        total += rows * types[name].size(tensor.shape[-1]) if name in types else 4 * tensor.numel()
    return total


def error(model: Any, read: Any, names: Any) -> float:
    """The squared errors of matrices by their own squares, summed."""
    total = 0.0
    for name in names:
        ours, theirs = (each.get_parameter(name).detach().double() for each in (model, read))
        total += float((ours - theirs).square().sum() / ours.square().sum())
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_types_fit_the_bytes_and_no_single_type_errs_less(kind: str, tmp_path: Path) -> None:
    parent = parent_of(tmp_path, kind)
    model, last = open_model(parent), math.inf
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for share in (0.45, 0.6, 0.8, 1.2):
        room = int(share * stored_bytes(parent))
        found = quantised_parent(parent, model, room)
        assert found.bytes == counted(model, found.types) <= room
        assert not any("router" in name or "gate.weight" in name for name in found.types)
        assert len([name for name in found.types if "down_proj" in name]) == 2, found.types.keys()
        ours = error(model, found.applied(model), found.types)
        assert ours <= last
        last = ours
        singles = [one for one in QUANTISED if not one.needs_importances and one.holds(32)]
        assert len(singles) > 3
        for one in singles:
            every = {name: one for name in found.types}
            if counted(model, every) <= room:
                other = QuantisedParent(found.matrices, every, 0).applied(model)
                assert ours <= error(model, other, found.types)
    assert ours < 1e-9  # with so much room all stays as it is
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_what_is_read_back_is_rounded_expert_by_expert(tmp_path: Path) -> None:
    parent = parent_of(tmp_path, "qwen3_moe")
    model = open_model(parent)
    found = quantised_parent(parent, model, int(0.4 * stored_bytes(parent)))
    read = found.applied(model)
    changed = 0
    for name, weight in model.named_parameters():
        theirs, kind = read.get_parameter(name), found.types.get(name)
        if kind is None or kind == BY_NAME["BF16"]:
            assert torch.equal(weight, theirs)
            continue
        parts = weight.detach() if weight.dim() == 3 else weight.detach()[None]
        wanted = np.stack([rounded(part.numpy(), kind, None) for part in parts])
        assert np.array_equal(theirs.detach().numpy().reshape(wanted.shape), wanted)
        changed += 1
    assert changed


def test_too_few_bytes_are_told(tmp_path: Path) -> None:
    parent = parent_of(tmp_path, "qwen3_moe")
    model = open_model(parent)
    with pytest.raises(ValueError, match="bytes at least, the child 1,000") as told:
        quantised_parent(parent, model, 1000)
    least = int(str(told.value).split()[2].replace(",", ""))
    assert quantised_parent(parent, model, least).bytes == least
    with pytest.raises(ValueError, match="bytes at least"):
        quantised_parent(parent, model, least - 1)


@pytest.mark.parametrize("kind", ["qwen3_moe", "granitemoe"])
def test_it_stands_beside_a_child_with_fewer_experts(kind: str, tmp_path: Path) -> None:
    parent, few = parent_of(tmp_path, kind), {"sequences": 4, "length": 12}
    word_tokenizer(parent.folder)
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{(i * i + 7 * i) % 61}" for i in range(300)))
    carve(parent.folder, tmp_path / "child", keep_experts="4", criterion="random")
    result = evaluate(tmp_path / "child", parent.folder, text, **few)
    row = result.networks[-1]
    assert (row.name, row.params) == ("quantised parent", result.networks[1].params)
    reference, room = open_model(parent), stored_bytes(Checkpoint.open(tmp_path / "child"))
    file = tmp_path / "child" / "model.safetensors"
    assert room == file.stat().st_size - header_of(file)
    alone = quantised_parent(parent, reference, room)
    tokens = tokens_of(parent, str(text), **few)
    assert row.values == vars(perplexity_and_kl(alone.applied(reference), reference, tokens))
    assert f"{alone.bytes:,} of the child's {room:,} bytes" in result.note
    assert alone.text in result.note
    assert row.values["kl"] != 0


def header_of(file: Path) -> int:
    """The bytes before the weights of a safetensors file."""
    return 8 + int.from_bytes(file.read_bytes()[:8], "little")


def test_without_llama_cpp_the_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = parent_of(tmp_path, "granitemoe")
    word_tokenizer(parent.folder)
    (tmp_path / "text.txt").write_text("w1 w2 w3 w4 " * 30)
    carve(parent.folder, tmp_path / "child", keep_experts="4", criterion="random")

    def missing() -> Any:
        raise ModuleNotFoundError("types are made elsewhere")

    monkeypatch.setattr("zerolm.carving.bits.kernels.chunk", missing)
    result = evaluate(tmp_path / "child", parent.folder, tmp_path / "text.txt", sequences=2, length=8)
    assert [row.name for row in result.networks] == ["child", "parent", "random", "frequency"]
    assert result.note.endswith("no quantised parent: types are made elsewhere")
