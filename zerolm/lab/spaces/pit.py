"""PiT (arXiv 2103.16302) as Auto-Prox searches it: vision transformers that pool tokens in stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from typing import Any, Final

from zerolm.architecture import MAX_DEPTH, MAX_WIDTH, Architecture, Ends, Layer, Matrix
from zerolm.lab.spaces.vision import PATCH, ffn_width, vision_layer
from zerolm.settings import Setting, shown
from zerolm.spaces.base import Bound, SearchSpace, space
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import CLASSES, HEADS, MLP_RATIO, field, integer, no_others, number

DEPTHS: Final = {"depth1": (1, 2, 3), "depth2": (4, 6, 8), "depth3": (2, 4, 6)}
STAGES: Final = len(DEPTHS)
STEM_TOKENS: Final = 27 * 27
"""Patches of 16 pixels every 8 pixels of an image of 224 x 224."""
FIELDS: Final = ("base_dim", "mlp_ratio", "depth", "num_heads")


@space
class Pit(SearchSpace):
    """A head size and an FFN ratio for all, a depth and a head count for each of three stages.

    A stage is base_dim x heads wide. The pooling convolution between two stages makes the same number of
    channels out of each, so a stage's heads are a multiple of those of the stage before. ``params`` are
    those of PiT in timm. MACs take every stage to see equally many tokens.
    """

    name = "pit"
    summary = "vision transformers in three stages, tokens pooled between them (PiT, Auto-Prox)"
    task = "image"
    network = "zerolm.lab.networks.vision:pit"
    declared = (
        Setting("base_dim", "integers", (16, 24, 32, 40), "widths of a head", low=1, high=MAX_WIDTH),
        replace(MLP_RATIO, default=(2, 4, 6, 8)),
        *(
            Setting(name, "integers", depths, f"layers of stage {name[-1]}", low=1, high=MAX_DEPTH)
            for name, depths in DEPTHS.items()
        ),
        replace(HEADS, default=(2, 4, 8)),
        CLASSES,
    )
    base_dim: tuple[int, ...]
    mlp_ratio: tuple[float, ...]
    heads: tuple[int, ...]
    classes: int

    @property
    def depths(self) -> dict[str, tuple[int, ...]]:
        """Return the numbers of layers of each stage, by the name of their setting."""
        return {name: getattr(self, name) for name in DEPTHS}

    def check(self) -> None:
        for end in (0, -1):
            ffn_width(self.mlp_ratio[end], stage_width(self.base_dim[end], self.heads[end]))

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        """Return stages of unlike widths: 2 x 64 + 6 x 128 + 4 x 256, heads 2/4/8, ffn ratio 4."""
        stages = zip(choices["depth"], choices["num_heads"], strict=True)
        widths = " + ".join(f"{depth} x {heads * choices['base_dim']}" for depth, heads in stages)
        heads = "/".join(map(str, choices["num_heads"]))
        return f"{widths}, heads {heads}, ffn ratio {choices['mlp_ratio']}"

    def backbones(self) -> Iterator[Backbone]:
        @cache
        def stage(width: int, ratio: float) -> Candidates:
            return Candidates.of([({}, pit_layer(width, ratio))])

        stages = [heads for heads in product(self.heads, repeat=STAGES) if _poolable(heads)]
        for base, heads in product(self.base_dim, stages):
            widths = [base * count for count in heads]
            ends = self._ends(widths)
            for ratio, depths in product(self.mlp_ratio, product(*self.depths.values())):
                choices = {
                    "base_dim": base,
                    "mlp_ratio": ratio,
                    "depth": list(depths),
                    "num_heads": list(heads),
                }
                blocks = tuple(
                    ChoiceBlock(stage(width, ratio), depth, tied=True)
                    for width, depth in zip(widths, depths, strict=True)
                )
                mean = sum(w * n for w, n in zip(widths, depths, strict=True)) / sum(depths)
                yield Backbone(choices, mean, ends, blocks)

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, FIELDS)
        base = integer("base_dim", field(choices, "base_dim"))
        ratio = number("mlp_ratio", field(choices, "mlp_ratio"))
        depths = _each_stage("depth", field(choices, "depth"), MAX_DEPTH)
        heads = _each_stage("num_heads", field(choices, "num_heads"))
        if not _poolable(heads):
            raise ValueError(
                f"num_heads {heads} cannot be pooled: a stage must have as many heads as the stage before, "
                f"or a multiple of them"
            )
        widths = [stage_width(base, count) for count in heads]
        layers = [
            layer
            for width, depth in zip(widths, depths, strict=True)
            for layer in [pit_layer(width, ratio)] * depth
        ]
        return Architecture(self.name, dict(choices), tuple(layers), self._ends(widths))

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        choices = architecture.choices
        yield from self.touched("base_dim", choices["base_dim"], self.base_dim)
        yield from self.touched("mlp_ratio", choices["mlp_ratio"], self.mlp_ratio)
        for (name, range_), depth in zip(self.depths.items(), choices["depth"], strict=True):
            yield from self.touched(name, depth, range_)
        for heads in sorted({choices["num_heads"][0], choices["num_heads"][-1]}):
            yield from self.touched("heads", heads, self.heads)

    def blind_spots(self) -> str:
        return "heads but for the width they give, nor that later stages see fewer tokens, nor the image size"

    def _ends(self, widths: Sequence[int]) -> Ends:
        first, last = widths[0], widths[-1]
        pooling = sum(9 * b + b + a * b + b for a, b in pairwise(widths))  # 3 x 3 a channel; class token
        return Ends(
            embedding=PATCH * first + first + first + STEM_TOKENS * first + pooling,
            head_matrices=(Matrix("head", self.classes, last, name="head"),),
            vectors=2 * last + self.classes,
        )


def pit_layer(d: int, ratio: float) -> Layer:
    return vision_layer(d, d, ffn_width(ratio, d))


def stage_width(base_dim: int, heads: int) -> int:
    return integer("base_dim x heads", base_dim * heads)


def _poolable(heads: Sequence[int]) -> bool:
    return all(after % before == 0 for before, after in pairwise(heads))


def _each_stage(name: str, value: Any, high: int = 1 << 20) -> list[int]:
    if not isinstance(value, list | tuple) or len(value) != STAGES:
        raise ValueError(f"{name} must list {STAGES} stages, not {shown(value)}")
    return [integer(name, item, 1, high) for item in value]
