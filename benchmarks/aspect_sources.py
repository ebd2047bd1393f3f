"""Losses that forms of depth against width are fitted to and judged on: pairs of about equal size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from aspect_form import COOLED, Curves, Driver, ShapeForm, Trainings, fit, gemstones
from llama_small import (
    FOLDER,
    LLAMA,
    LONGER,
    LONGER_BATCH,
    LONGER_LARGE,
    LONGER_SMALL,
    Plan,
    finished,
    read_rows,
    tokens_of,
)
from scipy.stats import kendalltau

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.groundtruth.reader import SHIPPED, locate, quality, read, views

ALIKE: Final = 0.05
"""Networks are paired where their bodies, or all their parameters, differ by so much at most."""
DRAWS: Final = 2000
FEWEST: Final = 3
"""Pairs that a source has at least."""
FEW, MANY = 20.5e9, 49e9
"""Tokens up to which, and from which, the Gemstones are judged apart."""
PAIR_TOKENS, PAIR_STEPS = 100e9, 25e3
"""Of ``decoder_pairs``: 100 B tokens; the batch is not printed, 4 M tokens are assumed."""
Score = Callable[[Curves], Floats]


@dataclass(frozen=True, eq=False)
class Source:
    """Curves by a name; those of one ``family`` share networks or their making, and are hidden together."""

    name: str
    family: str
    curves: Curves

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """Return the rows of pairs: of one level and about one size."""
        of, levels = self.curves.trainings, self.curves.levels
        i, j = np.triu_indices(len(levels), 1)
        body, total = of.body, of.body + of.total
        near = np.minimum(np.abs(body[i] - body[j]), np.abs(total[i] - total[j])) <= np.log1p(ALIKE)
        kept = near & (levels[i] == levels[j])
        return i[kept], j[kept]


def trained(plans: Sequence[Plan]) -> Curves | None:
    """Return the losses at the end of the finished networks of plans, by the mean of their seeds."""
    architectures: list[Architecture] = []
    names: list[str] = []
    numbers: list[tuple[int, int, float]] = []
    for plan in plans:
        rows = finished(read_rows(FOLDER / plan.rows))
        for one in plan.planned():
            if one.id in rows:
                losses = [told["losses"][max(told["losses"], key=int)] for told in rows[one.id]]
                architectures.append(one.architecture)
                names.append(one.id)
                numbers.append((tokens_of(plan.request), plan.request.steps, float(np.mean(losses))))
    if not names:
        return None
    tokens, steps, losses_of = zip(*numbers, strict=True)
    levels = np.array([1e7 * t + s for t, s in zip(tokens, steps, strict=True)])
    networks = np.unique(names, return_inverse=True)[1]
    return Curves(Trainings.of(architectures, tokens, steps), np.array(losses_of), levels, networks)


def published_pairs() -> Curves:
    truth = read(SHIPPED / "decoder_pairs.json")
    (view,) = views(truth)
    groups = [entry.group or "" for entry in truth.architectures]
    count = len(groups)
    return Curves(
        Trainings.of(view.architectures, [int(PAIR_TOKENS)] * count, [int(PAIR_STEPS)] * count),
        np.array([entry.results["loss"] for entry in truth.architectures]),
        np.unique(groups, return_inverse=True)[1].astype(float),
        np.arange(count),
    )


OTHERS: Final = ("gpt2_wt103", "gpt2_lm1b", "transformer_xl_wt103", "transformer_xl_lm1b")
"""Published decoders of other kinds, whose layers have heads and an FFN of their own; how long they were
trained is not read, so that forms are judged without it."""


def others() -> list[Source]:
    """Return the published decoders of other kinds."""
    told = []
    for name in OTHERS:
        truth = read(locate(name, None))
        (view, *_) = views(truth)
        count, losses = len(view.architectures), -quality(truth, truth.metric_of(None))
        told.append(
            Source(name, name, Curves(Trainings.of(view.architectures, [1] * count, [1] * count), losses,
                                      np.zeros(count), np.arange(count)))
        )  # fmt: skip
    return told


def sources(file: Path) -> list[Source]:
    """Return all that is judged on; runs that have not ended are left out."""
    constant, cooled = gemstones(file), gemstones(file, COOLED)
    every = [
        ("Gemstones, up to 20 B", "Gemstones", constant.at(constant.levels < FEW)),
        ("Gemstones, from 50 B", "Gemstones", constant.at(constant.levels > MANY)),
        ("Gemstones, cooled down, 11 to 110 B", "Gemstones", cooled),
        ("llama_small, 3 M", "llama_small", trained([LLAMA])),
        ("llama_small, 9 M, 2,197 steps", "llama_small", trained([LONGER, LONGER_SMALL, LONGER_LARGE])),
        ("llama_small, 9 M, 732 steps", "llama_small", trained([LONGER_BATCH])),
        ("decoder_pairs, 100 B", "decoder_pairs", published_pairs()),
    ]
    known = [Source(name, family, curves) for name, family, curves in every if curves is not None]
    return [source for source in known if len(source.pairs[0]) >= FEWEST]


def geo(curves: Curves) -> Floats:
    return curves.trainings.geo


def params(curves: Curves) -> Floats:
    return curves.trainings.body + curves.trainings.total


def body_params(curves: Curves) -> Floats:
    return curves.trainings.body


def width(curves: Curves) -> Floats:
    return curves.trainings.hidden


def depth_width2(curves: Curves) -> Floats:
    return 3 * curves.trainings.hidden - curves.trainings.aspect


RIVALS: Final[Mapping[str, Score]] = {
    "geo": geo, "params": params, "body_params": body_params, "width": width, "L d^2": depth_width2,
}  # fmt: skip


def as_they_are(curves: Curves) -> Curves:
    return curves


def by_form(form: ShapeForm) -> Score:
    return lambda curves: form.score(curves.trainings)


@dataclass(frozen=True)
class Variant:
    """A form as it is judged: its driver, and how it sees the curves that it is fitted to and those it "
    "scores."""

    name: str
    driver: Driver
    fitted_to: Callable[[Curves], Curves] = as_they_are
    scored: Callable[[Curves], Curves] = as_they_are

    def score(self, seen: Curves) -> Score:
        """Return the score of the form that is fitted to some curves."""
        form = fit(self.driver, self.fitted_to(seen))
        return lambda curves: form.score(self.scored(curves).trainings)


