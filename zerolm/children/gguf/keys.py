"""The keys of a GGUF file besides its usual sizes: scales, windows, experts, rotations, pooling.

The family's document maps each key to an attribute of the stock configuration. The methods of the gguf
package's writer determine the key's full name and its type. The configuration is that of the child, which may
have other layers than the parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from inspect import signature
from itertools import cycle, islice
from typing import Any, Final

from gguf import GGUFWriter, PoolingType
from gguf import constants as gguf_constants
from transformers import PreTrainedConfig

from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.configuration import SIZES_OF_EXPERTS
from zerolm.children.gguf.child_config import MISSING, attribute
from zerolm.families.config import resized
from zerolm.families.family import EQUAL, NO, SAME, Family
from zerolm.families.rule import value
from zerolm.families.values import short
from zerolm.units.kept_units import Cut

RMS: Final = "layer_norm_rms_eps"
EPS: Final = "layer_norm_eps"
MIXTURE: Final = {key: label for label, key in SIZES_OF_EXPERTS.items()}
"""Keys of a mixture of experts, and the sizes that they contain."""
USUAL: Final = {"feed_forward_length": "ffn", "head_count": "heads", "head_count_kv": "kv_heads"}
"""Keys that may differ between layers, and the sizes that they contain."""
SECTIONS: Final = "rope_dimension_sections"
POOLED: Final = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS, "lasttoken": PoolingType.LAST}
"""The poolings that readers support."""
DENSE: Final = "dense"
OF_EXPERTS: Final = "expert_"
LEADING: Final = "leading_dense_block_count"


def check_needs(family: Family, config: PreTrainedConfig) -> None:
    """Raise ``ValueError`` for a child that readers of its architecture would compute differently."""
    assert family.gguf is not None
    for path, wanted in family.gguf.needs.items():
        present = attribute(config, path)
        needed = wanted
        if isinstance(wanted, str) and wanted.startswith(SAME):
            needed = attribute(config, wanted.removeprefix(SAME))
        if isinstance(wanted, list) and isinstance(present, list):
            needed = list(islice(cycle(wanted), len(present)))
        if present is not MISSING and present != needed:
            raise ValueError(
                f"gguf has {path} {wanted} in its architecture {family.gguf.architecture}, and this "
                f"{family.name} has {short(present)}"
            )


def add_keys(writer: GGUFWriter, checkpoint: Checkpoint, cut: Cut, config: PreTrainedConfig) -> None:
    """Add the keys of a family's document, the eps of its norms, and what layers, windows and pooling need.

    Raises ``ValueError`` for an attribute that the configuration lacks, and for what GGUF cannot express.
    """
    family, layout = checkpoint.family, checkpoint.layout
    assert family.gguf is not None
    keys = dict(family.gguf.keys)
    if not {RMS, EPS} & keys.keys():
        keys[RMS] = "rms_norm_eps"
    rules = dict(family.gguf.sizes)
    if _has_experts(checkpoint, cut, LEADING in keys):
        if LEADING not in keys:
            keys[LEADING] = _leading(checkpoint, cut)
        rules |= {key: label for key, label in MIXTURE.items() if key not in rules}
    else:
        keys, rules = (
            {key: of for key, of in each.items() if not key.startswith(OF_EXPERTS)} for each in (keys, rules)
        )
    for key, path in keys.items():
        name, _, text = path.partition(EQUAL) if isinstance(path, str) else ("", "", "")
        present = attribute(config, name) if name else path
        if text:
            present = present == text
        if present is MISSING:
            raise ValueError(f"gguf needs {path}, which the configuration of this {family.name} has not")
        if key in (RMS, EPS) and not 0 < present < 1:
            raise ValueError(f"the configuration has {path} {present}; 0 to 1 are possible")
        if key == SECTIONS:
            present = _sections(config, path, layout.head_size)
        if present is not None:
            _add(writer, key, present)
    sizes = resized(layout, cut.parent.counts(cut.largest))
    for key, rule in rules.items():
        _add(writer, key, value(rule, sizes.size))
    _add_numbers(writer, checkpoint, cut)
    for key, kinds in family.gguf.flagged.items():
        of_these = [not layout.kinds[kept.layer].isdisjoint(kinds) for kept in cut.layers]
        writer.add_array(f"{family.gguf.architecture}.{key}", of_these)
    if family.gguf.windows:
        _add_windows(writer, checkpoint, cut)
    if family.task == "masked":
        _add_pooling(writer, checkpoint)


def _sections(config: PreTrainedConfig, default: Sequence[int], head_size: int) -> list[int]:
    """Return the numbers of rotated pairs for each of the four positions of a token.

    In text all four positions are equal. Raises ``ValueError`` where readers would not accept the sections.
    """
    sections = attribute(config, "rope_parameters.mrope_section")
    sections = default if sections is MISSING or sections is None else sections
    counted = isinstance(sections, list | tuple) and all(type(size) is int and size >= 0 for size in sections)
    if not counted or not 0 < len(sections) <= 4 or not 0 < sum(sections) <= head_size:
        raise ValueError(
            f"gguf has rotations in at most 4 sections, {head_size} pairs in all in heads of this size, and "
            f"this model has mrope_section {short(sections)}"
        )
    return [*sections, 0, 0, 0][:4]


def _has_experts(checkpoint: Checkpoint, cut: Cut, by_layer: bool) -> bool:
    """Return whether readers treat a child as a mixture of experts.

    ``by_layer``: only if it has a layer with experts.
    """
    layers = {slot.layer for slot in checkpoint.layout.slots.values() if slot.of_experts}
    has_some = not by_layer or any(kept.layer in layers for kept in cut.layers)
    return checkpoint.layout.sizes.get("experts", 0) > 0 and has_some


def _leading(checkpoint: Checkpoint, cut: Cut) -> int:
    """Return the number of leading layers without experts; ``ValueError`` if later layers have none."""
    dense = [DENSE in checkpoint.layout.kinds[kept.layer] for kept in cut.layers]
    first = dense.index(False) if False in dense else len(dense)
    if any(dense[first:]):
        raise ValueError(
            f"gguf has layers without experts before all others, and layer {dense.index(True, first)} of "
            f"this {checkpoint.family.name} has none"
        )
    return first


def _add_windows(writer: GGUFWriter, checkpoint: Checkpoint, cut: Cut) -> None:
    """Add the attention window, and the list of layers that have it.

    Raises ``ValueError`` for an encoder with a window in all layers: readers abort on it.
    """
    windows = [checkpoint.layout.windows[kept.layer] for kept in cut.layers]
    if checkpoint.family.task == "masked":
        if all(windows):
            raise ValueError("gguf has encoders with a layer that sees all tokens; here all have windows")
        if not any(windows):
            return  # readers apply a window to some layers even if none has it
    writer.add_sliding_window(max(windows) or checkpoint.layout.sizes["positions"])
    writer.add_sliding_window_pattern([bool(window) for window in windows])


def _add_pooling(writer: GGUFWriter, checkpoint: Checkpoint) -> None:
    """Add bidirectional attention, and the pooling of an encoder's tokens into one embedding.

    The default is the mean. Raises ``ValueError`` for poolings that readers of gguf lack. Normalising
    embeddings to length 1 is left to them.
    """
    writer.add_causal_attention(False)
    modes: tuple[str, ...] = ("mean",)
    kinds: list[str] = []
    if checkpoint.sentences is not None:
        pool, *others = checkpoint.sentences.behind
        modes, kinds = pool.modes, [module.kind for module in others]
        if checkpoint.prompt and not pool.pools_prompt:
            why = "this model omits those of its prompt (include_prompt)"
            raise ValueError(f"gguf pools all tokens, and {why}")
    dense = "Dense" in kinds
    if dense or len(modes) > 1 or modes[0] not in POOLED:
        behind = "a Dense behind its pooling" if dense else f"the pooling {' + '.join(modes)}"
        raise ValueError(f"gguf pools tokens by {', '.join(POOLED)} alone, and this model has {behind}")
    writer.add_pooling_type(POOLED[modes[0]])


def counts_by_layer(checkpoint: Checkpoint, cut: Cut, key: str) -> list[int]:
    """Return the values of a usual key for each layer: heads, KV heads, or the width of the FFN."""
    gguf, counts = checkpoint.family.gguf, []
    assert gguf is not None
    rules = gguf.by_kind.get(key, {})
    for kept in cut.layers:
        sizes = resized(checkpoint.layout, cut.parent.counts(kept.sizes))
        kinds = checkpoint.layout.kinds[kept.layer]
        none = {f"{NO}{label}" for label, size in sizes.sizes.items() if size == 0}
        rule = next((rule for when, rule in rules.items() if when in kinds | none), USUAL[key])
        counts.append(value(rule, sizes.size))
    return counts


def _add_numbers(writer: GGUFWriter, checkpoint: Checkpoint, cut: Cut) -> None:
    """Add the keys with one number for each layer that the checkpoint stores as a tensor."""
    for pattern in checkpoint.family.tensors.body:
        if pattern.gguf.key is not None:
            names = [checkpoint.layout.name(pattern.role, kept.layer) for kept in cut.layers]
            numbers = [float(checkpoint.read(name).ravel()[0]) for name in names if name is not None]
            getattr(writer, f"add_{pattern.gguf.key}")(numbers)


def _add(writer: GGUFWriter, key: str, present: Any) -> None:
    add = getattr(writer, f"add_{key}")
    kind = next(iter(signature(add).parameters.values())).annotation
    enum = getattr(gguf_constants, str(kind), None)
    is_enum = isinstance(enum, type) and issubclass(enum, IntEnum)
    add(enum(present) if is_enum else present)  # type: ignore[misc]
