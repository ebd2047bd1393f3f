"""Weight bytes are those of the file, caches know windows; shares that come to nothing are told of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carvings import BY_WEIGHTS
from changed_folders import configured, replaced
from safetensors.torch import load_file
from tiny import saved


def data_bytes(folder: Path) -> int:
    files = folder.glob("*.safetensors")
    return sum(file.stat().st_size - 8 - int.from_bytes(file.read_bytes()[:8], "little") for file in files)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("llama_tied", "float16"), ("llama_tied", "mixed"), ("gpt2", "float32"), ("bert", "mixed"),
        ("qwen3", "bfloat16"),
    ],
)  # fmt: skip
def test_weight_bytes_of_a_file(name: str, dtype: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", name, dtype="bfloat16" if dtype == "mixed" else dtype)
    if dtype == "mixed":
        vectors = {key: x for key, x in load_file(parent / "model.safetensors").items() if x.dim() == 1}
        replaced(parent, {key: x.float() for key, x in vectors.items()})
    for shape in ((), ("--shape", "per-layer", "--format", "padded")):
        flags = (
            "--max-weight-bytes", "0.9x", *BY_WEIGHTS, *shape, "--out", str(tmp_path / f"child{len(shape)}"),
        )  # fmt: skip
        result = zerolm("carve", str(parent), *flags, "--json").document
        costs = result["costs"]
        assert costs["parent"]["weight_bytes"] == data_bytes(parent)
        stored = costs.get("stored", costs["child"])
        assert stored["weight_bytes"] == data_bytes(tmp_path / f"child{len(shape)}")
        assert costs["child"]["weight_bytes"] <= 0.9 * data_bytes(parent)
        assert result["weight_bits"] == {"float32": [32], "mixed": [16, 32]}.get(dtype, [16])


def test_layers_stored_unlike_each_other_need_bits(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    weights = load_file(parent / "model.safetensors").items()
    replaced(parent, {key: x.half() for key, x in weights if ".1.mlp." in key})
    zerolm("carve", str(parent), "--keep-ffn", "0.5", *BY_WEIGHTS, "--out", str(tmp_path / "child")).refused(
        "give --bits"
    )
    assert zerolm("carve", str(parent), "--keep-ffn", "0.5", *BY_WEIGHTS, "--bits", "32").status == 0


ROUNDED = {
    "heads": (
        "qwen3", ("--keep-heads", "0.9", *BY_WEIGHTS),
        "--keep-heads 0.9 of 2 KV groups rounds to all of them; ", "0.5",
    ),
    "layers": ("llama", ("--keep-layers", "0.9", "--text", "random"), "of 3 layers rounds", "0.67"),
    "neurons": ("llama", ("--keep-ffn", "0.99", *BY_WEIGHTS), "of 40 FFN neurons rounds", "0.97"),
    "steps": (
        "llama", ("--keep-ffn", "0.9", "--multiple-of", "20", *BY_WEIGHTS), "of 40 FFN neurons rounds", "0.5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROUNDED)
def test_shares_of_nothing_are_refused(case: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    name, flags, words, cure = ROUNDED[case]
    parent, out = str(saved(tmp_path / "parent", name)), ("--out", str(tmp_path / "child"))
    ran = zerolm("carve", parent, *flags, *out)
    ran.refused("nothing would be cut", words)
    assert ran.err.endswith(f"the nearest share that cuts is {cure}\n")
    assert not (tmp_path / "child").exists()
    more = ("--sequences", "4", "--length", "8") if "--text" in flags else ()
    assert zerolm("carve", parent, flags[0], cure, *flags[2:], *more, *out).status == 0


def test_windows_bound_the_cache_of_keys_and_values(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    """Each of 3 layers of a mistral attends to 8 tokens; of a gemma2 some attend to all."""
    parent = str(saved(tmp_path / "mistral", "mistral"))
    flags = ("--keep-ffn", "0.5", *BY_WEIGHTS, "--context", "32", "--json")
    result = zerolm("carve", parent, *flags).document
    assert (
        result["costs"]["parent"]["kv_bytes"] == 3 * 8 * 2 * 2 * 8 * 2
    )  # tokens, k and v, heads, size, bytes
    parent = str(saved(tmp_path / "gemma2", "gemma2"))
    configured(tmp_path / "gemma2", sliding_window=8)
    kv_bytes = zerolm("carve", parent, *flags).document["costs"]["parent"]["kv_bytes"]
    assert kv_bytes == (2 * 8 + 32) * 2 * 2 * 16 * 2
