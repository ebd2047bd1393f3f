"""A child beside its parent, and beside others: in memory, or layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from transformers import PreTrainedModel

from zerolm.carving.evaluation.divergence import Made
from zerolm.carving.evaluation.evaluated import Evaluated, EvaluatedRow, TextMeasures, evaluated_row
from zerolm.carving.evaluation.masked_mixtures import fewer_experts, has_narrower_experts
from zerolm.carving.evaluation.quantised_parent import stored_bytes
from zerolm.carving.evaluation.same_size import (
    QUANTISED_PARENT,
    BesideChild,
    carvings,
    cut_to,
    layered_mixtures,
    mixtures,
    not_compared,
    params_of,
    with_quantised,
)
from zerolm.carving.evaluation.text_judge import JudgeRequest, TextJudge
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.recipe import MAX_RECIPE_BYTES, read_recipe
from zerolm.carving.width.narrowing import Width
from zerolm.carving.width.weights_basis import weights_channels
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.configuration import has_experts
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.unpack import gguf_file
from zerolm.checkpoints.identity import fingerprint
from zerolm.costs import CostModel
from zerolm.io.files import parse_json, read_text
from zerolm.io.memory import free_memory
from zerolm.networks.compute import Compute, compute, put_on
from zerolm.networks.opener import is_decoder, open_model
from zerolm.networks.pooling import settings_note
from zerolm.progress import Progress, silent
from zerolm.settings.compute import USUALLY, RunningRequest
from zerolm.text.defaults import LENGTH, SEQUENCES

ROWS: Final = ("child", "parent", "random", "uniform", "frequency", QUANTISED_PARENT)
READ_BACK: Final = "the file's weights as they are read back"


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
    of their paths that tell them apart, with a slash. One carving is in memory at a time; networks that
    memory does not hold together, or that are stored quantised, go through the text layer by layer, and
    nothing but the parent with as many experts stands beside them. The text may be texts of several domains,
    ``code=FILE,chat=FILE``: each row has measures of each. Encoders may be judged by pairs of sentences with
    scores too, in the file ``data``; without a text its sentences are the text. Decoders answer ``loops``
    prompts, of which it is told how many loop.
    ``request`` says where networks run, and how. Raises ``ValueError``, in one line, for what cannot be
    compared.
    """
    running = compute(request)
    judging = JudgeRequest(None if text is None else str(text), data, sequences, length, loops)
    file = gguf_file(child)
    if file is not None and not _is_mixture_file(parent):
        return _of_file(file, parent, judging, running, progress)
    ours, theirs = opened_alone(child, parent, packed=True)
    told_by_text = data is None and not beside and text is not None and not _packed(ours, theirs)
    if ours.layout.vocab != theirs.layout.vocab and told_by_text:
        from zerolm.carving.evaluation.other_vocabulary import of_other_tokens

        judging.check(of_other_tokens=True)
        return of_other_tokens(ours, theirs, str(text), length, running, progress)
    check_comparable(ours, theirs)
    neighbours = _neighbours(beside, theirs)
    why = why_by_layers([ours, theirs, *neighbours])
    if why:
        return _by_layers(ours, theirs, neighbours, judging, why, running, progress)
    cut = cut_of(ours, theirs)
    judging.check()
    judge = TextJudge.of(theirs, judging)
    others = BesideChild({}, not_compared(ours, theirs)) if cut is None else carvings(theirs, cut, progress)
    progress("opening both")
    model, reference = (put_on(open_model(one), running) for one in (ours, theirs))
    if cut is None and fewer_experts(ours, theirs):
        others = mixtures(ours, theirs, reference, judge.tokens, progress)
    if stored_bytes(ours) < stored_bytes(theirs):
        others = with_quantised(others, ours, theirs, reference, progress)
    makers: list[Made] = [lambda: model]
    makers += [partial(draw, reference) for row in others.rows.values() for draw in row.draws]
    makers += [partial(_same, put_on(open_model(other), running)) for other in neighbours]
    judged = iter(judge.measured(makers, reference, progress))
    parent_row = evaluated_row("parent", params_of(theirs, None), [next(judged)])
    params = params_of(ours, None) if cut is None else params_of(theirs, cut)
    rows = [evaluated_row("child", params, [next(judged)]), parent_row]
    rows += [
        evaluated_row(name, row.params, [next(judged) for _ in row.draws])
        for name, row in others.rows.items()
    ]
    rows += _named_rows(neighbours, judged)
    return _evaluated(rows, judge, others.note, length)


def why_by_layers(checkpoints: Sequence[Checkpoint]) -> str:
    """Return why networks, and one more like the largest, are not in memory together; empty if they are.

    They are in float32 there.
    """
    quantised = _packed(*checkpoints)
    if quantised:
        return f"{str(quantised[0].place)!r} is stored quantised"
    sizes = [4 * sum(each.tensors[name].count for name in each.layout.slots) for each in checkpoints]
    needed, free = sum(sizes) + max(sizes), free_memory()
    return "" if needed <= free else f"all of them would take {needed / 1e9:.3g} of {free / 1e9:.3g} GB free"


def _by_layers(
    child: Checkpoint,
    parent: Checkpoint,
    neighbours: Sequence[Checkpoint],
    request: JudgeRequest,
    why: str,
    running: Compute,
    progress: Progress,
) -> Evaluated:
    """Return what a child has lost, and other children, one layer in memory at a time.

    ``ValueError`` for what whole networks alone tell.
    """
    if not is_decoder(parent):
        raise ValueError(f"{why}, and embeddings are compared in memory")
    if request.loops:
        raise ValueError(f"{why}, so that no prompts are answered: leave --loops out")
    request.check()
    judge = TextJudge.of(parent, request)
    choices, note = layered_mixtures(child, parent)
    judged = iter(judge.measured_by_layers([*choices.values()], [child, *neighbours], running, progress))
    of_parent = evaluated_row("parent", params_of(parent, None), [next(judged)])
    params = params_of(child, None)
    others = [evaluated_row(name, params, [next(judged)]) for name in choices]
    rows = [evaluated_row("child", params, [next(judged)]), of_parent, *others]
    rows += _named_rows(neighbours, judged)
    return _evaluated(rows, judge, f"layer by layer: {why}; {note}", request.length)


