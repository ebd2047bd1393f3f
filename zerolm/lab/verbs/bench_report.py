"""The result of ``zerolm lab bench``: how well proxies and scores rank trained architectures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zerolm.verbs.bench_report import BenchReport


@dataclass(frozen=True, repr=False, eq=False)
class ProxyBenchReport(BenchReport):
    """How well proxies and scores rank trained architectures, on each benchmark in each view."""

    command: ClassVar[str] = "lab bench"
