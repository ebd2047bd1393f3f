"""Writing GGUF, the file of llama.cpp: llamas and similar with different layers as architecture ``deci``.

Its readers take the heads, KV heads and FFN width of each layer from arrays.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from transformers import PreTrainedConfig

try:
    from gguf import GGML_QUANT_VERSION, GGMLQuantizationType, GGUFWriter
except ModuleNotFoundError:
    raise ModuleNotFoundError("format gguf needs the package gguf: pip install 'zerolm[gguf]'") from None

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.configuration import FACTORS
from zerolm.checkpoints.gguf.same_tokens import require
from zerolm.checkpoints.weight_types import BY_NAME, STORED
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.child_config import child_config
from zerolm.children.gguf.file_tensors import GgufTensor, Typed, check_names, entries
from zerolm.children.gguf.keys import USUAL, add_keys, check_needs, counts_by_layer
from zerolm.children.gguf.rope import add_rope, factors_of, parameters_of, rotated
from zerolm.children.gguf.tokenizer import add_vocabulary, proven
from zerolm.families.family import Family
from zerolm.families.known import families
from zerolm.io.full_disk import check_room
from zerolm.networks.opener import text_config
from zerolm.progress import Progress, silent
from zerolm.units.kept_units import Cut

MAX_CONTEXT: Final = (1 << 31) - 1
ACTIVATIONS: Final = ("hidden_activation", "hidden_act", "activation_function", "activation")
"""Names for the activation of an FFN in stock configurations."""


def expressible(checkpoint: Checkpoint, cut: Cut) -> None:
    """Raise ``ValueError`` for a child that GGUF cannot express, or that is known to be read wrongly.

    Raises ``ModuleNotFoundError`` where the written file could not be checked.
    """
    require()
    _check(checkpoint, cut)
    _described(checkpoint, cut, "")


def write(child: Child, file: Path, typed: Typed | None = None, *, progress: Progress = silent) -> None:
    """Write a child as one new file, with matrices as ``typed`` if given; it appears when it is complete.

    One tensor at a time is in memory. ``progress`` gets the bytes written and the total. Raises
    ``ValueError`` for a child that is not ``expressible``.
    """
    _check(child.parent, child.cut)
    if file.exists():
        raise ValueError(f"output {str(file)!r} exists; name another")
    writer = _described(child.parent, child.cut, file.stem)
    tensors = [*_factors(child.parent, child.cut), *entries(child, typed)]
    check_room(file.parent, sum(tensor.bytes for tensor in tensors))
    writer.add_file_type(_file_type(tensors))
    if typed is not None:
        writer.add_quantization_version(GGML_QUANT_VERSION)
    for tensor in tensors:
        kind = GGMLQuantizationType[tensor.dtype]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.bytes, kind)
    handle, unfinished = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    os.close(handle)
    try:
        _write(writer, tensors, Path(unfinished), progress)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, file)
    finally:
        writer.close()
        Path(unfinished).unlink(missing_ok=True)


def _file_type(tensors: Sequence[GgufTensor]) -> int:
    """Return the number of the type of most weights; a 16-bit type if there is any, and none quantised."""
    counts = Counter[str]()
    for tensor in tensors:
        counts[tensor.dtype] += math.prod(tensor.shape) if len(tensor.shape) > 1 else 0
    stored = [each.name for each in STORED if each.name in counts and each.bytes == 2]
    if stored and set(counts) <= {each.name for each in STORED}:
        return BY_NAME[stored[-1]].file
    return BY_NAME[counts.most_common(1)[0][0]].file


def _write(writer: GGUFWriter, tensors: list[GgufTensor], file: Path, progress: Progress) -> None:
    """Write the header and the tensors, flushed to disk on return."""
    writer.write_header_to_file(file)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    total, done = sum(tensor.bytes for tensor in tensors), 0
    for tensor in tensors:
        writer.write_tensor_data(tensor.values())
        done += tensor.bytes
        progress("writing the weights", done, total)
    writer.close()
    with file.open("rb+") as written:
        os.fsync(written.fileno())


def _check(checkpoint: Checkpoint, cut: Cut) -> None:
    family, kinds = checkpoint.family, checkpoint.config.get("architectures") or []
    if family.gguf is None:
        possible = ", ".join(name for name, family in families().items() if family.gguf)
        raise ValueError(f"gguf is written of {possible}, not of {family.name}; --format hf is")
    if family.task == "next" and not any(name in family.head_classes for name in kinds):
        raise ValueError(
            f"gguf is written of {family.head_classes[0]}, with a language-model head, not of "
            f"{kinds[0] if kinds else 'a checkpoint that names no class'}; --format hf is"
        )
    roles = (slot.role for slot in checkpoint.layout.slots.values())
    answers = next((role for role in roles if role.startswith(("classifier", "answers"))), None)
    if family.task == "masked" and answers:
        raise ValueError(
            f"gguf encoders output embeddings, and this {family.name} has a {answers}, which would be lost; "
            "--format hf keeps it"
        )
    if cut.narrowing and not family.cut.hidden:
        raise ValueError(f"hidden cannot be cut of a {family.name}: {family.cut.hidden_note}")
    have = tuple(map(bool, cut.parent.units))
    if not cut.layers or any(tuple(map(bool, sizes)) != have for sizes in cut.sizes.values()):
        raise ValueError("gguf needs a layer, and in each layer a KV group and an FFN neuron")
    if not cut.uniform:
        check_uneven(family)
    heads = cut.parent.counts(cut.layers[0].sizes)["heads"]
    if family.gguf.square and heads * cut.parent.head_size != cut.hidden:
        raise ValueError(
            f"queries have the hidden size {cut.hidden} in gguf's architecture {family.gguf.architecture}, "
            f"not {heads} heads of {cut.parent.head_size}: --keep-heads 1 --keep-hidden 1 keeps both"
        )
    _check_memories(checkpoint, cut)
    check_names(checkpoint, [kept.layer for kept in cut.layers])
    positions = checkpoint.layout.sizes["positions"]
    window = min(filter(None, checkpoint.layout.windows), default=positions)
    if not family.gguf.windows and window < positions:  # the architecture ignores it
        raise ValueError(
            f"gguf has no window in its architecture {family.gguf.architecture}, this model has one of "
            f"{window}: --format hf keeps it; for shorter texts, set max_position_embeddings to {window}"
        )


def check_uneven(family: Family) -> None:
    """Raise ``ValueError`` where the layers of a family's architecture have one size."""
    if family.gguf is not None and family.gguf.alike:
        raise ValueError(
            f"gguf has one size for all layers in its architecture {family.gguf.architecture}: give --shape "
            "uniform, or --format padded, which is as large as its largest layer"
        )


