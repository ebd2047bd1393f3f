"""A child compared with its parent, and with others: open, refuse, choose readers, judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from zerolm.evaluation.comparable import Compared, names_of
from zerolm.evaluation.evaluated import Evaluated, judged_network
from zerolm.evaluation.judged_text import JudgeRequest
from zerolm.evaluation.readers import Reader
from zerolm.evaluation.readings import Readings, by_layers, by_own_tokens, in_memory
from zerolm.evaluation.same_size import params_of
from zerolm.networks.compute import Compute, compute
from zerolm.networks.pooling import settings_note
from zerolm.progress import Progress, silent
from zerolm.settings.compute import USUALLY, RunningRequest
from zerolm.text.defaults import LENGTH, SEQUENCES


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
    with TemporaryDirectory(prefix="zerolm-tokens-") as folder:
        networks = Compared.opened([child, *beside], parent, Path(folder), progress)
        judging.check(networks.parent)
        readings = _readings(networks, judging, running, progress)
        return _judged(readings, networks, judging, progress)


def _readings(networks: Compared, request: JudgeRequest, running: Compute, progress: Progress) -> Readings:
    """Return the readers of all networks and the text that they read."""
    vocab = networks.parent.layout.vocab
    if any(each.checkpoint.layout.vocab != vocab for each in networks.children):
        return by_own_tokens(networks, request, running, progress)
    if why := networks.why_by_layers():
        return by_layers(why, networks, request, running, progress)
    return in_memory(networks, request, running, progress)


def _judged(readings: Readings, compared: Compared, request: JudgeRequest, progress: Progress) -> Evaluated:
    """Return the measures of each row: of the child, the parent, other networks of its size, and children."""
    child, *neighbours = compared.children
    params = child.params
    rows: dict[str, tuple[int, Sequence[Reader]]] = {}
    rows["parent"] = params_of(compared.parent, None), [readings.parent]
    rows["child"] = (readings.params.get("child", params), readings.children[:1])
    for name, draws in readings.others.items():
        rows[name] = (readings.params.get(name, params), draws)
    names = names_of([other.place.resolve() for other in neighbours])
    for name, other, reader in zip(names, neighbours, readings.children[1:], strict=True):
        rows[name] = other.params, [reader]
    readers = [reader for _, several in rows.values() for reader in several]  # the parent is the first
    judged = iter(readings.text.measures(readers, progress))
    by_name = {
        name: judged_network(name, params, [next(judged) for _ in several])
        for name, (params, several) in rows.items()
    }
    note = "; ".join(filter(None, [readings.note, settings_note(compared.parent)]))
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
