"""Carving by the keywords of the command, for tests of what stands below it."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from forked import die

from zerolm.carving import carve as carving
from zerolm.carving.request import Destination, MethodRequest, methods_of
from zerolm.carving.result import Carved
from zerolm.planning.size_request import SizeRequest
from zerolm.settings.request import build, settings_of

BY_WEIGHTS: Final = ("--criterion", "capacity")


def carve(parent: str | Path, out: str | Path | None = None, *, form: str = "hf", **flags: Any) -> Carved:
    """Carve a child by flags: without a text by weights alone, unless they name a criterion."""
    if not flags.keys() & {"text", "criterion", "keep_experts", "keep_expert_ffn"}:
        flags["criterion"] = "capacity"
    place = Destination(
        None if out is None else Path(out), form, flags.pop("force", False), flags.pop("finish", None)
    )
    running = {name: flags.pop(name) for name in ("costs", "compute", "progress") if name in flags}
    values = {one.name: one.default for one in (*settings_of(SizeRequest), *settings_of(MethodRequest))}
    flags |= flags.pop("budgets", None) or {}
    assert flags.keys() <= values.keys(), flags.keys() - values.keys()
    size, methods = (build(kind, values | flags) for kind in (SizeRequest, MethodRequest))
    return carving.carve(parent, size, methods_of(size, methods), place, **running)


def refused(parent: Path, words: str | None, **flags: Any) -> str:
    """Return the one line in which a carving into ``child``, next to the parent, is refused."""
    child = parent.parent / "child"
    with pytest.raises(ValueError, match=words) as failed:
        carve(parent, child, **flags or {"keep_ffn": 0.5})
    assert "\n" not in str(failed.value)
    assert not child.exists()
    return str(failed.value)


def rebuild(
    recipe: str | Path, parent: str | Path, out: str | Path, *, form: str | None = None, **running: Any
) -> Carved:
    place = Destination(Path(out), form, running.pop("force", False), running.pop("finish", None))
    return carving.rebuild(recipe, parent, place, **running)


def killed_while(words: str, step: int) -> Callable[..., None]:
    """Progress that kills the process at the step of this number, from 1, that begins with these words."""
    steps = count(1)

    def tell(text: str, *_: int) -> None:
        if text.startswith(words) and next(steps) == step:
            die()

    return tell
