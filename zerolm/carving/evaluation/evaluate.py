"""A child beside its parent, and beside others of its size: carvings, or mixtures of as many experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
from transformers import PreTrainedModel

from zerolm.carving.evaluation.divergence import Made
from zerolm.carving.evaluation.evaluated import Evaluated, EvaluatedRow, evaluated_row
from zerolm.carving.evaluation.masked_mixtures import (
    fewer_experts,
    has_narrower_experts,
    lacks_experts_alone,
    masked_mixtures,
    without_experts,
)
from zerolm.carving.evaluation.quantised_parent import quantised_parent, stored_bytes
from zerolm.carving.evaluation.text_judge import JudgeRequest, TextJudge
from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.importance.criteria import criterion_of
from zerolm.carving.importance.criterion import Criterion
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.planning.part_costs import PARAMS, Choices, part_costs
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.pruning import apply_in_memory
from zerolm.carving.recipe import MAX_RECIPE_BYTES, read_recipe
from zerolm.carving.width.narrowing import Width
from zerolm.carving.width.weights_basis import weights_channels
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.unpack import gguf_file
from zerolm.checkpoints.identity import fingerprint
from zerolm.costs import CostModel
from zerolm.io.files import parse_json, read_text
from zerolm.networks.compute import Compute, compute, put_on
from zerolm.networks.opener import is_decoder, open_model
from zerolm.progress import Progress, silent
from zerolm.settings.compute import USUALLY, RunningRequest
from zerolm.text.defaults import LENGTH, SEQUENCES
from zerolm.text.tokens import Tokens

DRAW_SEEDS: Final = (0, 1, 2)
QUANTISED_PARENT: Final = "quantised parent"
ROWS: Final = ("child", "parent", "random", "uniform", "frequency", QUANTISED_PARENT)
COMPARED: Final = (
    "random, uniform: same size and layers as the child, no repair, no rotation "
    f"(random: {len(DRAW_SEEDS)} draws, mean)"
)
MASKED: Final = (
    "random, frequency: the parent with as many experts as the child, no repair "
    f"(random: {len(DRAW_SEEDS)} draws, mean; frequency: those that the judged text is sent to most, which "
    "favours it)"
)
READ_BACK: Final = "the file's weights as they are read back"
NOT_COMPARED: Final = (
    "no random and uniform carvings beside it: the child has no recipe of this parent, and its configuration "
    "does not tell what it keeps of each layer"
)

NARROWER: Final = "no other carvings beside it: neurons of its experts left, and none are drawn"


def evaluate(
    child: str | Path,
    parent: str | Path,
    text: str | Path | None,
    *,
    data: str | Path | None = None,
    sequences: int = SEQUENCES,
    length: int = LENGTH,
    beside: Sequence[str | Path] = (),
    loops: int = 0,
    request: RunningRequest = USUALLY,
    progress: Progress = silent,
) -> Evaluated:
    """Return what a child has lost on a text, and what other carvings of its size lose.

    Beside the child and the parent stand ``random``, which keeps as many KV groups and neurons of each layer
    as the child, drawn at random, and ``uniform``, whose layers all have the same sizes. Where the child's
    stream is narrower, theirs keeps as many channels, without a rotation. Of a child with fewer experts these
    are the parent with as many, ``random`` and by ``frequency`` on the text. Beside a child of fewer bytes
    stands the ``quantised parent``, whole and in as many. Other children of the parent come last, by the ends
    of their paths that tell them apart, with a slash. One carving is in memory at a time. The text may be
    texts of several domains, ``code=FILE,chat=FILE``: each row has measures of each.
    Encoders may be judged by pairs of sentences with scores too, in the file ``data``; without a text its
    sentences are the text. Decoders answer ``loops`` prompts, of which it is told how many loop.
    ``request`` says where networks run, and how. Raises ``ValueError``, in one line, for what cannot be
    compared.
    """
    running = compute(request)
    judging = JudgeRequest(None if text is None else str(text), data, sequences, length, loops)
    file = gguf_file(child)
    if file is not None:
        return _of_file(file, parent, judging, running, progress)
    ours, theirs = opened_alone(child, parent)
    if ours.layout.vocab != theirs.layout.vocab and data is None and not beside and text is not None:
        from zerolm.carving.evaluation.other_vocabulary import of_other_tokens

        judging.check(of_other_tokens=True)
        return of_other_tokens(ours, theirs, str(text), length, running, progress)
    check_comparable(ours, theirs)
    cut = cut_of(ours, theirs)
    judging.check()
    judge = TextJudge.of(theirs, judging)
    others = BesideChild({}, _not_compared(ours, theirs)) if cut is None else carvings(theirs, cut, progress)
    progress("opening both")
    model, reference = (put_on(open_model(one), running) for one in (ours, theirs))
    if cut is None and fewer_experts(ours, theirs):
        others = mixtures(ours, theirs, reference, judge.tokens, progress)
    if stored_bytes(ours) < stored_bytes(theirs):
        others = with_quantised(others, ours, theirs, reference, progress)
    makers: list[Made] = [lambda: model]
    makers += [partial(draw, reference) for row in others.rows.values() for draw in row.draws]
    children = [opened(other, parent)[0] for other in beside]
    neighbours = list({other.root.resolve(): other for other in children}.values())
    makers += [partial(_same, put_on(open_model(other), running)) for other in neighbours]
    judged = iter(judge.measured(makers, reference, progress))
    parent_row = evaluated_row("parent", _params(theirs, None), [next(judged)])
    params = _params(ours, None) if cut is None else _params(theirs, cut)
    rows = [evaluated_row("child", params, [next(judged)]), parent_row]
    rows += [
        evaluated_row(name, row.params, [next(judged) for _ in row.draws])
        for name, row in others.rows.items()
    ]
    names = names_of([other.root.resolve() for other in neighbours])
    named = zip(names, neighbours, strict=True)
    rows += [evaluated_row(name, _params(other, None), [next(judged)]) for name, other in named]
    return _evaluated(rows, judge, others.note, length)


def _evaluated(rows: Sequence[EvaluatedRow], judge: TextJudge, note: str, length: int) -> Evaluated:
    tokens = judge.tokens
    shortened = judge.shortened(length)
    return Evaluated(tuple(rows), len(tokens), tokens.count, note, shortened, judge.prompt_count)


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return the shortest end of each path, with a slash, that is neither that of another nor of a row."""

    def end(folder: Path, count: int) -> str:
        return str(Path(*folder.parts[-count:]))

    def name(folder: Path) -> str:
        others = [other for other in folders if other != folder]
        counts = range(1, len(folder.parts) + 1)
        taken = {count: {*ROWS, *(end(other, count) for other in others)} for count in counts}
        return next(end(folder, count) for count in counts if end(folder, count) not in taken[count])

    return [f"{name(folder)}/" for folder in folders]


