"""Networks that are cut out of one trained parent: the KV heads and the FFN width of each of its layers.

They are counted tensor by tensor as the parent's family says, so that scores and costs are those of the cut
network; the residual stream, the layers and what is outside them are the parent's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Final

from zerolm.architecture import MAX_VOCAB, Architecture, Layer
from zerolm.families.config import from_config, has, layer_with, resized, sizes_of
from zerolm.families.family import Task
from zerolm.families.known import family_of
from zerolm.io.files import parse_json
from zerolm.settings import Setting, shown, with_defaults
from zerolm.spaces.base import SearchSpace, space
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import alike, by_layer, each_layer, field, integer, no_others

FFN_SIZES: Final = 64
"""FFN widths of a layer at most, where none are named."""
OF_NO_SHAPE: Final = ("id2label", "label2id")
"""Fields of a configuration without effect on shapes, which may be long."""
Options = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of KV heads and the FFN widths that a layer may keep, ascending."""


def config_text(config: Mapping[str, Any]) -> str:
    """Return a parent's configuration as the setting ``parent_config``, without what is no shape."""
    shape = {name: value for name, value in config.items() if name not in OF_NO_SHAPE and name[:1] != "_"}
    return json.dumps(shape, sort_keys=True)


def ffn_sizes(whole: int) -> range:
    """Return the FFN widths that are tried where none are named, ascending; the last is the whole."""
    step = max(1, whole // FFN_SIZES)
    return range(whole % step or step, whole + 1, step)


class SlicedSpace(SearchSpace):
    """The parent's layers, each with some of its KV heads (and the queries that share them) and neurons.

    ``parent_config`` is the parent's. ``kv_heads`` and ``ffn`` list the sizes of a layer with slashes, one
    list for all layers or one a layer; all KV heads and 64 widths unless they are named.
    """

    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("parent_config", "text", None, "config.json of the parent, as JSON"),
        Setting("vocab", "integer", None, "size of the vocabulary; else the parent's", low=1, high=MAX_VOCAB),
        Setting("kv_heads", "names", None, "KV heads of a layer, as 1/2/4; one list for all, or one a layer"),
        Setting("ffn", "names", None, "FFN widths of a layer, as 64/128; one list for all, or one a layer"),
    )
    is_of_one_parent = True
    options: tuple[Options, ...]

    def completed(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            config = parse_json(values["parent_config"])
            if not isinstance(config, dict):
                raise ValueError("it is no JSON object")
            self.family = family_of(config)
            if values["vocab"] is not None:
                config = {**config, self.family.config.sizes["vocab"].field or "vocab_size": values["vocab"]}
            if self.family.task != self.task:
                raise ValueError(f"a {self.family.name} predicts {self.family.task} words, not {self.task}")
            self.sizes = sizes_of(self.family, config)
            self.whole = from_config(config)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"parent_config of space {self.name!r}: {error}") from None
        patterns = [each for each in self.family.tensors.body if each.in_layer]
        self._present = [each for each in patterns if has(self.family, each, config, head=True)]
        self._layers: dict[Any, Layer] = {}
        whole = {"kv_heads": self.sizes.kv_heads, "ffn": self.sizes.ffn}
        usual = {"kv_heads": range(1, whole["kv_heads"] + 1), "ffn": ffn_sizes(whole["ffn"])}
        named = {name: values[name] or ("/".join(map(str, usual[name])),) for name in usual}
        groups, ffn = ([_sizes(name, text, whole[name]) for text in named[name]] for name in named)
        depth = self.sizes.depth
        for name, lists in (("kv_heads", groups), ("ffn", ffn)):
            if len(lists) not in (1, depth):
                raise ValueError(f"{name} has {len(lists)} lists; one for all, or {depth}, one a layer")
        spread = (lists * depth if len(lists) == 1 else lists for lists in (groups, ffn))
        self.options = tuple(zip(*spread, strict=True))
        lists_of = {name: tuple(texts) for name, texts in named.items()}
        return {**values, **lists_of, "vocab": self.sizes.vocab}

    def layer(self, number: int, kv_heads: int, ffn: int) -> Layer:
        """Return a layer of the parent with these numbers of KV heads and neurons."""
        kind = (self.sizes.windows[number], self.sizes.kinds[number])
        key = (kv_heads, ffn, *kind)
        if key not in self._layers:
            heads = kv_heads * (self.sizes.heads // self.sizes.kv_heads)
            sizes = resized(self.sizes, {"heads": heads, "kv_heads": kv_heads, "ffn": ffn})
            self._layers[key] = layer_with(self.family, self._present, sizes, *kind)
        return self._layers[key]

    def backbones(self) -> Iterator[Backbone]:
        kinds = zip(self.sizes.windows, self.sizes.kinds, self.options, strict=True)
        tables: dict[Any, Candidates] = {}
        blocks = []
        for kind, numbers in groupby(enumerate(kinds), key=lambda each: each[1]):
            places = [number for number, _ in numbers]
            if kind not in tables:
                groups, ffn = kind[-1]
                tables[kind] = Candidates.of(
                    [({"kv_heads": g, "ffn": f}, self.layer(places[0], g, f)) for g in groups for f in ffn]
                )
            blocks.append(ChoiceBlock(tables[kind], len(places)))
        yield Backbone({}, self.whole.mean_width, self.whole.ends, tuple(blocks))

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {name: alike([layer[name] for layer in layers]) for name in ("kv_heads", "ffn")}

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, ("kv_heads", "ffn"))
        depth, whole = self.sizes.depth, {"kv_heads": self.sizes.kv_heads, "ffn": self.sizes.ffn}
        columns = {
            name: each_layer(name, field(choices, name), depth, _at_most(size))
            for name, size in whole.items()
        }
        rows = zip(columns["kv_heads"], columns["ffn"], strict=True)
        layers = tuple(self.layer(number, *row) for number, row in enumerate(rows))
        read = {name: alike(values) for name, values in columns.items()}
        return Architecture(self.name, read, layers, self.whole.ends)

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        texts = ("/".join(map(str, by_layer(choices[name], 1))) for name in ("kv_heads", "ffn"))
        return "kv {}, ffn {}".format(*texts)

    def blind_spots(self) -> str:
        return "which of the parent's heads and neurons are kept, and in which layer"


