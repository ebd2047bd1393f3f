"""The one reading of a ``config.json``: sizes, windows, and the architecture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH, Architecture, Ends, Layer, Matrix, Role
from zerolm.families.document import RULE
from zerolm.families.family import Family, Field, Pattern
from zerolm.families.known import family_of

LIMITS: Final = {
    "depth": MAX_DEPTH,
    "vocab": MAX_VOCAB,
    "positions": MAX_VOCAB,
    "types": MAX_VOCAB,
    "heads": 1 << 16,
    "kv_heads": 1 << 16,
    "head_size": 1 << 16,
    "experts": 1 << 12,
    "active": 1 << 12,
}
"""The largest sizes that are read, ``MAX_WIDTH`` where nothing is said: exact int64 cannot overflow."""
FULL, SLIDING = "full_attention", "sliding_attention"
COUNT_LABELS: Final = ("depth", "heads", "kv_heads", "head_size")
"""Sizes that are no axis of a tensor."""
CHOICES: Final = ("depth", "hidden", "head_size", "heads", "kv_heads", "ffn")


@dataclass(frozen=True)
class CoreSizes:
    """The sizes that make the matrices of a layer, and the number of layers."""

    depth: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int


@dataclass(frozen=True)
class ModelSizes(CoreSizes):
    """The sizes of a model, as its stock class would have them.

    ``tied``: the head is the embedding. ``windows`` (depth,): how many tokens each layer attends to at most,
    0 for all. ``sizes`` has the length of each axis by its label: ``q`` (heads x head size), ``kv``, ``head``
    (the size of one head), ``ffn``, ``hidden``, ``vocab``, ``positions`` ... but of free ones (``labels``).
    """

    vocab: int
    tied: bool
    windows: tuple[int, ...]
    sizes: dict[str, int]

    def length(self, axis: str) -> int | None:
        """Return the length of an axis, also of one with fused parts; None where it is free."""
        parts = [self.sizes.get(label) for label in axis.split("+")]
        return None if None in parts else sum(size for size in parts if size is not None)


def sizes_of(family: Family, config: Mapping[str, Any]) -> ModelSizes:
    """Return the sizes that a configuration gives; ``ValueError`` for what is no size, or does not divide."""
    for name, value in family.config.only.items():
        if config.get(name) not in (None, value):
            raise ValueError(f"{name} is {_short(config[name])}; only {family.name} with {value!r} are read")
    by_label = {label: size_of(family, config, label) for label in family.config.sizes}
    if by_label["heads"] % by_label["kv_heads"]:
        names = [f"{_field(family, name)} {by_label[name]}" for name in ("heads", "kv_heads")]
        raise ValueError(" is not divisible by ".join(names))
    if by_label.get("active", 0) > by_label.get("experts", 0):
        raise ValueError(f"{by_label['active']} experts are chosen of {by_label['experts']}")
    head = by_label["head_size"]
    axes = {"q": by_label["heads"] * head, "kv": by_label["kv_heads"] * head, "head": head}
    return ModelSizes(
        **{name: by_label[name] for name in (*CHOICES, "vocab")},
        tied=is_tied(family, config),
        windows=tuple(_windows(family, config, by_label["depth"])),
        sizes=axes | {label: size for label, size in by_label.items() if label not in COUNT_LABELS},
    )


def size_of(family: Family, config: Mapping[str, Any], label: str) -> int:
    """Return a size by its label; ``ValueError`` where it is no integer within reason."""
    return _size(family, config, family.config.sizes[label], label)


def is_tied(family: Family, config: Mapping[str, Any]) -> bool:
    """Return whether the head is the embedding; ``ValueError`` where the configuration does not say so."""
    tied = family.config.tied
    return _boolean(config, tied.field, tied.default)


def has(family: Family, pattern: Pattern, config: Mapping[str, Any], head: bool) -> bool:
    """Return whether a model with this configuration has the tensor; ``head``: if it has that of its task."""
    flags = family.config.flags
    if pattern.when in flags:
        return _boolean(config, pattern.when, flags[pattern.when])
    with_head = {"head": head, "untied": head and not is_tied(family, config), "optional": False}
    return with_head.get(pattern.when, True)


def from_config(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a ``config.json``; ``choices`` hold the sizes that were read.

    Models are counted with the head of their task: language models, bert as ``BertForMaskedLM``. Raises
    ``ValueError`` for another model type, what is no size, or sizes that do not divide.
    """
    family = family_of(config)
    sizes = sizes_of(family, config)
    present = [pattern for pattern in family.tensors.body if has(family, pattern, config, head=True)]
    inside = [pattern for pattern in present if pattern.in_layer]
    by_window = {window: _layer(inside, sizes, window) for window in set(sizes.windows)}
    outside = [pattern for pattern in present if not pattern.in_layer]
    head = [pattern for pattern in family.tensors.head if has(family, pattern, config, head=True)]
    experts = {name: sizes.sizes[name] for name in ("experts", "active") if name in sizes.sizes}
    return Architecture(
        f"huggingface:{family.name}",
        {name: getattr(sizes, name) for name in CHOICES} | experts,
        tuple(by_window[window] for window in sizes.windows),
        _ends(outside, head, sizes),
    )


