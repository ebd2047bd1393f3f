"""The runtimes, as data.

Read in the sources of vLLM, SGLang, TensorRT-LLM (PyTorch backend), mlx-lm and llama.cpp up to 2026, and in
part tried: transformers 5.23 refuses a llama or gemma2 whose heads do not divide the hidden size; llama.cpp
takes any number of heads for llama, qwen3 and gemma2, and for qwen2 only if heads x head size is the hidden
size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Runtime:
    """How a runtime goes about a folder; which classes it implements stands with each family.

    It goes by the names in ``architectures``, or ``by_model_type``, or takes ``any_class``. ``others``: what
    becomes of another class. ``checks_heads``: configurations pass through transformers, which checks them.
    ``only_safetensors``: it reads no pickles and no files under other names; ``gguf``: some of these, too.
    """

    name: str
    any_class: bool = False
    by_model_type: bool = False
    others: str = "is not in its list"
    others_refused: bool = True
    checks_heads: bool = True
    only_safetensors: bool = False
    gguf: bool = False


FALLBACK: Final = "is not in its list, and whether it falls back on transformers' class is not examined"
TRANSFORMERS: Final = Runtime("transformers", any_class=True, others_refused=False)
LLAMA_CPP: Final = Runtime(
    "llama.cpp",
    others="is not known to be in the list of its converter",
    others_refused=False,
    checks_heads=False,
)
SERVERS: Final = (
    Runtime("vLLM", others=FALLBACK, others_refused=False, gguf=True),
    Runtime("SGLang", others=FALLBACK, others_refused=False, gguf=True),
    Runtime("TensorRT-LLM"),
    Runtime(
        "MLX",
        by_model_type=True,
        others="is not among those of mlx-lm that zerolm knows",
        others_refused=False,
        checks_heads=False,
        only_safetensors=True,
    ),
)
