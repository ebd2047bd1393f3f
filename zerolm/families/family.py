"""Model families, each described by a data file: what its configuration and its tensors are called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from zerolm.spaces.choices import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH

LIMITS: Final = {"depth": MAX_DEPTH, "vocab": MAX_VOCAB, "positions": MAX_VOCAB, "types": MAX_VOCAB}


@dataclass(frozen=True)
class Cuttable:
    """What the stock class can express after a cut, the widths being the same in all layers.

    ``heads`` includes KV groups. ``indivisible`` says what becomes of heads that do not divide the hidden
    size: ``kept`` (nothing is special), ``refused``, or the family that the child is written as.
    """

    layers: bool
    heads: bool
    ffn: bool
    indivisible: str
    note: str


@dataclass(frozen=True)
class Pattern:
    """A tensor of the family: its name with ``{layer}``, its role, and its axes by label.

    ``transposed``: stored as (inputs, outputs). ``when`` it must be there: ``always``, ``untied`` (in a
    language model whose head is not the embedding), ``optional``, or a flag of the configuration.
    """

    name: str
    role: str
    axes: tuple[str, ...]
    transposed: bool = False
    when: str = "always"

    @property
    def in_layer(self) -> bool:
        return "{layer}" in self.name


@dataclass(frozen=True)
class Family:
    """One family of models, called ``name`` in ``model_type``.

    ``fields`` gives the configuration's name of each size (``depth hidden heads kv_heads head_size ffn vocab
    positions types``) and of ``activation``, ``norm_eps`` and ``tied``: ``config[family.fields["ffn"]]``. A
    family without KV heads or whose head size follows from the others lacks these. ``per_layer`` names the
    fields that list one value a layer. ``norm`` is where norms stand: before the sublayers (``pre``), after
    the residual sum (``post``), or before and after the sublayers (``sandwich``). Names in ``body`` follow
    one of the ``prefixes``, those in ``head`` none; ``head_classes`` have a language-model head.
    """

    name: str
    fields: dict[str, str]
    defaults: dict[str, Any]
    flags: dict[str, bool]
    per_layer: tuple[str, ...]
    gated: bool
    norm: Literal["pre", "post", "sandwich"]
    prefixes: tuple[str, ...]
    body: tuple[Pattern, ...]
    head: tuple[Pattern, ...]
    head_classes: tuple[str, ...]
    aliases: dict[str, str]
    ignored: tuple[str, ...]
    cut: Cuttable

    def size(self, config: Mapping[str, Any], label: str) -> int:
        """A size by its label (depth, hidden, heads, ...), as the stock class would have it.

        Raises ``ValueError`` where it is missing, or no integer within reason.
        """
        field = self.fields.get(label)
        value = config.get(field) if field else None
        if value is None:
            field, value = f"the default of {field or label}", self._default(config, label)
        most = LIMITS.get(label, MAX_WIDTH)
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"the configuration has {field} {value!r}; 1 to {most} are possible")
        return value

    def _default(self, config: Mapping[str, Any], label: str) -> Any:
        null_means_heads = label == "kv_heads" and self.fields.get(label) in config
        match "heads" if null_means_heads else self.defaults.get(label):
            case "heads":
                return self.size(config, "heads")
            case "4*hidden":
                return 4 * self.size(config, "hidden")
            case "hidden/heads":
                hidden, heads = self.size(config, "hidden"), self.size(config, "heads")
                if hidden % heads:
                    raise ValueError(f"the hidden size {hidden} is not divisible by {heads} heads")
                return hidden // heads
            case default:
                return default

    def is_tied(self, config: Mapping[str, Any]) -> bool:
        """Whether the head is the embedding."""
        return bool(config.get(self.fields["tied"], self.defaults["tied"]))

    def is_required(self, pattern: Pattern, config: Mapping[str, Any]) -> bool:
        """Whether a checkpoint with this configuration must have the tensor."""
        if pattern.when == "untied":
            given = config.get("architectures")
            classes = given if isinstance(given, list) else ()
            return not self.is_tied(config) and any(name in self.head_classes for name in classes)
        if pattern.when in self.flags:
            return bool(config.get(pattern.when, self.flags[pattern.when]))
        return pattern.when == "always"


@cache
def families() -> dict[str, Family]:
    """All families by name."""
    folder = files("zerolm.families")
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".json")]
    found = [_family(json.loads(text)) for text in texts]
    return {family.name: family for family in sorted(found, key=lambda family: family.name)}


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a configuration by its ``model_type``; ``ValueError`` says which there are."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in families():
        given = f"model_type {kind!r} is not known" if kind else "the configuration has no model_type"
        raise ValueError(f"{given}; there are {', '.join(families())}")
    return families()[kind]


def _family(document: dict[str, Any]) -> Family:
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    given["cut"] = Cuttable(**given["cut"])
    for part in ("body", "head"):
        given[part] = tuple(Pattern(**entry | {"axes": tuple(entry["axes"])}) for entry in given[part])
    return Family(name=given.pop("model_type"), **given)
