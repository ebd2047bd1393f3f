"""Small decoders, and an encoder, whose rows fall into blocks of weights of GGUF types; texts for them."""

from pathlib import Path
from typing import Any

import torch
from bert_tokenizers import bert_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
)

VOCAB = 320
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 64, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip


def typed_parent(folder: Path, dtype: torch.dtype = torch.bfloat16, seed: int = 0, **sizes: Any) -> Path:
    """A llama in the folder, with a tokenizer of pairs of bytes; rows fall into blocks of 32."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**SIZES | sizes))
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() == 2 else 1.0)  # predictions that are not all alike
    model.to(dtype).save_pretrained(folder)
    words_of_bytes().save_pretrained(folder)
    return folder


def fused_parent(folder: Path) -> Path:
    """A phi3 in the folder, whose queries, keys and values are one matrix, and gates and FFN inputs."""
    torch.manual_seed(0)
    model = Phi3ForCausalLM(Phi3Config(**SIZES))
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() == 2 else 1.0)
    model.save_pretrained(folder)
    words_of_bytes().save_pretrained(folder)
    return folder


def typed_encoder(folder: Path, kind: str = "bert", seed: int = 0) -> Path:
    """An encoder in the folder, with a tokenizer of pieces of words; rows fall into blocks of 32."""
    torch.manual_seed(seed)
    sizes = {**SIZES, "pad_token_id": 0, "max_position_embeddings": 32}
    if kind == "distilbert":
        names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "intermediate_size": "hidden_dim"}
        sizes = {names.get(name, name): size for name, size in sizes.items()} | {"n_heads": 4}
    if kind == "modernbert":
        sizes |= {"cls_token_id": 2, "sep_token_id": 3, "local_attention": 8}
    if kind in ("bert", "modernbert"):
        del sizes["num_key_value_heads"]
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes))
    for parameter in model.parameters():
        parameter.data.mul_(4.0 if parameter.dim() == 2 else 1.0)  # embeddings that are not all alike
    model.save_pretrained(folder)
    bert_tokenizer([f"w{i} W{i}x" for i in range(64)], VOCAB).save_pretrained(folder)
    return folder


def some_lines(file: Path, count: int = 60, seed: int = 0) -> Path:
    """A text of so many lines of a few words each."""
    words = some_words(file, 12 * count, seed).read_text().split()
    lines, start = [], 0
    for number in range(count):
        lines.append(" ".join(words[start : start + 3 + number % 8]))
        start += 3 + number % 8
    file.write_text("\n".join(lines))
    return file


def words_of_bytes() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with a token for most of 64 words."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["</s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([" ".join(f"w{i}" for i in range(64)) * 2], trainer)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")


def some_words(file: Path, count: int = 4000, seed: int = 0) -> Path:
    """A text of these words, some of them rare."""
    generator = torch.Generator().manual_seed(seed)
    ids = (64 * torch.rand(count, generator=generator) ** 2).long().clamp(max=63)
    file.write_text(" ".join(f"w{i}" for i in ids.tolist()))
    return file
