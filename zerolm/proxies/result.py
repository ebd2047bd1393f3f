"""Proxies that were measured, of a pool of networks or of a benchmark: plain numbers, read without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from zerolm.architecture import Floats
from zerolm.comparison.results import Section
from zerolm.io.typed import STRICT, typed


@dataclass(frozen=True)
class MeasuredNetwork:
    """A network by its name, and its ``choices`` where it is an architecture."""

    name: str
    choices: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """The scores of n candidates on tokens of ``source``.

    ``columns`` are scores (n,), higher expected to be better; those of proxies that combine their parts
    depend on all the candidates. ``values`` are what each proxy computed of each candidate, empty where it
    could not. ``seconds`` are means a network of a column, as if its proxy ran alone. ``left_out`` says why
    a proxy has no column.
    """

    source: str
    candidates: Sequence[MeasuredNetwork]
    columns: dict[str, Floats]
    values: dict[str, list[tuple[float, ...]]]
    seconds: dict[str, float]
    left_out: dict[str, str]


@dataclass(frozen=True)
class LibraChoice:
    """The proxies that LIBRA chose, by name."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The choice by labels of ``calibration`` architectures; its tau-b and rho on the ``test`` others.

    ``params`` is tau-b of the body parameters there.
    """

    libra: LibraChoice
    calibration: int
    test: int
    tau: float
    rho: float
    params: float

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object; null where a number is not defined."""
        return {
            "chosen": list(self.libra.names),
            "calibration": self.calibration,
            "test": self.test,
            "tau": _finite(self.tau),
            "rho": _finite(self.rho),
            "tau_body_params": _finite(self.params),
        }


@dataclass(frozen=True, eq=False)
class Run:
    """The results. ``params`` (n,) are those of architectures, ``section`` how a benchmark is ranked."""

    title: str
    settings: dict[str, Any]
    measured: Measured
    params: Floats | None
    section: Section | None = None
    verdict: Verdict | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as ``zerolm proxies --json`` prints it.

        ``proxies`` are scores, higher expected to be better; ``values`` are what each proxy gave for each
        network, its parts where it combines them, null where that is no finite number.
        """
        measured = self.measured
        document: dict[str, Any] = {
            "title": self.title,
            "text": measured.source,
            "settings": self.settings,
            "networks": [candidate.name for candidate in measured.candidates],
            "architectures": [candidate.choices for candidate in measured.candidates],
            "params": None if self.params is None else self.params.tolist(),
            "proxies": {name: column.tolist() for name, column in measured.columns.items()},
            "values": {name: [_plain(row) for row in rows] for name, rows in measured.values.items()},
            "seconds": measured.seconds,
            "left_out": measured.left_out,
        }
        if self.section is not None:
            document["metric"] = self.section.metric
            document["section"] = self.section.to_json()
            document["rows"] = [row.to_json() for row in self.section.rows]
            document["libra"] = None if self.verdict is None else self.verdict.to_json()
        return document

    @classmethod
    def from_json(cls, document: Any, section: Section | None = None) -> Run:
        """Return the results that ``to_json`` told; ``ValueError`` names a field that is wrong.

        Of a benchmark the ``section`` is given, for it is read from tables.
        """
        written = typed(_WrittenRun, document)
        count = len(written.networks)
        columns: dict[str, Sequence[Any] | None] = {**written.proxies, **written.values}
        columns |= {"architectures": written.architectures, "params": written.params}
        for name, column in columns.items():
            if column is not None and len(column) != count:
                raise ValueError(f"{name!r}: {len(column)} values of {count} networks")
        if (section is None) != (written.section is None):
            raise ValueError("'section': it goes with the tables of a benchmark, and with nothing else")
        pairs = zip(written.networks, written.architectures, strict=True)
        measured = Measured(
            written.text,
            [MeasuredNetwork(name, choices) for name, choices in pairs],
            {name: np.array(column, np.float64) for name, column in written.proxies.items()},
            {name: [tuple(map(_number, row)) for row in rows] for name, rows in written.values.items()},
            written.seconds,
            written.left_out,
        )
        params = None if written.params is None else np.array(written.params, np.float64)
        verdict = None if written.libra is None else written.libra.verdict()
        return cls(written.title, written.settings, measured, params, section, verdict)


@dataclass(frozen=True)
class _WrittenVerdict:
    chosen: tuple[str, ...]
    calibration: int
    test: int
    tau: float | None
    rho: float | None
    tau_body_params: float | None

    __pydantic_config__: ClassVar = STRICT

    def verdict(self) -> Verdict:
        taus = map(_number, (self.tau, self.rho, self.tau_body_params))
        return Verdict(LibraChoice(self.chosen), self.calibration, self.test, *taus)


@dataclass(frozen=True)
class _WrittenProxies:
    title: str
    text: str
    settings: dict[str, Any]
    networks: list[str]
    architectures: list[dict[str, Any] | None]
    params: list[float] | None
    proxies: dict[str, list[float]]
    values: dict[str, list[list[float | None]]]
    seconds: dict[str, float]
    left_out: dict[str, str]

    __pydantic_config__: ClassVar = STRICT


@dataclass(frozen=True)
class _WrittenRun(_WrittenProxies):
    metric: str | None = None
    section: dict[str, Any] | None = None
    rows: list[dict[str, Any]] | None = None
    libra: _WrittenVerdict | None = None


def _plain(row: Sequence[float]) -> list[float | None]:
    return [_finite(value) for value in row]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
