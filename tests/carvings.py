"""Carving by the keywords of the command, for tests of what stands below it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from forked import die

from zerolm.carving import carve as carving
from zerolm.carving.request import Destination, SizeRequest, methods_of
from zerolm.carving.result import Carved

SHARES = ("heads", "ffn", "layers", "hidden")
SIZES = ("multiple_of", "tensor_parallel", "least_groups", "least_ffn", "space")
METHODS = ("criterion", "repair", "plan", "sequences", "length", "seed")


def size_of(**flags: Any) -> SizeRequest:
    """The sizes that flags ask for; what is not of sizes is left in them."""
    keep = {kind: flags[f"keep_{kind}"] for kind in SHARES if flags.get(f"keep_{kind}") is not None}
    shape = flags.get("shape") or ("per-layer" if flags.get("space") else "uniform")
    others = {name: flags[name] for name in SIZES if name in flags}
    return SizeRequest(shape, keep, flags.get("budgets") or {}, **others)


def carve(parent: str | Path, out: str | Path | None = None, *, form: str = "hf", **flags: Any) -> Carved:
    """Carve a child by flags."""
    place = Destination(
        None if out is None else Path(out), form, flags.pop("force", False), flags.pop("finish", None)
    )
    running = {name: flags.pop(name) for name in ("costs", "progress") if name in flags}
    size, text = size_of(**flags), flags.pop("text", None)
    methods = methods_of(size, text, **{name: flags.pop(name) for name in METHODS if name in flags})
    known = {*SIZES, "shape", "budgets", *(f"keep_{kind}" for kind in SHARES)}
    assert flags.keys() <= known, flags.keys() - known
    return carving.carve(parent, size, methods, place, **running)


def rebuild(
    recipe: str | Path, parent: str | Path, out: str | Path, *, form: str | None = None, **running: Any
) -> Carved:
    """Build the child of a recipe again."""
    place = Destination(Path(out), form, running.pop("force", False), running.pop("finish", None))
    return carving.rebuild(recipe, parent, place, **running)


def killed_while(words: str, step: int) -> Callable[..., None]:
    """Progress that kills the process at the step of this number, from 1, that begins with these words."""
    steps = count(1)

    def tell(text: str, *_: int) -> None:
        if text.startswith(words) and next(steps) == step:
            die()

    return tell
