"""Counts of ``benchmarks/leaderboard.md``: scores on published results, compared with counting parameters."""

from __future__ import annotations

from typing import Final

VIEWS: Final = 10
"""Benchmarks, each in every view that it has."""
VERDICTS: Final = {
    "geo": (5, 0),
    "geo_saturating": (5, 4),
    "log_complexity": (4, 6),
    "spectral_capacity": (5, 5),
    "stable_rank": (5, 4),
}
"""In how many views a score ranks better than counting parameters, and in how many it does not.

In the others it ranks higher, and is not shown to be better.
"""


def record_of(score: str) -> str:
    """Return a sentence on a score's published results, compared with counting parameters."""
    if score not in VERDICTS:
        return f"How {score} compares with counting parameters is shown by `zerolm bench run --all`."
    better, worse = VERDICTS[score]
    rest = VIEWS - better - worse
    others = [f"does not in {worse}"] * (worse > 0) + [f"is not shown to in {rest}"] * (rest > 0)
    return (
        f"On published results {score} ranks better than counting parameters in {better} of {VIEWS} views, "
        f"and {' and '.join(others)}."
    )
