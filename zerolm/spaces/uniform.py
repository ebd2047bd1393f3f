"""Spaces of the same layer throughout, within shapes that people train: llama, gpt2-uniform, bert."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor, lcm
from typing import Any, ClassVar, Final

import numpy as np

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH, Architecture, Ends, Layer
from zerolm.settings import REQUIRED, Setting
from zerolm.spaces.base import Bound, SearchSpace
from zerolm.spaces.candidates import Backbone, Candidates, ChoiceBlock, Column, ColumnCandidates
from zerolm.spaces.choices import (
    DEPTH,
    FFN,
    FFN_PER_HIDDEN,
    HIDDEN,
    alike,
    each_layer,
    field,
    integer,
    no_others,
)
from zerolm.spaces.words import uniform_words

OPEN_STEP: Final = 64
"""Hidden sizes and FFN widths that a range is opened to are multiples of it."""
OPEN_HIDDEN: Final = 8192
"""The largest hidden size that a range is opened to."""
OPEN: Final[dict[str, tuple[float, ...]]] = {
    "depth": tuple(range(1, 97)),
    "hidden": tuple(range(OPEN_STEP, OPEN_HIDDEN + 1, OPEN_STEP)),
    "head_size": (32, 48, 64, 80, 96, 128, 160, 192, 256),
    "heads_per_kv": tuple(range(1, 17)),
    "hidden_per_depth": (4.0, 512.0),
    "ffn_per_hidden": (1.0, 8.0),
    "query_per_hidden": (0.25, 4.0),
    "query_width": (1.0, 4.0 * OPEN_HIDDEN),
    "kv_width": (1.0, 4.0 * OPEN_HIDDEN),
}
"""How far each range is opened to find what it excludes."""


class UniformSpace(SearchSpace):
    """Depth, hidden size, head size, KV heads and FFN width, the same in all layers unless ``per_layer``.

    ``hidden_per_depth``, ``ffn_per_hidden`` and, where a subclass declares it, ``query_per_hidden`` (the
    heads' width together over the hidden size) keep the shapes within what is trained in practice. Heads may
    share keys and values where a subclass declares ``heads_per_kv``.
    """

    of_attention: ClassVar[tuple[str, ...]] = ("kv_heads",)
    of_ffn: ClassVar[tuple[str, ...]] = ("ffn",)
    """The choices that layers may differ in."""
    widest: ClassVar[Mapping[str, tuple[Any, ...]]] = OPEN
    declared: ClassVar[tuple[Setting, ...]] = (
        DEPTH,
        HIDDEN,
        Setting("head_size", "integers", (64,), "sizes of a head", low=1, high=4096),
        FFN,
        Setting("hidden_per_depth", "interval", (16.0, 128.0), "hidden size over layers", low=0),
        replace(FFN_PER_HIDDEN, default=(2.5, 5.5)),
        Setting(
            "multiple_of", "integer", 1, "what hidden, FFN and projections' widths are multiples of", low=1
        ),
        Setting(
            "tensor_parallel",
            "integer",
            1,
            "devices that heads and FFN are shared out among; KV heads too, or each goes to several",
            low=1,
            high=4096,
        ),
        Setting("vocab", "integer", REQUIRED, "size of the vocabulary", low=1, high=MAX_VOCAB),
        Setting("positions", "integer", REQUIRED, "longest sequence of the config", low=1, high=MAX_VOCAB),
    )
    depth: tuple[int, ...]
    hidden: tuple[int, ...]
    head_size: tuple[int, ...]
    ffn: tuple[int, ...]
    hidden_per_depth: tuple[float, float]
    ffn_per_hidden: tuple[float, float]
    multiple_of: int
    tensor_parallel: int
    vocab: int
    positions: int
    heads_per_kv: tuple[int, ...] = (1,)
    query_per_hidden: tuple[float, float] = (1.0, 1.0)
    query_width: tuple[float, float] = (1.0, MAX_WIDTH)
    kv_width: tuple[float, float] = (1.0, MAX_WIDTH)
    tied: bool = True
    per_layer: bool = False

    def __init__(self, /, **settings: Any) -> None:
        self._made: dict[Any, Any] = {}
        """Ends by hidden size and candidates by their sizes: spaces that differ in a range share them."""
        super().__init__(**settings)

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
            ends = self._made[hidden] = self._made.get(hidden) or self.ends(hidden)
            for head_size in self.head_size:
                heads = self._heads(hidden, head_size)
                for together in [[count] for count in heads] if self.per_layer else [heads]:
                    candidates = self._candidates(hidden, head_size, together)
                    if not candidates:
                        continue
                    heads_choice = {"heads": together[0]} if self.per_layer else {}
                    for depth in self._depths(hidden):
                        block = ChoiceBlock(candidates, depth, tied=not self.per_layer)
                        choices = {"depth": depth, "hidden": hidden, "head_size": head_size, **heads_choice}
                        yield Backbone(choices, hidden, ends, (block,))

    def join(self, backbone: Backbone, layers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        names = (*self.of_attention, *self.of_ffn)
        of_layers = {name: alike([layer[name] for layer in layers]) for name in names}
        joined = {**layers[0], **backbone.choices, **of_layers}
        return {name: joined[name] for name in self._fields}

    def read(self, choices: Mapping[str, Any]) -> Architecture:
        no_others(choices, self._fields)
        depth = integer("depth", field(choices, "depth"), 1, MAX_DEPTH)
        hidden = integer("hidden", field(choices, "hidden"))
        head_size = integer("head_size", field(choices, "head_size"))
        heads = integer("heads", field(choices, "heads"))
        if heads * head_size != hidden and "query_per_hidden" not in self.settings:
            raise ValueError(f"{heads} heads x head size {head_size} is not hidden {hidden}")
        columns = self.read_layers(choices, depth, heads)
        make = partial(self.layer, hidden=hidden, heads=heads, head_size=head_size)
        rows = list(zip(*columns.values(), strict=True))
        layer_of = {row: make(**dict(zip(columns, row, strict=True))) for row in set(rows)}
        read = {**choices, **{name: alike(values) for name, values in columns.items()}}
        return Architecture(self.name, read, tuple(layer_of[row] for row in rows), self.ends(hidden))

    def read_layers(self, choices: Mapping[str, Any], depth: int, heads: int) -> dict[str, tuple[Any, ...]]:
        """Return the choices that may differ by layer, one for each layer; ``ValueError`` for invalid
        ones."""
        kv_heads = each_layer("kv_heads", choices.get("kv_heads", heads), depth, integer)
        for count in kv_heads:
            if heads % count:
                raise ValueError(f"{heads} heads are not divisible by {count} KV heads")
            if count != heads and "heads_per_kv" not in self.settings:
                raise ValueError(f"in {self.name} every head is a KV head: {heads} KV heads, not {count}")
        return {"kv_heads": kv_heads, "ffn": each_layer("ffn", field(choices, "ffn"), depth, integer)}

    def blind_spots(self) -> str:
        return "the number of heads (a head size of 64 by default), vocabulary and positions"

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        return uniform_words({"kv_heads": choices["heads"], **choices})

    def config(self, architecture: Architecture) -> dict[str, Any] | None:
        if any(isinstance(architecture.choices[name], list) for name in (*self.of_attention, *self.of_ffn)):
            return None
        return self.stock_config(architecture.choices)

    def bounds(self, architecture: Architecture) -> Iterator[Bound]:
        """Yield every range, opened as far as is sensible, all others as they are; FFNs to their default."""
        default = next(setting.default for setting in self.declared if setting.name == "ffn")
        opened_to = {**self.widest, "ffn": () if default is REQUIRED else tuple(default)}
        for name, widest in opened_to.items():
            if name not in self.settings:
                continue
            now = self.settings[name]
            if name.endswith(("_per_hidden", "_per_depth", "_width")):
                opened: list[Any] = [min(now[0], widest[0]), max(now[-1], widest[-1])]
            else:
                opened = list(dict.fromkeys([*now, *widest]))
                if not named(opened):
                    opened.sort()
            if opened != now:
                wider = self.with_settings(**{name: opened})
                wider._made = self._made
                yield Bound(f"{name} {ranged(now)}", ranged(now), ranged(opened), wider)

    def unused(self) -> dict[str, list[Any]]:
        used: dict[str, set[int]] = {name: set() for name in ("depth", "hidden", "head_size", "heads_per_kv")}
        for hidden in self.hidden:
            depths = self._depths(hidden)
            for head_size in self.head_size if depths and self._ffns(hidden) else ():
                for heads, kv_heads, *_ in self._attentions(head_size, self._heads(hidden, head_size)):
                    used["depth"].update(depths)
                    used["hidden"].add(hidden)
                    used["head_size"].add(head_size)
                    used["heads_per_kv"].add(heads // kv_heads)
        unused = {name: [v for v in getattr(self, name) if v not in values] for name, values in used.items()}
        return {name: values for name, values in unused.items() if values}

    def _candidates(self, hidden: int, head_size: int, heads: Sequence[int]) -> Candidates | None:
        attentions, ffns = self._attentions(head_size, heads), self._ffns(hidden)
        if not attentions or not ffns:
            return None
        key = (hidden, head_size, tuple(attentions), tuple(ffns))
        if key not in self._made:
            of_attention = zip(("heads", *self.of_attention), zip(*attentions, strict=True), strict=True)
            of_ffn = zip(self.of_ffn, zip(*ffns, strict=True), strict=True)
            columns = {name: np.repeat(np.array(values), len(ffns)) for name, values in of_attention}
            columns |= {name: np.tile(np.array(values), len(attentions)) for name, values in of_ffn}
            make = partial(self.layer, hidden=hidden, head_size=head_size)
            self._made[key] = self._columns(make, columns)
        candidates: Candidates = self._made[key]
        return candidates

    def _attentions(self, head_size: int, heads: Sequence[int]) -> list[tuple[Any, ...]]:
        devices, step = self.tensor_parallel, self.multiple_of
        return [
            (count, count // group)
            for count in heads
            for group in self.heads_per_kv
            if count % group == 0
            and self.kv_width[0] <= count // group * head_size <= self.kv_width[1]
            and count // group * head_size % step == 0
            and (count // group % devices == 0 or devices % (count // group) == 0)
        ]

    def _ffns(self, hidden: int) -> list[tuple[Any, ...]]:
        return [(ffn,) for ffn in self._widths(hidden, self.ffn_per_hidden)]

    def _columns(self, make: Callable[..., Layer], columns: Mapping[str, Column]) -> ColumnCandidates:
        """Return the layers that ``make`` gives of columns: the choices ``of_attention`` and ``of_ffn``."""
        if self.per_layer:
            make = partial(make, heads=int(columns["heads"][0]))
            columns = {name: column for name, column in columns.items() if name != "heads"}
        return ColumnCandidates(make, columns)

    def _heads(self, hidden: int, head_size: int) -> list[int]:
        if hidden % self.multiple_of:
            return []
        low, high = (ratio * hidden / head_size for ratio in self.query_per_hidden)
        return [
            heads
            for heads in range(max(1, ceil(low)), floor(high) + 1)
            if self.query_width[0] <= heads * head_size <= self.query_width[1]
            and heads % self.tensor_parallel == 0
            and heads * head_size % self.multiple_of == 0
        ]

    def _depths(self, hidden: int) -> list[int]:
        low, high = self.hidden_per_depth
        return [depth for depth in self.depth if low * depth <= hidden <= high * depth]

    def _widths(self, hidden: int, ratios: tuple[float, float]) -> list[int]:
        low, high = ratios
        step = lcm(self.multiple_of, self.tensor_parallel)
        return [ffn for ffn in self.ffn if low * hidden <= ffn <= high * hidden and ffn % step == 0]

    def check(self) -> None:
        """Raise ``ValueError`` that names the first range which leaves nothing to choose."""
        heads = {(h, s): counts for h in self.hidden for s in self.head_size if (counts := self._heads(h, s))}
        if not heads:
            low, high = self.query_per_hidden
            ratio = "" if low == high == 1 else f" within {low:g} to {high:g} of it"
            raise ValueError(
                f"no hidden size of {_span(self.hidden)} is divisible by a head size of "
                f"{list(self.head_size)}{ratio}{self._steps}"
            )
        grouped = [
            (h, s)
            for (h, s), counts in heads.items()
            if any(count % group == 0 for count in counts for group in self.heads_per_kv)
        ]
        if not grouped:
            every = [count for counts in heads.values() for count in counts]
            groups = list(self.heads_per_kv)
            raise ValueError(f"no number of heads of {_span(every)} is divisible by heads_per_kv {groups}")
        deep = [h for h, _ in grouped if self._depths(h)]
        if not deep:
            hidden = [h for h, _ in grouped]
            raise ValueError(
                f"no depth of {_span(self.depth)} keeps hidden / depth within "
                f"{self.hidden_per_depth[0]:g} to {self.hidden_per_depth[1]:g} for hidden {_span(hidden)}"
            )
        if not any(self._ffns(h) for h in deep):
            ratios = " or ".join(f"{low:g} to {high:g}" for low, high in self._ratios)
            raise ValueError(
                f"no FFN width of {_span(self.ffn)} lies within {ratios} x hidden for hidden "
                f"{_span(deep)}{self._steps}"
            )
        if next(self.backbones(), None) is None:
            raise ValueError(f"no KV heads fit the other ranges{self._steps}")

    @property
    def _fields(self) -> tuple[str, ...]:
        return ("depth", "hidden", "head_size", "heads", *self.of_attention, *self.of_ffn)

    @property
    def _ratios(self) -> list[tuple[float, float]]:
        """Return the possible ratios of an FFN's width to the hidden size, for messages."""
        return [self.ffn_per_hidden]

    @property
    def _steps(self) -> str:
        """Return the further conditions on widths and heads, for messages."""
        steps = [("multiple_of", self.multiple_of), ("tensor_parallel", self.tensor_parallel)]
        limits = [f"{name} {step}" for name, step in steps if step > 1]
        widths = [("query_width", self.query_width), ("kv_width", self.kv_width)]
        limits += [f"{name} {ranged(ends)}" for name, ends in widths if ends != (1.0, MAX_WIDTH)]
        return f", with {' and '.join(limits)}" if limits else ""


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def ranged(values: Sequence[Any]) -> str:
    """Return a range in short: its ends, or all where they are few or names."""
    if named(values):
        return ",".join(values)
    ends = values if len(values) <= 1 else (values[0], values[-1])
    return ":".join(f"{value:g}" for value in ends)


def named(values: Sequence[Any]) -> bool:
    """Return whether a range lists names, which have no order, and not numbers."""
    return any(isinstance(value, str) for value in values)
