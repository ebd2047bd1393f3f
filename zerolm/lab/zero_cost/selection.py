"""Which networks of a target proxies are computed of; read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolm.settings.messages import called
from zerolm.settings.request import setting
from zerolm.verbs.shared import data, metric

BELONGS: Final = {
    "space": ("count", "max_params", "view"),
    "benchmark": ("view", "limit", "metric", "data"),
    "model": (),
}
"""The choices of networks that belong to each kind of target."""
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

    def check_for(self, kind: str) -> None:
        """``ValueError`` for what would say nothing about such a target."""
        for name, value in vars(self).items():
            if value is not None and name not in BELONGS[kind]:
                others = " or a ".join(other for other, names in BELONGS.items() if name in names)
                raise ValueError(f"{called(name)} is of a {others}; this is a {kind}: leave it out")
