"""Measurements of ``subnets.py``: sub-networks judged, what foretells them, and what each takes."""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from cut_capacity import CutCapacity
from measured_cuts import measured_losses
from timing import note

from zerolm.architecture import Floats
from zerolm.carving.carve import carve
from zerolm.carving.request import Destination, MethodRequest, Methods, methods_of
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.groundtruth.truth import check, thinned
from zerolm.lab.subnets.judged import slices_of
from zerolm.lab.subnets.judging import Judging, judged_by
from zerolm.lab.subnets.request import CutRequest, DrawRequest, JudgingRequest
from zerolm.lab.subnets.slicing import Sizes, cuts_of, slice_parent
from zerolm.lab.verbs.slice import SlicesReport
from zerolm.lab.zero_cost.measure import ProxyRequest, Selection, measure
from zerolm.lab.zero_cost.settings import Settings
from zerolm.networks.compute import compute
from zerolm.networks.opener import load_model
from zerolm.planning.size_request import SizeRequest
from zerolm.settings.compute import USUALLY
from zerolm.spaces.choices import by_layer
from zerolm.units.importance.criteria import WEIGHTS_ONLY, criterion_of, needs_tokens
from zerolm.units.importance.criterion import Additive, Criterion, FirstUnits
from zerolm.units.kept_units import Cut, dimensions

CALIBRATED: Final = 32
"""Sequences of calibration text, or 256 lines of an encoder's."""
MEASURED_ON: Final = 4
"""One in so many sequences measures single cuts, which takes long."""
PROXIED: Final = 50
PROXY_BATCH: Final = Settings(batch=16, length=64, parts=8)
"""Sub-networks that proxies are computed of, and the tokens that they see: an eighth of the usual."""
KINDS: Final = ("groups", "ffn")
SETS: Final = ("first", "second")


def sliced(
    parent: Path, draw: DrawRequest, cutting: CutRequest, judging: JudgingRequest, place: Path, name: str
) -> dict[str, Any]:
    """Return the document of sub-networks on the judging set of this name, kept as a file."""
    file = place / f"{cutting.criterion}-{name}.json"
    if not file.exists():
        start = time.process_time()
        result = slice_parent(parent, draw, cutting, judging, progress=note)
        slices = slices_of(parent.name, result, draw, cutting, judging)
        document = SlicesReport(**vars(slices)).to_json()
        document["processor"] = (time.process_time() - start) / len(result.sizes)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))
    return dict(json.loads(file.read_text()))


def sizes_in(document: dict[str, Any], depth: int) -> list[Sizes]:
    """Return the sizes of the layers of each sub-network."""
    choices = [entry["architecture"] for entry in check(document["benchmark"]).model_dump()["architectures"]]
    columns = [[by_layer(one[name], depth) for name in ("kv_heads", "ffn")] for one in choices]
    return [tuple(zip(*pair, strict=True)) for pair in columns]


def criterion_in(checkpoint: Checkpoint, cutting: CutRequest, judging: JudgingRequest) -> Criterion:
    """Return the criterion by which ``sliced`` cut, on the same tokens."""
    if not needs_tokens(cutting.criterion):
        return criterion_of(cutting.criterion, checkpoint, ledger_of(checkpoint))
    sizes = {"sequences": judging.sequences, "length": judging.length}
    methods = Methods(cutting.criterion, text=cutting.calibration, **sizes)
    return Session(checkpoint, methods, note).importance()


