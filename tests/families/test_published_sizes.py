"""Published models have the parameters that are counted, in two sizes where a family has two.

``published_configs.json`` has the fields of each that say its shape. They were read in the published file or
a copy of it, but for those that are ``recalled``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from covering import chosen
from tiny_families import stock_model
from transformers import AutoConfig

from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.known import described, families
from zerolm.testing.families import stored_numbers

PUBLISHED: Final = json.loads((Path(__file__).parent / "published_configs.json").read_text("utf-8"))
OF_ONE_SIZE: Final = {
    *("arcee", "bamba", "cwm", "deepseek_v32", "dots1", "ernie4_5", "exaone_moe", "granitemoeshared"),
    *("helium", "hunyuan_v1_moe", "internlm3", "iquestcoder", "jais2", "kimi_k25", "mimo_v2_flash"),
    *("ministral", "mpnet", "nomic_bert", "olmoe", "qwen3_next", "seed_oss", "smollm3", "solar_open"),
    "vaultgemma",
}
"""Families of which one size was published, as far as is known here."""
UNSEEN: Final = {"hy_v3"}
"""Families of which no published configuration was seen: the class's defaults are counted elsewhere."""
LISTED: Final = "*"
"""Stands for the list of the stock class, which takes no parameters for it."""


def stock_text(config: Mapping[str, Any]) -> Any:
    """Return the configuration of the text model as transformers completes it."""
    stock = AutoConfig.for_model(**{name: value for name, value in config.items() if value != LISTED})
    family = families()[str(config["model_type"])]
    if family.config.at is None:
        return stock
    tied, stock = stock.tie_word_embeddings, stock.get_text_config()
    kind = family.module_names.text_type
    if kind is not None:
        fields = {name: value for name, value in stock.to_dict().items() if name != "model_type"}
        stock = AutoConfig.for_model(kind, **fields)
    stock.tie_word_embeddings = tied
    return stock


@pytest.mark.parametrize(
    "published",
    [
        pytest.param(published, id=published["name"])
        for published in PUBLISHED
        if published["config"]["model_type"] in chosen(described())
    ],
)
def test_published_models_have_the_parameters_that_are_counted(published: Mapping[str, Any]) -> None:
    stock = stock_text(published["config"])
    with torch.device("meta"):
        network = stock_model(stock)
    built = stored_numbers(network)
    listed = {name: getattr(stock, name) for name, value in published["config"].items() if value == LISTED}
    assert CostModel().of(from_config(published["config"] | listed))["params"] == built
    assert published.get("parameters", built) == built


def test_two_sizes_of_each_family_are_published() -> None:
    sizes = Counter(
        kind
        for kind, _ in {
            (published["config"]["model_type"], json.dumps(published["config"], sort_keys=True))
            for published in PUBLISHED
        }
    )
    assert {kind for kind in described() if sizes[kind] == 1} == OF_ONE_SIZE
    assert {kind for kind in described() if sizes[kind] == 0} == UNSEEN
