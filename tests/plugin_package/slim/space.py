"""A space of rings: layers of attention and a narrow FFN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerolm.architecture import Architecture, Ends, Layer, Matrix
from zerolm.settings import Setting
from zerolm.spaces import Backbone, Candidates, ChoiceBlock, SearchSpace, space
from zerolm.spaces.choices import field, integer, no_others

WORDS = 9000


@space
class Rings(SearchSpace):
    """Rings of one width; each chooses its FFN, all of one kind."""

    name = "rings"
    summary = "rings of attention, an example"
    network = "slim.network:rings"
    declared = (
        Setting("rings", "integers", range(1, 4), "numbers of rings", low=1, high=64),
        Setting("ring_width", "integers", (16, 32), "widths of a ring", low=8, high=1024),
        Setting("thickness", "numbers", (0.5, 1, 2), "FFN widths over that of the ring", low=0, high=64),
        Setting("metal", "text", "gold", "what they are made of", choices=("gold", "iron")),
        Setting("doubled", "flag", False, "two attentions' worth of heads"),
    )
    rings: tuple[int, ...]
    ring_width: tuple[int, ...]
    thickness: tuple[float, ...]
    metal: str

    def backbones(self) -> Iterator[Backbone]:
        for width in self.ring_width:
            candidates = Candidates.of(
                [({"ffn": int(width * t)}, layer(width, int(width * t))) for t in self.thickness]
            )
            for count in self.rings:
                block = ChoiceBlock(candidates, count)
                yield Backbone({"rings": count, "width": width}, width, ends(width), (block,))

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**backbone.choices, "ffn": [layer["ffn"] for layer in layers]}

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, ("rings", "width", "ffn"))
        width = integer("width", field(choices, "width"))
        layers = tuple(layer(width, integer("ffn", ffn)) for ffn in field(choices, "ffn"))
        return Architecture(self.name, dict(choices), layers, ends(width))

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        return f"{choices['rings']} rings of {choices['width']}"


def layer(d: int, f: int) -> Layer:
    """Return q, k, v, o, up, down without biases, and two norms."""
    attention = tuple(Matrix("attention", d, d, name=name) for name in ("q", "k", "v", "o"))
    ffn = (Matrix("ffn", f, d, name="up"), Matrix("ffn", d, f, name="down"))
    return Layer(attention + ffn, d, d, d, 4 * d, 4 * d)


def ends(d: int) -> Ends:
    """Return a tied embedding and the final norm."""
    return Ends(WORDS * d, tied_head=WORDS * d, vectors=2 * d, body_vectors=2 * d)
