"""Numbers that are stored quantised, beside torch's and transformers' own; what does not fit is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changed_folders import configured, replaced
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_mixtures import FP8, GROUP, INT4, MXFP4, SCHEME, WAYS, packed_mixture, plain_twin
from safetensors.torch import save_file
from torch import Tensor
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from zerolm.checkpoints import Checkpoint, packed_values
from zerolm.checkpoints.headers import read_shard
from zerolm.checkpoints.packed import packed_tensors, packing_of
from zerolm.checkpoints.packed_values import EIGHT_BITS, PackedTensor, sums_of_packed


def read(folder: Path, quantisation: dict[str, Any], parts: dict[str, Tensor], name: str) -> PackedTensor:
    """Return the packed tensor of this name of a file with these parts."""
    save_file(parts, folder / "x.safetensors")
    tensors = packed_tensors(packing_of(quantisation), read_shard(folder / "x.safetensors").tensors)
    assert set(tensors) == {name}
    packed = tensors[name]
    assert isinstance(packed, PackedTensor)
    return packed


def weights_of(**changes: Any) -> dict[str, Any]:
    return INT4 | {"config_groups": {"a": {"weights": SCHEME | changes}}}


def check_sums(packed: PackedTensor) -> None:
    values = packed.numbers().astype(np.float64)
    for summed in (1, packed_values.SUMMED):  # a block of rows at a time, and all at once
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed_values, "SUMMED", summed)
            absolute, squares = sums_of_packed(packed)
        assert np.isclose(absolute, np.abs(values).sum(), rtol=1e-6)
        assert np.isclose(squares, (values**2).sum(), rtol=1e-6)


def test_the_numbers_of_eight_bits_are_those_of_torch() -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(EIGHT_BITS, theirs, equal_nan=True)
    assert np.isnan(EIGHT_BITS).sum() == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 17), st.integers(1, 17), st.integers(0, 3))
def test_blocks_of_eight_bits(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, high: int, wide: int, experts: int
) -> None:
    """Each number times the scale of its block, also of blocks that are cut off, and of several experts."""
    generator = np.random.default_rng(rows * 41 + columns)
    lead = (experts,) if experts else ()
    codes = generator.integers(0, 127, (*lead, rows, columns), np.uint8) | generator.choice([0, 128], columns)
    scales = generator.random((*lead, -(-rows // high), -(-columns // wide))).astype(np.float32)
    parts = {
        "x": torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e4m3fn),
        "x_scale_inv": torch.from_numpy(scales),
    }
    packed = read(tmp_path_factory.mktemp("fp8"), FP8 | {"weight_block_size": [high, wide]}, parts, "x")
    ours, plain = packed.numbers(), parts["x"].float().numpy()
    for row in range(rows):
        for column in range(columns):
            wanted = plain[..., row, column] * scales[..., row // high, column // wide]
            assert np.allclose(ours[..., row, column], wanted, rtol=1e-6)
    if experts:
        assert np.allclose(packed.one(experts - 1).numbers(), ours[-1])
    check_sums(packed.one(experts - 1) if experts else packed)
    if rows % high == 0 and columns % wide == 0:
        theirs = Fp8Dequantize(None)._dequantize_one(parts["x"], parts["x_scale_inv"], torch.float32)
        assert np.allclose(ours, theirs.numpy(), rtol=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_numbers_of_four_bits_with_an_exponent(
    tmp_path_factory: pytest.TempPathFactory, experts: int, rows: int, groups: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(256, (experts, rows, groups, 16), dtype=torch.uint8, generator=generator)
    exponents = torch.randint(110, 140, codes.shape[:3], dtype=torch.uint8, generator=generator)
    parts = {"x_blocks": codes, "x_scales": exponents}
    packed = read(tmp_path_factory.mktemp("mxfp4"), MXFP4, parts, "x")
    theirs = convert_moe_packed_tensors(codes, exponents, dtype=torch.float32)
    assert packed.shape == tuple(theirs.shape) == (experts, 32 * groups, rows)
    assert np.array_equal(packed.numbers(), theirs.numpy())
    assert np.array_equal(packed.one(0).numbers(), theirs[0].numpy())
    check_sums(packed.one(0))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([4, 8]), st.sampled_from(["group", "channel"]), st.integers(1, 9), st.integers(0, 99))
def test_words_of_small_integers(
    tmp_path_factory: pytest.TempPathFactory, bits: int, strategy: str, rows: int, seed: int
) -> None:
    """Packed as compressed-tensors does: the first number in the lowest bits, the smallest as 0."""
    generator = np.random.default_rng(seed)
    columns, each = 24, 32 // bits
    numbers = generator.integers(-(1 << bits - 1), 1 << bits - 1, (rows, columns))
    words = np.zeros((rows, columns // each), np.uint32)
    for place in range(each):
        words |= (numbers[:, place::each] + (1 << bits - 1)).astype(np.uint32) << np.uint32(bits * place)
    groups = columns // GROUP if strategy == "group" else 1
    scales = torch.from_numpy(generator.random((rows, groups)).astype(np.float32)).bfloat16()
    parts = {
        "x.weight_packed": torch.from_numpy(words.view(np.int32)),
        "x.weight_scale": scales,
        "x.weight_shape": torch.tensor([rows, columns]),
    }
    quantisation = weights_of(num_bits=bits, strategy=strategy)
    packed = read(tmp_path_factory.mktemp("int"), quantisation, parts, "x.weight")
    wanted = numbers * scales.float().numpy().repeat(columns // groups, 1)
    assert np.allclose(packed.numbers(), wanted, rtol=1e-6)
    check_sums(packed)


@pytest.mark.parametrize(
    ("strategy", "shape"), [({"strategy": "channel"}, (6, 1)), ({"block_structure": [3, 4]}, (2, 2))]
)
def test_eight_compressed_bits(strategy: dict[str, Any], shape: tuple[int, int], tmp_path: Path) -> None:
    quantisation = weights_of(num_bits=8, type="float", **{"strategy": "block"} | strategy)
    codes, scales = torch.randn(6, 8).to(torch.float8_e4m3fn), torch.rand(shape).bfloat16()
    parts = {"x.weight": codes, "x.weight_scale": scales}
    packed = read(tmp_path, quantisation | {"format": "float-quantized"}, parts, "x.weight")
    spread = scales.float().repeat_interleave(6 // shape[0], 0).repeat_interleave(8 // shape[1], 1)
    assert np.allclose(packed.numbers(), (codes.float() * spread).numpy(), rtol=1e-6)
    check_sums(packed)


def test_scales_that_are_exponents(tmp_path: Path) -> None:
    codes = torch.randn(4, 8).to(torch.float8_e4m3fn)
    exponents = torch.tensor([[120, 130], [127, 128]], dtype=torch.uint8)
    parts = {"x": codes, "x_scale_inv": exponents.view(torch.float8_e8m0fnu)}
    packed = read(tmp_path, FP8 | {"weight_block_size": [2, 4]}, parts, "x")
    factors = 2.0 ** (exponents.float() - 127)
    wanted = codes.float() * factors.repeat_interleave(2, 0).repeat_interleave(4, 1)
    assert np.array_equal(packed.numbers(), wanted.numpy())


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_has_the_numbers_of_its_plain_twin(way: str, tmp_path: Path) -> None:
    parent = packed_mixture(tmp_path / "parent", way)
    ours, plain = (
        Checkpoint.open(parent, packed=True),
        Checkpoint.open(plain_twin(tmp_path / "plain", parent)),
    )
    assert set(ours.tensors) == set(plain.tensors)
    assert ours.packed == (way.rpartition(" ")[2].upper(),)
    assert plain.packed == ()
    for name, tensor in plain.tensors.items():
        assert ours.tensors[name].shape == tensor.shape
        assert np.allclose(ours.read(name), plain.read(name), rtol=1e-6)


def test_what_is_no_number_is_seen(tmp_path: Path) -> None:
    parts = {"x": torch.full((2, 2), torch.nan).to(torch.float8_e4m3fn), "x_scale_inv": torch.ones(1, 1)}
    packed = read(tmp_path, FP8 | {"weight_block_size": [2, 2]}, parts, "x")
    with pytest.raises(ValueError, match=r"'x' in .* has weights that are not finite"):
        sums_of_packed(packed)


FIRST = "model.layers.2.mlp.experts.0.up_proj.weight"
NORM = "model.norm.weight"
STACK = "model.layers.0.mlp.experts.down_proj"
TORN: dict[str, tuple[str, dict[str, Tensor | None], str]] = {
    "no scales": ("deepseek_v3 fp8", {f"{FIRST}_scale_inv": None}, "up_proj.weight_scale_inv' is missing"),
    "no weights": ("deepseek_v3 fp8", {FIRST: None}, "0.up_proj.weight' is missing: .* is a part of it"),
    "plain weights": ("deepseek_v3 fp8", {FIRST: torch.ones(24, 48)}, "is F32; FP8 has F8_E4M3"),
    "other scales": ("deepseek_v3 fp8", {f"{FIRST}_scale_inv": torch.ones(2, 3)}, r"scales of \[6, 12\]"),
    "scales of integers": (
        "deepseek_v3 fp8", {f"{FIRST}_scale_inv": torch.ones(6, 12).int()},
        "is I32; scales are F32, BF16",
    ),
    "a vector": (
        "deepseek_v3 fp8",
        {NORM: torch.ones(48).to(torch.float8_e4m3fn), f"{NORM}_scale_inv": torch.ones(1)},
        r"norm.weight' has shape \[48\], which is none of FP8",
    ),
    "scales of fewer experts": (
        "gpt_oss mxfp4", {f"{STACK}_scales": torch.ones(7, 64, 1).byte()}, r"needs scales of \[8, 64, 1\]",
    ),
    "other blocks": (
        "gpt_oss mxfp4", {f"{STACK}_blocks": torch.ones(8, 64, 2, 8).byte()}, "which is none of MXFP4",
    ),
    "blocks of numbers": (
        "gpt_oss mxfp4", {f"{STACK}_blocks": torch.ones(8, 64, 1, 16)}, "is F32; MXFP4 has U8",
    ),
    "no blocks": ("gpt_oss mxfp4", {f"{STACK}_blocks": None}, "down_proj_blocks' is missing"),
    "both": ("gpt_oss mxfp4", {STACK: torch.ones(8, 32, 64)}, "down_proj' is stored, and so are parts"),
    "fewer experts": (
        "gpt_oss mxfp4",
        {f"{STACK}_blocks": torch.ones(4, 64, 1, 16).byte(), f"{STACK}_scales": torch.ones(4, 64, 1).byte()},
        r"has shape \[4, 32, 64\], the configuration implies 8 \(experts\)",
    ),
    "no shape": ("deepseek_v3 int4", {f"{FIRST}_shape": None}, "weight_shape' is missing"),
    "another shape": (
        "deepseek_v3 int4", {f"{FIRST}_shape": torch.tensor([24, 47])},
        r"says \[24, 47\]; its codes have \[24, 48\]",
    ),
    "a shape of three": ("deepseek_v3 int4", {f"{FIRST}_shape": torch.ones(3).int()}, "not two sizes"),
    "zero points": (
        "deepseek_v3 int4",
        {FIRST.replace("weight", "weight_zero_point"): torch.ones(3, 6).int()},
        "weight_zero_point' is none of a deepseek_v3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", TORN)
def test_parts_that_do_not_fit_are_refused(fault: str, tmp_path: Path) -> None:
    way, tensors, message = TORN[fault]
    folder = packed_mixture(tmp_path, way)
    replaced(folder, tensors)
    with pytest.raises(ValueError, match=message):
        Checkpoint.open(folder, packed=True)


UNKNOWN: dict[str, tuple[Any, str]] = {
    "no object": ([], "is \\[\\], not an object"),
    "another method": ({"quant_method": "awq"}, "by 'awq'; fp8, mxfp4, compressed-tensors are read"),
    "another format": (FP8 | {"fmt": "e5m2"}, "has fmt 'e5m2'; e4m3 is read"),
    "no blocks": (FP8 | {"weight_block_size": None}, "weight_block_size None, not rows and columns"),
    "blocks of nothing": (FP8 | {"weight_block_size": [0, 4]}, "weight_block_size 0, which is no size"),
    "no groups": (INT4 | {"config_groups": {}}, "not one of config_groups"),
    "several groups": (INT4 | {"config_groups": {"a": {}, "b": {}}}, "not one of config_groups"),
    "groups of nothing": (INT4 | {"config_groups": {"a": {}}}, "has no entry for weights"),
    "zero points": (weights_of(symmetric=False), "zero points"),
    "three bits": (weights_of(num_bits=3), "of 3 bits"),
    "groups of nothing at all": (weights_of(group_size=0), "group_size 0, which is no size"),
    "another strategy": (
        weights_of(strategy="tensor"),
        "scales are by 'tensor'; group, channel and block",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", UNKNOWN)
def test_other_ways_of_storing_are_refused(fault: str) -> None:
    quantisation, message = UNKNOWN[fault]
    with pytest.raises(ValueError, match=message):
        packing_of(quantisation)


def test_all_but_experts_refuses_what_is_packed(tmp_path: Path) -> None:
    folder = packed_mixture(tmp_path, "qwen3_moe fp8")
    with pytest.raises(ValueError, match="experts alone can be taken out"):
        Checkpoint.open(folder)
    configured(folder, text_config={"quantization_config": {"quant_method": "awq"}})
    with pytest.raises(ValueError, match="two quantization_config, which differ"):
        Checkpoint.open(folder, packed=True)
