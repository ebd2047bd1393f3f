"""Tiny supernets, and a text and a run for them."""

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.supernet import Supernet
from zerolm.spaces import make_space
from zerolm.training.request import Schedule, TrainingRequest

SIZES: Final[dict[str, Any]] = {
    "depth": 2, "hidden": 16, "heads": 2, "embedding": 6, "positions": 32, "step": 4, "steps": 3
}  # fmt: skip
NAMES: Final = ("elastic", "elastic-causal")
WORDS: Final = 40


def space_of(name: str = "elastic", **more: Any) -> Elastic:
    space = make_space(name, **{**SIZES, "vocab": WORDS, **more})
    assert isinstance(space, Elastic)
    return space


def supernet_of(name: str = "elastic", seed: int = 0, **more: Any) -> Supernet:
    """A supernet in evaluation mode, all of whose weights, gains and offsets are drawn."""
    net = Supernet(space_of(name, **more), seed).train(False)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return net


def run_of(steps: int, **more: Any) -> TrainingRequest:
    return TrainingRequest(steps * 4 * 16, 4, 16, Schedule(1e-2), **{"checkpoints": 4, "measured": 2, **more})


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Drawn(Dataset[dict[str, Tensor]]):
    """Random sequences that are to be told themselves."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        ids = torch.randint(WORDS, (16,), generator=torch.Generator().manual_seed(place))
        return {"input_ids": ids, "labels": ids.clone()}


def text_in(folder: Path, words: int = 4000) -> str:
    """Return the path of a text of a hundred words."""
    file = folder / "text.txt"
    file.write_text(" ".join(f"word{i * i % 97}" for i in range(words)))
    return str(file)
