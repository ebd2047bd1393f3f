"""Llama shapes beyond those whose heads fill the hidden size."""

from __future__ import annotations

import pytest

from zerolm.costs import CostModel
from zerolm.spaces import make_space


@pytest.mark.parametrize(("heads", "kind"), [(3, "mistral"), (2, "llama"), (6, "mistral")])
def test_queries_may_be_wider_or_narrower_than_hidden(heads: int, kind: str) -> None:
    """The stock classes build it with the same parameters; llama's needs heads that divide the width."""
    space = make_space("llama", vocab=100)
    choices = {"depth": 2, "hidden": 256, "head_size": 64, "heads": heads, "kv_heads": 1, "ffn": 320}
    architecture = space.read(choices)
    config = space.config(architecture)
    assert config is not None
    assert (config["model_type"], architecture.layers[0].query_width) == (kind, 64 * heads)
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    assert sum(p.numel() for p in model.parameters()) == CostModel().of(architecture)["params"]
