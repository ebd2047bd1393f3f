"""Paths through a supernet of candidate blocks: ELM (arXiv 2510.27037), W-PCA (arXiv 2504.15983)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH, Architecture, Ends, Layer, Matrix
from zerolm.families.family import Task
from zerolm.settings import Setting, check_known, shown, with_defaults
from zerolm.spaces.base import SearchSpace, space
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import field, integer, no_others
from zerolm.spaces.words import counted

SHARED: Final = {"none": "qkv", "kv": "qkk", "qv": "qkq", "qk": "qqv"}
"""Which projection gives queries, keys and values, by what is shared."""
NARROW: Final = 4
"""The hidden size over the inner width of a MobileBERT block."""
SEGMENTS: Final = 2
Kind = tuple[str, str]
"""A block and what it shares: a candidate of a supernet's layer."""


@space
class Elastic(SearchSpace):
    """Encoders whose every layer is one of several blocks, with the defaults of ELM-Small.

    ``widths`` are the FFN widths that a supernet has grown, of each kind of each layer; without them every
    kind may take every multiple of ``step`` up to ``steps`` of them. All parameters count; the released code
    leaves out the gains and offsets of NoNorm, and the head.
    """

    name = "elastic"
    summary = "encoders of BERT and MobileBERT blocks with shared projections, the paths of a supernet (ELM)"
    task: ClassVar[Task] = "masked"
    network = "zerolm.lab.networks.elastic:elastic"
    block_kinds: ClassVar[tuple[str, ...]] = ("bert", "mobile")
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("depth", "integer", 12, "number of layers", low=1, high=MAX_DEPTH),
        Setting("hidden", "integer", 528, "hidden size", low=1, high=MAX_WIDTH),
        Setting("heads", "integer", 12, "heads of a layer", low=1, high=MAX_WIDTH),
        Setting("embedding", "integer", 128, "width of a token's vector", low=1, high=MAX_WIDTH),
        Setting("vocab", "integer", 30522, "size of the vocabulary", low=1, high=MAX_VOCAB),
        Setting("positions", "integer", 512, "longest sequence", low=1, high=MAX_VOCAB),
        Setting("blocks", "names", ("bert", "mobile"), "blocks to choose from"),
        Setting("shares", "names", ("none", "kv", "qv"), "projections that are one: none, kv, qv, qk"),
        Setting("step", "integer", 132, "the smallest FFN width, and by how much it grows", low=1),
        Setting("steps", "integer", 6, "the largest FFN width over the smallest", low=1, high=1024),
        Setting("widths", "shares", None, "FFN width of every kind of every layer, after growth", low=1),
    )
    depth: int
    hidden: int
    heads: int
    embedding: int
    vocab: int
    positions: int
    blocks: tuple[str, ...]
    shares: tuple[str, ...]
    step: int
    steps: int
    widths: tuple[int, ...] | None

    def completed(self, values: dict[str, Any]) -> dict[str, Any]:
        if values["widths"] is not None:
            values["widths"] = tuple(int(width) if width % 1 == 0 else width for width in values["widths"])
        return values

    def check(self) -> None:
        integer("step x steps", self.largest)
        for setting, possible in (("blocks", self.block_kinds), ("shares", tuple(SHARED))):
            names = getattr(self, setting)
            for name in names:
                check_known(setting, name, possible)
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{setting} must list one or more of {', '.join(possible)}, each once")
        count = self.depth * len(self.kinds)
        if self.widths is not None and len(self.widths) != count:
            blocks = f"{self.depth} layers of {len(self.kinds)} kinds have {count}"
            raise ValueError(f"widths lists {len(self.widths)} numbers; {blocks}")
        for width in self.widths or ():
            integer("every one of widths", width, 1, self.largest)
        for block in self.blocks:
            self.layer({"block": block, "share": self.shares[0], "ffn": self.step})

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds that every layer chooses from, in the order of ``widths``."""
        return tuple((block, share) for block in self.blocks for share in self.shares)

    @property
    def largest(self) -> int:
        """Return the largest FFN width."""
        return self.step * self.steps

    def backbones(self) -> Iterator[Backbone]:
        if self.widths is None:
            multiples = tuple(self.step * count for count in range(1, self.steps + 1))
            every = self._candidates((multiples,) * len(self.kinds))
            blocks: tuple[ChoiceBlock, ...] = (ChoiceBlock(every, self.depth),)
        else:
            count = len(self.kinds)
            rows = [self.widths[first : first + count] for first in range(0, len(self.widths), count)]
            of_row = {row: self._candidates(tuple((width,) for width in row)) for row in rows}
            blocks = tuple(ChoiceBlock(of_row[row], 1) for row in rows)
        yield Backbone({}, self.hidden, self.ends(), blocks)

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"layers": [dict(layer) for layer in layers]}

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, ("layers",))
        entries = field(choices, "layers")
        if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_DEPTH:
            raise ValueError(f"layers must list 1 to {MAX_DEPTH} layers")
        read = [self._complete(entry) for entry in entries]
        layers = tuple(self.layer(choice) for choice in read)
        return Architecture(self.name, {"layers": read}, layers, self.ends())

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        return counted([_word(layer) for layer in choices["layers"]])

    def blind_spots(self) -> str:
        return "which of two projections is shared, the heads, and the order of the layers"

    def ends(self) -> Ends:
        """Return tokens, positions and segments with their norm, and the head for masked words."""
        d, e = self.hidden, self.embedding
        return self._ends((SEGMENTS, d), e + 2 * e + self.vocab)

    def _ends(self, more: tuple[int, int], vectors: int) -> Ends:
        d, e = self.hidden, self.embedding
        shapes = [(self.vocab, e), (d, 3 * e), (self.positions, d), more]
        matrices = tuple(Matrix("embedding", rows, cols, name="embedding") for rows, cols in shapes if rows)
        return Ends(
            embedding=sum(matrix.weights for matrix in matrices),
            tied_head=self.vocab * e,
            head_matrices=(Matrix("head", e, d, name="head"),),
            vectors=3 * d + vectors,
            embedding_matrices=matrices,
        )

    def _candidates(self, widths: Sequence[Sequence[int]]) -> Candidates:
        """Return the candidates of a layer, each kind in each of its widths."""
        choices = [
            {"block": block, "share": share, "ffn": width}
            for (block, share), kind_widths in zip(self.kinds, widths, strict=True)
            for width in kind_widths
        ]
        return Candidates.of([(choice, self.layer(choice)) for choice in choices])

    def _complete(self, choice: Any) -> dict[str, Any]:
        """Return a layer's choice with its heads, and with their size where they are fewer than fit."""
        if not isinstance(choice, dict):
            raise ValueError(f"a layer must be an object, not {shown(choice)}")
        no_others(choice, ("block", "share", "ffn", "heads", "head_size"))
        block, share = field(choice, "block"), field(choice, "share")
        check_known("block", block, self.block_kinds)
        check_known("share", share, SHARED)
        ffn, heads = integer("ffn", field(choice, "ffn")), integer("heads", choice.get("heads", self.heads))
        if block == "mobile" and self.hidden % NARROW:
            raise ValueError(f"hidden {self.hidden} is not divisible by {NARROW}, as MobileBERT blocks need")
        width = self.hidden // NARROW if block == "mobile" else self.hidden
        if "head_size" not in choice and width % heads:
            fewer = next(count for count in range(heads, 0, -1) if width % count == 0)
            raise ValueError(
                f"the width {width} of a {block} block is not divisible by {heads} heads; {fewer} divide it"
            )
        size = integer("head_size", choice.get("head_size", width // heads))
        if heads * size > width:
            raise ValueError(f"{heads} heads of {size} are wider than the {width} of a {block} block")
        if block == "llama" and size % 2:
            raise ValueError(f"{heads} heads of {size}: rotary positions need an even size")
        sliced = {"head_size": size} if heads * size != width else {}
        return {"block": block, "share": share, "ffn": ffn, "heads": heads, **sliced}

    def layer(self, choice: Mapping[str, Any]) -> Layer:
        """Return the layer of a choice."""
        whole = self._complete(choice)
        block, f, d = whole["block"], whole["ffn"], self.hidden
        narrow = d // NARROW if block == "mobile" else d
        attending = whole["heads"] * whole.get("head_size", narrow // whole["heads"])
        projections = [("attention", attending, d, name) for name in dict.fromkeys(SHARED[whole["share"]])]
        attention = [*projections, ("attention", narrow, attending, "o")]
        ffn = [("ffn", f, narrow, "up"), ("ffn", narrow, f, "down")]
        norms = 4 * d
        if block == "mobile":
            attention.insert(0, ("attention", narrow, d, "bottleneck"))
            ffn.append(("ffn", d, narrow, "output"))
            norms = 4 * narrow + 2 * d
        if block == "llama":
            ffn.insert(0, ("ffn", f, d, "gate"))
        matrices = tuple(Matrix(role, r, c, name=name) for role, r, c, name in (*attention, *ffn))  # type: ignore[arg-type]
        vectors = 2 * d if block == "llama" else norms + sum(matrix.rows for matrix in matrices)
        return Layer(matrices, d, attending, attending, vectors, vectors)


@space
class ElasticCausal(Elastic):
    """Decoders of the same blocks behind causal attention, and one shaped as a llama's; the head is tied."""

    name = "elastic-causal"
    summary = "decoders of BERT, MobileBERT and llama blocks with shared projections, the paths of a supernet"
    task = "next"
    network = "zerolm.lab.networks.elastic:elastic_causal"
    block_kinds = ("bert", "mobile", "llama")
    declared = with_defaults(Elastic.declared, blocks=("bert", "mobile", "llama"))

    def ends(self) -> Ends:
        """Return tokens and positions with their norm, the last norm, and the narrow way to the tied head."""
        return self._ends((0, 0), self.hidden)


def _word(layer: Mapping[str, Any]) -> str:
    share = "" if layer["share"] == "none" else f" {layer['share']}"
    return f"{layer['block']}{share}/{layer['heads']} ffn {layer['ffn']}"
