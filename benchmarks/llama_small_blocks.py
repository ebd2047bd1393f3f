"""The plan of ``blocks``: 24 networks of the middle size of ``llama_small``, and the llamas that they meet.

What sharing saves goes to the FFN, to depth, or to width; layers without FFN are more, or wider, or every
second one; one FFN becomes two to four narrow ones. Body parameters, vocabulary, text, tokens and rate are
those of ``llama_small``, whose networks of the same depth and width, or the same family, stand against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from llama_small_plan import SETTINGS, SIZES, Planned

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.spaces import make_space

SIZE: Final = ".3M"
PAIRS: Final = ("kv", "qk", "qv")


@dataclass(frozen=True)
class BlockShape:
    """A shape whose FFNs take what the body has left. ``line`` is the claim, ``against`` a llama of the plan.

    ``ffn_stack`` is that of every layer, or of each.
    """

    line: str
    against: str
    depth: int
    hidden: int
    head_size: int = 16
    share: str = "none"
    ffn_stack: int | tuple[int, ...] = 1

    @property
    def name(self) -> str:
        stack = self.ffn_stack
        ffn = {0: " no ffn", 1: ""}.get(stack, f" {stack} ffn") if isinstance(stack, int) else " some ffn"
        share = "" if self.share == "none" else f" {self.share}"
        return f"{SIZE} {self.depth}x{self.hidden} s{self.head_size}{share}{ffn}"

    def architecture(self, body: int) -> Architecture:
        """Return the architecture whose body parameters come nearest."""
        stacks = [self.ffn_stack] * self.depth if isinstance(self.ffn_stack, int) else list(self.ffn_stack)
        heads = self.hidden // self.head_size
        choices: dict[str, Any] = {
            "depth": self.depth, "hidden": self.hidden, "head_size": self.head_size, "heads": heads,
            "kv_heads": heads, "share": self.share, "ffn_stack": stacks,
        }  # fmt: skip
        space = make_space("blocks", **SETTINGS)

        def made(ffn: int) -> Architecture:
            return space.read({**choices, "ffn": [ffn if stack else 0 for stack in stacks]})

        def body_of(ffn: int) -> int:
            return CostModel().of(made(ffn))["body_params"]

        step = body_of(2) - body_of(1)
        return made(1 + round((body - body_of(1)) / step) if step else 0)


def to_ffn(against: str, depth: int, hidden: int, *shares: str) -> list[BlockShape]:
    return [BlockShape("sharing, saved to FFN", against, depth, hidden, share=share) for share in shares]


def narrow(against: str, depth: int, hidden: int, *stacks: int) -> list[BlockShape]:
    line = "narrow FFNs for one"
    return [BlockShape(line, against, depth, hidden, ffn_stack=stack) for stack in stacks]


BASE: Final = f"{SIZE} 4x64 s16"
SHAPES: Final = [
    *to_ffn(BASE, 4, 64, *PAIRS, "qkv"),
    *to_ffn(f"{SIZE} 8x48 s16", 8, 48, "qkv"),
    BlockShape("sharing, saved to depth", f"{SIZE} 8x48 s16", 9, 48, share="qkv"),
    *(
        BlockShape("sharing, saved to width", f"{SIZE} 4x64 s8", 4, 72, 8, share=share)
        for share in (*PAIRS, "qkv")
    ),
    BlockShape("no FFN, deeper", BASE, 18, 64, ffn_stack=0),
    BlockShape("no FFN, wider", f"{SIZE} 4x64 s8", 4, 136, 8, ffn_stack=0),
    BlockShape("no FFN, wider", f"{SIZE} 8x48 s16", 8, 96, ffn_stack=0),
    BlockShape("no FFN, wider", f"{SIZE} 8x48 s16", 8, 112, share="kv", ffn_stack=0),
    BlockShape("FFN in every second layer", f"{SIZE} 8x64 s16", 8, 64, ffn_stack=(0, 1) * 4),
    *narrow(f"{SIZE} 4x96 s16", 4, 96, 2, 3, 4),
    *narrow(f"{SIZE} 8x64 s16", 8, 64, 3, 4),
    *narrow(f"{SIZE} 4x112 s16", 4, 112, 2),
    *narrow(f"{SIZE} 11x64 s16", 11, 64, 3),
    *narrow(f"{SIZE} 4x80 s16", 4, 80, 4),
    BlockShape("sharing and narrow FFNs", f"{SIZE} 4x96 s16", 4, 96, share="kv", ffn_stack=3),
]  # fmt: skip


def planned_blocks() -> list[Planned]:
    """Return the architectures of the plan, in its order, two seeds each."""
    return [
        Planned(shape.name, SIZE, shape.line, shape.architecture(SIZES[SIZE]), 2, shape.against)
        for shape in SHAPES
    ]
