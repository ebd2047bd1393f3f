"""Tokens a second of a parent and of children, prompt and decode, in transformers and llama.cpp."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import torch
from parts import Parts
from real_models import Parent, Sizes, text_file
from real_ours import WORK, ran
from transformers import AutoModelForCausalLM

SHARES: Final = (1.0, 0.8, 0.5)
PROMPT, DECODED, REPEATS = 512, 32, 3


def speed_row(parent: Parent, store: Parts) -> None:
    """Measure a parent and children with fewer neurons; which neurons does not matter here."""
    if not parent.is_decoder:
        return
    for share in SHARES:
        for runtime, measure in (("transformers", in_transformers), ("llama.cpp", in_llama_cpp)):
            store.measured(f"{share} speed in {runtime}", lambda m=measure, s=share: m(parent, s))


def child_of(parent: Parent, share: float, form: str) -> Path:
    """Return a child of the parent in a format, its neurons chosen by one pass, and not repaired."""
    folder = WORK / parent.name / f"speed_{share}_{form}"
    if not folder.exists():
        sizes = Sizes.of(parent)
        width = sizes.width(parent, (1.0 - share) * sizes.body)
        kept = ["--keep-ffn", repr(width / parent.sizes.ffn)] if share < 1 else ["--keep", "1"]
        text = ["--text", str(text_file(parent.calibrated, "cal")), "--sequences", "16"]
        by = [*text, "--criterion", "output_energy", "--repair", "none"] if share < 1 else []
        ran(["carve", str(parent.folder), *kept, *by, "--format", form, "--out", str(folder)])
    return folder


def in_transformers(parent: Parent, share: float) -> dict[str, float]:
    """Return tokens a second of one thread, in bfloat16."""
    folder = parent.folder if share == 1 else child_of(parent, share, "hf")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = parent.unseen("python").ids[:1, :PROMPT]
    prompt, decode = [], []
    with torch.no_grad():
        for _ in range(REPEATS):
            start = time.perf_counter()
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            prompt.append(ids.numel() / (time.perf_counter() - start))
            start, cache = time.perf_counter(), out.past_key_values
            token = out.logits[:, -1:].argmax(-1)
            for _ in range(DECODED):
                out = model(input_ids=token, past_key_values=cache, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
            decode.append(DECODED / (time.perf_counter() - start))
    return {"prompt": max(prompt), "decode": max(decode)}


def in_llama_cpp(parent: Parent, share: float) -> dict[str, Any]:
    """Return tokens a second of one thread as stored; or why no file is written."""
    from llama_cpp import Llama

    try:
        folder = child_of(parent, share, "gguf")
    except SystemExit as error:
        return {"refused": str(error)}
    (file,) = folder.glob("*.gguf")
    model = Llama(
        str(file), n_ctx=PROMPT + DECODED, n_batch=PROMPT, n_threads=1, n_threads_batch=1, verbose=False
    )
    ids = parent.unseen("python").ids[0, :PROMPT].tolist()
    prompt, decode = [], []
    for _ in range(REPEATS):
        model.reset()
        start = time.perf_counter()
        model.eval(ids)
        prompt.append(len(ids) / (time.perf_counter() - start))
        start = time.perf_counter()
        for _ in range(DECODED):
            model.eval(ids[-1:])
        decode.append(DECODED / (time.perf_counter() - start))
    return {"prompt": max(prompt), "decode": max(decode), "bytes": file.stat().st_size}
