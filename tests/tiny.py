"""Tiny random models of every family, as transformers saves them."""

from pathlib import Path
from typing import Any

import torch
import transformers

DECODER = {
    "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 40, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", DECODER),
    "llama_tied": ("LlamaForCausalLM", DECODER | {"tie_word_embeddings": True, "head_dim": 12}),
    "llama_biased": ("LlamaForCausalLM", DECODER | {"attention_bias": True, "mlp_bias": True}),
    "llama_body": ("LlamaModel", DECODER),
    "llama_classes": ("LlamaForSequenceClassification", DECODER | {"pad_token_id": 0}),
    "mistral": ("MistralForCausalLM", DECODER | {"sliding_window": 8}),
    "mistral_odd": ("MistralForCausalLM", DECODER | {"num_attention_heads": 10, "head_dim": 8}),
    "qwen2": ("Qwen2ForCausalLM", DECODER),
    "qwen2_tied": ("Qwen2ForCausalLM", DECODER | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", DECODER | {"head_dim": 16}),
    "qwen3_biased": ("Qwen3ForCausalLM", DECODER | {"attention_bias": True}),
    "gemma2": ("Gemma2ForCausalLM", DECODER | {"head_dim": 16, "query_pre_attn_scalar": 16}),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 64, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 32}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "gpt2_wide": (
        "GPT2Model",
        {"vocab_size": 64, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_inner": 100}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "bert": (
        "BertModel",
        {"vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
        | {"intermediate_size": 40, "max_position_embeddings": 32},
    ),
}
MODELS["bert_masked"] = ("BertForMaskedLM", MODELS["bert"][1])
MODELS["bert_untied"] = ("BertForPreTraining", MODELS["bert"][1] | {"tie_word_embeddings": False})
MODELS["bert_classes"] = ("BertForSequenceClassification", MODELS["bert"][1])


def model(name: str, seed: int = 0, dtype: str = "float32") -> Any:
    """A model whose weights, biases and norms are all random."""
    kind, settings = MODELS[name]
    made = getattr(transformers, kind)
    generator = torch.Generator().manual_seed(seed)
    network = made(made.config_class(**settings)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return network.to(getattr(torch, dtype))


def saved(folder: Path, name: str, seed: int = 0, dtype: str = "float32", shard: str = "5GB") -> Path:
    model(name, seed, dtype).save_pretrained(folder, max_shard_size=shard)
    return folder


def logits_of(network: Any) -> Any:
    """A network as a function from token ids to logits."""
    return lambda ids: network(input_ids=ids).logits


def word_tokenizer(folder: Path, special: str | None = None) -> None:
    """A tokenizer of 64 words beside the tiny model, so that text can be read."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    known = {"pad_token": special} if special else {}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **known).save_pretrained(folder)


def byte_tokenizer(folder: Path) -> None:
    """A tokenizer of pairs of bytes beside a tiny qwen2, whose stock class reads no other."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = " ".join(f"w{i}" for i in range(64))
    tokenizer.train_from_iterator([words], trainers.BpeTrainer(vocab_size=60, show_progress=False))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
