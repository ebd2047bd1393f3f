"""A child compared with its parent, and with others: open, refuse, choose readers, judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.evaluation.by_layers import parts_of, read_by_layers
from zerolm.evaluation.comparable import Compared, names_of, params_of
from zerolm.evaluation.evaluated import Evaluated, judged_network
from zerolm.evaluation.judged_text import JudgeRequest, SharedTokens
from zerolm.evaluation.own_tokens import OwnTokens
from zerolm.evaluation.readers import InMemory, Reader
from zerolm.evaluation.same_size import DRAW_SEEDS, READ_BACK, Baselines, baselines, cut_of, mixtures
from zerolm.evaluation.text_judge import JudgedPassages, JudgedSentences, Sentences
from zerolm.networks.compute import Compute, compute
from zerolm.networks.opener import is_decoder, mapped_model, stock_tokenizer
from zerolm.networks.pooling import MEAN, TokenPooling, settings_notes
from zerolm.progress import Progress, silent
from zerolm.settings.compute import USUALLY, RunningRequest
from zerolm.settings.domains import domains_of
from zerolm.text.defaults import LENGTH, SEQUENCES
from zerolm.text.tokens import some


@dataclass(frozen=True, eq=False)
class Readings:
    """Readers of a parent and of its children, the child first, and the text that they are judged by.

    ``others`` are networks of the child's size. ``sequences`` and ``tokens`` are those of the text by the
    parent.
    """

    parent: Reader
    children: Sequence[Reader]
    text: JudgedPassages | JudgedSentences
    sequences: int
    tokens: int
    others: Baselines
    shortened: str = ""


def in_memory(networks: Compared, request: JudgeRequest, running: Compute, progress: Progress) -> Readings:
    """Return readers of whole networks, and of other carvings of the child's size."""
    child, parent = networks.children[0], networks.parent
    cut = None if child.file else cut_of(child.checkpoint, parent)
    if child.by_llama_cpp and request.loops:
        raise ValueError("llama.cpp alone reads the child, and answers no prompts here: leave --loops out")
    shared = SharedTokens.of(parent, request)
    progress("opening both")
    reference, *models = networks.networks(running)
    reader = partial(InMemory, pooling=MEAN if is_decoder(parent) else TokenPooling.of(parent))
    others = baselines(child, parent, cut, reference, shared.tokens, reader, progress)
    whole, *children = (reader(partial(lambda one: one, model)) for model in (reference, *models))
    text = shared.predicted(reference) if is_decoder(parent) else shared.embedded()
    return Readings(whole, children, text, *shared.size, others, shared.shortened)


def by_layers(
    why: str, networks: Compared, request: JudgeRequest, running: Compute, progress: Progress
) -> Readings:
    """Return readers that hold a layer in memory at a time; ``ValueError`` for what needs whole networks."""
    parent = networks.parent
    if not is_decoder(parent):
        raise ValueError(f"{why}, and embeddings are compared in memory")
    if request.loops:
        raise ValueError(f"{why}, so that no prompts are answered: leave --loops out")
    shared = SharedTokens.of(parent, request)
    child = networks.children[0].checkpoint
    choices, note = mixtures(child, parent, DRAW_SEEDS[:1], partial(mapped_model, parent))
    batches = [batch for several in shared.batches.values() for batch in several]
    read = partial(read_by_layers, batches=batches, running=running, progress=progress)
    whole, *masked = read(parent, choices=[choose for (choose,) in choices.values()])
    children = [read(each.checkpoint)[0] for each in networks.children]
    text = JudgedPassages(parts_of(shared.batches, [whole, *children]))
    draws = {name: [reader] for name, reader in zip(choices, masked, strict=True)}
    others = Baselines(f"layer by layer: {why}; {note or 'no baselines'}", draws)
    return Readings(whole, children, text, *shared.size, others, shared.shortened)


def by_own_tokens(
    networks: Compared, request: JudgeRequest, running: Compute, progress: Progress
) -> Readings:
    """Return readers that take the text by tokens of their own; ``ValueError`` where one cannot."""
    parent = networks.parent
    _check_own_tokens(networks, request)
    progress("opening both")
    reference, *models = networks.networks(running)

    text, pairs, length = request.text, request.pairs(), request.length
    losses = None if text is None else TokenLosses.on(parent, reference, text, length)
    whole = OwnTokens(parent, reference, losses.length if losses and is_decoder(parent) else length)
    children = [
        OwnTokens(each.checkpoint, model, whole.length, whole)
        for each, model in zip(networks.children, models, strict=True)
    ]
    sizes = ", ".join(f"{each.checkpoint.layout.vocab:,}" for each in networks.children)
    note = f"vocabularies of {sizes} and {parent.layout.vocab:,} tokens: "
    end = f"; {READ_BACK}" if any(each.cut is not None for each in networks.children) else ""
    if losses and is_decoder(parent):
        note += (
            f"bits a byte of {losses.bytes:,} bytes, each by its own tokens; KL over the tokens that both "
            f"have, at the {_shares(whole, children, losses.stretches)} of the parent's tokens where both "
            f"read alike{end}"
        )
        passages = JudgedPassages({"": losses.stretches}, losses.bytes)
        return Readings(whole, children, passages, len(losses.stretches), losses.tokens, Baselines(note))
    note += f"embeddings of the same lines, each by its own tokens{end}"
    lines = [*losses.stretches] if losses else []
    sentences = JudgedSentences(Sentences.of_lines(lines), by=TokenPooling.of(parent).similarity)
    if pairs is not None:
        lines = lines or some(pairs.sentences, request.sequences)
        both = Sentences.of_lines([*pairs.first, *pairs.second])
        sentences = replace(sentences, sentences=Sentences.of_lines(lines), pairs=both, scores=pairs.scores)
    return Readings(whole, children, sentences, len(lines), whole.tokens(lines).count, Baselines(note))


