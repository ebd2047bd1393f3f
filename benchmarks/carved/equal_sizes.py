"""Rivals at the same number of parameters, of the layers or of all that is stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from timing import note
from transformers import AutoModelForCausalLM

import zerolm
from carved.bench import Bench, Learnt
from carved.flap import flap
from carved.judging import Quality
from carved.minitron import minitron
from carved.network import Network
from carved.ours import Shape, carved, ours
from carved.parent import LENGTH
from carved.slicegpt import slicegpt
from carved.writing import Line, heading, kl, row
from zerolm.carving.kept_units import Cut
from zerolm.carving.planning.sensitivity import LossTable, measured_losses
from zerolm.carving.planning.sizes import plan_of
from zerolm.carving.request import SizeRequest
from zerolm.costs import CostModel
from zerolm.io.cache import ArrayCache

STEP: Final = 32
"""Of hidden widths that are tried."""
PLANNED: Final = 32
"""Sequences that the table of today's plans is measured on."""
REPAIR: Final = "outputs and reads"


@dataclass(frozen=True)
class Size:
    """A share of the parameters of the layers (``body_params``) or of all (``params``)."""

    cost: str
    share: float

    def __str__(self) -> str:
        return f"{self.share:.0%} of {'the layers' if self.cost == 'body_params' else 'all parameters'}"

    def of(self, network: Network) -> int:
        """Return what counts of a network."""
        return network.body if self.cost == "body_params" else network.size


SIZES: Final = (
    *(Size("body_params", share) for share in (0.75, 0.5, 0.4)),
    *(Size("params", share) for share in (0.75, 0.5)),
)


@dataclass(frozen=True)
class Result:
    """A method's child: its shape in words, its share of the parent, and what it is worth."""

    method: str
    shape: str
    share: float
    quality: Quality


def measured_table(bench: Bench) -> LossTable:
    """The losses of single cuts that today's plans add up."""
    learnt = bench.learnt
    tokens = learnt.tokens.spread(PLANNED)
    by = learnt.calibrated.by
    cache = ArrayCache.of("today's table", bench.parent.folder.name, tokens.digest())
    return measured_losses(bench.parent.model, tokens, by, ["groups", "ffn"], cache=cache, progress=note)


def tables(found: Mapping[Size, list[Result]]) -> Iterator[Line]:
    """The losses of all methods beside each other, then a table for each size."""
    methods = list(dict.fromkeys(result.method for rows in found.values() for result in rows))
    losses = {
        (size, result.method): kl(result.quality.loss) for size, rows in found.items() for result in rows
    }
    yield from heading("Equal sizes: KL to the parent")
    yield row("method", *map(str, found))
    yield row("---", *["---:"] * len(found))
    for method in methods:
        yield row(method, *(losses.get((size, method), "") for size in found))
    for size, rows in found.items():
        yield ""
        yield from heading(str(size))
        yield row("method", "shape", "share kept", "KL", "perplexity")
        yield row("---", "---", *["---:"] * 3)
        for result in rows:
            loss, perplexity = kl(result.quality.loss), f"{result.quality.perplexity:.2f}"
            yield row(result.method, result.shape, f"{result.share:.2%}", loss, perplexity)


def results(bench: Bench, size: Size, table: LossTable) -> Iterator[Result]:
    """All methods at one size, those of others first."""
    budget = int(size.share * size.of(bench.network))

    def result(method: str, child: Network, shape: object) -> Result:
        quality = bench.judged(f"{size}: {method}", child)
        assert size.of(child) <= budget, f"{method} has {size.of(child)} parameters, not {budget}"
        return Result(method, str(shape), size.of(child) / size.of(bench.network), quality)

    learnt = bench.learnt
    width = sliced_width(bench, size, budget)
    shape = Shape(width, bench.whole.ffn, bench.whole.groups)
    yield result("SliceGPT", slicegpt(learnt.calibrated.seen, learnt.calibrated.cut(shape), width), shape)
    for repair, name in (("none", "Minitron"), ("outputs", "Minitron, our least squares")):

        def channels(on: Learnt, shape: Shape, repair: str = repair) -> Network:
            return minitron(on.activations, shape, repair)

        shape = bench.best(stock_shapes(bench, size, budget, tied=True), channels)
        yield result(name, channels(learnt, shape), shape)
    outside = bench.network.size - bench.network.body if size.cost == "params" else 0
    child = flap(learnt.fluctuations, budget - outside)
    yield result("FLAP, adaptive", child, "layers of their own sizes")
    child = flap(learnt.fluctuations, budget - outside, adaptive=False)
    yield result("FLAP, uniform", child, shape_of(child))
    yield from today(bench, size, budget, table)
    for tied in (True, False) if size.cost == "params" else (False,):

        def narrow(on: Learnt, shape: Shape, tied: bool = tied) -> Network:
            return ours(on.calibrated, shape, tied, REPAIR)

        shape = bench.best(stock_shapes(bench, size, budget, tied=tied), narrow)
        child = carved(learnt.calibrated, shape, tied)
        name = f"zerolm with hidden, best shape tried, {'tied' if tied else 'untied'}"
        share = stock_size(bench, size, shape, tied=tied) / size.of(bench.network)
        yield Result(name, str(shape), share, bench.judged(f"{size}: {name}", child))
    yield planned(bench, size, budget)


