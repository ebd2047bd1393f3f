"""GPT-2 and Transformer-XL with a width and a head count of their own in every layer (ZeroLM, Table VII)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, ClassVar, Final

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH, Architecture, Ends, Layer, Matrix
from zerolm.settings import Setting, with_defaults
from zerolm.spaces.base import Bound, SearchSpace, space
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import (
    DEPTH,
    FFN,
    FFN_PER_HIDDEN,
    HEADS,
    HIDDEN,
    check_heads,
    each_layer,
    field,
    integer,
    no_others,
)
from zerolm.spaces.gpt2_uniform import gpt2_layer
from zerolm.spaces.words import runs

CUTOFFS: Final = {"wt103": (19997, 39997, 199997), "lm1b": (59997, 99997, 639997)}
POSITIONS: Final = 192
FIELDS: Final = ("n_layer", "d_model", "d_inner", "n_head", "d_embed", "div_val")


class PerLayerDecoder(SearchSpace):
    """Common to both: depth, width, and FFN width and heads chosen anew in every layer."""

    vocabulary: ClassVar[dict[str, int]]

    declared = (
        Setting("corpus", "text", "wt103", "corpus of the benchmark", choices=tuple(CUTOFFS)),
        *with_defaults(
            (DEPTH, HIDDEN, FFN, FFN_PER_HIDDEN, HEADS),
            depth=range(2, 17),
            hidden=range(128, 1025, 64),
            ffn=range(256, 4097, 64),
            ffn_per_hidden=(2.0, 32.0),
            heads=(2, 4, 8),
        ),
        Setting("d_embed", "integers", (128, 256, 512), "widths of the embedding", low=1, high=MAX_WIDTH),
        Setting("div_val", "integers", (1, 2, 4), "how much narrower rarer words are", low=1, high=64),
    )
    corpus: str
    depth: tuple[int, ...]
    hidden: tuple[int, ...]
    ffn: tuple[int, ...]
    ffn_per_hidden: tuple[float, float]
    heads: tuple[int, ...]
    d_embed: tuple[int, ...]
    div_val: tuple[int, ...]

    def check(self) -> None:
        check_heads("hidden", self.hidden, self.heads)
        if not any(self._widths(hidden) for hidden in self.hidden):
            raise ValueError(
                f"no FFN width of {self.ffn[0]} to {self.ffn[-1]} lies within {self.ffn_per_hidden} x hidden"
            )

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        return (
            f"{choices['n_layer']} x {choices['d_model']}, heads {runs(choices['n_head'])}, "
            f"ffn {runs(choices['d_inner'])}, d_embed {choices['d_embed']}, div_val {choices['div_val']}"
        )

    def backbones(self) -> Iterator[Backbone]:
        for hidden in self.hidden:
            heads = sorted(self.heads, key=lambda count: abs(hidden / count - 64))
            options = [
                ({"d_inner": ffn, "n_head": count}, self._layer(hidden, ffn))
                for ffn in self._widths(hidden)
                for count in heads
            ]
            if not options:
                continue
            candidates = Candidates.of(options)
            for depth in self.depth:
                block, sizes = ChoiceBlock(candidates, depth), {"n_layer": depth, "d_model": hidden}
                for d_embed, div_val in product(self.d_embed, self.div_val):
                    choices = {**sizes, "d_embed": d_embed, "div_val": div_val}
                    yield Backbone(choices, hidden, self._ends(hidden, d_embed, div_val), (block,))

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, FIELDS)
        depth = integer("n_layer", field(choices, "n_layer"), 1, MAX_DEPTH)
        hidden = integer("d_model", field(choices, "d_model"))
        widths = each_layer("d_inner", field(choices, "d_inner"), depth, integer)
        heads = each_layer("n_head", field(choices, "n_head"), depth, integer)
        check_heads("d_model", [hidden], heads)
        d_embed = integer("d_embed", field(choices, "d_embed"), -1)
        if d_embed == 0:
            raise ValueError("d_embed must be positive, or -1 for d_model")
        div_val = integer("div_val", field(choices, "div_val"), 1, 64)
        layers = tuple(self._layer(hidden, ffn) for ffn in widths)
        ends = self._ends(hidden, hidden if d_embed == -1 else d_embed, div_val)
        read = {**choices, "d_inner": list(widths), "n_head": list(heads)}
        return Architecture(self.name, read, layers, ends)

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        hidden = int(architecture.choices["d_model"])
        yield from self.touched("depth", architecture.depth, self.depth)
        yield from self.touched("hidden", hidden, self.hidden)
        widths = set(architecture.choices["d_inner"])
        if widths == {self.ffn[-1]}:
            yield from self.touched("ffn", self.ffn[-1], self.ffn)
        elif widths == {self.ffn[0]}:
            yield from self.touched("ffn", self.ffn[0], self.ffn)
        elif widths == {self._widths(hidden)[0]}:
            yield from self.touched("ffn_per_hidden", self.ffn_per_hidden[0], self.ffn_per_hidden)

    def blind_spots(self) -> str:
        return "the heads of each layer, d_embed and div_val (the smallest embedding is taken)"

    def _widths(self, hidden: int) -> list[int]:
        low, high = self.ffn_per_hidden
        return [ffn for ffn in self.ffn if low * hidden <= ffn <= high * hidden]

    def _layer(self, d: int, f: int) -> Layer:
        raise NotImplementedError

    def _ends(self, d: int, d_embed: int, div_val: int) -> Ends:
        raise NotImplementedError

    def _adaptive(self, d: int, d_embed: int, div_val: int, cutoffs: Sequence[int]) -> tuple[Matrix, ...]:
        """Return the matrices of an adaptive input embedding; the softmax is tied to it."""
        tokens = self.vocabulary[self.corpus]
        integer("vocabulary", tokens, 1, MAX_VOCAB)
        if div_val == 1:
            shapes = [(tokens, d_embed)] + ([(d, d_embed)] if d_embed != d else [])
        else:
            edges = [0, *(cutoff for cutoff in cutoffs if cutoff < tokens), tokens]
            sizes = [(high - low, d_embed // div_val**i) for i, (low, high) in enumerate(pairwise(edges))]
            shapes = [(rows, cols) for size, cols in sizes for rows in (size, d) if cols]
        return tuple(Matrix("embedding", rows, cols, name="embedding") for rows, cols in shapes)


@space
class Gpt2(PerLayerDecoder):
    """GPT-2 as the benchmark trains it: fused QKV, residual projections scaled at initialisation."""

    name = "gpt2"
    summary = "GPT-2 with an FFN width and head count of its own in every layer (Table VII)"
    network = "zerolm.networks.modules.gpt2:gpt2"
    vocabulary: ClassVar = {"wt103": 50264, "lm1b": 50264}

    def _layer(self, d: int, f: int) -> Layer:
        # The LM1B runs kept Transformer-XL's attention: d^2 + 2 d more than the matrices, 4 d less bias.
        attention = 4 * d if self.corpus == "wt103" else d * d + 2 * d
        body = attention + f + d
        return Layer(gpt2_layer(d, f).matrices, d, d, d, body + 4 * d, body)

    def _ends(self, d: int, d_embed: int, div_val: int) -> Ends:
        if self.corpus == "lm1b":
            return _tied(self._adaptive(d, d_embed, div_val, ()))
        positions = Matrix("embedding", POSITIONS, d, name="positions")
        return _tied(self._adaptive(d, d_embed, div_val, CUTOFFS["wt103"]), (positions,), vectors=2 * d)


@space
class TransformerXL(PerLayerDecoder):
    """Transformer-XL as the benchmark trains it: relative positions, adaptive embeddings."""

    name = "transformer_xl"
    summary = "Transformer-XL with an FFN width and head count of its own in every layer"
    network = "zerolm.networks.modules.transformer_xl:transformer_xl"
    vocabulary: ClassVar = {"wt103": 267736, "lm1b": 793470}

    def _layer(self, d: int, f: int) -> Layer:
        matrices = (
            Matrix("attention", 3 * d, d, parts=3, name="qkv"),
            Matrix("attention", d, d, name="o"),
            Matrix("attention", d, d, name="relative"),
            Matrix("ffn", f, d, name="up"),
            Matrix("ffn", d, f, name="down"),
        )
        body = 2 * d + f + d
        return Layer(matrices, d, d, d, body + 4 * d, body)

    def _ends(self, d: int, d_embed: int, div_val: int) -> Ends:
        return _tied(self._adaptive(d, d_embed, div_val, CUTOFFS[self.corpus]))


def _tied(tokens: tuple[Matrix, ...], others: tuple[Matrix, ...] = (), vectors: int = 0) -> Ends:
    """Return ends whose softmax is tied to the embedding of ``tokens``."""
    head, more = (sum(matrix.weights for matrix in matrices) for matrices in (tokens, others))
    return Ends(head + more, tied_head=head, vectors=vectors, embedding_matrices=tokens + others)
