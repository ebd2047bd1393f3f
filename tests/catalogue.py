"""Small customised spaces with all their architectures, listed without the solvers' tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.costs import COSTS, CostModel
from zerolm.scores import Score, ScoreBatch
from zerolm.spaces import SearchSpace, make_space

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "gpt2",
        {"depth": [2, 3], "hidden": [128, 192], "ffn": [320, 384, 512], "heads": [2, 4],
         "d_embed": [128, 256], "div_val": [1, 2]},
    ),
    "llama per layer": (
        "llama",
        {"depth": [2, 3], "hidden": [256, 384], "head_size": [64], "heads_per_kv": [1, 2],
         "ffn": [640, 768, 1024], "hidden_per_depth": [80.0, 200.0], "ffn_per_hidden": [2.0, 4.0],
         "per_layer": True},
    ),
    "llama": (
        "llama",
        {"depth": [2, 3, 4], "hidden": [256, 384, 512], "head_size": [64, 128], "heads_per_kv": [1, 2, 3],
         "ffn": [640, 768, 1024], "hidden_per_depth": [80.0, 200.0], "ffn_per_hidden": [2.0, 3.0],
         "tied": False},
    ),
    "qwen3": (
        "qwen3",
        {"depth": [2, 3, 4], "hidden": [256, 320, 384], "head_size": [32, 64], "heads_per_kv": [1, 2, 4],
         "ffn": [512, 768, 1024], "hidden_per_depth": [40.0, 200.0], "ffn_per_hidden": [1.0, 4.0],
         "query_per_hidden": [0.5, 2.0], "vocab": 512, "multiple_of": 32, "tensor_parallel": 2},
    ),
    "blocks": (
        "blocks",
        {"depth": [2, 3], "hidden": [256, 384], "head_size": [64], "heads_per_kv": [1, 2],
         "ffn": [64, 128, 192, 640, 768], "hidden_per_depth": [80.0, 200.0], "ffn_per_hidden": [2.0, 3.0],
         "ffn_stack": [0, 1, 2, 3], "shares": ["none", "kv", "qv", "qkv"]},
    ),
    "blocks per layer": (
        "blocks",
        {"depth": [2], "hidden": [256, 384], "head_size": [64], "heads_per_kv": [1, 2],
         "ffn": [96, 192, 640], "hidden_per_depth": [80.0, 200.0], "ffn_per_hidden": [1.5, 4.0],
         "ffn_stack": [0, 1, 2], "narrow_per_hidden": [0.3, 0.6], "shares": ["qk", "none", "kv", "qkv"],
         "per_layer": True, "tied": False},
    ),
    "flexibert": ("flexibert", {"depth": [1, 2], "heads": [2]}),
    "autoformer": ("autoformer", {"depth": [2, 3], "hidden": [192, 240]}),
    "pit": (
        "pit",
        {"base_dim": [16, 24], "mlp_ratio": [2, 4.5], "depth1": [1, 2], "depth2": [2, 4], "depth3": [3],
         "heads": [2, 3, 4]},
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Every architecture of a space, with their costs (n, 5)."""

    space: SearchSpace
    architectures: list[Architecture]

    @cached_property
    def batch(self) -> ScoreBatch:
        return ScoreBatch.of(self.architectures)

    @cached_property
    def model(self) -> CostModel:
        return CostModel().of_task(self.space.task)

    @cached_property
    def costs(self) -> Ints:
        costs = [self.model.of(architecture) for architecture in self.architectures]
        return np.array([[cost[name] for name in COSTS] for cost in costs], np.int64)

    @cached_property
    def shapes(self) -> list[int]:
        """A number for each architecture, the same where layers are permutations of each other."""
        numbers: dict[object, int] = {}
        return [numbers.setdefault(a.shape_key(), len(numbers)) for a in self.architectures]

    def scores(self, score: Score) -> Floats:
        return score.of_many(self.batch)

    def quantile(self, name: str, share: float) -> int:
        """A value of a cost that about this share of the architectures keeps."""
        return int(np.quantile(self.costs[:, COSTS.index(name)], share, method="nearest"))

    def limits(self, shares: dict[str, float]) -> dict[str, int]:
        """Budgets from shares of architectures; for networks without a KV cache weight bytes stand for it."""
        has_cache = bool(self.costs[:, COSTS.index("kv_bytes")].any())
        limits = {
            limit if has_cache else limit.replace("kv_", "weight_"): share for limit, share in shares.items()
        }
        return {limit: self.quantile(limit[4:], share) for limit, share in limits.items()}


@lru_cache
def catalogue(name: str) -> Catalogue:
    kind, settings = SETTINGS[name]
    space = make_space(kind, **settings)
    return Catalogue(space, [space.read(choices) for choices in members(space)])


def batch_of(name: str, seed: int, count: int) -> ScoreBatch:
    """Return architectures of a catalogue, drawn."""
    listed = catalogue(name).architectures
    return ScoreBatch.of([listed[i] for i in np.random.default_rng(seed).integers(len(listed), size=count)])


def members(space: SearchSpace) -> Iterator[dict[str, Any]]:
    ranges = space.settings
    if space.name == "gpt2":
        yield from _gpt2(ranges)
    elif space.name == "flexibert":
        yield from _flexibert(ranges)
    elif space.name == "autoformer":
        yield from _autoformer(ranges)
    elif space.name.startswith("elastic"):
        yield from _elastic(ranges)
    elif space.name == "pit":
        yield from _pit(ranges)
    elif space.name == "blocks":
        yield from _blocks(ranges)
    else:
        yield from _llama(ranges)


