"""How proxies are computed: batch, mode, seed, device and type of products."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Final

from zerolm.lab.zero_cost.passes import Protocol
from zerolm.lab.zero_cost.result import ProxyPasses, Upstream
from zerolm.lab.zero_cost.token_source import TokenSource
from zerolm.networks.compute import Compute, compute
from zerolm.settings.compute import RunningRequest

MOST_TOKENS: Final = 1 << 24
"""Tokens of a batch."""


@dataclass(frozen=True)
class Settings(ProxyPasses):
    """How proxies are computed, checked."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.length < 1:
            raise ValueError(f"a batch of {self.batch} x {self.length} tokens is empty")
        if self.batch * self.length > MOST_TOKENS:
            raise ValueError(
                f"a batch of {self.batch} x {self.length} tokens is too large; {MOST_TOKENS} are the most"
            )
        if not 1 <= self.parts <= self.batch or self.batch % self.parts:
            fitting = [k for k in range(1, self.batch + 1) if self.batch % k == 0]
            nearest = min(fitting, key=lambda k: abs(k - self.parts))
            raise ValueError(
                f"{self.parts} equal micro-batches of {self.batch} are not possible; {nearest} are"
            )
        if self.compute.sums != self.compute.device:
            raise ValueError(f"proxies need float64, which {self.compute.device} lacks: give --device cpu")

    @property
    def compute(self) -> Compute:
        """Return the device and the type of products; ``ValueError`` for what is not here."""
        return compute(RunningRequest(self.device, self.dtype))

    @property
    def named(self) -> Settings:
        """Return the same with the names of what ``auto`` stands for."""
        return replace(self, device=str(self.compute.device), dtype=self.compute.to_json()["dtype"])

    def protocol(self, task: str) -> Protocol:
        usual: Upstream = "ones" if self.mode == "faithful" and task == "masked" else "task"
        return Protocol(self.mode, self.upstream or usual, self.parts, self.seed)

    def key(self, source: TokenSource) -> str:
        """Return all of it and what the batches are cut from, as canonical text; of a device its kind."""
        ids = b"" if source.ids is None else source.ids.numpy().tobytes()
        tokens = hashlib.sha256(
            ids + repr((source.size, source.mask, source.classes, source.seed)).encode()
        ).hexdigest()
        return json.dumps({**vars(self), **self.compute.to_json(), "tokens": tokens}, sort_keys=True)
