"""Hidden states of many batches: in memory, or in a file where they exceed it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from zerolm.io.files import cache_folder


class HiddenStates:
    """Tensors in order, as a list has them; ``on_disk`` they lie in a file that is gone with them.

    One that is put in the place of another has its shape.
    """

    def __init__(self, *, on_disk: bool) -> None:
        self.held: list[Tensor] = []
        self.places: list[tuple[int, torch.Size, torch.device]] = []
        self.file = None
        if on_disk:
            folder = cache_folder("states")
            folder.mkdir(parents=True, exist_ok=True)
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def __len__(self) -> int:
        return len(self.held) if self.file is None else len(self.places)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Tensor:
        if self.file is None:
            return self.held[index]
        start, shape, device = self.places[index]
        self.file.seek(start)
        raw = np.frombuffer(bytearray(self.file.read(4 * shape.numel())), np.float32)
        return torch.from_numpy(raw).reshape(shape).to(device)

    def __setitem__(self, index: int, states: Tensor) -> None:
        if self.file is None:
            self.held[index] = states
            return
        self.file.seek(self.places[index][0])
        self.file.write(states.float().cpu().contiguous().numpy().tobytes())

    def append(self, states: Tensor) -> None:
        if self.file is None:
            self.held.append(states)
            return
        end = 4 * sum(shape.numel() for _, shape, _ in self.places)
        self.places.append((end, states.shape, states.device))
        self[len(self) - 1] = states
