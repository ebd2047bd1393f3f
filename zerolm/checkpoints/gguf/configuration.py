"""The ``config.json`` that the metadata of a GGUF file amounts to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.gguf.header import GgufHeader
from zerolm.checkpoints.gguf.names import roles_in
from zerolm.families.family import SAME, Family
from zerolm.families.known import families, family_named
from zerolm.settings import nearest, shown

SIZES: Final = {
    "depth": "block_count", "hidden": "embedding_length", "positions": "context_length",
    "head_size": "attention.key_length", "ffn": "feed_forward_length", "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
}  # fmt: skip
SIZES_OF_EXPERTS: Final = {
    "experts": "expert_count", "active": "expert_used_count", "expert_ffn": "expert_feed_forward_length",
}  # fmt: skip
DERIVED: Final = ("head_size", "kv_heads", "expert_ffn")
"""Sizes that follow from others where a file lacks them."""
EPSILON: Final = "attention.layer_norm_rms_epsilon"
EMBEDDING, HEAD, FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
LLAMA3: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""The rotary scaling of Llama 3.1 and 3.2, of which a file contains only the factors."""


def has_experts(header: GgufHeader) -> bool:
    """Return whether a file is of a mixture of experts."""
    return bool(header.metadata.get(f"{header.architecture}.{SIZES_OF_EXPERTS['experts']}"))


def family_in(header: GgufHeader) -> Family:
    """Return the family whose parents are of this architecture; ``ValueError`` says which there are."""
    is_mixture = has_experts(header)
    reading = {
        name: family
        for family in families().values()
        if family.gguf and family.has_experts == is_mixture
        for name in family.gguf.read
    }
    family = reading.get(header.architecture)
    if family is None:
        hint = nearest(header.architecture, reading)
        raise ValueError(f"architecture {shown(header.architecture)} is not read as a parent{hint}")
    hidden, heads = (_size(header, SIZES[label]) for label in ("hidden", "heads"))
    if hidden % heads and family.cut.written_as is not None:
        return family_named(family.cut.indivisible)
    return family


