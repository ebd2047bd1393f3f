"""How proxies are computed: batch, mode, seed and device."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

import torch

from zerolm.networks.passes import Protocol
from zerolm.networks.passes.protocol import MODES, UPSTREAMS, Mode, Upstream
from zerolm.text.batches import TokenSource

DEVICES: Final = ("cpu", "cuda")
MOST: Final = 1 << 24
"""Tokens of a batch."""


@dataclass(frozen=True)
class Settings:
    """How proxies are computed: ``batch`` sequences of ``length`` tokens in ``parts`` micro-batches.

    ``upstream`` None is the task's loss, but in faithful mode the ones that released code sends into an
    encoder. ``seed`` draws weights, masks and whatever else is random.
    """

    mode: Mode = "sane"
    upstream: Upstream | None = None
    batch: int = 64
    length: int = 128
    parts: int = 8
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is not known; there are {', '.join(MODES)}")
        if self.upstream is not None and self.upstream not in UPSTREAMS:
            raise ValueError(f"upstream {self.upstream!r} is not known; there are {', '.join(UPSTREAMS)}")
        if self.device not in DEVICES:
            raise ValueError(f"device {self.device!r} is not known; there are {', '.join(DEVICES)}")
        if self.batch < 1 or self.length < 1:
            raise ValueError(f"a batch of {self.batch} x {self.length} tokens is empty")
        if self.batch * self.length > MOST:
            raise ValueError(
                f"a batch of {self.batch} x {self.length} tokens is too large; {MOST} are the most"
            )
        if not 1 <= self.parts <= self.batch or self.batch % self.parts:
            fitting = [k for k in range(1, self.batch + 1) if self.batch % k == 0]
            nearest = min(fitting, key=lambda k: abs(k - self.parts))
            raise ValueError(
                f"{self.parts} equal micro-batches of {self.batch} are not possible; {nearest} are"
            )
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed {self.seed} is not possible; 0 to 2^63 - 1 are")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device that PyTorch can use; take --device cpu")

    def protocol(self, task: str) -> Protocol:
        usual: Upstream = "ones" if self.mode == "faithful" and task == "masked" else "task"
        return Protocol(self.mode, self.upstream or usual, self.parts, self.seed)

    def key(self, source: TokenSource) -> str:
        """Return all of it and what the batches are cut from, as canonical text."""
        ids = b"" if source.ids is None else source.ids.numpy().tobytes()
        tokens = hashlib.sha256(
            ids + repr((source.size, source.mask, source.classes, source.seed)).encode()
        ).hexdigest()
        return json.dumps({**vars(self), "tokens": tokens}, sort_keys=True)


USUAL: Final = Settings()
