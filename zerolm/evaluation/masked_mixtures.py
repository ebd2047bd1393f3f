"""An MoE with the number of experts of its child, at random and by frequency, in memory and without a
copy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial, wraps
from typing import Any, Final

from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.expert_choice import best_experts
from zerolm.carving.experts.expert_scores import drawn
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts
from zerolm.carving.experts.masked_parent import masked
from zerolm.carving.experts.stock_mixture import Routing
from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.by_layers import Choice, counts_tokens
from zerolm.networks.roles import layer_list

FREQUENCY: Final = "frequency"
RANDOM: Final = "random"


def fewer_experts(child: Checkpoint, parent: Checkpoint) -> int | None:
    """Return the number of experts in a layer of the child, if it has fewer than its parent; else None."""
    child_experts, parent_experts = (one.layout.sizes.get(AXIS, 0) for one in (child, parent))
    return child_experts if parent.family.has_experts and 0 < child_experts < parent_experts else None


def has_narrower_experts(child: Checkpoint, parent: Checkpoint) -> bool:
    """Return whether experts of the child have fewer neurons than those of its parent."""
    child_neurons, parent_neurons = (one.layout.sizes.get(NEURONS, 0) for one in (child, parent))
    return parent.family.has_experts and 0 < child_neurons < parent_neurons


def lacks_experts_alone(child: Checkpoint, parent: Checkpoint) -> bool:
    """Return whether a child with fewer experts has all other sizes of its parent."""
    sizes = [{n: size for n, size in one.layout.sizes.items() if n != AXIS} for one in (child, parent)]
    same = sizes[0] == sizes[1] and child.layout.tied == parent.layout.tied
    return same and fewer_experts(child, parent) in Routing.of(parent).possible()


def choices_of(
    parent: Checkpoint, count: int, seeds: Sequence[int], model: PreTrainedModel
) -> dict[str, list[Choice]]:
    """Return how ``count`` experts of a layer are chosen, by row: sampled by each seed, and by their tokens.

    Equal numbers are kept in each group of a router. There is no row by frequency where the experts of the
    stock ``model`` are not called with their gates, for nothing counts their tokens.
    """
    routing = Routing.of(parent)

    def random(seed: int, layer: int, counts: Floats) -> Ints:
        return best_experts(drawn(seed, layer, routing.experts), count, routing.groups)

    def frequent(layer: int, counts: Floats) -> Ints:
        return best_experts(counts, count, routing.groups)

    choices: dict[str, list[Choice]] = {RANDOM: [partial(random, seed) for seed in seeds]}
    return {**choices, FREQUENCY: [frequent]} if counts_tokens(parent, model) else choices


def without_experts(model: PreTrainedModel, fewer: FewerExperts) -> PreTrainedModel:
    """Return a network of the same weights whose routers cannot choose the experts that have gone."""
    network, forward = copy.copy(model), model.forward

    @wraps(forward)
    def run(*arguments: Any, **named: Any) -> Any:
        with masked({layer: layer_list(model)[layer] for layer in fewer.by_layer}, fewer):
            return forward(*arguments, **named)

    network.forward = run
    return network
