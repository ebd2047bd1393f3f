"""Every family through every kind of cut: written, opened by stock software, equal to the carved parent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from carvings import carve
from covering import chosen
from tiny_families import TINY, random_model

from zerolm.checkpoints import Checkpoint
from zerolm.families.known import families

NAMES = ("llama", "llama_tied", "mistral", "mistral_odd", "qwen2", "qwen3", "gemma2", "gpt2", "bert")
TEXT: dict[str, Any] = {"text": "random", "sequences": 6, "length": 12}
CUTS: dict[str, dict[str, Any]] = {
    "by weights": {"keep_heads": 0.5, "keep_ffn": 0.5},
    "all": {"keep_layers": 0.67, "keep_heads": 0.5, "keep_ffn": 0.5, **TEXT},
    "padded": {"budgets": {"max_body_params": "0.7x"}, "shape": "per-layer", "form": "padded", **TEXT},
    "padded by weights": {"budgets": {"max_body_params": "0.9x"}, "shape": "per-layer", "form": "padded"},
}


@pytest.fixture(scope="module", params=NAMES)
def parent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    from tiny import saved

    return Checkpoint.open(saved(tmp_path_factory.mktemp("parent") / request.param, request.param))


@pytest.mark.parametrize("case", CUTS)
def test_every_cut_of_every_family(case: str, parent: Checkpoint, tmp_path: Path) -> None:
    can, flags = parent.family.cut, dict(CUTS[case])
    if not can.heads and "keep_heads" in flags:
        with pytest.raises(ValueError, match="heads cannot be cut here"):
            carve(parent.folder, tmp_path / "child", **flags)
        del flags["keep_heads"]
    carved = carve(parent.folder, tmp_path / "child", **flags)
    assert carved.verified is not None
    assert carved.verified.relative <= 1e-4
    assert not carved.cut.is_whole
    if case == "all":
        assert len(carved.widths) == 2
    kind = transformers.AutoModel if parent.family.name == "bert" else transformers.AutoModelForCausalLM
    child, info = kind.from_pretrained(tmp_path / "child", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert all("pooler" in key for key in info["missing_keys"])
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert child.config.num_hidden_layers == len(carved.widths)
    assert "layer_types" not in config or len(config["layer_types"]) == len(carved.widths)
    assert (
        sum(p.numel() for p in child.parameters())
        == carved.costs.get("stored", carved.costs["child"])["params"]
    )


AS_GGUF = [n for n, family in families().items() if n in TINY and family.gguf and not family.gguf.alike]
"""Those whose layers may differ there; others, and models that see, are in ``test_gguf_families.py``."""
WITHOUT_WINDOW: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "ministral": {"sliding_window": 32},  # that of the positions: its stock class needs one
}


@pytest.mark.parametrize("name", chosen(AS_GGUF))
@pytest.mark.parametrize("case", ["all", "per layer"])
def test_every_cut_as_gguf(name: str, case: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    sizes = {"hidden_size": 96, "intermediate_size": 64, "eos_token_id": 0}
    random_model(name, **sizes, **WITHOUT_WINDOW.get(name, {})).save_pretrained(tmp_path / "parent")
    flags = CUTS["padded"] if case == "per layer" else CUTS[case]
    carved = carve(tmp_path / "parent", tmp_path / "child", **{**flags, "form": "gguf"})
    assert carved.verified is not None
    assert not carved.cut.is_whole
    assert {file.suffix for file in (tmp_path / "child").iterdir()} == {".gguf", ".md", ".json"}
