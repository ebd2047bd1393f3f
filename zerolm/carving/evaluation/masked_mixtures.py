"""A mixture with as many experts as its child, at random and by frequency, in memory and without a copy."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.evaluation.by_layers import Choice, counts_tokens
from zerolm.carving.experts.expert_choice import best_experts
from zerolm.carving.experts.expert_use import expert_use
from zerolm.carving.experts.expert_worth import drawn
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import routers_masked
from zerolm.carving.experts.routing import Routing
from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import layer_list
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

FREQUENCY: Final = "frequency"
RANDOM: Final = "random"


def fewer_experts(child: Checkpoint, parent: Checkpoint) -> int | None:
    """Return how many experts a layer of the child has, where it has fewer than its parent; else None."""
    ours, theirs = (one.layout.sizes.get(AXIS, 0) for one in (child, parent))
    return ours if parent.family.has_experts and 0 < ours < theirs else None


def has_narrower_experts(child: Checkpoint, parent: Checkpoint) -> bool:
    """Return whether experts of the child have fewer neurons than those of its parent."""
    ours, theirs = (one.layout.sizes.get(NEURONS, 0) for one in (child, parent))
    return parent.family.has_experts and 0 < ours < theirs


def lacks_experts_alone(child: Checkpoint, parent: Checkpoint) -> bool:
    """Return whether a child with fewer experts has all other sizes of its parent."""
    sizes = [{n: size for n, size in one.layout.sizes.items() if n != AXIS} for one in (child, parent)]
    same = sizes[0] == sizes[1] and child.layout.tied == parent.layout.tied
    return same and fewer_experts(child, parent) in Routing.of(parent).possible()


@dataclass(frozen=True)
class MaskedMixtures:
    """Parents with as many experts as a child by their rows; ``note`` tells why a row is not there."""

    rows: Mapping[str, list[FewerExperts]]
    note: str = ""


def masked_mixtures(
    parent: Checkpoint,
    count: int,
    model: PreTrainedModel,
    tokens: Tokens,
    seeds: tuple[int, ...],
    progress: Progress = silent,
) -> MaskedMixtures:
    """Return the parent with ``count`` experts a layer: drawn by each seed, and those that most tokens meet.

    As many stay in each group of its router. Where its experts are not called with their gates nothing
    counts the tokens, and the note says so.
    """
    layers, routing = expert_layers(parent), Routing.of(parent)

    def fewer(worth: Mapping[int, Any]) -> FewerExperts:
        return FewerExperts(
            parent, {layer: best_experts(worth[layer], count, routing.groups) for layer in layers}
        )

    draws = [{layer: drawn(seed, layer, routing.experts) for layer in layers} for seed in seeds]
    rows = {RANDOM: [fewer(draw) for draw in draws]}
    if not counts_tokens(parent, model):
        return MaskedMixtures(rows, uncounted(parent))
    use = expert_use(parent, model, tokens, progress=progress)
    rows[FREQUENCY] = [fewer({layer: use[layer]["count"] for layer in layers})]
    return MaskedMixtures(rows)


def uncounted(parent: Checkpoint) -> str:
    """Return why there is no row by frequency."""
    return f"no row by frequency: experts of a {parent.family.name} are not called with their gates"


def choices_of(parent: Checkpoint, count: int, seed: int) -> dict[str, Choice]:
    """Return how ``count`` experts a layer are chosen, by the rows of ``masked_mixtures``, layer by layer.

    One draw is made at random.
    """
    routing = Routing.of(parent)

    def random(layer: int, counts: Floats) -> Ints:
        return best_experts(drawn(seed, layer, routing.experts), count, routing.groups)

    def frequent(layer: int, counts: Floats) -> Ints:
        return best_experts(counts, count, routing.groups)

    choices: dict[str, Choice] = {RANDOM: random}
    return {**choices, FREQUENCY: frequent} if counts_tokens(parent, mapped_model(parent)) else choices


def without_experts(model: PreTrainedModel, fewer: FewerExperts) -> PreTrainedModel:
    """Return a network of the same weights whose routers cannot choose the experts that have gone."""
    network, forward = copy.copy(model), model.forward

    @wraps(forward)
    def run(*arguments: Any, **named: Any) -> Any:
        with all_masked(model, fewer):
            return forward(*arguments, **named)

    network.forward = run
    return network


@contextmanager
def all_masked(model: PreTrainedModel, fewer: FewerExperts) -> Iterator[None]:
    """Within, no router of a model can choose the experts that have gone (``masked_parent.masked``).

    ``ValueError`` where a router is not met.
    """
    modules = {layer: layer_list(model)[layer] for layer in fewer.by_layer}
    with routers_masked(modules, fewer) as mode:
        yield
    if len(mode.met) < len(modules):
        raise ValueError(f"the stock class of a {fewer.parent.family.name} does not use all its routers")
