"""ZeroLM's choice of alpha without labels (arXiv 2503.18646, Algorithm 2)."""

from __future__ import annotations

from typing import Final

import numpy as np

from zerolm.calibration.alpha import Alpha, parts
from zerolm.scores import ScoreBatch, make_score
from zerolm.statistics import kendall, tie_ranks

USEFUL: Final = (0.0, 1.1)
"""Where the best alpha of every published benchmark lies."""
SMALL_TAU: Final = 0.1


def algorithm2(batch: ScoreBatch) -> Alpha:
    """Algorithm 2, the heuristic without labels, from agreements of S_attn, S_ffn and the parameters P.

    lambda = |max(t_ap, t_fp) (1 - t_af / min(t_ap, t_fp))|, Phi = (1 - t_fp)(1 - t_ap) + t_af, and
    alpha = lambda + Phi if Phi > t_ap, else lambda - Phi. It divides by an agreement that may be next to
    nothing and flips a sign on a comparison: alphas out of [0, 1.1] are clipped to it, with a warning.
    ``ValueError`` where an agreement is undefined or the divisor is zero.
    """
    attention, ffn = parts(batch)
    parameters = make_score("params").of_many(batch)
    ffn_ranks = tie_ranks(ffn).astype(np.float64)  # kendall sees near ties in its first argument alone
    t_ap, t_fp, t_af = (
        float(kendall(a[None], b)[0])
        for a, b in ((attention, parameters), (ffn, parameters), (attention, ffn_ranks))
    )
    least = min(t_ap, t_fp)
    if not np.isfinite([t_ap, t_fp, t_af]).all() or least == 0.0:
        raise ValueError(
            "Algorithm 2 is undefined on these architectures: attention, FFN or parameters hardly differ"
        )
    scale = abs(max(t_ap, t_fp) * (1.0 - t_af / least))
    phi = (1.0 - t_fp) * (1.0 - t_ap) + t_af
    literal = scale + phi if phi > t_ap else scale - phi
    warnings = []
    if abs(least) < SMALL_TAU:
        warnings.append(f"Algorithm 2 divides by an agreement of only {least:.3f}")
    alpha = min(max(literal, USEFUL[0]), USEFUL[1])
    if alpha != literal:
        warnings.append(
            f"Algorithm 2 gives alpha {literal:.3f}, where no benchmark has its best: {alpha:g} is used"
        )
    if phi <= t_ap:
        warnings.append("Algorithm 2 flips the sign of Phi here, which has reversed rankings on GPT-2")
    return Alpha(alpha, literal, tuple(warnings))
