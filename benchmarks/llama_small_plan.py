"""The plan of ``llama_small``: llama-shaped networks of three body sizes in a designed cross.

Around a base of each size one thing is varied at a time: depth at a ratio of FFN to attention weights of
about 3 (the width follows), the ratio at the depth of the base and at its width, heads a KV group, head size.
The FFN takes what the body has left. Corners join extremes: shallow and deep with small and large ratios, one
KV head in shallow and in deep ones. Every shape is trained from two seeds, two of each size from five.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from zerolm.architecture import Architecture
from zerolm.spaces import make_space

SETTINGS: Final = {"vocab": 1024, "tied": True}
SIZES: Final = {".1M": 100_000, ".3M": 300_000, "1M": 1_000_000}
"""Body parameters, which every shape meets within 1 %."""


@dataclass(frozen=True)
class Shape:
    """A shape of the cross: the FFN takes what the body has left. ``line`` is what it varies."""

    line: str
    depth: int
    hidden: int
    head_size: int
    heads_per_kv: int = 1
    seeds: int = 2

    def choices(self, body: int) -> dict[str, int]:
        """Return the choices whose body parameters come nearest, with an even FFN width."""
        d, heads = self.hidden, self.hidden // self.head_size
        kv_heads = heads // self.heads_per_kv
        attention = 2 * d * d + 2 * d * kv_heads * self.head_size
        rest = body - d - self.depth * (attention + 2 * d)
        ffn = 2 * round(rest / (6 * d * self.depth))
        return {"depth": self.depth, "hidden": d, "head_size": self.head_size, "heads": heads,
                "kv_heads": kv_heads, "ffn": ffn}  # fmt: skip


def line(name: str, head_size: int, *sizes: tuple[int, int], **more: int) -> list[Shape]:
    return [Shape(name, depth, hidden, head_size, **more) for depth, hidden in sizes]


CROSS: Final = {
    ".1M": [
        *line("base", 8, (3, 48), seeds=5),
        *line("depth", 8, (1, 80), (2, 56), (4, 40), (6, 32)),
        *line("depth", 8, (11, 24), seeds=5),
        *line("ratio at depth", 8, (3, 32), (3, 40), (3, 56), (3, 64), (3, 72)),
        *line("ratio at hidden", 8, (2, 48), (4, 48), (5, 48), (8, 48)),
        *(Shape("groups", 3, 48, 8, groups) for groups in (2, 3, 6)),
        *(Shape("head size", 3, 48, size) for size in (16, 48)),
        *line("corner", 8, (1, 56), (1, 112), (6, 24), (8, 40)),
        Shape("corner", 1, 80, 8, 10),
        Shape("corner", 6, 32, 8, 4),
    ],
    ".3M": [
        *line("base", 16, (4, 64), seeds=5),
        *line("depth", 16, (1, 144), (2, 96), (3, 80), (8, 48)),
        *line("depth", 16, (16, 32), seeds=5),
        *line("ratio at depth", 16, (4, 48), (4, 80), (4, 96), (4, 112)),
        *line("ratio at hidden", 16, (3, 64), (6, 64), (8, 64), (11, 64)),
        *(Shape("groups", 4, 64, 16, groups) for groups in (2, 4)),
        *(Shape("head size", 4, 64, size) for size in (8, 32)),
        *line("corner", 16, (1, 96), (1, 192), (11, 32), (16, 48)),
        Shape("corner", 2, 96, 16, 6),
        Shape("corner", 8, 48, 16, 3),
    ],
    "1M": [
        *line("base", 16, (6, 96), seeds=5),
        *line("depth", 16, (2, 176), (3, 144), (10, 80)),
        *line("depth", 16, (16, 64), seeds=5),
        *line("ratio at depth", 16, (6, 80), (6, 128), (6, 144)),
        *line("ratio at hidden", 16, (4, 96), (11, 96)),
        *(Shape("groups", 6, 96, 16, groups) for groups in (2, 6)),
        Shape("head size", 6, 96, 32),
        *line("corner", 16, (2, 128), (2, 256), (16, 48)),
    ],
}  # fmt: skip


LONGER: Final = [f".3M {shape} s16" for shape in ("1x144", "2x96", "3x80", "4x64", "8x48", "4x96")]
"""The line of depth and one ratio: three times the tokens are as many a parameter as at the smallest size."""


@dataclass(frozen=True)
class Planned:
    """One architecture of the plan."""

    id: str
    size: str
    line: str
    architecture: Architecture
    seeds: int
    against: str = ""
    """The llama of as many parameters that it is compared with, of blocks."""


def planned() -> list[Planned]:
    """Return the architectures of the plan, in its order."""
    space = make_space("llama", **SETTINGS)
    plan = []
    for size, shapes in CROSS.items():
        for shape in shapes:
            groups = f" g{shape.heads_per_kv}" if shape.heads_per_kv > 1 else ""
            name = f"{size} {shape.depth}x{shape.hidden} s{shape.head_size}{groups}"
            architecture = space.read(shape.choices(SIZES[size]))
            plan.append(Planned(name, size, shape.line, architecture, shape.seeds))
    return plan


def planned_longer() -> list[Planned]:
    """Return the shapes that are trained with more tokens, three seeds each."""
    return [replace(one, seeds=3) for one in planned() if one.id in LONGER]


DEPTHS: Final = {
    ".1M": [".1M 1x80 s8", ".1M 2x56 s8", ".1M 3x48 s8", ".1M 6x32 s8"],
    ".3M": [".3M 1x144 s16", ".3M 2x96 s16", ".3M 4x64 s16", ".3M 8x48 s16"],
    "1M": ["1M 2x176 s16", "1M 3x144 s16", "1M 6x96 s16", "1M 10x80 s16"],
}
"""Four depths of each size, from wide to deep, to tell tokens, steps and tokens a parameter apart."""


def planned_ends() -> list[Planned]:
    """Return the base and the deepest of each size, which a rule of depth is tried on, two seeds each."""
    of_depth = [one for one in planned() if one.line in ("base", "depth")]
    deepest = {one.size: one.id for one in sorted(of_depth, key=lambda one: one.architecture.depth)}
    return [replace(one, seeds=2) for one in of_depth if one.line == "base" or one.id == deepest[one.size]]


def planned_depths(size: str) -> list[Planned]:
    """Return the four depths of a size, two seeds each."""
    return [replace(one, seeds=2) for one in planned() if one.id in DEPTHS[size]]
