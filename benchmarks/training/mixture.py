"""A small mixture of experts with a shared one, whose experts are multiplied in groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

from training.decoder import batches
from training.loop import Curve, train


@dataclass(frozen=True)
class MixtureSettings:
    """Sizes of the model, of its vocabulary and of a batch (sequences x tokens).

    llama.cpp takes ``plain`` ones alone: with gates that do not add up to one, and a head of their own.
    """

    layers: int = 6
    hidden: int = 256
    heads: int = 8
    experts: int = 16
    ffn: int = 256
    vocab: int = 8192
    length: int = 256
    batch: int = 8
    rate: float = 1e-3
    plain: bool = False

    def config(self) -> Qwen2MoeConfig:
        """Four experts a token, and a shared one as wide as two."""
        return Qwen2MoeConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads // 2,
            intermediate_size=4 * self.ffn,
            moe_intermediate_size=self.ffn,
            shared_expert_intermediate_size=2 * self.ffn,
            num_experts=self.experts,
            num_experts_per_tok=4,
            norm_topk_prob=not self.plain,
            decoder_sparse_step=1,
            router_aux_loss_coef=0.01,
            max_position_embeddings=4 * self.length,
            tie_word_embeddings=not self.plain,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )


def mixture(settings: MixtureSettings) -> Qwen2MoeForCausalLM:
    """The network at random: products of all tokens of an expert, and of all experts, are one each."""
    model = Qwen2MoeForCausalLM(settings.config())
    model.set_experts_implementation("grouped_mm")
    return model


def train_mixture(
    model: Qwen2MoeForCausalLM, ids: Tensor, settings: MixtureSettings, *, seconds: float, seed: int
) -> Curve:
    """Next tokens of ``ids`` (tokens,), in sequences, and as many tokens for each expert."""
    feed = batches(ids, settings.length, settings.batch, torch.Generator().manual_seed(seed))

    def loss_of_batch() -> Tensor:
        rows = next(feed)
        out = model(input_ids=rows[:, :-1], use_cache=False, output_router_logits=True)
        surprise = functional.cross_entropy(out.logits.float().flatten(0, 1), rows[:, 1:].flatten())
        balanced: Tensor = surprise + model.config.router_aux_loss_coef * out.aux_loss
        return balanced

    return train(model, loss_of_batch, seconds=seconds, rate=settings.rate)
