"""A criterion: the choice of KV groups and neurons, and the score of a choice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.units.stream.narrowing import Width


class Criterion(ABC):
    """Chooses ``count`` units of a layer, and scores the choice: higher is better."""

    @abstractmethod
    def choose(self, layer: int, kind: str, count: int) -> Ints:
        """Return the kept units, ascending, (count,); ``kind`` is ``groups`` or ``ffn``."""

    @abstractmethod
    def score(self, layer: int, kind: str, count: int) -> float:
        """Return the score of the units that ``choose`` keeps, comparable between layers and kinds."""

    def loss_increase(self, layer: int, kind: str, count: int) -> float:
        """Return the loss increase of a choice after least squares, in nats per token, if it is estimated."""
        raise NotImplementedError

    def without(self, layer: int) -> float | None:
        """Return the score of a network without the layer; None where it cannot be estimated."""
        return None

    def narrower(self, width: Width) -> float | None:
        """Return the score of a network with a narrower stream; None where it cannot be estimated."""
        return None


@dataclass(frozen=True)
class FirstUnits(Criterion):
    """Keeps the first units, which all score 0; ``removal_score`` is that without a layer, or narrower."""

    removal_score: float | None

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return np.arange(count)

    def score(self, layer: int, kind: str, count: int) -> float:
        return 0.0

    def without(self, layer: int) -> float | None:
        return self.removal_score

    def narrower(self, width: Width) -> float | None:
        return self.removal_score


@dataclass(frozen=True, eq=False)
class Additive(Criterion):
    """A criterion whose scores add up: ``importance[kind][layer]`` is (units,), not negative.

    Units are chosen by ``chosen_by`` where that differs from their scores.
    """

    importance: dict[str, list[Floats]]
    chosen_by: dict[str, list[Floats]] | None = None

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return np.sort(self._orders[kind][layer][:count])

    def score(self, layer: int, kind: str, count: int) -> float:
        return float(self._sums[kind][layer][count])

    def loss_increase(self, layer: int, kind: str, count: int) -> float:
        sums = self._sums[kind][layer]
        return float(sums[-1] - sums[count])

    @cached_property
    def _orders(self) -> dict[str, list[Ints]]:
        """The units in the order in which they are chosen; ties go to the first."""
        chosen_by = self.chosen_by or self.importance
        return {
            kind: [np.argsort(-values, kind="stable") for values in layers]
            for kind, layers in chosen_by.items()
        }

    @cached_property
    def _sums(self) -> dict[str, list[Floats]]:
        """The sums of the scores of the first 0, 1, 2 ... chosen units."""
        return {
            kind: [
                np.concatenate([[0.0], np.cumsum(values[order])])
                for values, order in zip(layers, self._orders[kind], strict=True)
            ]
            for kind, layers in self.importance.items()
        }
