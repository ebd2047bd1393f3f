"""AutoFormer (arXiv 2107.00651): vision transformers with heads and FFN of their own in every layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from zerolm.architecture import MAX_DEPTH, MAX_WIDTH, Architecture, Ends, Layer, Matrix
from zerolm.lab.spaces.vision import PATCH, ffn_width, vision_layer
from zerolm.settings import Setting, with_defaults
from zerolm.spaces.base import Bound, SearchSpace, space
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import (
    CLASSES,
    DEPTH,
    HEADS,
    HIDDEN,
    MLP_RATIO,
    each_layer,
    field,
    integer,
    no_others,
    number,
)
from zerolm.spaces.words import runs

HEAD_SIZE: Final = 64
IMAGE_TOKENS: Final = 14 * 14 + 1
RELATIVE: Final = 4 * (2 * 14 + 2) * HEAD_SIZE
"""Relative positions of a layer: keys and values, each a vertical and a horizontal table of 30 x 64."""
FIELDS: Final = ("hidden_dim", "mlp_ratio", "depth", "num_heads")


class Ranges(NamedTuple):
    depth: tuple[int, ...]
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    mlp_ratio: tuple[float, ...]


SUPERNETS: Final = {
    "tiny": Ranges((12, 13, 14), (192, 216, 240), (3, 4), (3.5, 4.0)),
    "small": Ranges((12, 13, 14), (320, 384, 448), (5, 6, 7), (3.0, 3.5, 4.0)),
    "base": Ranges((14, 15, 16), (528, 576, 624), (9, 10), (3.0, 3.5, 4.0)),
}


@space
class AutoFormer(SearchSpace):
    """The three supernets' ranges by ``size``, each of which may be given instead.

    A head is 64 wide whatever the hidden size, so attention is 64 x heads wide. ``params`` are those of
    a network cut out of the supernet for images of 224 x 224 in patches of 16, the tables of relative
    positions included.
    """

    name = "autoformer"
    summary = "vision transformers with heads and FFN of their own in every layer (AutoFormer)"
    task = "image"
    network = "zerolm.lab.networks.vision:autoformer"
    declared = (
        Setting("size", "text", "tiny", "supernet whose ranges are the defaults", choices=tuple(SUPERNETS)),
        *with_defaults(
            (DEPTH, HIDDEN, replace(HEADS, high=MAX_WIDTH // HEAD_SIZE), MLP_RATIO),
            **dict.fromkeys(Ranges._fields),
        ),
        CLASSES,
    )
    depth: tuple[int, ...]
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    mlp_ratio: tuple[float, ...]
    classes: int

    def completed(self, values: dict[str, Any]) -> dict[str, Any]:
        usual = SUPERNETS[values["size"]]._asdict()
        return {name: usual[name] if value is None else value for name, value in values.items()}

    def check(self) -> None:
        for end in (0, -1):
            ffn_width(self.mlp_ratio[end], self.hidden[end])

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        return (
            f"{choices['depth']} x {choices['hidden_dim']}, heads {runs(choices['num_heads'])}, "
            f"ffn ratio {runs(choices['mlp_ratio'])}"
        )

    def backbones(self) -> Iterator[Backbone]:
        for hidden in self.hidden:
            candidates = Candidates.of(
                [
                    ({"mlp_ratio": ratio, "num_heads": heads}, autoformer_layer(hidden, heads, ratio))
                    for ratio in self.mlp_ratio
                    for heads in self.heads
                ]
            )
            for depth in self.depth:
                choices = {"hidden_dim": hidden, "depth": depth}
                yield Backbone(choices, hidden, self._ends(hidden), (ChoiceBlock(candidates, depth),))

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, FIELDS)
        depth = integer("depth", field(choices, "depth"), 1, MAX_DEPTH)
        hidden = integer("hidden_dim", field(choices, "hidden_dim"))
        ratios = each_layer("mlp_ratio", field(choices, "mlp_ratio"), depth, number)
        count = partial(integer, low=1, high=MAX_WIDTH // HEAD_SIZE)
        heads = each_layer("num_heads", field(choices, "num_heads"), depth, count)
        layers = tuple(autoformer_layer(hidden, h, r) for h, r in zip(heads, ratios, strict=True))
        read = {**choices, "mlp_ratio": list(ratios), "num_heads": list(heads)}
        return Architecture(self.name, read, layers, self._ends(hidden))

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        choices = architecture.choices
        yield from self.touched("depth", architecture.depth, self.depth)
        yield from self.touched("hidden", choices["hidden_dim"], self.hidden)
        if len(heads := set(choices["num_heads"])) == 1:
            yield from self.touched("heads", heads.pop(), self.heads)
        if len(ratios := set(choices["mlp_ratio"])) == 1:
            yield from self.touched("mlp_ratio", ratios.pop(), self.mlp_ratio)

    def blind_spots(self) -> str:
        return "heads but for the width they give, image and patch size, and relative positions"

    def _ends(self, d: int) -> Ends:
        return Ends(
            embedding=PATCH * d + d + d + IMAGE_TOKENS * d,  # patches and their bias, class token, positions
            head_matrices=(Matrix("head", self.classes, d, name="head"),),
            vectors=2 * d + self.classes,
        )


def autoformer_layer(d: int, heads: int, ratio: float) -> Layer:
    return vision_layer(d, HEAD_SIZE * heads, ffn_width(ratio, d), extra=RELATIVE)
