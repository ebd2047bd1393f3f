"""A supernet with its losses: a path a step, principal components counted, widths grown after each epoch.

Growth is after ELM (arXiv 2510.27037) and the code of its training-free sibling W-PCA. All that a
run knows is in buffers, which its checkpoints hold: one that is resumed goes on with the same paths and grows
the same neurons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import combinations
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.lab.supernets.distillation import OF_PREDICTIONS, FeatureDistillation, Features, watched
from zerolm.lab.supernets.request import Growth, GrowthEpoch, Teaching
from zerolm.lab.supernets.supernet import Path, Supernet, drawn_path, features_of
from zerolm.lab.zero_cost.definitions.activations import spread
from zerolm.networks.modules.layer import Stack, part
from zerolm.training.losses import labelled

CONSTANT: Final = 1e-12
"""Features whose deviations are less than this share of their size do not vary: it is rounding."""


def pca_count(features: Tensor, eta: float) -> int:
    """Return the smallest number of principal components whose share of the variance exceeds ``eta``.

    Of features (n, f), n tokens by f neurons, centred, in float64; 0 where nothing varies. ``ValueError`` for
    features that are not finite.
    """
    values = features.detach().double()
    centred = values - values.mean(0)
    if not bool(torch.isfinite(centred).all()):
        raise ValueError("the features are not finite: the training has diverged")
    if float(centred.abs().max()) <= CONSTANT * float(values.abs().max()):
        return 0
    n, f = centred.shape
    gram = centred.T @ centred if f <= n else centred @ centred.T  # the same eigenvalues but for zeros
    return spread(torch.linalg.eigvalsh(gram), eta)


def growths(depth: int, kinds: int, average: int = 3, epochs: int = 10) -> int:
    """Return the number of widths that grow after an epoch: K = L a n // E, 21 of 12 layers by 6 blocks."""
    return depth * average * kinds // epochs


