"""Searches of a few hundred architectures, as the command returns them."""

from typing import Any

from zerolm.solvers import search
from zerolm.spaces import make_space
from zerolm.verbs.search_report import SearchReport

FEW: dict[str, Any] = {
    "hidden": (256, 320, 384, 512), "depth": (2, 4, 8, 12), "ffn": (512, 768, 1024, 1536), "vocab": 8192,
    "hidden_per_depth": (1, 1000),
}  # fmt: skip
"""Settings of a llama of a few hundred architectures, of 2 to 12 layers."""


def small_search() -> SearchReport:
    """A search of a few hundred llamas, whose layers may differ."""
    space = make_space(
        "llama", depth=(2, 3, 4), hidden=(64, 128, 192), head_size=(32,), ffn=(128, 256, 384, 512),
        vocab=512, hidden_per_depth=(8, 128), ffn_per_hidden=(1, 4),
    )  # fmt: skip
    budgets = {"max_params": 900_000, "max_kv_bytes": 1_000_000}
    return SearchReport(**vars(search(space, "geo", budgets=budgets, top=5)))


def free_search() -> SearchReport:
    """A search of a space without a stock class."""
    space = make_space("gpt2", depth=(3, 4), hidden=(128,), ffn=(256, 512))
    return SearchReport(**vars(search(space, "zerolm", options={"alpha": 0.5}, top=3)))