def foretold(
    parent: Path, cutting: CutRequest, judging: JudgingRequest, document: dict[str, Any], place: Path
) -> dict[str, list[float]]:
    """Return what the weights, the tokens and the prices say of each sub-network; higher is better.

    *kept X* is the sum of criterion X over what is kept; *kept share X* the mean over layers and kinds of
    the share of X that is kept. *predicted loss* adds up losses of single cuts, negated.
    """
    file = place / f"{cutting.criterion}-foretold.json"
    if file.exists():
        return dict(json.loads(file.read_text()))
    checkpoint = Checkpoint.open(parent)
    ledger = ledger_of(checkpoint)
    text = str(cutting.calibration)
    sequences = CALIBRATED if checkpoint.family.task == "next" else 8 * CALIBRATED
    session = Session(checkpoint, Methods(text=text, sequences=sequences, length=256), note)
    by_name: dict[str, Criterion] = {
        name: criterion_of(name, checkpoint, ledger)
        for name in WEIGHTS_ONLY
        if name not in ("random", "prefix")
    }
    for name in ("amp", "output_energy", "surgeon"):
        session.methods = Methods(name, text=text, sequences=sequences, length=256)
        by_name[name] = session.importance()
    chosen = criterion_in(checkpoint, cutting, judging)
    cuts = cuts_of(checkpoint, chosen, sizes_in(document, checkpoint.layout.depth))
    columns: dict[str, list[float]] = {}
    for name, criterion in by_name.items():
        if isinstance(criterion, Additive):
            sums, shares = zip(*(_kept(criterion, cut) for cut in cuts), strict=True)
            columns[f"kept {name}"], columns[f"kept share {name}"] = list(sums), list(shares)
    literal = CutCapacity.of(checkpoint)
    columns["kept zerolm, its choice"] = [
        sum(literal.score(c.layer, kind, len(c[kind])) for c in cut.layers for kind in KINDS) for cut in cuts
    ]
    session.methods = Methods(text=text, sequences=sequences, length=256)
    few = session.tokens.spread(sequences // MEASURED_ON).divided().compared
    measured = partial(measured_losses, session.model, few, pooling=session.pooling, progress=note)
    for how, losses in (("prices", partial(session.table, with_stream=False)), ("measured", measured)):
        start = time.process_time()
        table = losses(chosen, list(KINDS))
        columns[f"predicted loss, {how}"] = [-table.predicted(cut) for cut in cuts]
        columns[f"seconds, {how}"] = [time.process_time() - start]
    file.write_text(json.dumps(columns))
    return columns


def _kept(criterion: Additive, cut: Cut) -> tuple[float, float]:
    """Return the sum of what is kept, and the mean share of it in each kind of each layer."""
    sums, shares = [], []
    for kept in cut.layers:
        for kind in KINDS:
            worth = criterion.importance[kind][kept.layer]
            sums.append(float(worth[kept[kind]].sum()))
            shares.append(sums[-1] / float(worth.sum()) if worth.sum() else 1.0)
    return sum(sums), float(np.mean(shares))


def seconds_alone(parent: Path, criterion: str, judging: JudgingRequest, count: int = 3) -> dict[str, float]:
    """Return the processor's seconds to carve a child with its proof, to open it and to judge it; means."""
    taken: dict[str, list[float]] = {"carve": [], "open": [], "judge": []}
    checkpoint = Checkpoint.open(parent)
    judged, _ = judged_by(checkpoint, judging)
    work = Judging(str(parent), judged, compute(USUALLY))
    work([Cut.whole(dimensions(checkpoint))])  # opens the parent
    for number in range(count):
        share = 0.5 + 0.15 * number
        size = SizeRequest.of({"ffn": share})
        methods = methods_of(size, MethodRequest(criterion=criterion))
        units = (checkpoint.layout.kv_heads, int(share * checkpoint.layout.ffn))
        (cut,) = cuts_of(checkpoint, FirstUnits(None), [(units,) * checkpoint.layout.depth])
        with tempfile.TemporaryDirectory() as scratch:
            child = Path(scratch) / "child"
            for name, step in (
                ("carve", partial(carve, parent, size, methods, Destination(child))),
                ("open", partial(load_model, child, checkpoint.family.task == "next")),
                ("judge", partial(work, [cut])),
            ):
                start = time.process_time()
                step()
                taken[name].append(time.process_time() - start)
    return {name: float(np.mean(each)) for name, each in taken.items()}


def proxies(document: dict[str, Any], file: Path) -> None:
    """Keep every proxy of some of the sub-networks, with random weights, in a file."""
    if file.exists():
        return
    start = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        labels = Path(scratch) / "labels.json"
        labels.write_text(json.dumps(document["benchmark"]))
        chosen = Selection(limit=PROXIED)
        request = ProxyRequest(settings=PROXY_BATCH, networks=chosen, store=Path(scratch) / "store")
        table = measure(str(labels), request, progress=note).table
    few = thinned(check(document["benchmark"]), PROXIED)
    seconds = (time.process_time() - start) / PROXIED
    ids = [entry.id for entry in few.architectures]
    kept = {"ids": ids, "columns": table.proxies, "left_out": table.left_out, "seconds": seconds}
    file.write_text(json.dumps(kept))


def column(document: dict[str, Any], metric: str) -> Floats:
    """Return a result of each sub-network, (n,), signed so that higher is better."""
    benchmark = document["benchmark"]
    sign = 1.0 if benchmark["directions"][metric] == "higher" else -1.0
    return sign * np.array([entry["results"][metric] for entry in benchmark["architectures"]])
