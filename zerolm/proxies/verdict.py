"""LIBRA's choice among measured proxies, made on half of the labels and judged on the other half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from zerolm.architecture import Floats
from zerolm.proxies.libra import Libra, calibration_split, choose, combined
from zerolm.statistics import agreement

FEWEST: Final = 20
"""Labels below which halves of them say nothing."""


@dataclass(frozen=True)
class Verdict:
    """What the labels of ``calibration`` architectures chose, and tau-b and rho of that on the ``test`` others.

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
            "tau": self.tau,
            "rho": self.rho,
            "tau_body_params": self.params,
        }


def judge(columns: Mapping[str, Floats], result: Floats, params: Floats, seed: int = 0) -> Verdict | None:
    """None where there are too few labels or proxies. ``columns``, ``result``, ``params`` are (n,)."""
    if len(result) < FEWEST or len(columns) < 2:
        return None
    known, held = calibration_split(len(result), seed=seed)
    libra = choose({name: values[known] for name, values in columns.items()}, result[known], params[known])
    score = combined(libra, {name: values[held] for name, values in columns.items()})
    found = agreement(score, result[held])
    return Verdict(
        libra, len(known), len(held), found.tau, found.rho, agreement(params[held], result[held]).tau
    )
