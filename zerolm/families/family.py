"""A model family as data: what its configuration, its tensors and its modules are called."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

Task = Literal["next", "masked", "image"]
"""The training task of a network: predict the next token, masked tokens, or the class of an image."""
Norm = Literal["pre", "post", "sandwich", "output", "parallel"]
"""The places of the norms.

Before the sublayers (``pre``), after the residual sum (``post``), before the sublayers and on their outputs
(``sandwich``), or on these alone (``output``). ``parallel``: before, and attention and FFN read the stream
alike and are added to it at once.
"""
HeadSize = Literal["read", "derived", "either"]
BIAS = "_bias"
OUTPUT_ROLES = ("o", "down")
"""The roles of the matrices that read the outputs of units that can be cut, and write to the stream."""
NO = "no "
UNEQUAL = " != "
EQUAL = " = "
SAME = "= "
"""Before the name of an attribute that another has to be equal to."""


@dataclass(frozen=True)
class Rounded:
    """A size of two thirds of its field, times ``factor``, up to a ``multiple``, where ``switch`` is true."""

    switch: Field
    factor: Field
    multiple: Field


@dataclass(frozen=True)
class Field:
    """A field of the configuration, and what is meant where it is absent or null.

    ``default`` and ``null`` are values or, for sizes, rules on other sizes: ``heads``, ``4*hidden``,
    ``hidden/heads``, ``nope+rope``. Null without a rule is refused. ``also`` are other names that the stock
    class takes. A size without a ``field`` always is its default. One that is 0 by default or null may be 0.
    Where the flag ``when`` is not true, if it names one, the field is not read, and it is ``otherwise``. The
    size counts units of each of ``each``, and shrinks where those are cut: ``kv_heads``. It must be ``equal``
    to another size, where one is named, and is ``rounded`` to what the stock class makes of it. Where the
    field ``counts`` is a list, it is the length of that.
    """

    field: str | None = None
    default: Any = None
    null: Any = None
    also: tuple[str, ...] = ()
    when: str | None = None
    otherwise: Any = None
    each: str | None = None
    equal: str | None = None
    counts: str | None = None
    rounded: Rounded | None = None

    @property
    def may_be_none(self) -> bool:
        return any(type(value) is int and value == 0 for value in (self.default, self.null))


@dataclass(frozen=True)
class Window:
    """Which layers attend to the last ``size`` tokens only, where the flag ``switch`` is set (None: always).

    ``types`` is the field that lists ``sliding_attention`` or ``full_attention`` for each layer. Where it is
    absent, layers ``first``, ``first + every``, ... have the window; with ``but_every`` all layers but the
    last of each group of that size, or with ``but_first`` but the first. Where ``kinds`` are named, it is the
    layers of these, whatever the other fields are. ``around``: the size counts tokens on both sides of the
    one that attends, half of it on each.
    """

    size: Field
    switch: str | None = None
    types: str | None = None
    first: Field | None = None
    every: int = 1
    but_every: Field | None = None
    but_first: bool = False
    kinds: tuple[str, ...] = ()
    around: bool = False


@dataclass(frozen=True)
class KindRule:
    """The layers that are of a ``kind`` where no list says so; the first rule that holds decides.

    Those before number ``first``; those from ``offset`` minus ``less`` on that are ``every`` layers apart (an
    offset of -1 begins with layer ``every`` - 1); those whose numbers the field ``listed`` has; those after
    number ``after`` (-1: none); the ``last`` ones; or those that the field ``but_listed`` has not. A rule
    with none of these holds for all layers; one that is of ``several`` for none where that field is 1.
    """

    kind: str
    first: Field | None = None
    every: Field | None = None
    offset: Field | None = None
    listed: str | None = None
    after: Field | None = None
    last: Field | None = None
    but_listed: str | None = None
    several: Field | None = None
    less: int = 0

    @property
    def is_for_all(self) -> bool:
        """Whether it holds for every layer."""
        rules = (self.first, self.every, self.listed, self.after, self.last, self.but_listed)
        return not any(rules)


@dataclass(frozen=True)
class ByNumber:
    """A ``field`` that has values of its own for each layer of a ``kind``, by number; the same for all.

    ``names`` maps what it calls them to the fields that say the same of all such layers.
    """

    field: str
    kind: str
    names: dict[str, str]


@dataclass(frozen=True)
class Kinds:
    """One of several kinds that each layer is of: what mixes its tokens, what FFN it has.

    ``values`` maps what the list ``field`` holds for each layer to the kinds; where it is absent, or the
    family has no such list, ``rules`` decide. ``by_number`` are values that layers of a kind have otherwise.
    ``letters`` maps what the text ``pattern``, which may stand in place of the list, holds for each layer.
    """

    rules: tuple[KindRule, ...]
    values: dict[str, str] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)
    field: str | None = None
    by_number: ByNumber | None = None
    pattern: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.values.values(), *(rule.kind for rule in self.rules)]))


@dataclass(frozen=True)
class UnitAxis:
    """An axis that is made of units: all ``parts`` in turn of ``each`` head, KV head, neuron ...

    Parts are rules on sizes. What is fused unit by unit lies so: [query, gate] of each head.
    """

    each: str
    parts: tuple[str, ...] = ("1",)


@dataclass(frozen=True)
class Memory:
    """The numbers that layers of these ``kinds`` (all, where none are named) keep of earlier tokens.

    ``token`` for each of them, ``state`` however many they are; ``products`` are multiply-accumulates of a
    token with each of them. Rules on sizes. Other layers keep a key and a value for each KV head.
    """

    kinds: tuple[str, ...] = ()
    token: str = "0"
    state: str = "0"
    products: str = "0"


@dataclass(frozen=True)
class Configuration:
    """The fields of a ``config.json`` that a model's shape follows from.

    ``sizes`` by label: ``depth hidden heads kv_heads head_size ffn vocab positions``, and what other axes the
    tensors have; ``experts`` and ``active`` (those that a token meets) for a mixture of experts. ``flags``
    are booleans with their defaults. ``per_layer`` names the fields that list one value a layer; ``only``
    gives fields of which no other value is described. ``at`` is the field that holds the configuration of the
    text part, where the model has others. ``axes`` by label are those that are no size.
    """

    sizes: dict[str, Field]
    tied: Field
    flags: dict[str, bool] = field(default_factory=dict)
    per_layer: tuple[str, ...] = ()
    window: Window | None = None
    only: dict[str, Any] = field(default_factory=dict)
    at: str | None = None
    axes: dict[str, UnitAxis] = field(default_factory=dict)
    kinds: tuple[Kinds, ...] = ()
    memory: tuple[Memory, ...] = ()

    @property
    def kinds_with_state(self) -> frozenset[str]:
        """The kinds of layers that have a recurrent state in the place of keys and values."""
        return frozenset(kind for each in self.memory if each.state != "0" for kind in each.kinds)


@dataclass(frozen=True)
class InFile:
    """The form of a tensor in a GGUF file, and its ``name`` there, where the gguf package has none.

    ``values`` are what is stored of the numbers w, where it is not w (of norms, the gain), ``times``
    attributes of the stock configuration by which they are multiplied (``scales.0``: of a list the first); a
    list has one for each of the ``parts`` of its first axis, which are rules on sizes, and so is ``shape``,
    where it is another. Numbers of layers may be a ``key`` instead. A document gives it as a text where the
    name alone differs.
    """

    name: str | None = None
    key: str | None = None
    values: Literal["", "w", "1+w", "-exp(w)"] = ""
    shape: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pattern:
    """A tensor of the family: its name with ``{layer}`` (and ``{expert}``), its role, its axes by label.

    What is fused is joined by ``+`` in the order in which it lies: role ``q+k+v`` with the axis ``q+kv+kv``.
    A leading axis ``experts`` holds all experts in one tensor. ``transposed``: stored as (inputs, outputs).
    ``scaled``: its initial deviation is divided by sqrt(2 L). ``gguf`` is what a GGUF file has of it.
    ``when`` it must be there: ``always``; ``head`` (with a head for the task); ``untied`` (with one that
    is not the embedding); ``optional``; or where a flag of the configuration is set, a size is not 0
    (``no q_rank``: where it is), two sizes differ (``embedding != hidden``), a field is this text
    (``norm_rel_ebd = layer_norm``), or several of these hold (``q_rank and attention_bias``). Only layers
    of its ``kinds`` have it, all where it names none; ``full and own`` are those that are of both.
    ``module`` is the parameter of the stock class that it is a part of, where that has another name: of
    experts and their gates and up projections, often one for all. Where the class holds apart what is
    fused here, they are joined by ``+``.
    """

    name: str
    role: str
    axes: tuple[str, ...]
    when: str = "always"
    transposed: bool = False
    scaled: bool = False
    gguf: InFile = InFile()
    kinds: tuple[str, ...] = ()
    module: str | None = None

    @property
    def in_layer(self) -> bool:
        return "{layer}" in self.name

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that all have to hold for it to be there."""
        return tuple(self.when.split(" and "))

    @property
    def parameter(self) -> str:
        """The stock class's name of it, or of what it is a part of."""
        return self.module or self.name

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of what is fused in it, one where nothing is."""
        return tuple(self.role.split("+"))

    @property
    def parameters(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The parameters of the stock class that it holds, with axes: of what is fused perhaps several."""
        names = self.parameter.split("+")
        if len(names) == 1:
            return ((names[0], self.axes),)
        labels = [axis.split("+") if "+" in axis else [axis] * len(names) for axis in self.axes]
        return tuple(zip(names, zip(*labels, strict=True), strict=True))

    @property
    def of_experts(self) -> bool:
        """Whether each expert has its own: one tensor each, or all in one."""
        fused = self.axes[:1] == ("experts",) and len(self.axes) == (2 if self.role.endswith(BIAS) else 3)
        return "{expert}" in self.name or fused


