"""A large llama-shaped checkpoint of no use but to be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints import Checkpoint, Outgoing, write_shards
from zerolm.checkpoints.dtypes import narrowed
from zerolm.families.known import families

CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 6144,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
DEPTH: Final = 32
SIZES: Final = {"q": 4096, "kv": 1024, "ffn": 6144, "hidden": 2560, "vocab": 32000}
SHARD_BYTES: Final = 1_000_000_000


def synthetic(folder: Path, layers: int = DEPTH) -> Checkpoint:
    """Write and open a checkpoint of bfloat16 in shards of a gigabyte."""
    family, rng = families()["llama"], np.random.default_rng(0)
    weights = some_weights()
    outgoing = []
    for pattern in (*family.tensors.body, *family.tensors.head):
        if pattern.when not in ("always", "untied"):
            continue
        shape = tuple(SIZES[axis] for axis in pattern.axes)
        prefix = "model." if pattern in family.tensors.body else ""
        for layer in range(layers if pattern.in_layer else 1):
            name = prefix + pattern.name.format(layer=layer)
            outgoing.append(Outgoing(name, "BF16", shape, partial(drawn, weights, shape, rng)))
    folder.mkdir()
    write_shards(folder, sorted(outgoing, key=lambda tensor: tensor.name), SHARD_BYTES)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    return Checkpoint.open(folder)


def some_weights() -> NDArray[np.uint16]:
    """Weights of a usual size, as stored; none so small that a quarter of it would be something else."""
    values = 0.02 * np.random.default_rng(1).standard_normal((1 << 22) + 7, np.float32)
    return np.asarray(narrowed(np.where(np.abs(values) < 1e-6, 1e-6, values), "BF16"), np.uint16)


def drawn(
    weights: NDArray[np.uint16], shape: tuple[int, ...], rng: np.random.Generator
) -> Iterator[NDArray[np.uint16]]:
    """A tensor in runs of rows: pieces of ``weights``, each row halved not at all, once or twice."""
    rows, cols = shape if len(shape) == 2 else (1, shape[0])
    most = len(weights) // cols - 1
    for first in range(0, rows, most):
        count = min(most, rows - first)
        start = int(rng.integers(len(weights) - count * cols))
        halvings = rng.integers(0, 3, (count, 1)).astype(np.uint16)
        exponents = halvings << np.uint16(7)  # the lowest bit of a bfloat16's exponent is its eighth
        yield weights[start : start + count * cols].reshape(count, cols) - exponents