def _packed(*checkpoints: Checkpoint) -> list[Checkpoint]:
    """Return those that are stored quantised."""
    return [each for each in checkpoints if each.packed]


def _is_mixture_file(name: str | Path) -> bool:
    """Return whether this is a GGUF file with experts."""
    file = gguf_file(name)
    return file is not None and has_experts(read_gguf_header(file))


def _neighbours(beside: Sequence[str | Path], parent: Checkpoint) -> list[Checkpoint]:
    """Return other children of the parent, each once; ``ValueError`` where one cannot be compared."""
    children = [opened_beside(other, parent) for other in beside]
    return list({other.place.resolve(): other for other in children}.values())


def _named_rows(neighbours: Sequence[Checkpoint], judged: Iterator[TextMeasures]) -> list[EvaluatedRow]:
    """Return the rows of other children, by the ends of their paths."""
    names = names_of([other.place.resolve() for other in neighbours])
    named = zip(names, neighbours, strict=True)
    return [evaluated_row(name, params_of(other, None), [next(judged)]) for name, other in named]


def _evaluated(rows: Sequence[EvaluatedRow], judge: TextJudge, note: str, length: int) -> Evaluated:
    tokens = judge.tokens
    note = "; ".join(filter(None, [note, settings_note(judge.parent)]))
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


def opened(child: str | Path, parent: str | Path) -> tuple[Checkpoint, Checkpoint]:
    """Return both checkpoints; ``ValueError`` where they cannot be compared, or weights are not finite."""
    ours, theirs = opened_alone(child, parent)
    check_comparable(ours, theirs)
    return ours, theirs


def opened_beside(other: str | Path, parent: Checkpoint) -> Checkpoint:
    """Return another child of a parent; ``ValueError`` where they cannot be compared."""
    ours = _opened_child(other, packed=True)
    check_comparable(ours, parent)
    ledger_of(ours)  # refuses weights that are not finite
    return ours


def _opened_child(child: str | Path, *, packed: bool) -> Checkpoint:
    if gguf_file(child) is not None and not (packed and _is_mixture_file(child)):
        raise ValueError(f"{str(child)!r} is GGUF, which is compared with its parent alone")
    return Checkpoint.open(child, packed=packed)


def opened_alone(
    child: str | Path, parent: str | Path, *, packed: bool = False
) -> tuple[Checkpoint, Checkpoint]:
    """Return both checkpoints, whatever their vocabularies; ``ValueError`` where weights are not finite.

    With ``packed`` also those that are stored quantised, as ``Checkpoint.open`` has it.
    """
    ours, theirs = _opened_child(child, packed=packed), Checkpoint.open(parent, packed=packed)
    _check_same_kind(ours, theirs)
    _check_not_exchanged(ours, theirs)
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
    makers += [partial(_same, single.applied(reference))] if single else []
    ours = judge.measured(makers, reference, progress)
    rows = [
        evaluated_row("child", params_of(theirs, cut), [ours[1]]),
        evaluated_row("parent", params_of(theirs, None), [ours[0]]),
    ]
    rows += [evaluated_row(single.name, params_of(theirs, None), [ours[2]])] if single else []
    note = READ_BACK + (f"; {single.name}: the parent with all matrices of this type" if single else "")
    return _evaluated(rows, judge, note, request.length)


def check_comparable(ours: Checkpoint, theirs: Checkpoint) -> None:
    """Raise ``ValueError`` where the predictions of two checkpoints cannot be compared."""
    _check_same_kind(ours, theirs)
    if ours.layout.vocab != theirs.layout.vocab:
        sizes = f"{ours.layout.vocab} and {theirs.layout.vocab}"
        raise ValueError(
            f"vocabularies of {sizes} tokens cannot be compared beside other children: leave --beside out"
        )


def _check_same_kind(ours: Checkpoint, theirs: Checkpoint) -> None:
    if is_decoder(ours) != is_decoder(theirs):
        kinds = f"{ours.family.name} and {theirs.family.name}"
        raise ValueError(f"a decoder and an encoder cannot be compared: {kinds}")


def _check_not_exchanged(ours: Checkpoint, theirs: Checkpoint) -> None:
    """Raise ``ValueError`` where a parent was carved, and is smaller than its child in layers or tokens."""
    if not (theirs.root / "recipe.json").is_file():
        return  # any other two may be compared
    body, whole = (costs_of(each, CostModel())["body_params"] for each in (ours, theirs))
    if body > whole or (body == whole and ours.layout.vocab > theirs.layout.vocab):
        raise ValueError(
            f"the child {str(ours.place)!r} is larger than its parent {str(theirs.place)!r} ({body:,} "
            f"against {whole:,} body parameters, {ours.layout.vocab:,} against {theirs.layout.vocab:,} "
            "tokens): exchange them"
        )


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
    return cut_to(Cut.whole(whole), sizes.kv_heads, sizes.ffn)


def _made_for(recipe: Path) -> object:
    """Return the fingerprint of the parent that a recipe names."""
    try:
        document = parse_json(read_text(recipe, MAX_RECIPE_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"recipe {str(recipe)!r} cannot be used: {error}") from None
    return document.get("parent_weights") if isinstance(document, dict) else None