def heads_of(architecture: Architecture) -> tuple[list[int], int]:
    """Return the heads of each layer of a network of these spaces, and the size of a head."""
    groups = by_layer(architecture.choices["kv_heads"], architecture.depth)
    size = architecture.layers[0].kv_width // groups[0]
    return [layer.query_width // size for layer in architecture.layers], size


def _sizes(name: str, text: str, whole: int) -> tuple[int, ...]:
    words = [word.strip() for word in text.split("/")]
    if not all(word.isdecimal() and len(word) < 9 and 1 <= int(word) <= max(whole, 1) for word in words):
        raise ValueError(f"{name} has {shown(text)}; sizes with slashes from 1 to {whole} can be")
    return tuple(sorted(set(map(int, words))))


def _at_most(whole: int) -> Any:
    return lambda name, value: integer(name, value, min(1, whole), whole)


LLAMA: Final = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1536, "vocab_size": 4096,
    "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip
BERT: Final = {
    "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8,
    "intermediate_size": 1024, "vocab_size": 8192, "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip


@space
class SlicedDecoder(SlicedSpace):
    """Sub-networks of a decoder; the default parent is a small llama."""

    name = "sliced-decoder"
    summary = "sub-networks of a trained decoder: KV heads and FFN of each layer (`lab slice`)"
    network = "zerolm.networks.modules.subnetworks:decoder"
    declared = with_defaults(SlicedSpace.declared, parent_config=config_text(LLAMA))


@space
class SlicedEncoder(SlicedSpace):
    """Sub-networks of an encoder; the default parent is a small BERT."""

    name = "sliced-encoder"
    summary = "sub-networks of a trained encoder: heads and FFN of each layer (`lab slice`)"
    task: ClassVar[Task] = "masked"
    network = "zerolm.networks.modules.subnetworks:encoder"
    declared = with_defaults(SlicedSpace.declared, parent_config=config_text(BERT))
