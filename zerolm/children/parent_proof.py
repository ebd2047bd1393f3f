"""The proof that zerolm reads the parent as stock software does.

A child is compared with its parent as zerolm reads it. This module compares that reading with transformers,
which loads the folder by its own rules, or with llama.cpp, which opens a GGUF file. So a misread parent is
rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.same_tokens import has_llama_cpp
from zerolm.children.verify import OUTPUT_TOLERANCE, Verified, distance_of, output_of, outputs, states_of
from zerolm.io.brief import one_line
from zerolm.io.memory import give_back
from zerolm.networks.opener import is_decoder, stored_model, without
from zerolm.networks.stock_parent import StockParent
from zerolm.progress import Progress
from zerolm.text.calibration import page_tokens

BYTES_A_WEIGHT: Final = 8
"""Memory per weight of a model that transformers opens as a whole: as stored, and in float32."""


@torch.no_grad()
def compare_with_stock(parent: Checkpoint, memory: int, progress: Progress) -> Verified:
    """Return the distance of a parent's outputs on real tokens from those of stock software.

    ``memory`` is in bytes, for a multimodal or quantised model, which is opened as a whole. ``ValueError``
    names the layer where the two differ by more than rounding; the ``notes`` give the reason if they were not
    compared.
    """
    progress("comparing the parent with stock software")
    if parent.source is not None:
        return _with_llama_cpp(parent, parent.source.file)
    if parent.packed or parent.family.config.at is not None:
        return _as_a_whole(parent, memory)
    ids = page_tokens(parent)
    states, stock_states = states_of(parent, ids), StockParent(parent, {"input_ids": ids}).states()
    proof = _step_by_step(states, stock_states, parent.layout.depth)
    give_back()
    return proof


def _untried(why: str) -> Verified:
    note = f"the parent was not compared with what stock software makes of it: {why}"
    return Verified(0.0, 0.0, notes=(note,))


def _step_by_step(states: Iterator[Any], stock_states: Iterator[Any], depth: int) -> Verified:
    """Compare states one by one; ``ValueError`` names the first that differ."""
    inside = (f"the output of layer {number}" for number in range(depth))
    names = ["the output of the embeddings", *inside, "the output"]
    for name, state, stock_state in zip(names, states, stock_states, strict=True):
        if name is names[-1]:
            state, stock_state = outputs(state), outputs(stock_state)
        proof = _within(state, stock_state, name)
    return proof


def _within(output: Tensor, stock_output: Tensor, name: str) -> Verified:
    """Return the distance of two outputs; ``ValueError`` where it exceeds rounding."""
    if output.shape != stock_output.shape:
        raise ValueError(_differs(name, f"has shape {list(stock_output.shape)}, not {list(output.shape)}"))
    proof = distance_of(output, stock_output)
    if not proof.relative <= OUTPUT_TOLERANCE:
        far = f"{proof.difference:.3g} ({proof.relative:.2g} of the largest)"
        raise ValueError(_differs(name, f"differs by {far}"))
    return proof


def _differs(name: str, how: str) -> str:
    return (
        f"zerolm and transformers {transformers.__version__} read this parent differently: {name} {how}, so "
        "no child of it would be right"
    )


def _as_a_whole(parent: Checkpoint, memory: int) -> Verified:
    """Compare with a model that transformers opens as a whole: a multimodal or a quantised one."""
    needed = BYTES_A_WEIGHT * sum(tensor.count for tensor in parent.tensors.values())
    if needed > memory:
        return _untried(f"it is opened as a whole, which takes {needed / 1e9:.3g} GB")
    opener = _opener(parent)
    if opener is None:
        return _untried(f"transformers {transformers.__version__} has no class that its configuration names")
    ids = page_tokens(parent)
    with one_line(f"the model in {str(parent.folder)!r}"):
        try:
            model, _ = stored_model(parent.folder, opener, **without(parent.wrapper))
        except ImportError as error:  # a format that needs another package
            return _untried(str(error).splitlines()[0])
        stock_output = outputs(nn.Module.float(model).train(False)(input_ids=ids))
    return _within(output_of(parent, ids), stock_output, "the output")


def _opener(parent: Checkpoint) -> Any:
    """Return the stock class that opens a folder: for a multimodal parent the one in its configuration.

    None where transformers has no such class.
    """
    if parent.family.config.at is None:
        return AutoModelForCausalLM if is_decoder(parent) else AutoModel
    named = parent.config.get("architectures") or [""]
    stock = getattr(transformers, named[0], None)
    return stock if isinstance(stock, type) and issubclass(stock, PreTrainedModel) else None


def _with_llama_cpp(parent: Checkpoint, file: Path) -> Verified:
    if not has_llama_cpp():
        return _untried("that takes llama-cpp-python: pip install 'zerolm[gguf]'")
    from zerolm.children.gguf.check import compare_file

    return compare_file(file, lambda ids: output_of(parent, ids), page_tokens(parent))
