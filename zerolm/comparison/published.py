"""The best agreement that others have published on these benchmarks, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Published:
    """Kendall's tau and Spearman's rho as their source prints them (None: not given), and the source."""

    tau: float | None
    rho: float | None
    by: str


BEST: Final[dict[tuple[str, str | None], Published]] = {
    ("flexibert_glue", "declared"): Published(
        0.695, 0.884, "NSC (arXiv 2609.23087), second hand; not reproduced by spectral_capacity"
    ),
    ("flexibert_glue", "published"): Published(0.532, 0.765, "ZeroLM (arXiv 2503.18646)"),
    ("gpt2_wt103", None): Published(0.886, 0.980, "LPZero"),
}