def _check_own_tokens(networks: Compared, request: JudgeRequest) -> None:
    """Raise ``ValueError`` for what children of other tokens are not judged by, or without tokenizers."""
    of_other_tokens = "a child of other tokens than its parent's"
    if domains_of(request.text):
        raise ValueError(f"{of_other_tokens} is judged on one text at a time: give --text FILE")
    if request.loops:
        raise ValueError(f"{of_other_tokens} has no prompts in common with it: leave --loops out")
    checkpoints = [*(each.checkpoint for each in networks.children), networks.parent]
    for checkpoint in checkpoints:
        if checkpoint.packed:
            place = str(checkpoint.place)
            raise ValueError(f"{of_other_tokens} is compared in memory, and {place!r} is stored quantised")
        try:
            stock_tokenizer(checkpoint.folder)
        except ValueError as error:
            sizes = " and ".join(str(each.layout.vocab) for each in checkpoints)
            raise ValueError(
                f"vocabularies of {sizes} tokens cannot be compared without all tokenizers: {error}"
            ) from None


def _shares(parent: OwnTokens, children: Sequence[OwnTokens], stretches: Sequence[str]) -> str:
    """Return the share of the parent's predictions that each child is compared with, as text."""
    counts = np.zeros(1 + len(children))
    for stretch in stretches:
        places = parent.places(stretch).keys()
        counts += [len(places), *(len(places & child.places(stretch).keys()) for child in children)]
    return ", ".join(f"{share:.1%}" for share in counts[1:] / max(1.0, counts[0]))


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
    """Return the losses of a child on a text, compared with its parent and with other networks of its size.

    These are carvings of the parent, ``random`` and ``uniform``, or the parent with the same number of
    experts, ``random`` and by ``frequency``; of a child of fewer bytes the ``quantised parent``, too.
    Children ``beside`` it come last, by the ends of their paths. Networks that memory does not hold together,
    or that are stored quantised, read the text layer by layer; where a child has other tokens than the
    parent, each network reads it by its own. The text may be texts of several domains, by name. Encoders may
    be judged by pairs of sentences with scores in the file ``data``; without a text its sentences are the
    text. Decoders answer ``loops`` prompts. ``ValueError``, in one line, for what cannot be compared.
    """
    judging = JudgeRequest(None if text is None else str(text), data, sequences, length, loops)
    running = compute(request)  # a device that is not here is refused first
    with ExitStack() as stack:
        networks = Compared.opened([child, *beside], parent, stack, progress)
        judging.check(networks.parent)
        vocab = networks.parent.layout.vocab
        if any(each.checkpoint.layout.vocab != vocab for each in networks.children):
            readings = by_own_tokens(networks, judging, running, progress)
        elif why := networks.why_by_layers():
            readings = by_layers(why, networks, judging, running, progress)
        else:
            readings = in_memory(networks, judging, running, progress)
        return _judged(readings, networks, judging, progress)


def _judged(readings: Readings, compared: Compared, request: JudgeRequest, progress: Progress) -> Evaluated:
    """Return the measures of each row: of the child, the parent, other networks of its size, and children."""
    child, *neighbours = compared.children
    params, others = child.params, readings.others
    rows: dict[str, tuple[int, Sequence[Reader]]] = {
        "parent": (params_of(compared.parent), [readings.parent])
    }
    for name, draws in {"child": readings.children[:1], **others.rows}.items():
        rows[name] = (others.params.get(name, params), draws)
    names = names_of([other.place.resolve() for other in neighbours])
    for name, other, reader in zip(names, neighbours, readings.children[1:], strict=True):
        rows[name] = other.params, [reader]
    readers = [reader for _, several in rows.values() for reader in several]  # the parent is the first
    judged = iter(readings.text.measures(readers, progress))
    by_name = {
        name: judged_network(name, params, [next(judged) for _ in several])
        for name, (params, several) in rows.items()
    }
    note = "; ".join(filter(None, [others.note, *settings_notes(compared.parent)]))
    networks = [by_name.pop("child"), *by_name.values()]
    return Evaluated(
        **networks[0].values,
        sequences=readings.sequences,
        tokens=readings.tokens,
        parent_perplexity=networks[1].perplexity,
        networks=networks,
        note=note,
        shortened=readings.shortened,
        prompts=min(request.loops, readings.sequences) or None,
        tasks=[],
    )
