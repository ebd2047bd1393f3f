"""Llama-shaped decoders whose layers share projections, stack narrow FFNs, or have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import lcm
from typing import Any, ClassVar, Final

import numpy as np

from zerolm.architecture import Architecture, Ints, Layer, Matrix
from zerolm.lab.spaces.elastic import SHARED
from zerolm.settings import Setting, check_known
from zerolm.spaces.base import space
from zerolm.spaces.candidates import Candidates, Column, ColumnCandidates
from zerolm.spaces.choices import by_layer, each_layer, field, integer
from zerolm.spaces.llama import Llama
from zerolm.spaces.uniform import OPEN
from zerolm.spaces.words import attention_words, counted

SHARES: Final = {**SHARED, "qkv": "qqq"}
"""Which projection gives queries, keys and values, by what is shared."""
MAX_STACK: Final = 64


@space
class LlamaBlocks(Llama):
    """Llamas without what arXiv 2410.13732 leaves out of a layer, or with hourglass FFNs (arXiv 2510.01796).

    A layer has ``ffn_stack`` gated FFNs of one width, each with its norm and residual: 0 leaves attention
    alone, 1 is a llama's, more are narrower than the stream (``narrow_per_hidden``). Queries can be shared
    only where every head is a KV head. The KV cache is that of stock software: keys and values both.
    """

    name = "blocks"
    summary = "Llama-shaped decoders with shared projections, and no FFN, one, or several narrow ones a layer"
    network = "zerolm.lab.networks.blocks:blocks"
    of_attention = ("kv_heads", "share")
    of_ffn = ("ffn", "ffn_stack")
    widest: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **OPEN, "shares": tuple(SHARES), "ffn_stack": tuple(range(9)), "narrow_per_hidden": (0.125, 1.0)
    }  # fmt: skip
    declared = (
        *(setting for setting in Llama.declared if setting.name not in ("qkv_bias", "per_layer")),
        Setting("per_layer", "flag", False, "choose sharing, KV heads and FFNs anew in each layer"),
        Setting("shares", "names", tuple(SHARES), "projections that are one: none, kv, qv, qk, qkv"),
        Setting("ffn_stack", "integers", (0, 1, 2, 3, 4), "FFNs of a layer, one after the other",
                low=0, high=MAX_STACK),
        Setting("narrow_per_hidden", "interval", (0.25, 0.75),
                "width of each of several FFNs over hidden size", low=0),
    )  # fmt: skip
    shares: tuple[str, ...]
    ffn_stack: tuple[int, ...]
    narrow_per_hidden: tuple[float, float]

    def check(self) -> None:
        for name in self.shares:
            check_known("shares", name, SHARES)
        if not self.shares or len(set(self.shares)) < len(self.shares):
            raise ValueError(f"shares must list one or more of {', '.join(SHARES)}, each once")
        if 1 not in self.heads_per_kv and all(map(of_queries, self.shares)):
            raise ValueError(
                f"queries are shared ({', '.join(self.shares)}) only where every head is a KV head; "
                f"heads_per_kv {list(self.heads_per_kv)} needs 1, or shares none or kv"
            )
        super().check()

    def read_layers(self, choices: Mapping[str, Any], depth: int, heads: int) -> dict[str, tuple[Any, ...]]:
        stacked, wide = partial(integer, low=0, high=MAX_STACK), partial(integer, low=0)
        stacks = each_layer("ffn_stack", choices.get("ffn_stack", 1), depth, stacked)
        widths = each_layer("ffn", field(choices, "ffn"), depth, wide)
        shares = each_layer("share", choices.get("share", "none"), depth, _share)
        for width, stack in zip(widths, stacks, strict=True):
            if (width == 0) != (stack == 0):
                raise ValueError(f"ffn {width} and ffn_stack {stack}: both are 0 where there is no FFN")
        kv_heads = super().read_layers({**choices, "ffn": 1}, depth, heads)["kv_heads"]
        for count, share in zip(kv_heads, shares, strict=True):
            if count != heads and of_queries(share):
                raise ValueError(
                    f"share {share} needs as many KV heads as heads, {heads}, not {count}; "
                    "with fewer there are none and kv"
                )
        return dict(zip((*self.of_attention, *self.of_ffn), (kv_heads, shares, widths, stacks), strict=True))

    def layer(
        self, hidden: int, heads: int, kv_heads: int, head_size: int, ffn: int,
        share: Any = "none", ffn_stack: Any = 1,
    ) -> Layer:  # fmt: skip
        """Return the layer of these sizes; of columns one whose absent matrices have no rows and columns."""
        q, kv, d, f = heads * head_size, kv_heads * head_size, hidden, ffn
        ways = {name: [way for way, uses in SHARES.items() if name in uses] for name in "kv"}
        stored = [(name, _is_one_of(share, those)) for name, those in ways.items()]
        stacks = [place < ffn_stack for place in range(np.max(ffn_stack))]
        matrices = (
            Matrix("attention", q, d, name="q"),
            *(Matrix("attention", kv * there, d * there, name=name) for name, there in stored),
            Matrix("attention", d, q, name="o"),
            *(
                Matrix("ffn", rows * there, cols * there, name=name)
                for there in stacks
                for name, rows, cols in (("gate", f, d), ("up", f, d), ("down", d, f))
            ),
        )
        there = tuple(matrix for matrix in matrices if np.any(matrix.rows))
        vectors = d * (1 + ffn_stack)
        return Layer(there, d, q, kv, vectors, vectors)

    @classmethod
    def words(cls, choices: Mapping[str, Any]) -> str:
        whole = {"kv_heads": choices["heads"], "share": "none", "ffn_stack": 1, **choices}
        depth, share = whole["depth"], whole["share"]
        widths, stacks = (by_layer(whole[name], depth) for name in ("ffn", "ffn_stack"))
        ffns = [_ffn_words(width, stack) for width, stack in zip(widths, stacks, strict=True)]
        attention = "" if share == "none" else f", {counted(by_layer(share, depth))} shared"
        ffn = ffns[0] if len(set(ffns)) == 1 else counted([f"({one})" for one in ffns])
        return f"{attention_words(whole)}{attention}, {ffn}"

    def blind_spots(self) -> str:
        return "which two of queries, keys and values are one where all are as wide; the head size"

    def config(self, architecture: Architecture) -> dict[str, Any] | None:
        choices = architecture.choices
        plain = (choices["share"], choices["ffn_stack"]) == ("none", 1)
        return super().config(architecture) if plain else None

    def llama_form(self, architecture: Architecture) -> tuple[Llama, Architecture]:
        """Return the llama that gives the same outputs, and its space.

        ``zerolm.lab.networks.stock_llama`` gives it weights. A projection that is shared is stored as often
        as it is used, KV heads as many as every layer's numbers divide. An FFN beyond the first of a layer is
        a layer whose attention is zero, one that is narrower than the widest, or missing, is filled with
        zeros.
        """
        choices, shared = architecture.choices, ("vocab", "positions", "tied")
        kv_heads, ffn, stacks = (
            by_layer(choices[name], architecture.depth) for name in ("kv_heads", "ffn", "ffn_stack")
        )
        depth = sum(max(1, stack) for stack in stacks)
        sizes = {"depth": depth, "kv_heads": lcm(*kv_heads), "ffn": max(1, *ffn)}
        llama = Llama(**{name: self.settings[name] for name in shared})
        alike = ("hidden", "head_size", "heads")
        return llama, llama.read({**{name: choices[name] for name in alike}, **sizes})

    def unstocked(self) -> str:
        return "no stock class shares or stacks; zerolm.lab.networks.stock_llama makes its network a llama"

    def unused(self) -> dict[str, list[Any]]:
        stacks = {stack for hidden in self.hidden if self._depths(hidden) for _, stack in self._ffns(hidden)}
        lone = [share for share in self.shares if of_queries(share) and 1 not in self.heads_per_kv]
        more: dict[str, list[Any]] = {"shares": lone}
        more["ffn_stack"] = [stack for stack in self.ffn_stack if stack not in stacks]
        return super().unused() | {name: values for name, values in more.items() if values}

    def _attentions(self, head_size: int, heads: Sequence[int]) -> list[tuple[Any, ...]]:
        return [
            (count, kv_heads, share)
            for count, kv_heads in super()._attentions(head_size, heads)
            for share in self.shares
            if count == kv_heads or not of_queries(share)
        ]

    def _ffns(self, hidden: int) -> list[tuple[Any, ...]]:
        narrow = [count for count in self.ffn_stack if count > 1]
        return [
            *([(0, 0)] if 0 in self.ffn_stack else []),
            *((width, 1) for width in self._widths(hidden, self.ffn_per_hidden) if 1 in self.ffn_stack),
            *((width, count) for count in narrow for width in self._widths(hidden, self.narrow_per_hidden)),
        ]

    def _columns(self, make: Callable[..., Layer], columns: Mapping[str, Column]) -> BlockCandidates:
        pairs = self._pairs
        whole = columns["kv_heads"] == columns["heads"]
        firsts = ~(whole & np.isin(columns["share"], pairs[1:]))
        ways = np.where(whole & np.isin(columns["share"], pairs), len(pairs), 1)
        merged = super()._columns(make, {name: column[firsts] for name, column in columns.items()})
        return BlockCandidates(merged.make, merged.columns, ways[firsts], pairs)

    @property
    def _pairs(self) -> tuple[str, ...]:
        """Return the ways to share that leave two projections, one shape where every head is a KV head."""
        return tuple(share for share in self.shares if len(set(SHARES[share])) == 2)

    @property
    def _ratios(self) -> list[tuple[float, float]]:
        ratios = {1: self.ffn_per_hidden, 2: self.narrow_per_hidden}
        return [ratios[count] for count in sorted({min(count, 2) for count in self.ffn_stack if count})]


class BlockCandidates(ColumnCandidates):
    """Columns of shapes; those of more than one of the ``ways`` (n,) share any one of the ``pairs``."""

    def __init__(
        self, make: Callable[..., Layer], columns: Mapping[str, Column], ways: Ints, pairs: Sequence[str]
    ) -> None:
        super().__init__(make, columns)
        vars(self).update(multiplicity=tuple(ways.tolist()), pairs=tuple(pairs))

    pairs: tuple[str, ...]

    @cached_property
    def alternatives(self) -> tuple[tuple[dict[str, Any], ...], ...]:
        return tuple(
            tuple({**choice, "share": share} for share in self.pairs) if ways > 1 else (choice,)
            for choice, ways in zip(self.choices, self.multiplicity, strict=True)
        )

    @cached_property
    def apart(self) -> Candidates:
        ways = np.array(self.multiplicity)
        rows = np.repeat(np.arange(len(self)), ways)
        columns = {name: column[rows] for name, column in self.columns.items()}
        several = ways[rows] > 1
        if self.pairs:
            columns["share"][several] = np.tile(self.pairs, int((ways > 1).sum()))
        return ColumnCandidates(self.make, columns)


def of_queries(share: str) -> bool:
    """Return whether keys or values are the queries."""
    return SHARES[share].count("q") > 1


def _is_one_of(value: Any, names: Sequence[str]) -> Any:
    return np.isin(value, names) if isinstance(value, np.ndarray) else value in names


def _share(name: str, value: Any) -> str:
    check_known(name, value, SHARES)
    return str(value)


def _ffn_words(width: int, stack: int) -> str:
    return f"{stack} x ffn {width}" if stack > 1 else f"ffn {width}" if stack else "no ffn"
