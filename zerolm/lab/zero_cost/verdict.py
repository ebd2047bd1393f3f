"""LIBRA's choice among measured proxies, made on half of the labels and judged on the other half."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.lab.zero_cost.libra import Libra, calibration_split, choose, combined
from zerolm.statistics import agreement

FEWEST: Final = 20
"""Labels below which halves of them say nothing."""


@dataclass(frozen=True)
class LibraVerdict:
    """The choice by labels of ``calibration`` architectures; its tau-b and rho on the ``test`` others.

    ``params`` is tau-b of the body parameters there.
    """

    libra: Libra
    calibration: int
    test: int
    tau: float
    rho: float
    params: float

    def to_json(self) -> dict[str, Any]:
        return {
            "chosen": list(self.libra.names),
            "calibration": self.calibration,
            "test": self.test,
            "tau": _defined(self.tau),
            "rho": _defined(self.rho),
            "tau_body_params": _defined(self.params),
        }


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def judge(
    columns: Mapping[str, Floats], result: Floats, params: Floats, seed: int = 0
) -> LibraVerdict | None:
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
    return LibraVerdict(libra, len(chosen), len(held), reached.tau, reached.rho, by_params.tau)