def _check_memories(checkpoint: Checkpoint, cut: Cut) -> None:
    """Raise ``ValueError`` where all layers keep keys, or all a state: readers of a hybrid need both."""
    states = checkpoint.family.config.kinds_with_state
    has_state = {not checkpoint.layout.kinds[kept.layer].isdisjoint(states) for kept in cut.layers}
    if states and len(has_state) == 1:
        missing = "attends" if has_state == {True} else f"is {' or '.join(sorted(states))}"
        raise ValueError(f"gguf needs a layer that {missing} in a child of a {checkpoint.family.name}")


def _stock(checkpoint: Checkpoint, cut: Cut) -> PreTrainedConfig:
    """Return the configuration with the defaults of its stock class."""
    gguf = checkpoint.family.gguf
    assert gguf is not None
    config = child_config(checkpoint, cut) if gguf.alike else text_config(checkpoint)
    activation = next((getattr(config, name) for name in ACTIVATIONS if getattr(config, name, None)), None)
    if gguf.activations and activation not in gguf.activations:
        possible = " or ".join(gguf.activations)
        raise ValueError(f"gguf has the activation {possible} for this family, not {activation}")
    check_needs(checkpoint.family, config)
    return config


def _described(checkpoint: Checkpoint, cut: Cut, name: str) -> GGUFWriter:
    """Return a writer with the sizes and the tokenizer."""
    config, parent, gguf = _stock(checkpoint, cut), cut.parent, checkpoint.family.gguf
    assert gguf is not None
    factors_of(config, gguf.architecture)
    writer = GGUFWriter(None, gguf.architecture)
    writer.add_name(name)
    writer.add_vocab_size(checkpoint.layout.vocab)
    writer.add_context_length(min(checkpoint.layout.sizes["positions"], MAX_CONTEXT))
    writer.add_embedding_length(cut.hidden)
    writer.add_block_count(len(cut.layers))
    usual: dict[str, Any] = {}
    for key in USUAL:
        counts = counts_by_layer(checkpoint, cut, key)
        usual[key] = counts[0] if gguf.alike and key not in gguf.by_kind else counts
    usual |= {"key_length": parent.head_size, "value_length": parent.head_size}
    if parameters_of(config):
        usual["rope_dimension_count"] = rotated(config, parent.head_size)
    for key, size in usual.items():
        if key not in gguf.sizes:
            getattr(writer, f"add_{key}")(size)
    add_rope(writer, config, gguf.architecture)
    add_keys(writer, checkpoint, cut, config)
    vocabulary = proven(checkpoint)
    if vocabulary is None:
        writer.add_tokenizer_model("no_vocab")
    else:
        add_vocabulary(writer, vocabulary)
    return writer


def _factors(checkpoint: Checkpoint, cut: Cut) -> list[GgufTensor]:
    """Return the tensor of frequency divisors, if any."""
    assert checkpoint.family.gguf is not None
    factors = factors_of(_stock(checkpoint, cut), checkpoint.family.gguf.architecture)
    return [] if factors is None else [GgufTensor(FACTORS, "F32", factors.shape, lambda: factors)]
