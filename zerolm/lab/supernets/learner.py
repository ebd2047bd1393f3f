"""A supernet with its losses: a path a step, principal components counted, widths grown after each epoch.

All that a run knows is in buffers, which its checkpoints hold: one that is resumed goes on with the same
paths and grows the same neurons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.lab.supernets.distillation import OF_PREDICTIONS, FeatureDistillation, Features, Kind, watched
from zerolm.lab.supernets.growth import diversity, grown, growths, mean_params, pca_count
from zerolm.lab.supernets.supernet import Path, Supernet, drawn_path, features_of
from zerolm.networks.modules.layer import Stack, part
from zerolm.training.losses import labelled

ETA: Final = {"bert": 0.99, "mobile": 0.9, "llama": 0.99}
"""The share of the variance that counts as rich, by block."""


@dataclass(frozen=True)
class Growth:
    """How widths grow: ``average`` a block over all ``epochs``, measured on every ``every``-th step.

    Nothing grows once the paths have more than ``most`` parameters in the mean, None for no such limit, nor
    after the last epoch: what would grow then is never trained.
    """

    epochs: int = 10
    average: int = 3
    every: int = 30
    most: int | None = None
    eta: Mapping[str, float] = field(default_factory=lambda: dict(ETA))
    fixed: bool = False
    """Widths stay as they are; all is measured all the same."""


@dataclass(frozen=True)
class Aim:
    """The losses: of the text itself, and of a teacher's features, with its predictions ``weighed``."""

    text: bool = True
    distillation: Kind | None = None
    predictions: float = 0.0

    def __post_init__(self) -> None:
        if not self.text and self.distillation is None:
            raise ValueError("nothing is to be learned: neither the text nor a teacher")

    def check_teacher(self, teacher: str | None) -> None:
        """Raise ``ValueError`` where a teacher is named and not used, or the other way round."""
        if (self.distillation is None) != (teacher is None):
            raise ValueError(
                f"the teacher {teacher!r} is named, but no distillation; relational and classical are known"
                if teacher
                else f"{self.distillation} distillation needs a teacher: name the folder of one"
            )

    def losses(
        self,
        ours: tuple[Features, Tensor],
        labels: Tensor,
        blocks: Sequence[str],
        compare: FeatureDistillation | None,
        theirs: Features | None,
        logits: Tensor | None,
    ) -> dict[str, Tensor]:
        """Return each loss by name; ``theirs`` and ``logits`` are the signals of the teacher."""
        features, predicted = ours
        losses = {"cross-entropy": labelled(predicted, labels)} if self.text else {}
        if self.distillation is not None and compare is not None:
            assert theirs is not None
            losses |= compare(features, theirs, blocks)
            if self.predictions:
                assert logits is not None
                loss = OF_PREDICTIONS[self.distillation](predicted, logits, 1.0)
                losses["predictions"] = self.predictions * loss
        return losses


