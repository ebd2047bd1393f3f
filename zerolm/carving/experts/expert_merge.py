"""Merging: what leaves is taken into the experts that stay, layer after layer (REAM).

https://arxiv.org/abs/2604.04356: experts that stay are centroids, each of which takes those that are like it
(``ream``). Gates, up and down projections, and biases within, become means by salience, after each expert's
neurons were put into the order of the centroid's; its row and its bias of the router stay as they are. What
experts do is seen on the stream that layers already merged send. Decided here: salience is the mean of g|f|
(REAP) on that stream, also where another criterion chose the experts that stay; neurons are compared on
``SAMPLED`` tokens at most, of which those count that are sent to either of two experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from zerolm.architecture import Ints
from zerolm.carving.experts.expert_neurons import Neurons, check_inside
from zerolm.carving.experts.expert_use import ExpertSums, experts_of, summing
from zerolm.carving.experts.expert_worth import EXPERT_CRITERIA, REAP
from zerolm.carving.experts.fewer_experts import (
    AXIS,
    ROUTER,
    Changes,
    FewerExperts,
)
from zerolm.carving.experts.masked_parent import parameter_of, send_on
from zerolm.carving.experts.ream import Groups, grouped, matched, shares, similarity
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.hooks import stand_ins
from zerolm.networks.stream import Stream
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

SAMPLED: Final = 4096
"""Tokens at most, spread evenly over the text, on which neurons are compared."""


def merged_experts(
    fewer: FewerExperts,
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    batch: int = 8,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
    progress: Progress = silent,
) -> tuple[dict[int, Changes], dict[int, Groups]]:
    """Return what is changed by layer, and which experts were merged into which.

    One layer is in memory at a time. What a killed run has merged is in the ``cache``. ``ValueError`` for
    experts whose inside is not known.
    """
    stream, layers = Stream(Blocks(model, tokens.batches(batch))), list(fewer.by_layer)
    changed, groups = dict[int, Changes](), dict[int, Groups]()
    for layer in layers:
        progress("merging experts into those that stay", layer, fewer.parent.layout.depth)
        row = cache.get(f"layer-{layer}")
        if row is None:
            row = _row(*_merged(fewer, stream, layer))
            cache.put(f"layer-{layer}", row)
        changed[layer], groups[layer] = _of_row(row)
        if layer != layers[-1]:
            send_on(stream, replace(fewer, changed={layer: changed[layer]}), layer)
    return changed, groups


def _merged(fewer: FewerExperts, stream: Stream, layer: int) -> tuple[Changes, Groups]:
    """Return the changes of a layer and its groups, by what its experts do on the stream before it."""
    kept = fewer.by_layer[layer]
    if len(kept) == fewer.parent.layout.sizes[AXIS]:
        return {}, {}
    seen = _seen(fewer, stream, layer)
    worth = EXPERT_CRITERIA[REAP]
    assert worth is not None
    salience = worth(seen.sums.arrays)
    likeness = similarity(seen.cosines, seen.sums.arrays["together"], seen.profiles)
    experts = experts_of(fewer.parent, stream.module(layer), layer)
    inner = Neurons(experts, fewer.parent.family.name)
    groups, changes = grouped(salience, likeness, kept), Changes()
    for centre, members in groups.items():
        parts = shares(salience, centre, members)
        orders = {
            member: seen.order(inner, centre, member)
            for member, part in zip(members, parts[1:], strict=True)
            if part
        }
        for name in inner.names:
            mean = parts[0] * inner.value(name, centre)
            for member, part in zip(members, parts[1:], strict=True):
                if part:
                    mean = mean + part * inner.ordered(name, member, orders[member])
            changes.setdefault(name, {})[centre] = fewer.as_stored(layer, name, mean.astype(np.float32))
    return changes, groups


@torch.no_grad()
def _seen(fewer: FewerExperts, stream: Stream, layer: int) -> LayerSeen:
    """Return what is seen of a layer's experts; what is before it is not sent through it yet."""
    states, blocks = stream.before(layer), stream.blocks
    module = stream.module(layer)
    experts: Any = experts_of(fewer.parent, module, layer)
    weight = parameter_of(module, fewer.parent, ROUTER, layer)
    masks = [blocks.tokens(index).reshape(-1) for index in range(len(blocks.batches))]
    seen = LayerSeen(fewer.parent.layout.sizes[AXIS], -(-sum(int(mask.sum()) for mask in masks) // SAMPLED))
    alone = experts.forward
    each = summing(experts, seen, iter(masks))

    def forward(hidden: Tensor, numbers: Tensor, gates: Tensor) -> Tensor:
        seen.sample(hidden[mask], numbers[mask])
        if not index:
            check_inside(experts, fewer.parent.family.name, alone, hidden[:1], int(numbers[0, 0]))
        return each(hidden, numbers, gates)

    for index, mask in enumerate(masks):
        with stand_ins([experts], [forward]), logits_of(weight) as logits:
            blocks.call(index, layer, states[index], module)
        if not logits:
            raise ValueError(f"the stock class does not use {fewer.parent.layout.name(ROUTER, layer)!r}")
        seen.add_logits(logits[-1].reshape(len(mask), -1)[mask])
    return seen


class LayerSeen:
    """All that is seen of the experts of a layer: sums over all tokens, and some tokens themselves.

    ``cosines`` (e, e) are sums of the cosines of what two experts send a token that meets both, ``profiles``
    (e, e) the products of the router's logits. Of the tokens every ``step``-th is kept, with its experts.
    """

    def __init__(self, experts: int, step: int) -> None:
        self.sums = ExpertSums(experts)
        self.cosines, self.profiles = (np.zeros((experts, experts)) for _ in range(2))
        self.step, self.passed = step, 0
        self.hidden: list[Tensor] = []
        self.numbers: list[Tensor] = []

    def add(self, numbers: Tensor, gates: Tensor, sent: Tensor) -> None:
        """Take in tokens by the numbers of their experts, gates (t, k) and outputs (t, k, d)."""
        self.sums.add(numbers, gates, sent)
        size = len(self.cosines)
        unit = functional.normalize((gates[:, :, None] * sent).float(), dim=-1)
        cosines = (unit @ unit.mT).double().cpu().numpy()  # (t, k, k)
        pairs = (numbers[:, :, None] * size + numbers[:, None, :]).cpu().numpy()
        self.cosines += np.bincount(pairs.ravel(), cosines.ravel(), size**2).reshape(size, size)

    def add_logits(self, logits: Tensor) -> None:
        """Take in the router's logits (t, e)."""
        values = logits.double()
        self.profiles += (values.T @ values).cpu().numpy()

    def sample(self, hidden: Tensor, numbers: Tensor) -> None:
        """Keep some of these tokens (t, d), and the numbers (t, k) of their experts."""
        first = -self.passed % self.step
        self.passed += len(hidden)
        self.hidden.append(hidden[first :: self.step].clone())
        self.numbers.append(numbers[first :: self.step].clone())

    def order(self, inner: Neurons, centre: int, member: int) -> Ints:
        """Return the neurons (m,) of an expert in the order of those of another that they are like."""
        hidden, numbers = torch.cat(self.hidden), torch.cat(self.numbers)
        met = ((numbers == centre) | (numbers == member)).any(1)
        tokens = hidden[met] if met.any() else hidden
        ours, theirs = (inner.active(expert, tokens) for expert in (centre, member))
        return matched(ours, theirs, inner.weights(centre), inner.weights(member))


@contextmanager
def logits_of(weight: Tensor | None) -> Iterator[list[Tensor]]:
    """Within, products with this weight (e, d) are listed as they are made."""
    with _Noting(weight) as noting:
        yield noting.products


class _Noting(TorchFunctionMode):
    def __init__(self, weight: Tensor | None) -> None:
        super().__init__()
        self.weight, self.products = weight, list[Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is functional.linear and self.weight is not None:
            weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
            if weight is self.weight:
                self.products.append(out)
        return out


def _row(changes: Changes, groups: Groups) -> Arrays:
    """Return changes and groups as arrays by name."""
    pairs = [(centre, member) for centre, members in groups.items() for member in members]
    values = {f"{name}.{expert}": x for name, each in changes.items() for expert, x in each.items()}
    return {**values, "merged": np.array(pairs, np.int64).reshape(-1, 2)}


def _of_row(row: Arrays) -> tuple[Changes, Groups]:
    """Return changes and groups that ``_row`` made arrays."""
    changes, groups = Changes(), Groups()
    for name, values in row.items():
        parameter, dot, expert = name.rpartition(".")
        if dot:
            changes.setdefault(parameter, {})[int(expert)] = values
    for centre, member in row["merged"].tolist():
        groups.setdefault(centre, []).append(member)
    return changes, groups