def unseen_scores(variant: Variant, seen: Curves, source: Source) -> Floats:
    """Return scores (2, n) of a source's pairs by forms that were fitted without either network."""
    i, j = source.pairs
    numbers = np.unique(seen.networks).tolist()
    scores, done = np.zeros((2, len(i))), dict[tuple[int, int], Floats]()
    for place, two in enumerate(zip(source.curves.networks[i], source.curves.networks[j], strict=True)):
        pair = (int(min(two)), int(max(two)))
        if pair not in done:
            others = seen.of_networks([number for number in numbers if number not in pair])
            done[pair] = variant.score(others)(source.curves)
        scores[:, place] = done[pair][[i[place], j[place]]]
    return scores


@dataclass(frozen=True)
class Verdict:
    """The share of pairs that are ordered rightly, plain and weighed by the difference of losses, and tau-b.

    ``gain`` is of the plain share over that of geo, with its 95 % interval by draws of networks.
    """

    pairs: int
    share: float
    weighed: float
    tau: float
    gain: tuple[float, float, float]


def right(scores: Floats, losses: Floats) -> Floats:
    """Return 1 for each pair (2, n) that is ordered rightly, 1/2 where the score ties."""
    ahead = np.sign(np.round(scores[0] - scores[1], 9)) * np.sign(losses[1] - losses[0])
    return np.asarray((1 + ahead) / 2)


def judge(source: Source, score: Score, scores: Floats | None = None) -> Verdict:
    """Return how a score, or given ``scores`` of the pairs (2, n), orders the pairs of a source."""
    curves, pairs = source.curves, source.pairs
    values = score(curves)
    of_pairs = np.stack([values[pairs[0]], values[pairs[1]]]) if scores is None else scores
    losses = np.stack([curves.losses[pairs[0]], curves.losses[pairs[1]]])
    theirs = np.stack([curves.trainings.geo[pairs[0]], curves.trainings.geo[pairs[1]]])
    good, gaps = right(of_pairs, losses), np.abs(losses[0] - losses[1])
    return Verdict(
        len(good),
        float(good.mean()),
        float((good * gaps).sum() / gaps.sum()),
        float("nan") if scores is not None else _tau(values, curves),
        gain(curves, pairs, good - right(theirs, losses)),
    )


def gain(curves: Curves, pairs: tuple[Ints, Ints], more: Floats) -> tuple[float, float, float]:
    """Return the mean of a number a pair, and its interval where networks are drawn anew."""
    numbers, places = np.unique(curves.networks, return_inverse=True)
    rng = np.random.default_rng(0)
    draws = rng.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), DRAWS)
    weights = draws[:, places[pairs[0]]] * draws[:, places[pairs[1]]]
    totals = weights.sum(axis=1)
    means = (weights @ more)[totals > 0] / totals[totals > 0]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(more.mean()), float(low), float(high)


def _tau(values: Floats, curves: Curves) -> float:
    """Return the mean over levels of tau-b with the loss, all sizes together."""
    taus = [
        kendalltau(values[curves.levels == level].round(9), -curves.losses[curves.levels == level]).statistic
        for level in np.unique(curves.levels)
    ]
    return float(np.mean(taus))
