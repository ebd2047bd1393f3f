"""LIBRA's choice among measured proxies, made on half of the labels and judged on the other half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.proxies.libra import calibration_split, choose, combined
from zerolm.proxies.result import LibraChoice, Verdict
from zerolm.statistics import agreement

FEWEST: Final = 20
"""Labels below which halves of them say nothing."""


def judge(columns: Mapping[str, Floats], result: Floats, params: Floats, seed: int = 0) -> Verdict | None:
    """None with too few labels, or proxies that vary. ``columns``, ``result``, ``params`` are (n,)."""
    if len(result) < FEWEST:
        return None
    half, held = calibration_split(len(result), seed=seed)
    varying = {name: values for name, values in columns.items() if np.ptp(values[half]) > 0}
    if len(varying) < 2 or np.ptp(result[half]) == 0:
        return None
    libra = choose({name: values[half] for name, values in varying.items()}, result[half], params[half])
    score = combined(libra, {name: values[held] for name, values in columns.items()})
    reached, by_params = agreement(score, result[held]), agreement(params[held], result[held])
    choice = LibraChoice(libra.names)
    return Verdict(choice, len(half), len(held), reached.tau, reached.rho, by_params.tau)