def planned(bench: Bench, size: Size, budget: int) -> Result:
    """What ``zerolm carve`` plans and writes within a budget, opened again by stock software."""
    parent, scale = bench.parent, bench.parent.scale
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "child"
        made = zerolm.carve(
            parent.folder,
            place,
            **{f"max_{size.cost}": budget},
            keep_layers=1.0,
            text=parent.texts.seen,
            sequences=scale.calibration,
            length=LENGTH,
        )
        child = AutoModelForCausalLM.from_pretrained(place).eval()
        quality = bench.judged(f"{size}: zerolm carve", child)
    config = child.config
    shape = Shape(config.hidden_size, config.intermediate_size, config.num_key_value_heads)
    head = "tied" if config.tie_word_embeddings else "untied"
    share = made.costs["child"][size.cost] / made.costs["parent"][size.cost]
    return Result("**`zerolm carve`, its own plan, opened again**", f"{shape}, {head}", share, quality)


def today(bench: Bench, size: Size, budget: int, table: LossTable) -> Iterator[Result]:
    """KV groups and FFN by the measured table, as zerolm plans them without a hidden width."""
    parent, budgets = bench.parent, {f"max_{size.cost}": budget}
    requests = {"per layer": SizeRequest("per-layer", budgets=budgets)}
    if size.cost == "body_params":
        requests["uniform"] = SizeRequest("uniform", keep_layers=1.0, budgets=budgets)
    for name, request in requests.items():
        cut = plan_of(parent.checkpoint, table, request, CostModel()).cut
        quality = parent.judged(cut, "least-squares")
        note(f"{size}: {name}: {quality.loss:.4f}")
        share = parent.cost(size.cost, cut) / parent.cost(size.cost)
        yield Result(f"KV groups and FFN, least squares, {name}", cut_shape(cut), share, quality)


def cut_shape(cut: Cut) -> str:
    if cut.uniform:
        groups, ffn = cut.largest
        return str(Shape(cut.hidden, ffn, groups))
    return "layers of their own sizes"


def shape_of(child: Network) -> Shape:
    block = child.blocks[0]
    return Shape(child.embedding.shape[1], len(block.gate), len(block.k) // child.head_size)


def stock_size(bench: Bench, size: Size, shape: Shape, *, tied: bool) -> int:
    """Return the parameters of a stock child."""
    network, sizes = bench.network, bench.parent.sizes
    rows = shape.groups * 2 * (sizes.heads_per_group + 1) * sizes.head_size + 3 * shape.ffn + 2
    if size.cost == "body_params":
        return sizes.depth * shape.hidden * rows
    return shape.hidden * (sizes.depth * rows + len(network.embedding) * (1 if tied else 2) + 1)


def stock_shapes(bench: Bench, size: Size, budget: int, *, tied: bool) -> list[Shape]:
    """Return the widest stream with the whole FFN, then wider ones in steps with the widest FFN that fits."""
    whole = bench.whole
    ffns = range(whole.ffn, whole.ffn // 8 - 1, -1)
    shapes = []
    for hidden in range(1, whole.hidden + 1):
        fitting = (Shape(hidden, ffn, whole.groups) for ffn in ffns)
        shape = next((s for s in fitting if stock_size(bench, size, s, tied=tied) <= budget), None)
        if shape is None:
            continue
        if shape.ffn == whole.ffn:
            shapes = [shape]
        elif hidden % STEP == 0:
            shapes.append(shape)
    return shapes


def sliced_width(bench: Bench, size: Size, budget: int) -> int:
    """Return how many components SliceGPT may keep everywhere, Q_l^T Q_l+1 counted."""
    sizes, network = bench.parent.sizes, bench.network
    rows = network.body // sizes.hidden - 2 * sizes.depth  # matrices without the gains
    head = 2 * len(network.embedding) if size.cost == "params" else 0
    widths = range(1, sizes.hidden + 1)
    return max(k for k in widths if k * (rows + head) + 2 * sizes.depth * k * k <= budget)
