"""Networks of the size of a child, made of its parent, to compare it with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, Final

import numpy as np
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.expert_count import best_experts
from zerolm.carving.experts.expert_scores import drawn
from zerolm.carving.experts.expert_use import expert_use
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import masked
from zerolm.carving.experts.stock_mixture import Routing
from zerolm.carving.recipe import read_recipe, recipe_document
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.identity import fingerprint
from zerolm.costs import CostModel
from zerolm.evaluation.by_layers import Choice, counts_tokens
from zerolm.evaluation.comparable import RECIPE, OpenedChild, params_of
from zerolm.evaluation.quantised_parent import QUANTISED_PARENT, quantised_parent, stored_bytes
from zerolm.evaluation.readers import Made, Reader
from zerolm.networks.roles import layer_list
from zerolm.planning.part_costs import PARAMS, Choices, part_costs
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criteria import criterion_of
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import apply_in_memory
from zerolm.units.stream.narrowing import Width
from zerolm.units.stream.weights_basis import weights_channels

FREQUENCY: Final = "frequency"
RANDOM: Final = "random"
DRAW_SEEDS: Final = (0, 1, 2)
READ_BACK: Final = "the file's weights as they are read back"
AS_LLAMA_CPP: Final = "the file as llama.cpp computes it"
COMPARED: Final = (
    "random, uniform: same size and layers as the child, no repair, no rotation "
    f"(random: {len(DRAW_SEEDS)} draws, mean)"
)
MASKED: Final = "random, frequency: the parent with as many experts as the child, no repair"
FAVOURED: Final = "frequency: the experts with the most tokens of the judged text, which favours it"
NOT_COMPARED: Final = (
    "no random and uniform baselines: the child has no recipe of this parent, and its configuration "
    "does not show the kept units of each layer"
)
NARROWER: Final = "no baselines: random cuts of expert neurons are not implemented"


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


def cut_of(child: Checkpoint, parent: Checkpoint) -> Cut | None:
    """Return a cut with the sizes of the child: that of its recipe, else one by its configuration.

    A narrower stream keeps the channels of most energy, for the recipe contains only its width. None where it
    has fewer or narrower experts, or no recipe of this parent, and layers that went or sizes that no cut
    gives it. Raises ``ValueError`` where the recipe is that of another child.
    """
    if fewer_experts(child, parent) or has_narrower_experts(child, parent):
        return None
    whole, sizes = dimensions(parent), dimensions(child)
    file = child.root / RECIPE
    weights = fingerprint(parent) if file.is_file() else ""
    document = recipe_document(file) if weights else None
    if isinstance(document, dict) and document.get("parent_weights") == weights:
        recipe = read_recipe(file, parent, weights)
        cut, width = recipe.cut, recipe.width or Width(whole.hidden, parent.layout.tied)
        of_recipe = (len(cut.layers), *cut.largest, width.hidden, width.tied)
        if of_recipe != (sizes.depth, *sizes.units, sizes.hidden, child.layout.tied):
            raise ValueError(
                f"recipe {str(file)!r} is of another child: its sizes are not those of the configuration"
            )
        return replace(cut, narrowing=weights_channels(parent).narrowing(width)) if recipe.width else cut
    same = ("depth", "hidden", "head_size", "heads_per_group")
    alike = all(getattr(sizes, size) == getattr(whole, size) for size in same)
    if not alike or any(count > most for count, most in zip(sizes.units, whole.units, strict=True)):
        return None
    return Cut.whole(whole).resized(sizes.units)


@dataclass(frozen=True)
class Baselines:
    """Readers of networks of the child's size by row, one a draw, and a ``note``.

    Rows that are not in ``params`` have as many parameters as the child.
    """

    note: str
    rows: Mapping[str, Sequence[Reader]] = field(default_factory=dict)
    params: Mapping[str, int] = field(default_factory=dict)


def baselines(
    child: OpenedChild,
    parent: Checkpoint,
    cut: Cut | None,
    reference: PreTrainedModel,
    tokens: Tokens,
    reader: Callable[[Made], Reader],
    progress: Progress,
) -> Baselines:
    """Return the networks compared with a child: carvings of its size, and its parent in as few bytes.

    A file has no carvings, and one that llama.cpp alone reads has nothing to be compared with.
    """
    if child.by_llama_cpp:
        return Baselines(AS_LLAMA_CPP)
    if child.file:
        others = Baselines(READ_BACK)
        room = sum(end - start for start, end in read_gguf_header(child.file).places.values())
    else:
        others = _carvings(child.checkpoint, parent, cut, reference, tokens, reader, progress)
        room = stored_bytes(child.checkpoint)
    if room >= stored_bytes(parent):
        return others
    try:
        quantised = quantised_parent(parent, reference, room, progress)
        model = quantised.applied(reference)
    except (ValueError, ModuleNotFoundError) as error:
        return replace(others, note=f"{others.note}; no {QUANTISED_PARENT}: {error}")
    note = (
        f"{others.note}; {QUANTISED_PARENT}: {quantised.bytes:,} of the child's {room:,} bytes, without "
        f"importances: {quantised.text} matrices"
    )
    rows = {**others.rows, QUANTISED_PARENT: [reader(lambda: model)]}
    return Baselines(note, rows, {**others.params, QUANTISED_PARENT: params_of(parent)})


def _carvings(
    child: Checkpoint,
    parent: Checkpoint,
    cut: Cut | None,
    reference: PreTrainedModel,
    tokens: Tokens,
    reader: Callable[[Made], Reader],
    progress: Progress,
) -> Baselines:
    """Return carvings of the size of a cut, or the parent with as many experts as a child."""
    if cut is not None:
        cuts = of_the_same_size(parent, cut, progress)
        params = {"child": params_of(parent, cut)}
        params |= {name: params_of(parent, several[0]) for name, several in cuts.items()}
        carved = {
            name: [reader(partial(apply_in_memory, reference, each)) for each in several]
            for name, several in cuts.items()
        }
        return Baselines(COMPARED, carved, params)
    choices, note = mixtures(child, parent, DRAW_SEEDS, lambda: reference)
    if not choices:
        return Baselines(NARROWER if has_narrower_experts(child, parent) else NOT_COMPARED)
    use = expert_use(parent, reference, tokens, progress=progress) if FREQUENCY in choices else {}
    counts = {layer: use[layer]["count"] if use else np.empty(0) for layer in expert_layers(parent)}

    def masked(choose: Choice) -> Reader:
        by_layer = {layer: choose(layer, counts[layer]) for layer in counts}
        return reader(partial(without_experts, reference, FewerExperts(parent, by_layer)))

    return Baselines(note, {name: [masked(choose) for choose in row] for name, row in choices.items()})


def mixtures(
    child: Checkpoint, parent: Checkpoint, seeds: Sequence[int], make: Made
) -> tuple[dict[str, list[Choice]], str]:
    """Return how the parent gets as many experts as a child, by row, and a note on that.

    There are none where the child has lost, or has, anything else.
    """
    count = fewer_experts(child, parent)
    if count is None or not lacks_experts_alone(child, parent):
        return {}, ""
    choices = choices_of(parent, count, seeds, make())
    draws = f"{len(seeds)} draws, mean" if len(seeds) > 1 else "one draw"
    note = f"{MASKED} (random: {draws}; {FAVOURED})"
    if FREQUENCY not in choices:
        note += f"; no row by frequency: experts of a {parent.family.name} are not called with their gates"
    return choices, note


def of_the_same_size(parent: Checkpoint, cut: Cut, progress: Progress = silent) -> dict[str, list[Cut]]:
    """Return ``random`` cuts, one a seed, with the sizes of this one, and the ``uniform`` one by capacity."""
    ledger = ledger_of(parent, progress=progress)
    capacity = criterion_of("capacity", parent, ledger)
    draws = [chosen(criterion_of("random", parent, ledger, seed=seed), cut) for seed in DRAW_SEEDS]
    if cut.narrowing:
        width, channels = cut.narrowing.width, weights_channels(parent)
        orders = [np.random.default_rng(seed).permutation(cut.parent.hidden) for seed in DRAW_SEEDS]
        streams = (channels.reordered(order).narrowing(width) for order in orders)
        draws = [replace(draw, narrowing=stream) for draw, stream in zip(draws, streams, strict=True)]
    return {"random": draws, "uniform": [chosen(capacity, uniform(parent, cut))]}


def chosen(criterion: Criterion, cut: Cut) -> Cut:
    """Return a cut of the same sizes, with the units that the criterion chooses and the same stream."""
    units = Cut.of(cut.parent, list(cut.sizes), cut.sizes.__getitem__, criterion.choose)
    return replace(units, narrowing=cut.narrowing)


def uniform(parent: Checkpoint, cut: Cut) -> Cut:
    """Return a cut of the same layers to the same sizes each, with as many parameters as this cut.

    They agree to within a neuron a layer. Of the numbers of KV groups that allow it, it has the one nearest
    to the cut's mean.
    """
    if cut.uniform:
        return cut
    depth, whole = len(cut.layers), cut.parent
    width = cut.narrowing.width if cut.narrowing else None
    choices = Choices(tuple(tuple(range(1, count + 1)) for count in whole.units), (depth,), width=width)
    costs_by_part = part_costs(parent, choices, CostModel())
    wanted = costs_by_part.of(cut.sizes)[PARAMS]
    layers = [costs_by_part.layers[layer] for layer in cut.sizes]
    params = np.sum([layer.table(choices.units)[..., PARAMS] for layer in layers], axis=0)
    distances = np.abs(costs_by_part.outside[PARAMS] + params - wanted)  # (groups, ..., neurons)
    finest = abs(int(params.flat[1] - params.flat[0])) if params.shape[-1] > 1 else 0
    counts = np.moveaxis(np.indices(distances.shape) + 1, 0, -1)  # (groups, ..., neurons, kinds)
    means = np.array(list(cut.sizes.values())).mean(axis=0)
    near = distances <= max(finest, int(distances.min()))
    apart = np.abs(counts[..., :-1] - means[:-1]).sum(axis=-1)
    at = np.lexsort((distances[near], apart[near]))[0]
    return cut.resized(tuple(counts[near][at].tolist()))