def _layer(patterns: list[Pattern], sizes: ModelSizes, window: int) -> Layer:
    """Return a layer that has these tensors, an expert's as many times as there are experts."""
    matrices: list[Matrix] = []
    vectors = idle = 0
    experts = sizes.sizes.get("experts", 1)
    for pattern in patterns:
        count = experts if pattern.of_experts else 1
        shape = _shape(pattern, sizes)
        if len(shape) == 1:
            vectors += count * shape[0]
            continue
        matrices += [_matrix(pattern, shape)] * count
        idle += (count - sizes.sizes["active"]) * matrices[-1].weights if pattern.of_experts else 0
    q, kv = sizes.sizes["q"], sizes.sizes["kv"]
    return Layer(tuple(matrices), sizes.hidden, q, kv, vectors, vectors, window, idle)


def _matrix(pattern: Pattern, shape: list[int]) -> Matrix:
    rows, cols = reversed(shape) if pattern.transposed else shape
    labels = {label for axis in pattern.axes for label in axis.split("+")}
    role: Role = "attention" if labels & {"q", "kv"} else "ffn"
    return Matrix(role, rows, cols, len(pattern.roles), pattern.scaled, pattern.role.replace("+", ""))


def _shape(pattern: Pattern, sizes: ModelSizes) -> list[int]:
    """Return the shape of a tensor, of one expert's where there are experts."""
    axes = pattern.axes[1:] if pattern.of_experts and pattern.axes[0] == "experts" else pattern.axes
    return [sizes.length(axis) or 0 for axis in axes]


def _ends(outside: list[Pattern], head: list[Pattern], sizes: ModelSizes) -> Ends:
    shapes = {pattern: _shape(pattern, sizes) for pattern in (*outside, *head)}
    tables = [pattern for pattern in outside if len(shapes[pattern]) == 2]
    vectors = {pattern: shape[0] for pattern, shape in shapes.items() if len(shape) == 1}
    return Ends(
        embedding=sum(shapes[table][0] * shapes[table][1] for table in tables),
        tied_head=sizes.vocab * sizes.hidden if sizes.tied else 0,
        head_matrices=tuple(
            Matrix("head", shape[0], shape[1], name="head")
            for shape in map(shapes.__getitem__, head)
            if len(shape) == 2
        ),
        vectors=sum(vectors.values()),
        body_vectors=sum(size for pattern, size in vectors.items() if pattern.role.startswith("final_norm")),
    )


def _windows(family: Family, config: Mapping[str, Any], depth: int) -> Iterator[int]:
    """Yield how many tokens each layer attends to at most, 0 for all."""
    window, kinds = family.config.window, config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) != depth:
        raise ValueError(f"it has {depth} layers and {len(kinds)} layer_types")
    size = 0 if window is None else _window_size(config, window.size, window.switch)
    if window is None or not size:
        yield from [0] * depth
        return
    if window.types is None or config.get(window.types) is None:
        first = 0 if window.first is None else _first(config, window.first)
        yield from (size if n >= first and (n - first) % window.every == 0 else 0 for n in range(depth))
        return
    if not isinstance(kinds, list) or not all(kind in (FULL, SLIDING) for kind in kinds):
        raise ValueError(f"{window.types} is {_short(kinds)}, not a list of {FULL} and {SLIDING}")
    yield from (size if kind == SLIDING else 0 for kind in kinds)


def _window_size(config: Mapping[str, Any], field: Field, switch: str | None) -> int:
    """Return how many tokens a window holds, 0 where there is none."""
    value = _value(config, field)
    if value is None or (switch and not _boolean(config, switch, False)):
        return 0
    return _integer(str(field.field), value, MAX_VOCAB)


def _first(config: Mapping[str, Any], field: Field) -> int:
    return _integer(str(field.field), _value(config, field), MAX_VOCAB, 0)


def _size(family: Family, config: Mapping[str, Any], field: Field, label: str) -> int:
    value, name = _value(config, field), field.field or label
    if field.also and field.also in config and field.field in config and config[field.also] != value:
        raise ValueError(f"the configuration has {field.field} {_short(value)} and {field.also} as well")
    match = RULE.fullmatch(value) if isinstance(value, str) and not _is_given(config, field) else None
    if match is None:
        return _integer(name, value, LIMITS.get(label, MAX_WIDTH))
    factor, of, by = match.groups()
    size = size_of(family, config, of) * int(factor or 1)
    divisor = size_of(family, config, by) if by else 1
    if size % divisor:
        raise ValueError(f"{_field(family, of)} {size} is not divisible by {_field(family, by)} {divisor}")
    return _integer(name, size // divisor, LIMITS.get(label, MAX_WIDTH))


def _field(family: Family, label: str) -> str:
    return family.config.sizes[label].field or label


def _value(config: Mapping[str, Any], field: Field) -> Any:
    """Return what is given, else the default; for null what it stands for."""
    for name in (field.field, field.also):
        if name is not None and name in config:
            return field.null if config[name] is None else config[name]
    return field.default


def _is_given(config: Mapping[str, Any], field: Field) -> bool:
    return any(name is not None and config.get(name) is not None for name in (field.field, field.also))


def _boolean(config: Mapping[str, Any], name: str | None, default: Any) -> bool:
    value = config.get(name, default) if name else default
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {_short(value)}")
    return value


def _integer(name: str, value: Any, most: int, least: int = 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"the configuration has {name} {_short(value)}; {least} to {most} are possible")
    return value


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "of more than 40 digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
