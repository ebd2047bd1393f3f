"""What each runtime asks of a checkpoint, as data.

Read in the sources of vLLM, SGLang, TensorRT-LLM (PyTorch backend), mlx-lm and llama.cpp up to 2026, and in
part tried: transformers 5.23 refuses a llama or gemma2 whose heads do not divide the hidden size; llama.cpp
takes any number of heads for llama, qwen3 and gemma2, and for qwen2 only if heads x head size is the hidden
size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OPENS, REFUSES, UNKNOWN = "opens", "refuses", "unknown"


@dataclass(frozen=True)
class Verdict:
    """``opens``: whole; ``refuses``: it stops, or would leave weights out; ``unknown``.

    ``known`` by having it ``opened`` just now, or by ``rules``.
    """

    runtime: str
    verdict: str
    known: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Runtime:
    """What a runtime asks of a folder.

    ``classes``: of ``architectures``, those with names and shapes as transformers has them that it implements
    (None: it goes by ``model_type``, ``kinds``). ``others``: what becomes of another class. ``checks_heads``:
    configurations pass through transformers, which checks them. ``derives`` names families whose head size
    it takes as hidden size / heads, ``may_derive`` those where its versions differ; ``fourfold`` those whose
    FFN width it takes as 4 x hidden size. ``only_safetensors``: it reads no pickles and no files under other
    names; ``gguf``: some of these, too.
    """

    name: str
    classes: tuple[str, ...] | None
    kinds: tuple[str, ...] = ()
    others: str = "is not in its list"
    others_refused: bool = True
    checks_heads: bool = True
    derives: tuple[str, ...] = ()
    may_derive: tuple[str, ...] = ()
    fourfold: tuple[str, ...] = ()
    only_safetensors: bool = False
    gguf: bool = False


GATED: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
SERVED: Final = (
    *GATED,
    "Gemma2ForCausalLM",
    "GPT2LMHeadModel",
    "BertModel",
    "BertForSequenceClassification",
)
FALLBACK: Final = "is not in its list, and whether it falls back on transformers' class is not examined"
TRANSFORMERS: Final = Runtime("transformers", (), others_refused=False)
LLAMA_CPP: Final = Runtime(
    "llama.cpp",
    (*GATED, "Gemma2ForCausalLM", "GPT2LMHeadModel", "BertModel", "LlamaModel", "Qwen2Model", "Qwen3Model"),
    others="is not known to be in the list of its converter",
    others_refused=False,
    checks_heads=False,
    derives=("qwen2",),
    fourfold=("gpt2",),
)
SERVERS: Final = (
    Runtime(
        "vLLM",
        (*SERVED, "LlamaModel", "MistralModel", "Qwen2Model", "Gemma2Model"),
        others=FALLBACK,
        others_refused=False,
        may_derive=("qwen2",),
        gguf=True,
    ),
    Runtime(
        "SGLang",
        SERVED,
        others=FALLBACK,
        others_refused=False,
        may_derive=("qwen2",),
        gguf=True,
    ),
    Runtime("TensorRT-LLM", (*GATED, "BertForSequenceClassification")),
    Runtime(
        "MLX",
        None,
        kinds=("llama", "mistral", "qwen2", "qwen3", "gemma2"),
        others="is not among those of mlx-lm that zerolm knows",
        others_refused=False,
        checks_heads=False,
        derives=("qwen2",),
        fourfold=("gpt2",),
        only_safetensors=True,
    ),
)
