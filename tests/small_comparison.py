"""Benchmark files of two spaces, one read in three views, with results drawn at random."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def encoder(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    layer = {
        "operation_type": "SA", "operation_parameter": "SDP", "num_operation_heads": 2,
        "feed_forward_dimension": int(draw.choice([512, 1024])), "num_feed_forward": int(draw.choice([1, 3])),
    }  # fmt: skip
    return {"hidden_size": int(draw.choice([128, 256])), "encoder_layers": [layer] * int(draw.choice([2, 4]))}


def decoder(seed: int) -> dict[str, Any]:
    """A GPT-2 configuration whose depth says nothing of its result."""
    shape = {"n_layer": 1 + seed % 3, "d_model": 64 * (1 + seed % 5), "d_embed": 128, "div_val": 1}
    return {**shape, "d_inner": [256 + 8 * seed] * shape["n_layer"], "n_head": [2] * shape["n_layer"]}


def written(folder: Path, name: str, space: str, results: list[float], **more: Any) -> str:
    make, metric = encoder if space == "flexibert" else decoder, more.pop("metric", "quality")
    architectures = [
        {"id": f"{more.get('prefix', 'a')}{i}", "architecture": make(i), "results": {metric: value}}
        for i, value in enumerate(results)
    ]
    document = {
        "name": name, "space": space, "metric": metric, "higher_is_better": False,
        "source": {"licence": "MIT"}, "architectures": architectures, **more,
    }  # fmt: skip
    path = folder / f"{space}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def results(count: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(50.0, 5.0, count).round(3).tolist()


def encoder_file(folder: Path, count: int) -> str:
    return written(folder, "encoders", "flexibert", results(count))


def decoder_file(folder: Path, count: int) -> str:
    return written(folder, "decoders", "gpt2", results(count, 1))
