"""A model whose weights stay in their files: mapped into memory, in the type that they are stored in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from zerolm.checkpoints import Checkpoint, TensorInfo

STORED: Final = {
    "BF16": (np.uint16, torch.bfloat16),
    "F16": (np.float16, torch.float16),
    "F32": (np.float32, torch.float32),
}
"""How numpy maps what is stored, and what it then is."""


def is_decoder(checkpoint: Checkpoint) -> bool:
    """Whether the model predicts the next token."""
    return checkpoint.family.name != "bert"


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Within, what goes wrong in a library that reads the folder becomes a ``ValueError`` in one line."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # libraries raise what they will, and panics are not even Exceptions
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"{what} cannot be read: {reason}") from None


def stock_config(checkpoint: Checkpoint) -> PreTrainedConfig:
    """The configuration as transformers completes it."""
    with one_line(f"the configuration of {str(checkpoint.folder)!r}"):
        found: PreTrainedConfig = AutoConfig.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=False
        )
        return found


def stock_tokenizer(checkpoint: Checkpoint) -> PreTrainedTokenizerBase:
    """The tokenizer as transformers reads it; no code of the folder runs."""
    with one_line(f"the tokenizer of {str(checkpoint.folder)!r}"):
        return AutoTokenizer.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=False
        )


def mapped_model(checkpoint: Checkpoint) -> PreTrainedModel:
    """The stock model over the mapped files of a checkpoint; its weights take no memory of their own.

    It is for passes layer by layer (``Blocks``), which tell the same as of a model in memory; as a whole it
    does not run. A decoder has its head, an encoder no pooler. Raises ``ValueError`` where a weight is
    missing.
    """
    decoder = is_decoder(checkpoint)
    config = stock_config(checkpoint)
    kind, more = (AutoModelForCausalLM, {}) if decoder else (AutoModel, {"add_pooling_layer": False})
    with one_line(f"the model in {str(checkpoint.folder)!r}"), shapes_only():
        model = kind.from_config(config, trust_remote_code=False, dtype=torch.float32, **more)  # type: ignore[no-untyped-call]
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    prefix = f"{model.base_model_prefix}." if model.base_model is not model else ""
    for stored, name in parameters(checkpoint, prefix).items():
        if name in shapes and shapes[name] == checkpoint.tensors[stored].shape:
            put(model, name, mapped_tensor(checkpoint.tensors[stored]))
    model.tie_weights()
    missing = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if missing:
        raise ValueError(f"{str(checkpoint.folder)!r} lacks {missing[0]!r}, or has it in another shape")
    return model.eval()  # type: ignore[no-any-return]


def parameters(checkpoint: Checkpoint, prefix: str = "") -> dict[str, str]:
    """What the stock model calls each tensor: ``prefix`` stands before the names of the body."""
    family, layout = checkpoint.family, checkpoint.layout
    body = {(p.in_layer, p.role): prefix + p.name for p in family.body}
    names = {(False, p.role): p.name for p in family.head} | body
    return {
        stored: names[slot.layer is not None, slot.role].replace("{layer}", str(slot.layer))
        for stored, slot in layout.slots.items()
        if not (layout.tied and slot.role == "head")
    }


def mapped_tensor(info: TensorInfo) -> Tensor:
    """A stored tensor over the mapped file; what is written into it stays in memory."""
    stored, dtype = STORED[info.dtype]
    raw: Any = np.memmap(info.file, np.uint8, "c", info.start, (info.end - info.start,))
    return torch.from_numpy(np.require(raw.view(stored), requirements="A")).view(dtype).reshape(info.shape)


def put(model: nn.Module, name: str, value: Tensor) -> None:
    """Give a model this parameter."""
    module, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(module), leaf, nn.Parameter(value, requires_grad=False))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within, the parameters of new modules have shapes and no memory; their buffers are real."""
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=False)
        register(module, name, parameter)

    nn.Module.register_parameter = without_memory  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
