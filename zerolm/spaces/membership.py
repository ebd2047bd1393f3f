"""Whether a uniform space holds an architecture, what excludes it, and the ranges around one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Any, Final

from zerolm.spaces.uniform import UniformSpace, ranged

RANGE_ROUNDING: Final = 1e-9
"""Of floating point, at the ends of a range around a value."""
FINER: Final = {"hidden": 32, "ffn": 16}
"""Steps of sizes around an architecture, where none are given."""
VALUES_LISTED: Final = 8
"""Values that are listed."""


def exclusions(space: UniformSpace, choices: Mapping[str, Any]) -> list[str]:
    """Return the bounds of a uniform space that exclude an architecture, with its value; empty where it is
    inside.

    ``choices`` are as ``space.read`` takes them.
    """
    return list(dict.fromkeys([*_out_of_range(space, choices), *_off_step(space, choices)]))


def _out_of_range(space: UniformSpace, choices: Mapping[str, Any]) -> Iterator[str]:
    depth, hidden, size, heads = (choices[name] for name in ("depth", "hidden", "head_size", "heads"))
    kv_heads, ffn = (_several(choices[name]) for name in ("kv_heads", "ffn"))
    if not space.per_layer and max(len(kv_heads), len(ffn)) > 1:
        yield "layers differ (per_layer)"
    chosen: list[tuple[str, Sequence[int], Sequence[int]]] = [
        ("depth", [depth], space.depth),
        ("hidden", [hidden], space.hidden),
        ("head_size", [size], space.head_size),
        ("heads_per_kv", [heads // count for count in kv_heads], space.heads_per_kv),
        ("ffn", ffn, space.ffn),
    ]
    for name, values, possible in chosen:
        yield from (f"{name} {value} ({steps(possible)})" for value in values if value not in possible)
    ratios = [
        ("hidden_per_depth", hidden, depth, space.hidden_per_depth),
        *(("ffn_per_hidden", width, hidden, space.ffn_per_hidden) for width in ffn),
        ("query_per_hidden", heads * size, hidden, space.query_per_hidden),
        ("query_width", heads * size, 1, space.query_width),
        *(("kv_width", count * size, 1, space.kv_width) for count in kv_heads),
    ]
    for name, value, of, (low, high) in ratios:
        if not low * of <= value <= high * of:
            yield f"{name} {value / of:.4g} ({ranged((low, high))})"


def _off_step(space: UniformSpace, choices: Mapping[str, Any]) -> Iterator[str]:
    size, heads = choices["head_size"], choices["heads"]
    kv_heads, ffn = (_several(choices[name]) for name in ("kv_heads", "ffn"))
    step, devices = space.multiple_of, space.tensor_parallel
    widths = [choices["hidden"], heads * size, *(count * size for count in kv_heads), *ffn]
    if any(width % step for width in widths):
        yield f"a width is no multiple of {step} (multiple_of)"
    shared = [heads % devices, *(width % devices for width in ffn)]
    if any(shared) or any(count % devices and devices % count for count in kv_heads):
        yield f"heads or FFN cannot be shared out among {devices} devices (tensor_parallel)"


def around(
    space: UniformSpace, choices: Mapping[str, Any], share: float, fixed: Collection[str]
) -> dict[str, Any]:
    """Return the settings of a space cut to what lies within a share of an architecture's sizes.

    Depth, hidden size, FFN and the widths of queries and of keys are cut; the architecture's own values are
    in every range but those that are ``fixed``, which are only cut. The others have steps that are ``FINER``,
    and queries as much wider or narrower than the stream, for else hardly anything would be near.
    ``ValueError`` where a fixed range holds nothing near.
    """
    settings = dict(space.settings)
    depth, hidden, size, heads = (choices[name] for name in ("depth", "hidden", "head_size", "heads"))
    near = {"depth": [depth], "hidden": [hidden], "ffn": _several(choices["ffn"])}
    groups = [heads // count for count in _several(choices["kv_heads"])]
    for name, sizes in near.items():
        low, high = _ends(sizes, share)
        inside = {value for value in settings[name] if low <= value <= high}
        if not inside and name in fixed:
            raise ValueError(_nothing(name, steps(settings[name]), share, sizes))
        if name not in fixed:
            step = FINER.get(name, 1)
            finer = range(-(-low // step) * step, high + 1, step) if name in FINER else ()
            inside |= {*sizes, *finer}
        settings[name] = sorted(inside)
    for name, more in (("head_size", [size]), ("heads_per_kv", groups)):
        if name in settings and name not in fixed:
            settings[name] = sorted({*settings[name], *more})
    queries = heads * size / hidden
    ratios = {
        "hidden_per_depth": [hidden / depth],
        "ffn_per_hidden": [width / hidden for width in near["ffn"]],
        "query_per_hidden": [queries * (1 - share), queries * (1 + share)],
    }
    for name, values in ratios.items():
        if name in settings and name not in fixed:
            low, high = settings[name]
            settings[name] = [min(low, *values), max(high, *values)]
    kv_widths = [heads // group * size for group in groups]
    for name, sizes in (("query_width", [heads * size]), ("kv_width", kv_widths)):
        if name in settings:
            (low, high), (least, most) = settings[name], _ends(sizes, share)
            if max(low, least) > min(high, most):
                raise ValueError(_nothing(name, ranged((low, high)), share, sizes))
            settings[name] = [max(low, least), min(high, most)]
    return settings


def _nothing(name: str, values: str, share: float, sizes: Sequence[int]) -> str:
    return f"{name} {values} holds nothing within {100 * share:g}% of the baseline's {sizes[0]}"


def _ends(sizes: Sequence[int], share: float) -> tuple[int, int]:
    return ceil(min(sizes) * (1 - share) - RANGE_ROUNDING), floor(max(sizes) * (1 + share) + RANGE_ROUNDING)


def _several(value: Any) -> list[int]:
    return sorted(set(value)) if isinstance(value, list | tuple) else [value]


def steps(values: Sequence[int]) -> str:
    """Return integers in short: LOW:HIGH:STEP where they are even, else the few, or the ends of the many."""
    apart = {after - before for before, after in pairwise(values)}
    if len(values) > 2 and len(apart) == 1:
        step = apart.pop()
        return f"{values[0]}:{values[-1]}" + (f":{step}" if step > 1 else "")
    many = f"{len(values)} from {values[0]} to {values[-1]}"
    return ",".join(map(str, values)) if len(values) <= VALUES_LISTED else many
