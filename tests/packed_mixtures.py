"""Tiny mixtures on the disk whose matrices are stored quantised, as published ones are."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from changed_folders import configured
from safetensors.torch import load_file, save_file
from saved_mixtures import mixture
from torch import Tensor
from torch.nn import functional

FILE = "model.safetensors"
KEPT_PLAIN = r"norm|embed|lm_head|mlp\.gate\.weight|router|bias|sinks|e_score"
BLOCK = [4, 4]
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": BLOCK}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
GROUP = 8
SCHEME = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
INT4: dict[str, Any] = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": SCHEME}},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
}  # fmt: skip
CHANGES = {"gpt_oss": {"hidden_size": 64, "intermediate_size": 32}}
WAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    "qwen3_moe fp8": ("qwen3_moe", FP8, r"weight$"),
    "deepseek_v3 fp8": ("deepseek_v3", FP8, r"weight$"),
    "gpt_oss mxfp4": ("gpt_oss", MXFP4, r"experts\.(gate_up|down)_proj$"),
    "deepseek_v3 int4": ("deepseek_v3", INT4, r"\.experts\.\d+\.\w+\.weight$"),
}
"""By name: the kind of the mixture, its ``quantization_config``, and the names of what is packed."""


def packed_mixture(folder: Path, way: str) -> Path:
    """Return the folder with a tiny mixture that is stored so."""
    kind, quantisation, names = WAYS[way]
    mixture(folder, kind, "bfloat16", **CHANGES.get(kind, {}))
    generator, tensors = torch.Generator().manual_seed(2), dict[str, Tensor]()
    for name, weight in load_file(folder / FILE).items():
        if re.search(names, name) and not re.search(KEPT_PLAIN, name):
            tensors |= packed(name, weight, str(quantisation["quant_method"]), generator)
        else:
            tensors[name] = weight
    save_file(tensors, folder / FILE, {"format": "pt"})
    configured(folder, quantization_config=quantisation)
    return folder


def packed(name: str, weight: Tensor, method: str, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the tensors that hold a matrix: with its own numbers in FP8, with random ones otherwise."""
    if method == "fp8":
        rows, columns = weight.shape
        blocks = weight.float().reshape(rows // BLOCK[0], BLOCK[0], columns // BLOCK[1], BLOCK[1])
        scales = blocks.abs().amax((1, 3)) / 448
        codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn).reshape(rows, columns)
        return {name: codes, f"{name}_scale_inv": scales}
    if method == "mxfp4":
        experts, columns, rows = weight.shape
        codes = torch.randint(256, (experts, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
        exponents = torch.randint(120, 125, codes.shape[:3], dtype=torch.uint8, generator=generator)
        return {f"{name}_blocks": codes, f"{name}_scales": exponents}
    rows, columns = weight.shape
    words = torch.randint(-(1 << 31), 1 << 31, (rows, columns // 8), generator=generator).int()
    scales = torch.rand(rows, columns // GROUP, generator=generator).bfloat16() * 0.1
    shape = torch.tensor([rows, columns], dtype=torch.int32)
    return {f"{name}_packed": words, f"{name}_scale": scales, f"{name}_shape": shape}


def plain_twin(folder: Path, parent: Path) -> Path:
    """Return the folder with the same mixture in float32, its numbers computed by torch alone."""
    tensors, plain = load_file(parent / FILE), dict[str, Tensor]()
    for name, part in tensors.items():
        if f"{name}_scale_inv" in tensors:
            scales = functional.interpolate(tensors[f"{name}_scale_inv"][None, None], scale_factor=BLOCK[0])
            plain[name] = part.float() * scales[0, 0]
        elif name.endswith("_blocks"):
            base = name.removesuffix("_blocks")
            plain[base] = e2m1(part, tensors[f"{base}_scales"]).transpose(1, 2).contiguous()
        elif name.endswith("_packed"):
            base = name.removesuffix("_packed")
            numbers = torch.stack([part >> 4 * place & 15 for place in range(8)], -1).flatten(1) - 8
            scales = tensors[f"{base}_scale"].float()
            plain[base] = (numbers.unflatten(1, (-1, GROUP)) * scales[..., None]).flatten(1)
        elif not name.endswith(("_scale_inv", "_scales", "_scale", "_shape")):
            plain[name] = part.float() if part.is_floating_point() else part
    folder.mkdir()
    save_file(plain, folder / FILE, {"format": "pt"})
    config = json.loads((parent / "config.json").read_text())
    config = {name: value for name, value in config.items() if name not in ("quantization_config", "dtype")}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def e2m1(blocks: Tensor, exponents: Tensor) -> Tensor:
    """Return numbers of four bits, (experts, rows, columns), by their sign, exponent and mantissa."""
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2).int()
    exponent, mantissa = codes >> 1 & 3, codes & 1
    size = torch.where(exponent == 0, mantissa * 0.5, (1 + mantissa * 0.5) * 2.0 ** (exponent - 1))
    signed = torch.where(codes >= 8, -size, size)
    return (signed * 2.0 ** (exponents.float()[..., None] - 127)).flatten(-2)
