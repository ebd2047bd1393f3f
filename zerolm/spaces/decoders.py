"""Decoders that were trained and published: their shapes, counts and sources, and the space that has such."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from zerolm.architecture import Architecture, Layer
from zerolm.io.files import parse_json
from zerolm.spaces.base import make_space
from zerolm.spaces.gpt2_uniform import gpt2_layer
from zerolm.spaces.llama import decoder_ends, gated_layer
from zerolm.spaces.uniform import UniformSpace

SPACE_OF: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "llama": ("llama", {}),
    "mistral": ("llama", {}),
    "qwen2": ("llama", {"qkv_bias": True}),
    "qwen3": ("qwen3", {}),
    "gpt2": ("gpt2-uniform", {}),
    "bert": ("bert", {}),
}
"""The space of a family's shapes, and what has to be set of it."""
GATED: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "gemma3_text": {"qk_norm": True, "norms": 4},
    "olmo": {"norms": 0},
}
"""How the gated layers of a family differ; those of olmo have norms without gains."""


@dataclass(frozen=True)
class Decoder:
    """A published decoder.

    ``hub`` is its name on the hub, ``family`` its ``model_type``, ``choices`` are those of a uniform space.
    ``published`` is its count of parameters as its authors give it, rounded or cut off, ``published_body``
    that without embedding and head where they give it exactly; ``source`` says where shape and counts stand.
    """

    name: str
    hub: str
    family: str
    choices: dict[str, int]
    vocab: int
    positions: int
    tied: bool
    published: str
    source: str
    published_body: int | None = None

    @property
    def architecture(self) -> Architecture:
        """Return the architecture, counted exactly."""
        hidden, layers = self.choices["hidden"], (self._layer,) * self.choices["depth"]
        ends = decoder_ends(hidden, self.vocab, self.tied)
        if self.family == "gpt_neox":
            ends = replace(ends, vectors=2 * hidden, body_vectors=2 * hidden)
        elif self.family == "olmo":
            ends = replace(ends, vectors=0, body_vectors=0)
        return Architecture(f"huggingface:{self.family}", self.choices, layers, ends)

    @property
    def _layer(self) -> Layer:
        names = ("hidden", "heads", "kv_heads", "head_size", "ffn")
        hidden, heads, kv_heads, size, ffn = (self.choices[name] for name in names)
        if self.family == "gpt_neox":  # what GPT-2 has, rotary positions apart
            return gpt2_layer(hidden, ffn)
        return gated_layer(hidden, heads, kv_heads, size, ffn, **GATED[self.family])

    @property
    def space(self) -> UniformSpace | None:
        """Return the space of its family with its vocabulary and tying, None where there is none."""
        if self.family not in SPACE_OF:
            return None
        space = make_space(self.document["space"], **self.document["settings"])
        assert isinstance(space, UniformSpace)
        return space

    @property
    def document(self) -> dict[str, Any]:
        """Return it as an architecture of its family's space, plain JSON."""
        name, settings = SPACE_OF[self.family]
        sizes = {"vocab": self.vocab, "tied": self.tied, "positions": self.positions}
        return {"space": name, "settings": {**sizes, **settings}, "architecture": self.choices}


@cache
def decoders() -> dict[str, Decoder]:
    text = files("zerolm.spaces").joinpath("decoders.json").read_text("utf-8")
    return {row["name"]: Decoder(**row) for row in parse_json(text)}
