"""Which networks of a target proxies are computed of; read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from zerolm.settings.messages import called
from zerolm.settings.request import setting
from zerolm.verbs.shared import data, metric

Target = Literal["space", "benchmark", "model"]
BELONGS: Final[Mapping[str, tuple[Target, ...]]] = {
    "count": ("space",),
    "max_params": ("space",),
    "view": ("space", "benchmark"),
    "limit": ("benchmark",),
    "metric": ("benchmark",),
    "data": ("benchmark",),
}
"""The targets that each choice of networks belongs to."""
USUAL_COUNT: Final = 20


@dataclass(frozen=True)
class Selection:
    """The networks that are computed of a space, or of a benchmark; how FlexiBERT is read is of both."""

    count: int | None = setting(
        "integer", None, f"networks to sample from a space; default {USUAL_COUNT}", low=1, high=1 << 20
    )
    max_params: int | None = setting(
        "integer", None, "maximum parameters of sampled networks", low=0, metavar="AMOUNT"
    )
    limit: int | None = setting(
        "integer", None, "maximum architectures of a benchmark, evenly spread", low=2, high=1 << 40
    )
    view: str | None = setting("text", None, "reading of flexibert: declared, published or trained")
    metric: str | None = metric()
    data: str | None = data()

    def check_for(self, kind: Target) -> None:
        """``ValueError`` for what would say nothing about such a target."""
        for name, kinds in BELONGS.items():
            if getattr(self, name) is not None and kind not in kinds:
                raise ValueError(
                    f"{called(name)} is of a {' or a '.join(kinds)}; this is a {kind}: leave it out"
                )
