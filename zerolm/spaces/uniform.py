"""Spaces of the same layer throughout, within shapes that people train: llama, gpt2-uniform, bert."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, Architecture, Ends, Layer
from zerolm.settings import REQUIRED, Setting
from zerolm.spaces.base import Bound, SearchSpace
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock
from zerolm.spaces.choices import alike, each_layer, field, integer, no_others
from zerolm.spaces.ranges import DEPTH, FFN, FFN_PER_HIDDEN, HIDDEN
from zerolm.spaces.words import uniform_words

FIELDS = ("depth", "hidden", "head_size", "heads", "kv_heads", "ffn")


class UniformSpace(SearchSpace):
    """Depth, hidden size, head size, KV heads and FFN width, the same in all layers unless ``per_layer``.

    ``hidden_per_depth`` and ``ffn_per_hidden`` keep the shapes within what is trained in practice. Heads may
    share keys and values where a subclass declares ``heads_per_kv``.
    """

    declared: ClassVar[tuple[Setting, ...]] = (
        DEPTH,
        HIDDEN,
        Setting("head_size", "integers", (64,), "sizes of a head", low=1, high=4096),
        FFN,
        Setting("hidden_per_depth", "interval", (24.0, 128.0), "hidden size over layers", low=0),
        replace(FFN_PER_HIDDEN, default=(2.5, 4.5)),
        Setting("vocab", "integer", REQUIRED, "size of the vocabulary", low=1, high=MAX_VOCAB),
        Setting("positions", "integer", REQUIRED, "longest sequence of the config", low=1, high=MAX_VOCAB),
    )
    depth: tuple[int, ...]
    hidden: tuple[int, ...]
    head_size: tuple[int, ...]
    ffn: tuple[int, ...]
    hidden_per_depth: tuple[float, float]
    ffn_per_hidden: tuple[float, float]
    vocab: int
    positions: int
    heads_per_kv: tuple[int, ...] = (1,)
    tied: bool = True
    per_layer: bool = False
    free_queries: ClassVar[bool] = False
    """Whether the heads together may be wider or narrower than the hidden size."""

    @abstractmethod
    def layer(self, hidden: int, heads: int, kv_heads: int, head_size: int, ffn: int) -> Layer:
        """Return the layer of these sizes."""

    @abstractmethod
    def stock_config(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Return the Hugging Face configuration of choices that are the same in all layers."""

    @abstractmethod
    def ends(self, hidden: int) -> Ends:
        """Return embedding, head and final norm."""

    def backbones(self) -> Iterator[Backbone]:
        for hidden in self.hidden:
            ends = self.ends(hidden)
            for head_size in self.head_size:
                options = list(self._options(hidden, head_size))
                if not options:
                    continue
                candidates = Candidates.of(options)
                for depth in self._depths(hidden):
                    block = ChoiceBlock(candidates, depth, tied=not self.per_layer)
                    choices = {
                        "depth": depth,
                        "hidden": hidden,
                        "head_size": head_size,
                        "heads": hidden // head_size,
                    }
                    yield Backbone(choices, hidden, ends, (block,))

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            **backbone.choices,
            "kv_heads": alike([layer["kv_heads"] for layer in layers]),
            "ffn": alike([layer["ffn"] for layer in layers]),
        }

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, FIELDS)
        depth = integer("depth", field(choices, "depth"), 1, MAX_DEPTH)
        hidden = integer("hidden", field(choices, "hidden"))
        head_size = integer("head_size", field(choices, "head_size"))
        heads = integer("heads", field(choices, "heads"))
        if heads * head_size != hidden and not self.free_queries:
            raise ValueError(f"{heads} heads x head size {head_size} is not hidden {hidden}")
        kv_heads = each_layer("kv_heads", choices.get("kv_heads", heads), depth, integer)
        for count in kv_heads:
            if heads % count:
                raise ValueError(f"{heads} heads are not divisible by {count} KV heads")
            if count != heads and "heads_per_kv" not in self.settings:
                raise ValueError(f"in {self.name} every head is a KV head: {heads} KV heads, not {count}")
        widths = each_layer("ffn", field(choices, "ffn"), depth, integer)
        made = {
            pair: self.layer(hidden, heads, pair[0], head_size, pair[1])
            for pair in set(zip(kv_heads, widths, strict=True))
        }
        layers = tuple(made[pair] for pair in zip(kv_heads, widths, strict=True))
        read = {**choices, "kv_heads": alike(kv_heads), "ffn": alike(widths)}
        return Architecture(self.name, read, layers, self.ends(hidden))

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        return uniform_words({"kv_heads": choices["heads"], **choices})

    def config(self, architecture: Architecture) -> dict[str, Any] | None:
        if any(isinstance(architecture.choices[name], list) for name in ("kv_heads", "ffn")):
            return None
        return self.stock_config(architecture.choices)

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        choices = architecture.choices
        hidden, depth, heads = choices["hidden"], choices["depth"], choices["heads"]
        yield from self.touched("depth", depth, self.depth)
        yield from self.touched("hidden", hidden, self.hidden)
        if isinstance(choices["ffn"], int):
            widths = self._widths(hidden)
            if choices["ffn"] in (self.ffn[0], self.ffn[-1]):
                yield from self.touched("ffn", choices["ffn"], self.ffn)
            elif choices["ffn"] in (widths[0], widths[-1]):
                end = self.ffn_per_hidden[0 if choices["ffn"] == widths[0] else 1]
                yield from self.touched("ffn_per_hidden", end, self.ffn_per_hidden)
        depths = self._depths(hidden)
        if depth == depths[-1] != self.depth[-1]:
            yield from self.touched("hidden_per_depth", self.hidden_per_depth[0], self.hidden_per_depth)
        if depth == depths[0] != self.depth[0]:
            yield from self.touched("hidden_per_depth", self.hidden_per_depth[1], self.hidden_per_depth)
        if len(self.heads_per_kv) > 1 and isinstance(choices["kv_heads"], int):
            yield from self.touched("heads_per_kv", heads // choices["kv_heads"], self.heads_per_kv)

    def _options(self, hidden: int, head_size: int) -> Iterator[tuple[dict[str, Any], Layer]]:
        if hidden % head_size:
            return
        heads = hidden // head_size
        for group in self.heads_per_kv:
            if heads % group:
                continue
            for ffn in self._widths(hidden):
                choice = {"kv_heads": heads // group, "ffn": ffn}
                yield choice, self.layer(hidden, heads, heads // group, head_size, ffn)

    def _depths(self, hidden: int) -> list[int]:
        low, high = self.hidden_per_depth
        return [depth for depth in self.depth if low * depth <= hidden <= high * depth]

    def _widths(self, hidden: int) -> list[int]:
        low, high = self.ffn_per_hidden
        return [ffn for ffn in self.ffn if low * hidden <= ffn <= high * hidden]

    def check(self) -> None:
        """Return name the first range that leaves nothing to choose."""
        heads = [(h, s) for h in self.hidden for s in self.head_size if h % s == 0]
        if not heads:
            sizes, widths = list(self.head_size), _span(self.hidden)
            raise ValueError(f"no hidden size of {widths} is divisible by a head size of {sizes}")
        grouped = [(h, s) for h, s in heads if any(h // s % g == 0 for g in self.heads_per_kv)]
        if not grouped:
            counts = sorted({h // s for h, s in heads})
            groups = list(self.heads_per_kv)
            raise ValueError(f"no number of heads of {_span(counts)} is divisible by heads_per_kv {groups}")
        deep = [(h, s) for h, s in grouped if self._depths(h)]
        if not deep:
            hidden = [h for h, _ in grouped]
            raise ValueError(
                f"no depth of {_span(self.depth)} keeps hidden / depth within "
                f"{self.hidden_per_depth[0]:g} to {self.hidden_per_depth[1]:g} for hidden {_span(hidden)}"
            )
        if not any(self._widths(h) for h, _ in deep):
            raise ValueError(
                f"no FFN width of {_span(self.ffn)} lies within {self.ffn_per_hidden[0]:g} to "
                f"{self.ffn_per_hidden[1]:g} x hidden for hidden {_span([h for h, _ in deep])}"
            )


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
