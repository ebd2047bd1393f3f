"""A llama in a few lines of torch, whose layers have any sizes and hold what rival methods add to them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from zerolm.networks.compute import Compute, computed

GROUP: Final = 32
"""Sequences that are run at once."""


@dataclass(eq=False)
class Block:
    """The tensors of one layer, matrices (outputs, inputs); what is None is not stored.

    ``attention_skip`` and ``ffn_skip`` (k, k') stand on the residual path around a sub-block.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    attention_gain: Tensor | None = None
    ffn_gain: Tensor | None = None
    o_bias: Tensor | None = None
    down_bias: Tensor | None = None
    attention_skip: Tensor | None = None
    ffn_skip: Tensor | None = None

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return sum(x.numel() for field in fields(self) if (x := getattr(self, field.name)) is not None)


class Network(nn.Module):
    """A decoder whose logits are ``head`` (v, k) times the normalised stream; of None the embedding's."""

    def __init__(self, like: Network | PreTrainedModel, embedding: Tensor, blocks: list[Block]) -> None:
        super().__init__()
        self.config, self.embedding, self.blocks = like.config, embedding, blocks
        self.gain: Tensor | None = None
        self.head: Tensor | None = None
        self.head_size = int(like.config.head_dim)
        self.device = embedding.device
        computed(self, Compute(self.device))

    @classmethod
    def of(cls, model: PreTrainedModel) -> Network:
        """Return the same network as a stock llama."""
        if model.config.model_type != "llama" or not model.config.tie_word_embeddings:
            raise ValueError("only a llama with a tied head is compared here")
        w = {name.removeprefix("model."): x.detach().float() for name, x in model.named_parameters()}
        blocks = []
        for layer in range(model.config.num_hidden_layers):
            of = f"layers.{layer}."
            inner = [w[f"{of}self_attn.{role}_proj.weight"] for role in "qkvo"]
            outer = [w[f"{of}mlp.{role}_proj.weight"] for role in ("gate", "up", "down")]
            gains = [w[f"{of}{name}_layernorm.weight"] for name in ("input", "post_attention")]
            blocks.append(Block(*inner, *outer, *gains))
        network = cls(model, w["embed_tokens.weight"], blocks)
        network.gain = w["norm.weight"]
        return network

    def folded(self) -> Network:
        """Return the same network with its gains in the matrices behind them, its head of its own."""
        blocks = []
        for b in self.blocks:
            reads = [x * b.attention_gain for x in (b.q, b.k, b.v)]
            blocks.append(Block(*reads, b.o, b.gate * b.ffn_gain, b.up * b.ffn_gain, b.down))
        network = Network(self, self.embedding, blocks)
        network.head = self.embedding * self.gain
        return network

    @property
    def body(self) -> int:
        """Return the parameters of the layers."""
        return sum(block.size for block in self.blocks)

    @property
    def size(self) -> int:
        """Return the parameters of all that is stored."""
        rest = (self.embedding, self.gain, self.head)
        return self.body + sum(x.numel() for x in rest if x is not None)

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> CausalLMOutput:
        x = self.embedding[input_ids]
        for block in self.blocks:
            x = self.after_attention(block, x, self.heads(block, x))
            x = self.after_ffn(block, x, self.neurons(block, x))
        return CausalLMOutput(logits=self.logits(x))

    def logits(self, x: Tensor) -> Tensor:
        return self.norm(x, self.gain) @ (self.embedding if self.head is None else self.head).T

    def norm(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        """Return the stream (b, t, k) over its root mean square, times a gain (k,)."""
        x = functional.rms_norm(x, x.shape[-1:], eps=self.config.rms_norm_eps)
        return x if gain is None else x * gain

    def heads(self, block: Block, x: Tensor) -> Tensor:
        """Return what the heads send to the output matrix, (b, t, heads x head size)."""
        x = self.norm(x, block.attention_gain)
        if not len(block.q):
            return x[..., :0]
        q, k, v = (
            (x @ w.T).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (b, h, t, e)
            for w in (block.q, block.k, block.v)
        )
        cos, sin = self.rotary(x.shape[1])
        q, k = (x * cos + half_turned(x) * sin for x in (q, k))
        sent = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return sent.transpose(1, 2).flatten(2)

    def neurons(self, block: Block, x: Tensor) -> Tensor:
        """Return what the neurons send to the output matrix, (b, t, f)."""
        x = self.norm(x, block.ffn_gain)
        return functional.silu(x @ block.gate.T) * (x @ block.up.T)

    def after_attention(self, block: Block, x: Tensor, sent: Tensor) -> Tensor:
        return added(x, block.attention_skip, sent @ block.o.T, block.o_bias)

    def after_ffn(self, block: Block, x: Tensor, sent: Tensor) -> Tensor:
        return added(x, block.ffn_skip, sent @ block.down.T, block.down_bias)

    def rotary(self, length: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of positions, (t, head size) each."""
        steps = torch.arange(0, self.head_size, 2).float() / self.head_size
        angles = torch.outer(
            torch.arange(length).float(), self.config.rope_parameters["rope_theta"] ** -steps
        )
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def added(x: Tensor, skip: Tensor | None, sent: Tensor, bias: Tensor | None) -> Tensor:
    """Return the stream and what a sub-block sends into it, (b, t, k)."""
    x = (x if skip is None else x @ skip) + sent
    return x if bias is None else x + bias


def states(network: Network, ids: Tensor) -> list[Tensor]:
    """Return the stream of sequences (n, t) before each sub-block and at the end, (n, t, d) each."""
    found: list[list[Tensor]] = [[] for _ in range(2 * len(network.blocks) + 1)]
    for rows in ids.split(GROUP):
        x = network.embedding[rows]
        for place, block in enumerate(network.blocks):
            found[2 * place].append(x)
            x = network.after_attention(block, x, network.heads(block, x))
            found[2 * place + 1].append(x)
            x = network.after_ffn(block, x, network.neurons(block, x))
        found[-1].append(x)
    return [torch.cat(site) for site in found]