def grown(widths: Ints, scores: Floats, step: int, largest: int, count: int) -> Ints:
    """Return the widths (layers, kinds) after the ``count`` of best scores that can grow by a ``step`` did.

    Each grows at most once and up to ``largest``; fewer grow where no more can. Of equal scores the earlier
    layer comes first, then the earlier kind; what was never measured has score 0 and comes last.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    able = order[widths.ravel()[order] + step <= largest][: max(count, 0)]
    wider = widths.flatten()
    wider[able] += step
    return wider.reshape(widths.shape)


def mean_params(params: Ints, ends: int = 0) -> float:
    """Return the mean parameters of all paths, each equally likely, exactly: growth stops beyond a budget.

    ``params`` (layers, kinds) are those of each block at its width, ``ends`` those outside the layers. The
    mean of 1000 drawn paths, by which the authors' code decides, is an estimate of it.
    """
    return ends + int(params.sum()) / int(params.shape[1])


def diversity(outputs: Sequence[Tensor]) -> float:
    """Return the mean cosine similarity of each two blocks' outputs (b, t, d) for the same input.

    The mean over tokens and pairs, from -1 to 1; less is more diverse (ELM, arXiv 2510.27037, figure 6).
    """
    pairs = combinations([output.detach().double() for output in outputs], 2)
    return float(torch.stack([cosine_similarity(a, b, dim=-1).mean() for a, b in pairs]).mean())


class PathLearner(nn.Module):
    """A network of the space, trained alone by the same losses as a supernet."""

    def __init__(
        self,
        architecture: Architecture,
        network: Stack,
        teaching: Teaching,
        compare: FeatureDistillation | None = None,
    ) -> None:
        super().__init__()
        self.blocks = [layer["block"] for layer in architecture.choices["layers"]]
        self.network, self.teaching, self.compare = network, teaching, compare

    def forward(self, input_ids: Tensor, labels: Tensor, **signals: Any) -> dict[str, Tensor]:
        """Return each loss of sequences (b, t); ``theirs`` and ``logits`` are the signals of the teacher."""
        layers: list[Any] = list(self.network.layers)
        ours = features_of(self.network, layers, layers, input_ids)
        return losses_of(self, ours, labels, self.blocks, **signals)


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
        teaching: Teaching,
        growth: Growth,
        steps: int,
        *,
        seed: int = 0,
        accumulate: int = 1,
        compare: FeatureDistillation | None = None,
    ) -> None:
        super().__init__()
        self.supernet, self.teaching, self.growth, self.compare = supernet, teaching, growth, compare
        self.seed, self.accumulate = seed, accumulate
        self.epoch = max(1, steps // growth.epochs) * accumulate
        shape, epochs = supernet.shape, growth.epochs
        buffers = {
            "number": torch.zeros((), dtype=torch.int64),
            "sums": torch.zeros(shape, dtype=torch.int64),
            "counts": torch.zeros(shape, dtype=torch.int64),
            "widths_over": supernet.widths.expand(epochs, *shape).clone(),
            "scores_over": torch.zeros((epochs, *shape), dtype=torch.float64),
            "diversity_over": torch.zeros((epochs, shape[0]), dtype=torch.float64),
        }
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, input_ids: Tensor, labels: Tensor, **signals: Any) -> dict[str, Tensor]:
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
        return losses_of(self, ours, labels, blocks, **signals)

    @contextmanager
    def _counting(self, path: Path) -> Iterator[None]:
        """Within, the principal components of the FFN inputs to the nonlinearity are counted on a path."""
        layers = [self.supernet.layer(layer, kind) for layer, kind in enumerate(path)]
        with watched([activated(layer) for layer in layers]) as features:
            yield
        for layer, kind in enumerate(path):
            block, _ = self.supernet.space.kinds[kind]
            self.sums[layer, kind] += pca_count(features[layer].flatten(0, 1), self.growth.rich(block))
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
        most = growth.mean_params
        if most is None or mean_params(self.supernet.params(), ends) <= most:
            count = growths(*self.supernet.shape, growth.growth, growth.epochs)
            old, ranks = self.supernet.widths.cpu().numpy(), scores.cpu().numpy()
            wider = grown(old, ranks, space.step, space.largest, count)
            self.supernet.widths.copy_(torch.from_numpy(wider))
        self.widths_over[epoch + 1 :] = self.supernet.widths

    def history(self) -> list[GrowthEpoch]:
        """Return of every epoch widths, mean scores (0: never drawn), diversity, mean parameters of paths."""
        net, over = self.supernet, (self.widths_over, self.scores_over, self.diversity_over)
        means = [mean_params(net.params(widths), net.ends_params) for widths in self.widths_over]
        columns = (*(each.tolist() for each in over), means)
        return [GrowthEpoch(epoch, *row) for epoch, row in enumerate(zip(*columns, strict=True), 1)]


def activated(layer: nn.Module) -> nn.Module:
    """Return the matrix of a block's FFN on whose output the nonlinearity acts."""
    ffn = part(layer, "ffn")
    return ffn.get_submodule("gate" if hasattr(ffn, "gate") else "up")


def losses_of(
    learner: PathLearner | SupernetLearner,
    ours: tuple[Features, Tensor],
    labels: Tensor,
    blocks: Sequence[str],
    theirs: Features | None = None,
    logits: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return each loss by name; ``theirs`` and ``logits`` are the signals of the teacher."""
    (features, predicted), teaching, compare = ours, learner.teaching, learner.compare
    losses = {} if teaching.teacher_only else {"cross-entropy": labelled(predicted, labels)}
    if compare is not None and theirs is not None:
        losses |= compare(features, theirs, blocks)
        if teaching.predictions and logits is not None:
            loss = OF_PREDICTIONS[compare.kind](predicted, logits, 1.0)
            losses["predictions"] = teaching.predictions * loss
    return losses
