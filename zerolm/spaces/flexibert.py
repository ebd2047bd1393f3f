"""FlexiBERT (ZeroLM, Table VIII): heterogeneous encoders, in the three views of their benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Final

from zerolm.architecture import MAX_DEPTH, Architecture, Ends, Layer, Matrix
from zerolm.settings import Setting, shown, with_defaults
from zerolm.spaces.base import Bound, SearchSpace, space
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import DEPTH, FFN, HEADS, HIDDEN, check_heads, field, integer, no_others
from zerolm.spaces.words import counted

FLEXIBERT_VIEWS: Final = ("declared", "published", "trained")
OPERATIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("SA", "SDP"),
    ("SA", "WMA"),
    ("LT", "DFT"),
    ("LT", "DCT"),
    ("DSC", 5),
    ("DSC", 9),
)
LAYER_FIELDS: Final = (
    *("operation_type", "operation_parameter", "num_operation_heads"),
    *("feed_forward_dimension", "num_feed_forward"),
)
BERT_VOCABULARY: Final = 30522
POSITIONS: Final = 512
EMBEDDING: Final = 128
PUBLISHED_HIDDEN: Final = 256
PUBLISHED_FFN: Final = 1024


@space
class FlexiBert(SearchSpace):
    """Table VIII; ``view`` says which network a configuration stands for.

    ``declared``: as a user reads it; ``published``: as the published proxies scored it (hidden 256 and
    FFN 1024 whatever it says); ``trained``: as it was trained (every operation is plain attention, the
    first FFN matrix is 4 x hidden, and the FFN width enters only layers with several stacks).
    """

    name = "flexibert"
    summary = "encoders mixing attention, linear transforms and dynamic convolution (Table VIII)"

    task = "masked"
    network = "zerolm.networks.modules.flexibert:flexibert"
    declared = (
        Setting(
            "view",
            "text",
            "declared",
            "network that a configuration stands for",
            choices=FLEXIBERT_VIEWS,
        ),
        *with_defaults(
            (DEPTH, HIDDEN, HEADS, FFN), depth=(2, 4), hidden=(128, 256), heads=(2, 4), ffn=(512, 1024)
        ),
        Setting("stacks", "integers", (1, 3), "numbers of FFN matrices before the last", low=1, high=64),
    )
    view: str
    depth: tuple[int, ...]
    hidden: tuple[int, ...]
    heads: tuple[int, ...]
    ffn: tuple[int, ...]
    stacks: tuple[int, ...]

    def check(self) -> None:
        check_heads("hidden", self.hidden, self.heads)

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        layers = []
        for layer in choices["encoder_layers"]:
            operation = f"{layer['operation_type']}-{layer['operation_parameter']}"
            stacks = f"x{layer['num_feed_forward']}" if layer["num_feed_forward"] > 1 else ""
            heads, ffn = layer["num_operation_heads"], layer["feed_forward_dimension"]
            layers.append(f"{operation}/{heads} ffn {ffn}{stacks}")
        return f"hidden {choices['hidden_size']}: {counted(layers)}"

    def backbones(self) -> Iterator[Backbone]:
        for hidden in self.hidden:
            candidates = Candidates.of([(c, self._layer(hidden, c)) for c in self._layer_choices()])
            width = self._width(hidden)
            for depth in self.depth:
                block = ChoiceBlock(candidates, depth)
                yield Backbone({"hidden_size": hidden}, width, self._ends(hidden), (block,))

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, ("hidden_size", "encoder_layers"))
        hidden = integer("hidden_size", field(choices, "hidden_size"))
        entries = field(choices, "encoder_layers")
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_DEPTH:
            raise ValueError(f"encoder_layers must list 1 to {MAX_DEPTH} layers")
        layers = tuple(self._layer(hidden, entry) for entry in entries)
        return Architecture(self.name, dict(choices), layers, self._ends(hidden))

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {**backbone.choices, "encoder_layers": [dict(layer) for layer in layers]}

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        yield from self.touched("depth", architecture.depth, self.depth)
        yield from self.touched("hidden", architecture.choices["hidden_size"], self.hidden)
        widths = {layer["feed_forward_dimension"] for layer in architecture.choices["encoder_layers"]}
        if len(widths) == 1:
            yield from self.touched("ffn", widths.pop(), self.ffn)

    def blind_spots(self) -> str:
        return "the heads of attention and of linear transforms, nor DFT against DCT"

    def _layer_choices(self) -> Iterator[dict[str, Any]]:
        for operation, *sizes in product(OPERATIONS, reversed(self.heads), self.ffn, self.stacks):
            yield dict(zip(LAYER_FIELDS, (*operation, *sizes), strict=True))

    def _width(self, hidden: int) -> int:
        return PUBLISHED_HIDDEN if self.view == "published" else hidden

    def _ends(self, hidden: int) -> Ends:
        width = self._width(hidden)
        project = width != EMBEDDING
        shapes = [(rows, EMBEDDING) for rows in (BERT_VOCABULARY, POSITIONS, 2)]
        shapes += [(width, EMBEDDING)] if project else []
        matrices = tuple(Matrix("embedding", rows, cols, name="embedding") for rows, cols in shapes)
        return Ends(
            embedding=sum(matrix.weights for matrix in matrices),
            vectors=2 * EMBEDDING + (width if project else 0),
            embedding_matrices=matrices,
        )

    def _layer(self, hidden: int, choice: Any) -> Layer:
        if not isinstance(choice, dict):
            raise ValueError(f"a layer must be an object, not {shown(choice)}")
        no_others(choice, LAYER_FIELDS)
        operation, parameter, heads, ffn, stacks = (field(choice, name) for name in LAYER_FIELDS)
        integer("num_operation_heads", heads)
        integer("feed_forward_dimension", ffn)
        integer("num_feed_forward", stacks, 1, 64)
        if operation == "DSC":
            integer("operation_parameter", parameter, 1, 1024)
        elif (operation, parameter) not in OPERATIONS:
            possible = ", ".join(f"{a} {b}" for a, b in OPERATIONS)
            raise ValueError(
                f"operation {shown(operation)} {shown(parameter)} is not known; there are {possible}"
            )
        h = self._width(hidden)
        check_heads("hidden", [h], [heads])
        if self.view == "trained":
            attention, vectors, width = self_attention(h, False)
            ffns = stack(h, [4 * h] + [ffn] * (stacks - 1))
        else:
            ffns = stack(h, [PUBLISHED_FFN if self.view == "published" else ffn] * stacks)
            if operation == "SA":
                attention, vectors, width = self_attention(h, parameter == "WMA")
            elif operation == "LT":
                attention, vectors, width = (Matrix("attention", h, h, name="mix"),), h, 0
            else:
                attention, vectors, width = dynamic_convolution(h, heads, int(parameter))
        vectors += sum(matrix.rows for matrix in ffns) + 2 * h
        return Layer(attention + ffns, h, width, width, vectors)


def self_attention(h: int, weighted: bool) -> tuple[tuple[Matrix, ...], int, int]:
    """Return matrices, biases and norms, and attending width: q, k, v, o, and one more if multiplicative."""
    names = ("q", "k", "v", "o", "weight") if weighted else ("q", "k", "v", "o")
    matrices = tuple(Matrix("attention", h, h, name=name) for name in names)
    return matrices, len(names) * h + 2 * h, h


def dynamic_convolution(h: int, heads: int, kernel: int) -> tuple[tuple[Matrix, ...], int, int]:
    """Return the same of a span-based dynamic convolution, half of whose heads attend."""
    n = max(1, heads // 2)
    a = n * (h // heads)
    shapes = {
        "q": (a, h),
        "k": (a, h),
        "v": (a, h),
        "depthwise": (h, kernel),
        "pointwise": (a, h),
        "kernel": (n * kernel, a),
        "conv": (a, h),
        "o": (h, h),
    }
    vectors = 3 * a + a + n * kernel + a + h + 2 * h
    matrices = tuple(Matrix("attention", rows, cols, name=name) for name, (rows, cols) in shapes.items())
    return matrices, vectors, a


def stack(h: int, widths: Sequence[int]) -> tuple[Matrix, ...]:
    """Return FFN matrices from h through the widths and back to h."""
    names = ("up", *["middle"] * (len(widths) - 1), "down")
    shapes = zip(names, pairwise([h, *widths, h]), strict=True)
    return tuple(Matrix("ffn", rows, cols, name=name) for name, (cols, rows) in shapes)
