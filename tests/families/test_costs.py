"""A model has the same costs by its configuration, and by the tensors of its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import MODELS, saved
from tiny_mixtures import MIXTURES

from zerolm.cli import main
from zerolm.costs import COSTS
from zerolm.families.config import from_config

WITH_HEADS = [name for name in MODELS if not name.endswith(("_body", "_classes", "_wide")) and name != "bert"]


def costs(command: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["costs"]


@pytest.mark.parametrize("name", WITH_HEADS)
@pytest.mark.parametrize("context", ["4", "1024"])
def test_score_and_carve_count_alike(
    name: str, context: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both at 16 bits; a next-sentence head and a pooler are in no count of ``score``."""
    folder = saved(tmp_path, name)
    options = ["--context", context, "--bits", "16"]
    scored = costs(["score", str(folder), *options], capsys)
    parent = costs(["carve", str(folder), "--keep-ffn", "1", *options], capsys)["parent"]
    for cost in COSTS:
        if name == "bert_untied" and cost in ("params", "active_params", "weight_bytes", "macs"):
            assert scored[cost] <= parent[cost]
        elif cost != "body_params":
            assert scored[cost] == parent[cost], cost


def test_a_layer_remembers_what_its_kind_does() -> None:
    """Of a hybrid with a sublayer a layer: attention keys and values, Mamba a state, an FFN nothing."""
    layers = from_config({"model_type": "nemotron_h", **MIXTURES["nemotron_h"]}).layers
    keeps = [(layer.kv_width > 0, layer.state > 0) for layer in layers]
    mamba, attention, ffn = (False, True), (True, False), (False, False)
    assert keeps == [mamba, attention, ffn, ffn, attention, ffn]
