"""From a parent and a request to a child on disk: checked, planned, repaired, written and proven."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from zerolm.carving.budgeted_units import of_experts, ready, with_fewer_experts
from zerolm.carving.finished_child import finished
from zerolm.carving.formats import FORMATS
from zerolm.carving.parent_and_request import (
    ANYWHERE,
    NOWHERE,
    Carving,
    ParentModel,
    quantised_types,
    within_budgets,
)
from zerolm.carving.planned_child import PlannedChild, in_time, planned
from zerolm.carving.recipe import HEADER, read_recipe, recipe_document
from zerolm.carving.request import Destination, Methods
from zerolm.carving.result import Carved
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.unpack import gguf_file
from zerolm.checkpoints.identity import fingerprint
from zerolm.checkpoints.remedies import quantised
from zerolm.costs import CostModel
from zerolm.families.reading import current
from zerolm.io.folders import check_new, scratch_folder
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest, WeightsRequest
from zerolm.planning.size_spaces import SIZE_SPACES
from zerolm.planning.sizes import costs_of
from zerolm.progress import Progress, silent
from zerolm.settings.compute import ComputeRequest


def carve(
    parent: str | Path,
    size: SizeRequest,
    methods: Methods,
    destination: Destination = NOWHERE,
    *,
    costs: CostModel | None = None,
    compute: ComputeRequest = ANYWHERE,
    progress: Progress = silent,
) -> Carved:
    """Return a child carved from a parent, a folder or a model of the hub, written where a folder is named.

    ``compute`` sets the device and precision of networks. Without ``costs``, weight bytes are those of the
    stored types. An interrupted run resumes when it is started again. Raises ``ValueError``, in one line, for
    an impossible request; nothing is written then.
    """
    begun = time.monotonic()
    size.check()
    size.experts.check()
    file = gguf_file(parent)
    _check_place(destination, parent, file)
    if file is not None and size.cuts_experts_alone and not size.vocabulary.cuts:
        from zerolm.carving.experts.carve_gguf import GgufExpertCarving
        from zerolm.carving.experts.gguf_mixture import GgufMixture

        compute.check()
        mixture = GgufMixture.open(file)
        return GgufExpertCarving(mixture, size, methods, destination, compute, progress).carved()
    checkpoint = _opened(parent, destination, packed=size.experts.are_cut or file is not None)
    place = replace(destination, form=destination.form or "hf")
    model, costs = ParentModel(str(parent), checkpoint), costs or StoredCosts()
    request = Carving(model, size, methods, place, costs, compute, progress, None)
    compute.check()
    with scratch_folder(place.folder) as folder:
        request = _within_budgets(_with_sequences(request))
        carving = ready(with_fewer_experts(request, folder), folder)
        carving = in_time(_proven(carving), time.monotonic() - begun)
        return finished(carving, planned(carving))


def rebuild(
    recipe: str | Path,
    parent: str | Path,
    destination: Destination = NOWHERE,
    *,
    text: str | Path | None = None,
    costs: CostModel | None = None,
    compute: ComputeRequest = ANYWHERE,
    progress: Progress = silent,
) -> Carved:
    """Return the child of a recipe, carved from its parent again.

    Without repair the bytes are the same on any machine. With repair ``text`` must be the recipe's, and the
    bytes are the same on the same machine. The ``notes`` report differences.
    """
    file = gguf_file(parent)
    _check_place(destination, parent, file)
    document = None if file is None else recipe_document(Path(recipe))
    if file is not None and isinstance(document, dict) and HEADER in document:
        from zerolm.carving.experts.carve_gguf import rebuilt_file

        return rebuilt_file(file, Path(recipe), document, destination, progress)
    checkpoint, costs = _opened(parent, destination, packed=True), costs or StoredCosts()
    ledger_of(checkpoint, progress=progress)  # rejects weights that are not finite
    read = read_recipe(Path(recipe), checkpoint, fingerprint(checkpoint, progress=progress))
    if checkpoint.packed and read.experts is None:
        raise ValueError(f"checkpoint {str(checkpoint.folder)!r}: {quantised(checkpoint.config)}")
    if quantised_types(checkpoint):
        alone = bool(read.types) and read.cut.is_whole and read.width is None
        WeightsRequest(requantize=True).check_parent(quantised_types(checkpoint), types_alone=alone)
    methods = read.methods(None if text is None else str(text))
    place = replace(destination, form=destination.form or read.fields.written_as)
    size = SizeRequest(shape=read.fields.shape, space=read.fields.space)
    model, is_written = ParentModel(str(parent), checkpoint), place.folder is not None
    carving = Carving(model, size, methods, place, costs, compute, progress, None, read)
    with scratch_folder(place.folder) as folder:
        if read.experts is not None:
            model = of_experts(carving).as_parent(folder / "experts")
        if read.kept is not None:
            from zerolm.carving.vocabulary.cut_parent import cut_parent

            model = cut_parent(model, read.kept, folder, methods.text, is_written, progress=progress)
        carving, note = replace(carving, parent=model), ""
        carving = carving.running()
        if carving.session is not None:
            read.check_text(carving.session.tokens.text)
            note = read.other_tokens(carving.session.tokens.digest())
        carving = _proven(carving)
        cut = carving.narrowed(read.cut, read.width)
        return finished(carving, PlannedChild(cut, notes=(note,), types=read.types or {}))


def _with_sequences(request: Carving) -> Carving:
    """Return the request with the number of sequences that its parent needs, unless it names one."""
    if request.methods.sequences is not None or request.methods.text is None:
        return request
    from zerolm.carving.pace import usual_sequences

    sequences = usual_sequences(request.checkpoint, request.methods)
    return replace(request, methods=replace(request.methods, sequences=sequences))


def _within_budgets(request: Carving) -> Carving:
    """Return the request with budgets as numbers; ``ValueError`` if its parent does not allow it."""
    checkpoint, size, form = request.checkpoint, request.size, str(request.destination.form)
    if size.space is not None:
        SIZE_SPACES[size.space].choices(checkpoint)
    if request.destination.folder is not None and size.budgets and not size.is_uniform:
        request.format.check_uneven(checkpoint)
    params = costs_of(checkpoint, request.costs)["params"]
    within = within_budgets(size, request.methods, form, request.whole_costs, params)
    if size.vocabulary.cuts:
        size.weights.check_parent(quantised_types(checkpoint), types_alone=False)
    gguf = checkpoint.family.gguf if form == "gguf" else None
    return replace(request, size=replace(within, is_square=gguf is not None and gguf.square))


def _proven(carving: Carving) -> Carving:
    """Return the carving, with its parent compared with stock software if a child is written."""
    if carving.destination.folder is None or carving.parent.proof is not None:
        return carving
    from zerolm.children.parent_proof import compare_with_stock
    from zerolm.networks.compute import compute

    whole, memory = carving.checkpoint.whole, compute(carving.compute).limit
    ledger_of(whole, progress=carving.progress)  # rejects weights that are not finite
    proof = compare_with_stock(whole, memory, carving.progress)
    return replace(carving, parent=replace(carving.parent, proof=proof))


def _opened(parent: str | Path, destination: Destination, *, packed: bool) -> Checkpoint:
    """Return the parent, on request also a ``packed`` one; ``ValueError`` where no child can be written."""
    checkpoint, place = Checkpoint.open(parent, packed=packed), destination.folder
    if place is None:
        return checkpoint
    _check_outside(place, checkpoint.root)
    if destination.form in FORMATS:
        FORMATS[str(destination.form)].check_tokenizer(checkpoint)
    if current() is not None:
        from zerolm.networks.opener import check_stock_class

        check_stock_class(checkpoint)
    return checkpoint


def _check_place(destination: Destination, parent: str | Path, file: Path | None) -> None:
    """Raise ``ValueError`` for an output that cannot be made, or holds its parent: before any download."""
    place = destination.folder
    if place is None:
        return
    if file is not None and file.resolve().is_relative_to(os.path.realpath(place)):
        raise ValueError(f"output {str(place)!r} holds the parent, which is never touched; name another")
    if Path(parent).is_dir() and not place.exists():
        _check_outside(place, Path(parent))
    check_new(place, destination.force)


def _check_outside(place: Path, parent: Path) -> None:
    if Path(os.path.realpath(place)).is_relative_to(parent.resolve()):  # loops of links resolve to none
        raise ValueError(
            f"output {str(place)!r} is the parent or in it, which is never touched; name another"
        )
