"""Rotary positions in GGUF: a base, a scaling, and divisors of frequencies."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, MODEL_TENSOR, MODEL_TENSORS, GGUFWriter, RopeScalingType
from numpy.typing import NDArray
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SCALED: Final = ("linear", "llama3", "proportional")
"""Scalings with a factor for each frequency that does not depend on the length of the text."""
NOT_TURNED: Final = 1e30
"""The divisor that stands for a frequency of 0."""
SPELT_OUT: Final = "deci"
"""The architecture that stores factors even for a linear scaling."""
WHOLE: Final = ("deci", "llama", "falcon")
"""Architectures whose readers do not support rotating parts of heads."""
YARN: Final = "yarn"
FULL: Final = "full_attention"
LATENT: Final = "kv_lora_rank"
NOT_NUMBERS: Final = (
    *("rope_type", "type", "truncate", "mscale", "mscale_all_dim", "attention_factor"),
    *("mrope_section", "mrope_interleaved"),
)


def parameters_of(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the rotation of layers without a window, or of all layers; empty where nothing is rotated."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return dict(parameters.get(FULL, parameters))


def check_rope(config: PreTrainedConfig, architecture: str) -> None:
    """Raise ``ValueError`` for a rotation that GGUF does not have."""
    parameters = parameters_of(config)
    share = parameters.get("partial_rotary_factor", 1.0)
    if share != 1.0 and architecture in WHOLE:
        raise ValueError(
            f"gguf rotates whole heads in its architecture {architecture}, and is not written with "
            f"partial_rotary_factor {share}"
        )
    kind = parameters.get("rope_type", "default")
    if kind not in ("default", YARN, *SCALED):
        types = f"default, {', '.join(SCALED)} and {YARN}"
        raise ValueError(f"gguf is written with rope types {types}, not with {kind!r}")
    for name, value in parameters.items():
        is_positive = isinstance(value, int | float) and 0 < value < math.inf
        if not is_positive and name not in NOT_NUMBERS:
            raise ValueError(f"the rope parameter {name} is {value!r}; a positive number is possible")


def rotated(config: PreTrainedConfig, head_size: int) -> int:
    """Return the number of rotated elements of a head."""
    return int(head_size * parameters_of(config).get("partial_rotary_factor", 1.0))


def add_rope(writer: GGUFWriter, config: PreTrainedConfig, architecture: str) -> None:
    """Add the base and the scaling to the header of a file."""
    parameters = parameters_of(config)
    if not parameters:
        return
    writer.add_rope_freq_base(parameters["rope_theta"])
    kind, factor = parameters.get("rope_type", "default"), parameters.get("factor", 1.0)
    if kind == "linear" and architecture != SPELT_OUT:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(factor)
    if kind == YARN:
        first = parameters.get("original_max_position_embeddings") or config.max_position_embeddings
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(factor)
        writer.add_rope_scaling_orig_ctx_len(first)
        writer.add_rope_scaling_yarn_beta_fast(parameters.get("beta_fast") or 32.0)
        writer.add_rope_scaling_yarn_beta_slow(parameters.get("beta_slow") or 1.0)
        of_all = parameters.get("mscale_all_dim")
        if of_all and hasattr(config, LATENT):  # products are scaled by it, too; readers multiply it by 10
            writer.add_rope_scaling_yarn_log_mul(0.1 * of_all)
        else:
            _, attention = _initial(config, kind)
            writer.add_rope_scaling_attn_factors(attention / (1.0 + 0.1 * math.log(factor)))


def factors_of(config: PreTrainedConfig, architecture: str = SPELT_OUT) -> NDArray[np.float32] | None:
    """Return the divisors (e / 2,) of the frequencies base^(-2i / e), with e rotated elements of a head.

    None where frequencies have no separate divisors. Raises ``ValueError`` for a scaling that the
    architecture lacks.
    """
    check_rope(config, architecture)
    parameters = parameters_of(config)
    kind = parameters.get("rope_type", "default")
    if kind not in SCALED or (kind == "linear" and architecture != SPELT_OUT):
        return None
    of = next((key for key, name in MODEL_ARCH_NAMES.items() if name == architecture), None)
    if of is None or MODEL_TENSOR.ROPE_FREQS not in MODEL_TENSORS[of]:
        raise ValueError(f"gguf has no rope type {kind!r} in its architecture {architecture}")
    scaled, _ = _initial(config, kind)  # (e / 2,)
    elements = torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled))
    factors = (parameters["rope_theta"] ** -elements / scaled).to(torch.float32)
    return np.asarray(torch.where(scaled == 0, NOT_TURNED, factors))


def _initial(config: PreTrainedConfig, kind: str) -> tuple[torch.Tensor, float]:
    layers = {"layer_type": FULL} if FULL in config.rope_parameters else {}
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), **layers)
    return frequencies, float(factor)
