"""Published decoders: counts as their authors give them and as transformers builds them."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.known import families
from zerolm.spaces.decoders import SPACE_OF, Decoder, decoders
from zerolm.spaces.membership import exclusions

EIGHT = (
    *("SmolLM2-135M", "SmolLM2-360M", "SmolLM2-1.7B", "MobileLLM-125M"),
    *("Qwen2.5-0.5B", "Qwen3-0.6B", "Llama-3.2-1B", "TinyLlama-1.1B"),
)
"""Those that the default space of their family holds."""
EVERY = pytest.mark.parametrize("decoder", decoders().values(), ids=decoders().keys())


def config(decoder: Decoder) -> dict[str, object]:
    """Return what its ``config.json`` says of its shape."""
    biases = {"attention_bias": False} if decoder.family == "olmo" else {}
    return {
        "vocab_size": decoder.vocab, "hidden_size": decoder.choices["hidden"],
        "intermediate_size": decoder.choices["ffn"], "num_hidden_layers": decoder.choices["depth"],
        "num_attention_heads": decoder.choices["heads"], "num_key_value_heads": decoder.choices["kv_heads"],
        "head_dim": decoder.choices["head_size"], "max_position_embeddings": decoder.positions,
        "tie_word_embeddings": decoder.tied, "pad_token_id": 0, **biases,
    }  # fmt: skip


def test_names_are_told_apart() -> None:
    names = [name.casefold() for d in decoders().values() for name in (d.name, d.hub)]
    assert len(set(names)) == len(names) == 2 * len(decoders())
    assert all("/" in decoder.hub for decoder in decoders().values())
    assert decoders().keys() >= set(EIGHT)


@EVERY
def test_counts_are_the_published_ones(decoder: Decoder) -> None:
    costs = CostModel().of(decoder.architecture)
    least, most = decoder.published_range
    assert least <= costs["params"] < most
    if decoder.published_body is not None:
        assert costs["body_params"] == decoder.published_body
    assert decoder.source


@EVERY
def test_counts_are_what_transformers_builds(decoder: Decoder) -> None:
    stock = AutoConfig.for_model(decoder.family, **config(decoder))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(stock)
    assert model.num_parameters() == CostModel().of(decoder.architecture)["params"]


@EVERY
def test_its_space_and_its_family_count_the_same(decoder: Decoder) -> None:
    model = CostModel(context=2048)
    costs = model.of(decoder.architecture)
    assert (decoder.space is None) == (decoder.family not in SPACE_OF)
    if decoder.space is not None:
        assert model.of(decoder.space.read(decoder.choices)) == costs
    if decoder.family in families():
        assert model.of(from_config({"model_type": decoder.family, **config(decoder)})) == costs


@pytest.mark.parametrize("name", EIGHT)
def test_the_default_space_holds_eight(name: str) -> None:
    decoder = decoders()[name]
    space = decoder.space
    assert exclusions(space, decoder.choices) == []
    assert space.settings == {
        **type(space)().settings,
        **decoder.document["settings"],
    }  # ranges are the defaults
