"""Which layers to cut: plans of equal size, what was foretold of them, and what they did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from cut_capacity import CutCapacity
from measured_cuts import SEQUENCES, measured_losses
from timing import note

from carved.parent import Parent
from carved.writing import Line, compared, heading, kl, row
from zerolm.architecture import Floats, Ints
from zerolm.costs import CostModel
from zerolm.healing.held_out import HeldOut
from zerolm.planning.loss_table import LossTable
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import plan_of
from zerolm.progress import silent
from zerolm.statistics import agreement
from zerolm.units.importance.criterion import Additive, Criterion
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import apply_in_memory

SIZE: Final = 0.7
WITHIN: Final = 0.01
LEAST: Final = 0.125
UNEVEN: Final = (0.05, 1.0)
"""Standard deviations of the logarithms of a plan's widths, from its first to its last."""
JUDGED: Final = 64
SEED: Final = 1
"""Not 0: how the table is interpolated was settled on the plans of that seed."""
ASKED: Final = {"rho": 0.90, "best": 0.12, "repaired": 0.045}


def plans(parent: Parent) -> Iterator[Line]:
    """The table of plans within 70 % of the layers' weights."""
    by = parent.criterion("surgeon")
    assert isinstance(by, Additive)
    tokens = parent.calibration["text"]
    table = measured_losses(parent.model, tokens, by, ["groups", "ffn"], progress=note)
    budget = {"max_body_params": int(SIZE * parent.cost("body_params"))}
    best = plan_of(
        parent.checkpoint, table, SizeRequest.of(budgets=budget, shape="per-layer"), CostModel()
    ).cut
    even = SizeRequest.of(keep={"layers": 1.0}, budgets=budget, shape="uniform")
    uniform = plan_of(parent.checkpoint, table, even, CostModel()).cut
    yield from heading(f"Plans of equal size: {SIZE:.0%} of the layers' weights")
    yield from ranking(parent, table, by)
    yield ""
    yield row("plan", "body parameters", "KL", "asked", "KL, least squares", "asked")
    yield row("---", *["---:"] * 5)
    for name, cut, asked in (("best by the table", best, ASKED), ("uniform", uniform, {})):
        without, with_it = (parent.judged(cut, how).loss for how in ("none", "least-squares"))
        share = parent.cost("body_params", cut) / parent.cost("body_params")
        limits = [
            compared(value, asked.get(key)) for key, value in (("best", without), ("repaired", with_it))
        ]
        yield row(name, f"{share:.1%}", kl(without), limits[0], kl(with_it), limits[1])
        note(f"{name}: {without:.4f} {with_it:.4f}")
    yield ""
    child = apply_in_memory(parent.model, best)
    some = HeldOut(tokens.spread(SEQUENCES), None)
    calibrated = some.measured(child, parent.model, silent)[1]["kl"]
    yield (
        f"The best plan keeps {shown(best)} (KV groups x neurons, layer by layer). The table foretells "
        f"KL {kl(table.predicted(best))} of it; on the table's own tokens it is {kl(calibrated)}. "
        f"Of the uniform plan, {shown(uniform)}, it foretells {kl(table.predicted(uniform))}."
    )


def ranking(parent: Parent, table: LossTable, by: Additive) -> Iterator[Line]:
    """How scores rank random plans by the KL that was measured."""
    tokens = parent.unseen.spread(JUDGED)
    judge, quality, foretold = parent.judge_on(tokens), [], []
    for number, cut in enumerate(random_plans(parent, by)):
        quality.append(-judge.of(apply_in_memory(parent.model, cut)).loss)
        foretold.append(scores(parent, table, by, cut))
        note(f"plan {number + 1}: KL {-quality[-1]:.4f}, foretold {-foretold[-1]['measured table']:.4f}")
    yield (
        f"{len(quality)} random plans within {WITHIN:.0%} of that size, from nearly uniform to very uneven, "
        f"units by output energy, nothing repaired: KL {kl(-max(quality))} to {kl(-min(quality))} on "
        f"{len(tokens)} unseen sequences. How scores rank them, by Spearman's rho with quality:"
    )
    yield ""
    yield row("score of the plan", "rho", "asked")
    yield row("---", "---:", "---:")
    for name in foretold[0]:
        rho = agreement(np.array([each[name] for each in foretold]), np.array(quality)).rho
        asked = ASKED["rho"] if name == "measured table" else None
        yield row(name, f"{rho:.3f}", compared(rho, asked, more=True))


