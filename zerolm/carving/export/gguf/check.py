"""The proof of a GGUF file: llama.cpp opens it and does what torch and the tokenizer do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import GGMLQuantizationType, LlamaFileType
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.carving.export.verify import Verified
from zerolm.text.many_scripts import PAGE

CHECKED_LENGTH: Final = 32
LOGIT_ROUNDING: Final = {LlamaFileType.ALL_F32: 0.0, LlamaFileType.MOSTLY_F16: 4e-3}
"""The error, of the largest logit, of readers that round to 16 bits what they multiply by weights."""
COARSELY: Final = 3e-2
"""The same of readers that round to bfloat16, or to blocks of 8 bits as beside quantised weights."""


def require() -> None:
    """``ModuleNotFoundError`` where llama-cpp-python is not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise ModuleNotFoundError("a gguf file is checked with llama-cpp-python: pip install 'zerolm[gguf]'")


def check(
    file: Path,
    reference: Callable[[Tensor], Tensor],
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    tolerance: float = 5e-3,
) -> Verified:
    """Open a file with llama.cpp; ``ValueError`` where logits or token ids differ from the reference's.

    ``reference`` gives logits (1, t, v) of token ids (1, t). Those of some thirty random tokens may differ by
    ``tolerance``; with 16-bit weights also by what rounding explains. Token ids are those of a page in many
    scripts, and of each added token by itself.
    ``ModuleNotFoundError`` without llama-cpp-python.
    """
    opened = _open(file)
    try:
        if tokenizer is not None:
            _compare_tokens(opened, tokenizer)
        return _compare_logits(opened, reference, tolerance)
    finally:
        opened.close()


def _open(file: Path) -> Any:
    """Open the file in llama.cpp, on one thread, with keys and values in float32."""
    require()
    from llama_cpp import Llama

    full = GGMLQuantizationType.F32
    settings: dict[str, Any] = {"n_ctx": CHECKED_LENGTH, "n_batch": CHECKED_LENGTH}
    settings |= {"type_k": full, "type_v": full, "n_threads": 1, "n_threads_batch": 1}
    try:
        with redirect_stderr(StringIO()):  # it tells of its padding even where it is told not to
            return Llama(str(file), logits_all=True, verbose=False, **settings)
    except Exception as error:  # also those of the parser of chat templates
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"llama.cpp does not open {str(file)!r}: {reason}") from None


def _compare_logits(opened: Any, reference: Callable[[Tensor], Tensor], tolerance: float) -> Verified:
    length = min(
        CHECKED_LENGTH, int(opened.metadata[f"{opened.metadata['general.architecture']}.context_length"])
    )
    ids = np.random.default_rng(0).integers(opened.n_vocab(), size=length).tolist()
    for token in ids:  # several at a time crash some builds, where weights are quantised
        opened.eval([token])
    ours = torch.from_numpy(opened.scores[:length].copy())  # (length, vocab)
    with torch.no_grad():
        theirs = reference(torch.tensor([ids]))[0].float()
    difference, largest = float((ours - theirs).abs().max()), float(theirs.abs().max())
    rounding = LOGIT_ROUNDING.get(LlamaFileType(int(opened.metadata["general.file_type"])), COARSELY)
    if not difference <= max(tolerance, rounding * largest):
        raise ValueError(f"llama.cpp's logits differ from the carved parent's by {difference:.3g}")
    return Verified(difference, difference / max(largest, 1e-12))


def _compare_tokens(opened: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    theirs = [int(token) for token in tokenizer(PAGE)["input_ids"]]
    ours = opened.tokenize(PAGE.encode(), add_bos=True, special=True)
    if ours != theirs:
        place = next(i for i, pair in enumerate(zip_longest(ours, theirs)) if pair[0] != pair[1])
        raise ValueError(
            f"llama.cpp reads a page of text as other tokens than the tokenizer, from the token {place} on: "
            f"{ours[place : place + 4]} instead of {theirs[place : place + 4]}"
        )
    for text, token in tokenizer.get_added_vocab().items():
        read = opened.tokenize(text.encode(), add_bos=False, special=True)
        if read != [token]:
            raise ValueError(f"llama.cpp reads the added token {text!r} as {read} instead of {token}")
