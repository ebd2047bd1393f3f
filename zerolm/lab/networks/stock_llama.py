"""Networks of the space ``blocks`` as stock llamas: what is shared becomes copies, what is missing zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from zerolm.architecture import Architecture
from zerolm.lab.spaces.blocks import LlamaBlocks
from zerolm.networks.modules.layer import Stack
from zerolm.networks.modules.llama import GatedFeedForward, GroupedAttention

Weights = dict[str, Tensor]


def stock_llama(space: LlamaBlocks, architecture: Architecture, network: Stack) -> PreTrainedModel:
    """Return the stock model (llama, or mistral where its heads ask for that) with a network's outputs.

    ``save_pretrained`` makes it a checkpoint. It stores more than was trained: ``space.llama_form`` gives
    its shapes, and so its costs.
    """
    llama, stored = space.llama_form(architecture)
    config = cast(dict[str, Any], llama.config(stored))
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))  # type: ignore[no-untyped-call]
    tokens = network.embeddings.get_parameter("weight")
    weights: Weights = {
        "model.embed_tokens.weight": tokens,
        "model.norm.weight": network.final.get_parameter("weight"),
        "lm_head.weight": tokens if llama.tied else network.head.get_parameter("linear.weight"),
    }
    layers = (stock_layer for layer in network.layers for stock_layer in _stock_layers(layer, stored))
    for place, layer in enumerate(layers):
        weights |= {f"model.layers.{place}.{name}.weight": weight for name, weight in layer.items()}
    model.load_state_dict({name: weight.detach().to(tokens.dtype) for name, weight in weights.items()})
    stock: PreTrainedModel = model.to(tokens.dtype).train(False)
    return stock


def _stock_layers(layer: nn.Module, stored: Architecture) -> Iterator[Weights]:
    """Yield the stock layers of one: its attention with its first FFN, then every other FFN by itself.

    What a layer lacks adds nothing to the residual stream.
    """
    shape = stored.layers[0]
    zeros = {_name(m.role, m.name): torch.zeros(m.rows, m.cols) for m in shape.matrices}
    zeros |= dict.fromkeys(("input_layernorm", "post_attention_layernorm"), torch.ones(shape.width))
    attention, ffns = layer.get_submodule("attention"), list(layer.get_submodule("ffn").children())
    for place in range(max(1, len(ffns))):
        yield {
            **zeros,
            **(_attention(attention, stored) if place == 0 else {}),
            **(_ffn(ffns[place], stored) if ffns else {}),
        }


def _attention(step: nn.Module, stored: Architecture) -> Weights:
    """Return attention with every head as often as it is used, one copy after the other."""
    inner, size = step.get_submodule("inner"), int(stored.choices["head_size"])
    assert isinstance(inner, GroupedAttention)
    copies = int(stored.choices["kv_heads"]) // inner.kv_heads
    weights = {"input_layernorm": step.get_parameter("norm.weight"), _name("attention", "o"): inner.o.weight}
    for name, used in zip("qkv", inner.uses, strict=True):
        weight = inner.get_submodule(used).get_parameter("weight")
        heads = weight.reshape(-1, size, weight.shape[1])  # (heads, s, d)
        repeated = heads.repeat_interleave(1 if name == "q" else copies, dim=0)
        weights[_name("attention", name)] = repeated.flatten(0, 1)
    return weights


def _ffn(step: nn.Module, stored: Architecture) -> Weights:
    inner, width = step.get_submodule("inner"), int(stored.choices["ffn"])
    assert isinstance(inner, GatedFeedForward)
    more = (0, 0, 0, width - inner.gate.out_features)
    return {
        _name("ffn", "gate"): nn.functional.pad(inner.gate.weight, more),
        _name("ffn", "up"): nn.functional.pad(inner.up.weight, more),
        _name("ffn", "down"): nn.functional.pad(inner.down.weight.T, more).T,
        "post_attention_layernorm": step.get_parameter("norm.weight"),
    }


def _name(role: str, matrix: str) -> str:
    return f"{'self_attn' if role == 'attention' else 'mlp'}.{matrix}_proj"