def _same(model: PreTrainedModel) -> PreTrainedModel:
    return model


def _params(checkpoint: Checkpoint, cut: Cut | None) -> int:
    return costs_of(checkpoint, CostModel(), cut)["params"]


def opened(child: str | Path, parent: str | Path) -> tuple[Checkpoint, Checkpoint]:
    """Return both checkpoints; ``ValueError`` where they cannot be compared, or weights are not finite."""
    ours, theirs = opened_alone(child, parent)
    check_comparable(ours, theirs)
    return ours, theirs


def opened_alone(child: str | Path, parent: str | Path) -> tuple[Checkpoint, Checkpoint]:
    """Return both checkpoints, whatever their vocabularies; ``ValueError`` where weights are not finite."""
    if gguf_file(child) is not None:
        raise ValueError(f"{str(child)!r} is GGUF, which is compared with its parent alone")
    ours, theirs = Checkpoint.open(child), Checkpoint.open(parent)
    _check_same_kind(ours, theirs)
    sizes = ours.layout.hidden, theirs.layout.hidden
    if not is_decoder(theirs) and sizes[0] != sizes[1]:
        raise ValueError(f"embeddings of {sizes[0]} and {sizes[1]} dimensions cannot be compared")
    for checkpoint in (ours, theirs):
        ledger_of(checkpoint)  # refuses weights that are not finite
    return ours, theirs


