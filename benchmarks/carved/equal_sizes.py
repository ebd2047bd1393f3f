"""Rivals at the same number of parameters, of the layers or of all that is stored."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from measured_cuts import measured_losses
from timing import note
from transformers import AutoModelForCausalLM

import zerolm
from carved.bench import Bench, Learnt
from carved.flap import flap
from carved.judging import Quality
from carved.minitron import minitron
from carved.network import Network
from carved.ours import Shape
from carved.parent import LENGTH
from carved.slicegpt import slicegpt
from carved.writing import Line, heading, kl, row
from zerolm.costs import CostModel
from zerolm.io.cache import ArrayCache
from zerolm.planning.loss_table import LossTable
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import plan_of
from zerolm.units.kept_units import Cut

STEP: Final = 32
"""Of hidden widths that are tried."""
PLANNED: Final = 32
"""Sequences that the table of today's plans is measured on."""
OURS: Final = "**`zerolm carve`, its own plan, opened again**"
TODAY: Final = "KV groups and FFN, least squares"


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
    if not found:
        return
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


def methods(size: Size) -> dict[str, Callable[[Bench], Result]]:
    """Return what makes each row of a size, the most wanted first."""
    rows: dict[str, Callable[[Bench], Result]] = {
        OURS: partial(planned, size=size),
        f"{TODAY}, per layer": partial(today, size=size, shape="per-layer"),
        "SliceGPT": partial(of_slicegpt, size=size),
        "Minitron, our least squares": partial(of_minitron, size=size, repair="outputs"),
        "FLAP, uniform": partial(of_flap, size=size, adaptive=False),
        "Minitron": partial(of_minitron, size=size, repair="none"),
        "FLAP, adaptive": partial(of_flap, size=size, adaptive=True),
    }
    if size.cost == "body_params":
        rows[f"{TODAY}, uniform"] = partial(today, size=size, shape="uniform")
    return rows


def result(bench: Bench, size: Size, method: str, child: Network, shape: object) -> Result:
    """Return what a rival's child is worth; ``AssertionError`` where it is larger than asked."""
    quality, budget = bench.judged(f"{size}: {method}", child), budget_of(bench, size)
    assert size.of(child) <= budget, f"{method} has {size.of(child)} parameters, not {budget}"
    return Result(method, str(shape), size.of(child) / size.of(bench.network), quality)


def budget_of(bench: Bench, size: Size) -> int:
    return int(size.share * size.of(bench.network))


def of_slicegpt(bench: Bench, size: Size) -> Result:
    width = sliced_width(bench, size, budget_of(bench, size))
    shape, calibrated = Shape(width, bench.whole.ffn, bench.whole.groups), bench.learnt.calibrated
    child = slicegpt(calibrated.seen, calibrated.cut(shape), width)
    return result(bench, size, "SliceGPT", child, shape)


def of_minitron(bench: Bench, size: Size, repair: str) -> Result:
    def channels(on: Learnt, shape: Shape) -> Network:
        return minitron(on.activations, shape, repair)

    shape = bench.best(stock_shapes(bench, size, budget_of(bench, size), tied=True), channels)
    name = "Minitron" if repair == "none" else "Minitron, our least squares"
    return result(bench, size, name, channels(bench.learnt, shape), shape)


def of_flap(bench: Bench, size: Size, adaptive: bool) -> Result:
    outside = bench.network.size - bench.network.body if size.cost == "params" else 0
    child = flap(bench.learnt.fluctuations, budget_of(bench, size) - outside, adaptive=adaptive)
    shape = "layers of their own sizes" if adaptive else shape_of(child)
    return result(bench, size, f"FLAP, {'adaptive' if adaptive else 'uniform'}", child, shape)


def planned(bench: Bench, size: Size) -> Result:
    """What ``zerolm carve`` plans and writes within a budget, opened again by stock software."""
    parent, scale, budget = bench.parent, bench.parent.scale, budget_of(bench, size)
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
    return Result(OURS, f"{shape}, {head}", share, quality)


def today(bench: Bench, size: Size, shape: str) -> Result:
    """KV groups and FFN by the measured table, as zerolm plans them without a hidden width."""
    parent, budgets = bench.parent, {f"max_{size.cost}": budget_of(bench, size)}
    keep = {"layers": 1.0} if shape == "uniform" else {}
    table, request = measured_table(bench), SizeRequest.of(keep, budgets, shape=shape)
    cut = plan_of(parent.checkpoint, table, request, CostModel()).cut
    quality = parent.judged(cut, "least-squares")
    note(f"{size}: {shape}: {quality.loss:.4f}")
    share = parent.cost(size.cost, cut) / parent.cost(size.cost)
    return Result(f"{TODAY}, {shape.replace('-', ' ')}", cut_shape(cut), share, quality)


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