class PathLearner(nn.Module):
    """A network of the space, trained alone by the same losses as a supernet."""

    def __init__(
        self, architecture: Architecture, network: Stack, aim: Aim, compare: FeatureDistillation | None = None
    ) -> None:
        super().__init__()
        self.blocks = [layer["block"] for layer in architecture.choices["layers"]]
        self.network, self.aim, self.compare = network, aim, compare

    def forward(
        self, input_ids: Tensor, labels: Tensor, theirs: Features | None = None, logits: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return each loss of sequences (b, t)."""
        layers: list[Any] = list(self.network.layers)
        ours = features_of(self.network, layers, layers, input_ids)
        return self.aim.losses(ours, labels, self.blocks, self.compare, theirs, logits)


class SupernetLearner(nn.Module):
    """A supernet that draws a path for every step of training, and grows.

    ``steps`` are those of the run, ``accumulate`` how many batches one is of.
    """

    number: Tensor
    sums: Tensor
    counts: Tensor
    widths_over: Tensor
    scores_over: Tensor
    diversity_over: Tensor

    def __init__(
        self,
        supernet: Supernet,
        aim: Aim,
        growth: Growth,
        steps: int,
        *,
        seed: int = 0,
        accumulate: int = 1,
        compare: FeatureDistillation | None = None,
    ) -> None:
        super().__init__()
        self.supernet, self.aim, self.growth, self.compare = supernet, aim, growth, compare
        self.seed, self.accumulate = seed, accumulate
        self.epoch = max(1, steps // growth.epochs) * accumulate
        shape, zero = supernet.shape, torch.zeros
        self.register_buffer("number", torch.zeros((), dtype=torch.int64))
        self.register_buffer("sums", zero(shape, dtype=torch.int64))
        self.register_buffer("counts", zero(shape, dtype=torch.int64))
        self.register_buffer("widths_over", supernet.widths.expand(growth.epochs, *shape).clone())
        self.register_buffer("scores_over", zero((growth.epochs, *shape), dtype=torch.float64))
        self.register_buffer("diversity_over", zero((growth.epochs, shape[0]), dtype=torch.float64))

    def forward(
        self, input_ids: Tensor, labels: Tensor, theirs: Features | None = None, logits: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return each loss of sequences (b, t) on the path of this step."""
        number = int(self.number)
        path = drawn_path(self.supernet.shape, self.seed, number // self.accumulate)
        epoch, step = divmod(number, self.epoch)
        if self.training and step == 0 and 0 < epoch < self.growth.epochs:
            self.end_epoch(epoch - 1, input_ids, path)
        measured = self.training and (number // self.accumulate) % self.growth.every == 0
        with self._counting(path) if measured else nullcontext():
            ours = self.supernet.features(input_ids, path)
        self.number += self.training
        blocks = [self.supernet.space.kinds[kind][0] for kind in path]
        return self.aim.losses(ours, labels, blocks, self.compare, theirs, logits)

    @contextmanager
    def _counting(self, path: Path) -> Iterator[None]:
        """Within, the principal components of the FFN inputs to the nonlinearity are counted on a path."""
        layers = [self.supernet.layer(layer, kind) for layer, kind in enumerate(path)]
        with watched([activated(layer) for layer in layers]) as features:
            yield
        for layer, kind in enumerate(path):
            block, _ = self.supernet.space.kinds[kind]
            self.sums[layer, kind] += pca_count(features[layer].flatten(0, 1), self.growth.eta[block])
            self.counts[layer, kind] += 1

    @torch.no_grad()
    def end_epoch(self, epoch: int, input_ids: Tensor, path: Path) -> None:
        """Keep what an epoch has measured, let the widths grow for the next, and begin to count anew."""
        growth, space, ends = self.growth, self.supernet.space, self.supernet.ends_params
        scores = self.sums / self.counts.clamp_min(1)  # (layers, kinds), 0 where nothing was counted
        self.scores_over[epoch] = scores
        behind = self.supernet.behind(input_ids, path)
        alike = [diversity(outputs) if len(outputs) > 1 else 1.0 for outputs in behind]
        self.diversity_over[epoch] = torch.tensor(alike)
        self.sums.zero_()
        self.counts.zero_()
        if epoch + 1 == growth.epochs:
            return
        full = growth.most is not None and mean_params(self.supernet.params(), ends) > growth.most
        if not growth.fixed and not full:
            count = growths(*self.supernet.shape, growth.average, growth.epochs)
            old, ranks = self.supernet.widths.cpu().numpy(), scores.cpu().numpy()
            wider = grown(old, ranks, space.step, space.largest, count)
            self.supernet.widths.copy_(torch.from_numpy(wider))
        self.widths_over[epoch + 1 :] = self.supernet.widths

    def history(self) -> list[dict[str, Any]]:
        """Return of every epoch widths, mean scores (0: never drawn), diversity, mean parameters of paths."""
        return [
            {
                "epoch": epoch + 1,
                "widths": widths.tolist(),
                "scores": scores.tolist(),
                "diversity": d.tolist(),
                "mean_params": mean_params(self.supernet.params(widths), self.supernet.ends_params),
            }
            for epoch, (widths, scores, d) in enumerate(
                zip(self.widths_over, self.scores_over, self.diversity_over, strict=True)
            )
        ]


def activated(layer: nn.Module) -> nn.Module:
    """Return the matrix of a block's FFN on whose output the nonlinearity acts."""
    ffn = part(layer, "ffn")
    return ffn.get_submodule("gate" if hasattr(ffn, "gate") else "up")