def _of_file(
    file: Path, parent: str | Path, request: JudgeRequest, running: Compute, progress: Progress
) -> Evaluated:
    """Return what a GGUF child has lost, beside its parent rounded to one type of as few bytes.

    ``ValueError`` where it is none of this parent's.
    """
    from zerolm.carving.bits.single import of_one_type
    from zerolm.carving.export.gguf.network import cut_in, network_in, rows_in

    theirs = Checkpoint.open(parent)
    ledger_of(theirs)  # refuses weights that are not finite
    request.check()
    if rows_in(file) not in (None, theirs.layout.vocab):
        from zerolm.carving.evaluation.other_vocabulary import of_file_of_other_tokens

        if not is_decoder(theirs):
            raise ValueError(
                "a gguf file of an encoder with other tokens than its parent's is not compared; a folder is"
            )
        request.check(of_other_tokens=True)
        return of_file_of_other_tokens(file, theirs, str(request.text), request.length, running, progress)
    cut = cut_in(file, theirs)
    judge = TextJudge.of(theirs, request)
    progress("opening both")
    reference = put_on(open_model(theirs), running)
    single = of_one_type(file, theirs)
    makers = [partial(_same, put_on(network_in(file, theirs), running))]
    makers += [partial(single.applied, reference)] if single else []
    ours = judge.measured(makers, reference, progress)
    rows = [
        evaluated_row("child", _params(theirs, cut), [ours[1]]),
        evaluated_row("parent", _params(theirs, None), [ours[0]]),
    ]
    rows += [evaluated_row(single.name, _params(theirs, None), [ours[2]])] if single else []
    note = READ_BACK + (f"; {single.name}: the parent with all matrices of this type" if single else "")
    return _evaluated(rows, judge, note, request.length)


def check_comparable(ours: Checkpoint, theirs: Checkpoint) -> None:
    """Raise ``ValueError`` where the predictions of two checkpoints cannot be compared."""
    _check_same_kind(ours, theirs)
    if ours.layout.vocab != theirs.layout.vocab:
        sizes = f"{ours.layout.vocab} and {theirs.layout.vocab}"
        raise ValueError(f"vocabularies of {sizes} tokens cannot be compared")


def _check_same_kind(ours: Checkpoint, theirs: Checkpoint) -> None:
    if is_decoder(ours) != is_decoder(theirs):
        kinds = f"{ours.family.name} and {theirs.family.name}"
        raise ValueError(f"a decoder and an encoder cannot be compared: {kinds}")


def cut_of(child: Checkpoint, parent: Checkpoint) -> Cut | None:
    """Return a cut with the sizes of the child: that of its recipe, else one as its configuration tells.

    A narrower stream keeps the channels of most energy, for the recipe tells no more than its width. None
    where it has fewer or narrower experts, or no recipe of this parent, and layers that went or sizes that no
    cut gives it. Raises ``ValueError`` where the recipe is that of another child.
    """
    if fewer_experts(child, parent) or has_narrower_experts(child, parent):
        return None
    whole, sizes = dimensions(parent), dimensions(child)
    file = child.root / "recipe.json"
    weights = fingerprint(parent) if file.is_file() else ""
    if weights and _made_for(file) == weights:
        recipe = read_recipe(file, parent, weights)
        cut, width = recipe.cut, recipe.width or Width(whole.hidden, parent.layout.tied)
        of_recipe = (len(cut.layers), *cut.largest, width.hidden, width.tied)
        if of_recipe != (sizes.depth, sizes.kv_heads, sizes.ffn, sizes.hidden, child.layout.tied):
            raise ValueError(
                f"recipe {str(file)!r} is of another child: its sizes are not those of the configuration"
            )
        return replace(cut, narrowing=weights_channels(parent).narrowing(width)) if recipe.width else cut
    same = ("depth", "hidden", "head_size", "heads_per_group")
    alike = all(getattr(sizes, size) == getattr(whole, size) for size in same)
    if not alike or sizes.kv_heads > whole.kv_heads or sizes.ffn > whole.ffn:
        return None
    return _cut(Cut.whole(whole), sizes.kv_heads, sizes.ffn)


