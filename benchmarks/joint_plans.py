"""Plans that are compared at equal bytes: which units are free, as flags of ``zerolm carve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHARES: Final = (0.45, 0.25, 0.15)
"""Budgets as shares of the bytes at 16 bits: about 7, 4 and 2.4 bits a weight."""
TIMED: Final = 0.25
"""The budget at which every plan begins with an empty cache."""
SEQUENCES: Final = {"pydec": 32, "pyenc": 512, "moe_plain": 16, "gemma270": 16, "qwen05": 16}
JUDGED: Final = {"pydec": 32, "pyenc": 512, "moe_plain": 16, "gemma270": 8, "qwen05": 8}
"""Stretches of unseen text, or lines of an encoder."""
STORED: Final = ("--types", "stored")
ALL: Final = ("--keep-vocab", "all")
WHOLE: Final = ("--keep", "1")
NUMBERS: Final = ("--keep-experts", "auto", "--keep-expert-ffn", "auto")
KINDS: Final = {"neurons": "ffn", "KV groups": "heads", "layers": "layers", "hidden size": "hidden"}
"""Kinds of cuts by the flags that hold them whole."""
JOINT: Final = "joint"


@dataclass(frozen=True)
class Plan:
    """Flags that leave only some units free; ``units`` is the number of kinds, 0 where all are free."""

    name: str
    units: int
    flags: tuple[str, ...]
    is_kind: bool = False


def _kind(name: str) -> Plan:
    others = [("--keep-" + flag, "1") for kind, flag in KINDS.items() if kind != name]
    return Plan(f"{name} alone", 1, (*STORED, *ALL, *(word for pair in others for word in pair)), True)


PLANS: Final = (
    Plan(JOINT, 0, ()),
    Plan("types alone", 1, (*WHOLE, *ALL)),
    Plan("tokens alone", 1, (*STORED, *WHOLE, "--keep-vocab", "auto")),
    Plan("cuts alone", 1, (*STORED, *ALL)),
    *(_kind(name) for name in KINDS),
    Plan("types and tokens", 2, (*WHOLE, "--keep-vocab", "auto")),
    Plan("types and cuts", 2, ALL),
    Plan("tokens and cuts", 2, STORED),
)
OF_REAL: Final = tuple(plan for plan in PLANS if not plan.is_kind)
"""Of published models, of which a plan takes up to an hour."""
OF_EXPERTS: Final = (
    Plan(JOINT, 0, ()),
    Plan("types alone", 1, (*WHOLE, *ALL, "--keep-experts", "all")),
    Plan("tokens alone", 1, (*STORED, *WHOLE, "--keep-vocab", "auto", "--keep-experts", "all")),
    Plan("experts alone", 1, (*STORED, *WHOLE, *ALL, *NUMBERS)),
    Plan("cuts alone", 1, (*STORED, *ALL, "--keep-experts", "all")),
    Plan("types and tokens", 2, (*WHOLE, "--keep-vocab", "auto", "--keep-experts", "all")),
    Plan("types and cuts", 2, (*ALL, "--keep-experts", "all")),
    Plan("types and experts", 2, (*WHOLE, *ALL, "--types", "all", *NUMBERS)),
    Plan("tokens and experts", 2, (*STORED, *WHOLE, "--keep-vocab", "auto", *NUMBERS)),
    Plan("tokens and cuts", 2, (*STORED, "--keep-experts", "all")),
    Plan("cuts and experts", 2, (*STORED, *ALL)),
)
"""Of mixtures of experts. Experts are numbers and neurons."""
