"""Proxies of networks as numbers, and how they rank a benchmark, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import FiniteFloat

from zerolm.comparison.results import Section

Mode = Literal["sane", "faithful"]
Upstream = Literal["task", "ones"]
IMAGES: Final = "random images"
"""The source of proxies of networks that read images."""


def tokens_of(source: str) -> str:
    """Return the tokens that the proxies were computed on, in words."""
    if source == IMAGES:
        return "images are sampled at random"
    if source.startswith("random"):
        return "tokens are sampled at random: give --text FILE for what a proxy says on real text"
    return f"proxies on tokens of the {source}"


@dataclass(frozen=True)
class ProxyPasses:
    """How proxies are computed: ``batch`` sequences of ``length`` tokens in ``parts`` micro-batches.

    ``upstream`` None is the task's loss, but in faithful mode the ones of released code for an
    encoder. ``seed`` draws weights, masks and whatever else is random.
    """

    mode: Mode = "sane"
    upstream: Upstream | None = None
    batch: int = 64
    length: int = 128
    parts: int = 8
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"


@dataclass(frozen=True)
class ProxyTable:
    """Proxies of networks. ``text`` is what the tokens are of; ``params`` are those of architectures.

    ``proxies`` are scores, higher expected to be better; ``values`` are what each proxy gave for each
    network, its parts where it combines them, None where that is no finite number. ``seconds`` are the mean
    times of each, ``left_out`` says why a proxy has no scores.
    """

    title: str
    text: str
    settings: ProxyPasses
    networks: list[str]
    architectures: list[dict[str, Any] | None]
    params: list[FiniteFloat] | None
    proxies: dict[str, list[FiniteFloat]]
    values: dict[str, list[list[FiniteFloat | None]]]
    seconds: dict[str, FiniteFloat]
    left_out: dict[str, str]

    def check(self) -> None:
        """Raise ``ValueError`` where a column is not of these networks."""
        lengths = {len(self.architectures), *map(len, self.proxies.values())}
        if not self.networks or lengths | {len(self.params or self.networks)} != {len(self.networks)}:
            raise ValueError(f"a column is not of its {len(self.networks)} networks")
        if not set(self.proxies) <= set(self.seconds):
            raise ValueError("the time of a proxy is missing")


@dataclass(frozen=True)
class LibraChoice:
    """The choice of LIBRA by ``calibration`` labels, and how it does on the ``test`` others."""

    chosen: list[str]
    calibration: int
    test: int
    tau: float | None
    rho: float | None
    tau_body_params: float | None


@dataclass(frozen=True, repr=False, eq=False)
class RankedProxies:
    """Proxies of networks; ``section`` says how they rank a benchmark, where the networks are of one."""

    table: ProxyTable
    section: Section | None = None
    libra: LibraChoice | None = None