def _made_for(recipe: Path) -> object:
    """Return the fingerprint of the parent that a recipe names."""
    try:
        document = parse_json(read_text(recipe, MAX_RECIPE_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"recipe {str(recipe)!r} cannot be used: {error}") from None
    return document.get("parent_weights") if isinstance(document, dict) else None


@dataclass(frozen=True)
class SameSize:
    """Networks of one row, each made of the parent when its turn comes, with ``params`` parameters."""

    params: int
    draws: list[Callable[[PreTrainedModel], PreTrainedModel]]


@dataclass(frozen=True)
class BesideChild:
    """The networks beside a child by the names of their rows; ``note`` says what they are."""

    rows: Mapping[str, SameSize]
    note: str


def carvings(parent: Checkpoint, cut: Cut, progress: Progress) -> BesideChild:
    """Return random and uniform carvings of the size of a cut."""
    cuts = of_the_same_size(parent, cut, progress)
    rows = {
        name: SameSize(_params(parent, several[0]), [partial(_carved, other) for other in several])
        for name, several in cuts.items()
    }
    return BesideChild(rows, COMPARED)


def _carved(cut: Cut, reference: PreTrainedModel) -> PreTrainedModel:
    return apply_in_memory(reference, cut)


def mixtures(
    child: Checkpoint, parent: Checkpoint, reference: PreTrainedModel, tokens: Tokens, progress: Progress
) -> BesideChild:
    """Return the parent with as many experts as a child, at random and by frequency."""
    count = fewer_experts(child, parent)
    if count is None or not lacks_experts_alone(child, parent):
        return BesideChild({}, _not_compared(child, parent))
    masked = masked_mixtures(parent, count, reference, tokens, DRAW_SEEDS, progress)
    rows = {
        name: SameSize(
            costs_of(several[0].shaped(), CostModel())["params"], [partial(_masked, each) for each in several]
        )
        for name, several in masked.rows.items()
    }
    return BesideChild(rows, "; ".join(filter(None, [MASKED, masked.note])))


def _not_compared(child: Checkpoint, parent: Checkpoint) -> str:
    """Return why no carvings are beside a child."""
    return NARROWER if has_narrower_experts(child, parent) else NOT_COMPARED


def with_quantised(
    others: BesideChild, child: Checkpoint, parent: Checkpoint, reference: PreTrainedModel, progress: Progress
) -> BesideChild:
    """Return networks beside a child, and the parent quantised to its bytes, or a note why not that."""
    room = stored_bytes(child)
    try:
        quantised = quantised_parent(parent, reference, room, progress)
        row = SameSize(_params(parent, None), [partial(_same_always, quantised.applied(reference))])
    except (ValueError, ModuleNotFoundError) as error:
        return BesideChild(others.rows, f"{others.note}; no {QUANTISED_PARENT}: {error}")
    note = (
        f"{QUANTISED_PARENT}: {quantised.bytes:,} of the child's {room:,} bytes, without importances: "
        f"{quantised.text} matrices"
    )
    return BesideChild({**others.rows, QUANTISED_PARENT: row}, f"{others.note}; {note}")


def _same_always(model: PreTrainedModel, _: PreTrainedModel) -> PreTrainedModel:
    return model


def _masked(fewer: FewerExperts, reference: PreTrainedModel) -> PreTrainedModel:
    return without_experts(reference, fewer)


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
    sizes = {kept.layer: (len(kept.groups), len(kept.ffn)) for kept in cut.layers}
    units = Cut.of(cut.parent, list(sizes), sizes.__getitem__, criterion.choose)
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
    sizes = tuple(range(1, whole.kv_heads + 1)), tuple(range(1, whole.ffn + 1))
    choices = Choices(*sizes, (depth,), width=width)
    prices = part_costs(parent, choices, CostModel())
    wanted = prices.of({kept.layer: (len(kept.groups), len(kept.ffn)) for kept in cut.layers})[PARAMS]
    layers = [prices.layers[kept.layer] for kept in cut.layers]
    groups, ffn = (
        np.sum([[costs[PARAMS] for costs in part.values()] for part in parts], axis=0)
        for parts in ([layer.groups for layer in layers], [layer.ffn for layer in layers])
    )
    rest = prices.outside[PARAMS] + sum(layer.rest[PARAMS] for layer in layers)
    apart = np.abs(rest + np.add.outer(groups, ffn) - wanted)  # (groups, ffn)
    least, neuron = apart.min(axis=1), np.diff(ffn[:2]).sum()
    mean = fmean(len(kept.groups) for kept in cut.layers)
    possible = np.flatnonzero(least <= max(neuron, least.min()))
    g = min(possible.tolist(), key=lambda place: abs(choices.groups[place] - mean))
    return _cut(cut, choices.groups[g], choices.ffn[int(apart[g].argmin())])


def _cut(like: Cut, groups: int, ffn: int) -> Cut:
    """Return a cut of the same layers and stream with so many units of each."""
    cut = Cut.of(like.parent, [layer.layer for layer in like.layers], lambda layer: (groups, ffn))
    return replace(cut, narrowing=like.narrowing)