def _gpt2(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    low, high = ranges["ffn_per_hidden"]
    outer = (ranges[name] for name in ("depth", "hidden", "d_embed", "div_val"))
    for depth, width, d_embed, div_val in product(*outer):
        widths = [ffn for ffn in ranges["ffn"] if low * width <= ffn <= high * width]
        for layers in product(product(widths, ranges["heads"]), repeat=depth):
            yield {
                "n_layer": depth, "d_model": width, "d_embed": d_embed, "div_val": div_val,
                "d_inner": [ffn for ffn, _ in layers], "n_head": [heads for _, heads in layers],
            }  # fmt: skip


def _llama(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    shallow, deep = ranges["hidden_per_depth"]
    narrow, wide = ranges["ffn_per_hidden"]
    thin, thick = ranges.get("query_per_hidden", [1, 1])
    step, devices = ranges["multiple_of"], ranges["tensor_parallel"]
    for depth, width, size, heads in product(
        ranges["depth"], ranges["hidden"], ranges["head_size"], range(1, 65)
    ):
        if not shallow <= width / depth <= deep or not thin * width <= heads * size <= thick * width:
            continue
        if heads % devices or any(number % step for number in (width, heads * size)):
            continue
        kv_heads = [heads // group for group in ranges.get("heads_per_kv", [1]) if heads % group == 0]
        kv_heads = [
            kv for kv in kv_heads if kv * size % step == 0 and (kv % devices == 0 or devices % kv == 0)
        ]
        widths = [
            ffn
            for ffn in ranges["ffn"]
            if narrow * width <= ffn <= wide * width and ffn % step == 0 and ffn % devices == 0
        ]
        one = list(product(kv_heads, widths))
        alike = ((pair,) * depth for pair in one)
        for layers in product(one, repeat=depth) if ranges.get("per_layer") else alike:
            yield {
                "depth": depth, "hidden": width, "head_size": size, "heads": heads,
                "kv_heads": [kv for kv, _ in layers], "ffn": [ffn for _, ffn in layers],
            }  # fmt: skip


def _blocks(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of one head size, without steps."""
    shallow, deep = ranges["hidden_per_depth"]
    (size,) = ranges["head_size"]
    for depth, width in product(ranges["depth"], ranges["hidden"]):
        if not shallow <= width / depth <= deep:
            continue
        heads = width // size
        attentions = [
            (heads // group, share)
            for group in ranges["heads_per_kv"]
            for share in ranges["shares"]
            if heads % group == 0 and (group == 1 or share in ("none", "kv"))
        ]
        ffns = [(0, 0)] if 0 in ranges["ffn_stack"] else []
        for stack, ffn in product(ranges["ffn_stack"], ranges["ffn"]):
            low, high = ranges["ffn_per_hidden" if stack == 1 else "narrow_per_hidden"]
            if stack and low * width <= ffn <= high * width:
                ffns.append((ffn, stack))
        one = list(product(attentions, ffns))
        alike = ((pair,) * depth for pair in one)
        for layers in product(one, repeat=depth) if ranges["per_layer"] else alike:
            yield {
                "depth": depth, "hidden": width, "head_size": size, "heads": heads,
                "kv_heads": [kv for (kv, _), _ in layers], "share": [share for (_, share), _ in layers],
                "ffn": [ffn for _, (ffn, _) in layers], "ffn_stack": [stack for _, (_, stack) in layers],
            }  # fmt: skip


def _flexibert(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    operations = [("SA", "SDP"), ("SA", "WMA"), ("LT", "DFT"), ("LT", "DCT"), ("DSC", 5), ("DSC", 9)]
    one = [
        {
            "operation_type": kind, "operation_parameter": parameter, "num_operation_heads": heads,
            "feed_forward_dimension": ffn, "num_feed_forward": stacks,
        }
        for (kind, parameter), heads, ffn, stacks in product(
            operations, ranges["heads"], ranges["ffn"], ranges["stacks"]
        )
    ]  # fmt: skip
    for depth, width in product(ranges["depth"], ranges["hidden"]):
        for layers in product(one, repeat=depth):
            yield {"hidden_size": width, "encoder_layers": list(layers)}


def _autoformer(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for depth, width in product(ranges["depth"], ranges["hidden"]):
        for layers in product(product(ranges["mlp_ratio"], ranges["heads"]), repeat=depth):
            yield {
                "hidden_dim": width, "depth": depth,
                "mlp_ratio": [ratio for ratio, _ in layers], "num_heads": [heads for _, heads in layers],
            }  # fmt: skip


def _elastic(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    every = [ranges["step"] * count for count in range(1, ranges["steps"] + 1)]
    kinds = list(product(ranges["blocks"], ranges["shares"]))
    grown = ranges["widths"] and iter(ranges["widths"])
    one = [
        [(kind, ffn) for kind in kinds for ffn in ([next(grown)] if grown else every)]
        for _ in range(ranges["depth"])
    ]
    for layers in product(*one):
        yield {"layers": [{"block": kind[0], "share": kind[1], "ffn": ffn} for kind, ffn in layers]}


def _pit(ranges: dict[str, Any]) -> Iterator[dict[str, Any]]:
    outer = (ranges[name] for name in ("base_dim", "mlp_ratio", "depth1", "depth2", "depth3"))
    for base_dim, ratio, *depth in product(*outer):
        for a, b, c in product(ranges["heads"], repeat=3):
            if b % a == c % b == 0:
                yield {
                    "base_dim": base_dim, "mlp_ratio": ratio, "depth": depth, "num_heads": [a, b, c]
                }  # fmt: skip
