"""Model families, each described by a data file: what its configuration and its tensors are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Cut:
    """What the stock class can express after a cut; the same widths in all layers are always meant.

    ``heads`` includes KV groups. ``indivisible`` says what becomes of heads that do not divide the hidden
    size: ``kept`` (nothing is special), ``refused``, or the name of the family that it is written as.
    """

    layers: bool
    heads: bool
    ffn: bool
    indivisible: str
    note: str


@dataclass(frozen=True)
class Pattern:
    """A tensor of the family: its name with ``{layer}``, its role, and its axes by label."""

    name: str
    role: str
    axes: tuple[str, ...]
    transposed: bool  # stored as (inputs, outputs)
    when: str  # "always", "optional", or a flag of the configuration


@dataclass(frozen=True)
class Family:
    """One family of models.

    ``fields`` gives the configuration's name of each size (depth, hidden, heads, kv_heads, head_size, ffn,
    vocab, positions, types; activation, norm_eps, tied): ``config[family.fields["ffn"]]``. A family whose head
    size follows from the others has no ``head_size`` among them. ``per_layer`` names the fields that list one value a layer.
    ``norm`` is where the norms stand: ``pre``, ``post``, or ``sandwich`` (both).
    """

    name: str
    fields: dict[str, str]
    defaults: dict[str, Any]
    per_layer: tuple[str, ...]
    gated: bool
    norm: Literal["pre", "post", "sandwich"]
    prefixes: tuple[str, ...]
    head_classes: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    aliases: dict[str, str]
    ignored: tuple[str, ...]
    cut: Cut


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a configuration by its ``model_type``; ``ValueError`` says which there are."""
    raise NotImplementedError
