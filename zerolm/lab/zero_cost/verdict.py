"""LIBRA's choice among measured proxies, made on half of the labels and judged on the other half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.lab.zero_cost.libra import calibration_split, choose, combined
from zerolm.lab.zero_cost.result import LibraChoice
from zerolm.statistics import agreement, defined

FEWEST: Final = 20
"""Labels below which halves of them say nothing."""


def judge(columns: Mapping[str, Floats], result: Floats, params: Floats, seed: int = 0) -> LibraChoice | None:
    """None with too few labels, or proxies that vary. ``columns``, ``result``, ``params`` are (n,)."""
    if len(result) < FEWEST:
        return None
    chosen, held = calibration_split(len(result), seed=seed)
    varying = {name: values for name, values in columns.items() if np.ptp(values[chosen]) > 0}
    if len(varying) < 2 or np.ptp(result[chosen]) == 0:
        return None
    libra = choose({name: values[chosen] for name, values in varying.items()}, result[chosen], params[chosen])
    score = combined(libra, {name: values[held] for name, values in columns.items()})
    reached, by_params = agreement(score, result[held]), agreement(params[held], result[held])
    values = map(defined, (reached.tau, reached.rho, by_params.tau))
    return LibraChoice(list(libra.names), len(chosen), len(held), *values)