@dataclass(frozen=True)
class Prefix:
    """The texts before the names of the ``body``, and before those of the ``head``.

    A document gives it as two texts, or as that of the body alone.
    """

    body: str = ""
    head: str = ""


@dataclass(frozen=True)
class Dropped:
    """Tensors that no stock class reads: patterns of their ``names``, and fields to ``reset`` in a child.

    ``{beyond}`` in a name stands for the number of any layer that the configuration does not count.
    """

    names: str
    reset: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Factors:
    """The factors of stored numbers, and of what comes of them, in the stock class.

    ``gain``: a norm multiplies by this of its weight w. ``rooted``: embeddings are multiplied by the root of
    the hidden size. ``residual`` is the field of a factor of all that is added to the stream.
    """

    gain: Literal["w", "1+w"] = "w"
    rooted: bool = False
    residual: str | None = None

    @property
    def shift(self) -> float:
        """Return the number that is added to the weight of a norm before it multiplies."""
        return 1.0 if self.gain == "1+w" else 0.0


@dataclass(frozen=True)
class Tensors:
    """The names of the tensors: in ``body`` after one of the ``prefixes``, in ``head`` after its head prefix.

    ``aliases`` maps ends of names to older ones; ``ignored`` are patterns of names without weights. What is
    ``carried`` is copied into a child: vision and audio parts. What is ``dropped`` does not. ``layouts`` are
    other ways to store what the body has: each takes the place of the patterns of its roles where its names
    are there, in its shapes. ``factors`` are what numbers are multiplied by.
    """

    prefixes: tuple[Prefix, ...] = (Prefix(),)
    body: tuple[Pattern, ...] = ()
    head: tuple[Pattern, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    layouts: tuple[tuple[Pattern, ...], ...] = ()
    factors: Factors = Factors()


@dataclass(frozen=True)
class Rewriting:
    """The same network in another family: its names of classes, and what changes in the configuration."""

    classes: dict[str, str]
    config: dict[str, Any]


@dataclass(frozen=True)
class Unless:
    """Cuts that a model cannot take ``when`` a flag is set or a size is not 0; the ``note`` says why."""

    cuts: tuple[str, ...]
    when: str
    note: str


@dataclass(frozen=True)
class Cuttable:
    """The cuts that the stock class can express, the widths being the same in all layers.

    ``heads`` includes KV groups. ``indivisible`` says what becomes of heads that do not divide the hidden
    size: ``kept`` (nothing is special), ``refused``, or the family that the child is ``written_as``.
    ``hidden``: whether the residual stream can be narrowed, for which each sublayer must stand behind an
    RMSNorm and nothing else on the stream; ``hidden_note`` says why it cannot. The ``keeps_first`` and the
    ``keeps_last`` layers are like no other and stay. What some of its models cannot take stands in
    ``unless``.
    """

    layers: bool
    heads: bool
    ffn: bool
    indivisible: str
    note: str
    written_as: Rewriting | None = None
    keeps_first: int = 0
    keeps_last: int = 0
    hidden: bool = False
    hidden_note: str = "its family does not say that norms commute with a rotation of the stream"
    unless: tuple[Unless, ...] = ()

    def required_layers(self, depth: int) -> frozenset[int]:
        return frozenset(range(depth)[: self.keeps_first]) | frozenset(
            range(depth)[depth - self.keeps_last :]
        )


@dataclass(frozen=True)
class Gguf:
    """How a GGUF file has the family: its architecture there, and the activations that this one computes.

    None are named where the stock class has no other. Readers of the architecture rotate the two ``halves``
    of a head as the stock class does, else neighbouring elements. ``alike``: it has one size for all layers;
    ``square``: its queries are as wide as the stream. Tensors whose patterns name no ``gguf`` have the names
    of the gguf package for the architecture. ``keys`` are further values that readers need, by the names in
    the package's writer: attributes of the stock configuration (``rope_parameters.rope_theta``), whether one
    is a text (``kind = rope``), or numbers. ``sizes`` are such keys as rules on the sizes of a model.
    ``needs`` are attributes whose values readers take for granted: a list is repeated over the layers, ``=
    head_dim`` is that of another attribute. ``windows``: they take one for each layer. ``by_kind`` are usual
    keys that are otherwise in layers of a kind, or where a size is 0 (``no experts``): rules on sizes;
    ``flagged`` are others that are true in layers of these kinds. Units of an axis that is ``tiled`` lie with
    the first of each of a size before the second of each. Files of the architectures that are ``read`` are
    parents of this family.
    """

    architecture: str
    activations: tuple[str, ...]
    read: tuple[str, ...] = ()
    halves: bool = False
    alike: bool = False
    square: bool = False
    keys: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    needs: dict[str, Any] = field(default_factory=dict)
    windows: bool = False
    by_kind: dict[str, dict[str, str]] = field(default_factory=dict)
    flagged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tiled: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Support:
    """Knowledge of the family that a runtime has beyond its own list, such as by a plug-in of yours.

    ``known`` are classes, or the model type.

    ``head_size`` it takes as given (``read``), as hidden size / heads (``derived``), or one or the other by
    its version (``either``). ``ffn`` it takes as given (None) or by a rule, ``4*hidden``.
    """

    known: tuple[str, ...]
    head_size: HeadSize = "read"
    ffn: str | None = None


@dataclass(frozen=True)
class Modules:
    """The places of modules: ``layers`` and ``final`` below the base model, others below a layer.

    A document names those that do not follow from the names of tensors. ``attention`` returns the
    probabilities; ``projections`` by role, ``o`` and ``down`` among them, in the order of use. ``between`` is
    the norm of a layer that has the stream after attention; ``before`` the one before attention, None where
    none is; ``final`` the norm that the head reads, None where it reads the last layer. ``resized`` are
    attributes of the attention module (``config.NAME``: of its configuration) that hold the length of an axis
    or a number of heads. A layer ``returns`` hidden states, alone or in a tuple.

    ``text_type`` is the family whose stock class computes the text part, where its own has no head;
    ``text_fields`` are settings of that class by which it computes what the whole model does.
    """

    layers: str = ""
    attention: str = ""
    projections: dict[str, str] = field(default_factory=dict)
    between: str = ""
    final: str | None = None
    before: str | None = None
    resized: dict[str, str] = field(default_factory=dict)
    text_type: str | None = None
    text_fields: dict[str, Any] = field(default_factory=dict)
    returns: Literal["tensor", "tuple"] = "tensor"


@dataclass(frozen=True)
class Family:
    """One family of models, called ``name`` in ``model_type``; a file of JSON with these names describes it.

    ``head_classes`` are the stock classes with a head for the task, first the usual one. A family without
    tensors is known as a network only. ``runtimes`` by name of the runtime. See ``Norm`` for ``norm``.
    """

    name: str
    task: Task
    norm: Norm
    head_classes: tuple[str, ...]
    config: Configuration
    cut: Cuttable
    tensors: Tensors = field(default_factory=Tensors)
    module_names: Modules = Modules()
    gguf: Gguf | None = None
    runtimes: dict[str, Support] = field(default_factory=dict)

    @cached_property
    def gated(self) -> bool:
        """Whether the FFN has a gate in addition to ``up``."""
        return any("gate" in pattern.roles for pattern in self.tensors.body)

    @cached_property
    def shares_keys(self) -> bool:
        """Whether several heads may read one key and value."""
        labels = {
            label for pattern in self.tensors.body for axis in pattern.axes for label in axis.split("+")
        }
        of_kv_heads = {label for label, axis in self.config.axes.items() if axis.each == "kv_heads"}
        return bool(labels & {"kv", *of_kv_heads}) or not labels

    @cached_property
    def has_experts(self) -> bool:
        return any(pattern.of_experts for pattern in self.tensors.body)

    @cached_property
    def modules(self) -> Modules:
        """The places of its modules, by the names of its tensors where nothing else is said."""
        modules = self.module_names
        places = [
            (role, name.removesuffix(".weight").partition(".{layer}."), pattern)
            for pattern in self.tensors.body
            for role, (name, _) in zip(_apart(pattern), pattern.parameters, strict=True)
            if not pattern.role.endswith(BIAS) and pattern.name.endswith(".weight")
        ]
        names = {role: "".join(place) for role, place, _ in places}
        inside = {role: place[2] for role, place, _ in places if place[2]}
        order = ("q", "k", "v", "o", "gate", "up", "down")
        at = {
            role: place[2]
            for role, place, pattern in reversed(places)
            if place[2] and not pattern.of_experts and len(pattern.axes) == 2
        }
        ordered = [role for first in order for role in at if role.split("+")[0] == first]
        projections = modules.projections or {role: at[role] for role in ordered}
        first = next(iter(projections.values()), "")
        between = "attention_post_norm" if self.norm in ("post", "output") else "ffn_norm"
        return replace(
            modules,
            layers=modules.layers or names.get("o", "").partition(".{layer}.")[0],
            attention=modules.attention or first.rpartition(".")[0],
            projections=projections,
            between=modules.between or inside.get(between, ""),
            final=modules.final or names.get("final_norm"),
            before=modules.before or inside.get("attention_norm"),
        )


def _apart(pattern: Pattern) -> tuple[str, ...]:
    return pattern.roles if len(pattern.parameters) > 1 else (pattern.role,)