def scores(parent: Parent, table: LossTable, by: Additive, cut: Cut) -> dict[str, float]:
    """What is foretold of a cut; more is better."""
    shares = [
        by.importance[kind][layer.layer][kept].sum() / by.importance[kind][layer.layer].sum()
        for layer in cut.layers
        for kind, kept in kinds(layer).items()
    ]
    return {
        "measured table": -table.predicted(cut),
        "kept share of output energy": float(np.mean(shares)),
        "retained capacity": worth(parent.criterion("capacity"), cut),
        "equation 3 of ZeroLM, literally": worth(CutCapacity.of(parent.checkpoint), cut),
    }


def worth(by: Criterion, cut: Cut) -> float:
    """The sum over layers, for a plan's sizes."""
    return sum(
        by.score(layer.layer, kind, len(kept)) for layer in cut.layers for kind, kept in kinds(layer).items()
    )


def kinds(layer: LayerCut) -> dict[str, Ints]:
    return dict(layer.kept)


def random_plans(parent: Parent, by: Criterion) -> Iterator[Cut]:
    """Cuts of the same size, ever more uneven."""
    generator, count = np.random.default_rng(SEED), parent.scale.plans
    whole, prices = parent.cost("body_params"), unit_prices(parent)
    for uneven in np.linspace(*UNEVEN, count):
        while True:
            cut = parent.cut(by, widths(parent, generator, uneven, prices, (1.0 - SIZE) * whole))
            if abs(parent.cost("body_params", cut) / whole - SIZE) <= WITHIN * SIZE:
                yield cut
                break


def unit_prices(parent: Parent) -> Floats:
    """The body parameters of a KV group and of a neuron, (2,)."""
    sizes = parent.sizes
    whole = [(sizes.kv_heads, sizes.ffn)] * sizes.depth
    fewer = ((sizes.kv_heads - 1, sizes.ffn), (sizes.kv_heads, sizes.ffn - 1))
    by = parent.criterion("prefix")
    total = parent.cost("body_params")
    return np.array([total - parent.cost("body_params", parent.cut(by, [one, *whole[1:]])) for one in fewer])


def widths(
    parent: Parent, generator: np.random.Generator, uneven: float, prices: Floats, dropped: float
) -> list[tuple[int, int]]:
    """Groups and neurons of each layer at random, of which about so many parameters are dropped."""
    units = np.array([parent.sizes.kv_heads, parent.sizes.ffn])
    weights = np.exp(uneven * generator.standard_normal((parent.sizes.depth, 2)))
    shares = scaled(weights, np.tile(units * prices, (len(weights), 1)), dropped)
    groups = np.maximum(1, np.rint(shares[:, 0] * units[0]))
    left = dropped - ((units[0] - groups) * prices[0]).sum()
    neurons = scaled(weights[:, 1:], np.full((len(weights), 1), units[1] * prices[1]), left)[:, 0]
    return [(int(g), round(float(f) * int(units[1]))) for g, f in zip(groups, neurons, strict=True)]


def scaled(weights: Floats, prices: Floats, dropped: float) -> Floats:
    """Shares in proportion to weights, in [1/8, 1], that drop this much of what has these prices."""
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        shares = np.clip(middle * weights, LEAST, 1.0)
        low, high = (middle, high) if ((1.0 - shares) * prices).sum() > dropped else (low, middle)
    return shares


def shown(cut: Cut) -> str:
    return ", ".join(" x ".join(map(str, sizes)) for sizes in cut.sizes.values())