def configuration(header: GgufHeader, family: Family, factors: NDArray[np.float32] | None) -> dict[str, Any]:
    """Return the configuration of a file; ``factors`` (e / 2,) divide its rotary frequencies, if any do.

    ``ValueError`` for what the stock class does not compute.
    """
    metadata = {key.partition(".")[2]: value for key, value in header.metadata.items()
                if key.startswith(f"{header.architecture}.")}  # fmt: skip
    keys = SIZES | (SIZES_OF_EXPERTS if family.has_experts else {})
    values = {
        label: _size(header, key) for label, key in keys.items() if key in metadata or label not in DERIVED
    }
    if EMBEDDING not in header.tensors or len(header.tensors[EMBEDDING]) != 2:
        raise ValueError(f"there is no matrix {EMBEDDING!r}")
    values["vocab"] = header.tensors[EMBEDDING][1]
    values.setdefault("kv_heads", values["heads"])
    values.setdefault("head_size", values["hidden"] // values["heads"])
    config: dict[str, Any] = {"model_type": family.name, "architectures": [family.head_classes[0]]}
    for label, field in family.config.sizes.items():
        if field.field is not None and label in values:
            config[field.field] = values[label]
    config |= {name: _is_set(header, family, name) for name in family.config.flags}
    config |= _from_metadata(family, metadata)
    if family.config.tied.field is not None:
        config[family.config.tied.field] = HEAD not in header.tensors
    epsilon = metadata.get(EPSILON)
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        raise ValueError(f"its {EPSILON} is {shown(epsilon)}; 0 to 1 are possible")
    config["rms_norm_eps"] = float(f"{epsilon:.7g}")
    config["rope_parameters"] = _rotary(metadata, values["head_size"], factors)
    window = metadata.get("attention.sliding_window")
    if window not in (None, 0) and window < values["positions"]:
        raise ValueError(f"it attends to the last {window} tokens only, which is not read")
    if family.config.window is not None and family.config.window.size.field is not None:
        config[family.config.window.size.field] = None
    ids = {name: header.metadata.get(f"tokenizer.ggml.{key}_token_id")
           for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}  # fmt: skip
    fits = {name: index for name, index in ids.items() if type(index) is int and index < values["vocab"]}
    return config | {f"{name}_token_id": fits.get(name) for name in ids}


def _from_metadata(family: Family, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a file contains by keys of its family, and those that its readers assume.

    ``ValueError`` where a key has a value that readers of the family do not support.
    """
    assert family.gguf is not None
    fields = {name: value for name, value in family.gguf.needs.items() if not str(value).startswith(SAME)}
    for key, field in family.gguf.keys.items():
        if isinstance(field, str):
            fields[field] = metadata.get(key)
        elif metadata.get(key, field) != field:
            raise ValueError(f"its {key} is {shown(metadata[key])}; {shown(field)} is read")
    return fields


def _size(header: GgufHeader, key: str) -> int:
    """Return a size; ``ValueError`` where layers have sizes of their own, or it is none."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    values = value if isinstance(value, list) else [value]
    if len(set(map(str, values))) > 1:
        raise ValueError(f"its layers differ in {key}, and the stock class has one size for all")
    if not values or type(values[0]) is not int or not 0 < values[0] < 1 << 31:
        raise ValueError(f"its {key} is {shown(value)}, which is no size")
    return values[0]


def _is_set(header: GgufHeader, family: Family, flag: str) -> bool:
    """Return whether a flag is set, by a tensor that only models with it have; else its default."""
    names = roles_in(family)
    with_it = [p for p in family.tensors.body if flag in p.conditions and p.role in names]
    if not with_it:
        return family.config.flags[flag]
    return any(names[each.role].replace("{layer}", "0") in header.tensors for each in with_it)


def _rotary(metadata: Mapping[str, Any], size: int, factors: NDArray[np.float32] | None) -> dict[str, Any]:
    base = metadata.get("rope.freq_base", 10_000.0)
    turned, kind = metadata.get("rope.dimension_count", size), metadata.get("rope.scaling.type", "none")
    if not isinstance(base, float) or not 1 < base < math.inf:
        raise ValueError(f"its rope.freq_base is {shown(base)}")
    if turned != size:
        raise ValueError(f"it rotates {shown(turned)} of {size} elements of a head, which is not read")
    theta = {"rope_theta": float(f"{base:.7g}")}
    if kind == "linear" and factors is None:
        factors = np.full(size // 2, metadata.get("rope.scaling.factor", 1.0), np.float32)
    elif kind != "none":
        raise ValueError(f"its rotary positions are scaled by {shown(kind)}; none and linear are read")
    if factors is None:
        return {"rope_type": "default", **theta}
    factor = float(factors.max())
    if factors.shape != (size // 2,) or not 1 <= factor < math.inf:
        raise ValueError("its rotary positions have factors that are none")
    if np.ptp(factors) <= 1e-5 * factor:
        return {"rope_type": "linear", **theta, "factor": float(f"{factor:.6g}")}
    llama3 = {**theta, "factor": float(f"{factor:.6g}"), **LLAMA3}
    if not np.allclose(factors, llama3_factors(size, llama3), rtol=1e-3):
        raise ValueError("its rotary positions have factors that are neither linear nor Llama 3's")
    return {"rope_type": "llama3", **llama3}


def llama3_factors(size: int, parameters: Mapping[str, float]) -> NDArray[np.float64]:
    """Return by what Llama 3 divides the frequencies of heads of this size, (size / 2,).

    Source: ``transformers.modeling_rope_utils``, ``_compute_llama3_parameters``.
    """
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    frequencies = parameters["rope_theta"] ** -(np.arange(0, size, 2) / size)
    turns = parameters["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - smooth) / parameters["factor"] + smooth))
