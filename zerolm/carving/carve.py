"""From a parent and a request to a plan, and to a child on the disk that was opened again and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from zerolm.carving.export.child_tensors import Child
from zerolm.carving.export.formats import FORMATS, UNEVEN, Format
from zerolm.carving.importance.criteria import criterion_of, needs_tokens
from zerolm.carving.importance.criterion import Criterion, Indifferent
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.parent_model import ParentModel
from zerolm.carving.planning.part_costs import StoredCosts, stored_bits, window_note
from zerolm.carving.planning.plan import Planned, finalists
from zerolm.carving.planning.size_spaces import SIZE_SPACES
from zerolm.carving.planning.sizes import (
    budgets_of,
    costs_of,
    heuristic_of,
    plan_of,
    plans_of,
    rounding,
    width_note,
)
from zerolm.carving.recipe import Recipe, document, read_recipe, versions_of, with_kept
from zerolm.carving.request import (
    AUTO,
    BY_LOSS,
    USED,
    Destination,
    Methods,
    SizeRequest,
    VocabularyRequest,
    WeightsRequest,
)
from zerolm.carving.result import Carved, CarvingMethod, TypedWeights, rows_of, spectrum, stream, widths
from zerolm.carving.width.narrowing import Basis, Width
from zerolm.carving.width.weights_basis import weights_basis
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.unpack import gguf_file
from zerolm.checkpoints.identity import check_unchanged, fingerprint
from zerolm.checkpoints.origin import origin_of
from zerolm.checkpoints.remedies import quantised
from zerolm.costs import CostModel
from zerolm.families.config import CoreSizes
from zerolm.families.reading import current
from zerolm.io.folders import REPORT, check_new, new_folder
from zerolm.progress import Progress, about, announce, silent
from zerolm.settings.compute import ComputeRequest
from zerolm.text.defaults import GENERATED, NO_FILES

if TYPE_CHECKING:
    from zerolm.carving.bits.planner import TypePlanner
    from zerolm.carving.bits.typed_child import TypedChild, Types
    from zerolm.carving.planning.sensitivity import LossTable
    from zerolm.carving.pruning import Repaired
    from zerolm.carving.session import Session
    from zerolm.carving.vocabulary.planned_size import Beside
    from zerolm.text.tokens import Tokens

NOWHERE: Final = Destination()
ANYWHERE: Final = ComputeRequest()
FINALISTS: Final = 3
"""So many of the best plans at most are repaired and measured before one of them is chosen."""
BY_WEIGHTS: Final = (
    "chosen by weights alone, for research: Gemma 3 270M with 90 % of its FFN by capacity had perplexity "
    "90,000 on English instead of 24, and 28 calibrated on tokens sampled from it"
)
WORTHWHILE: Final = 0.01
"""The share of the parameters that fewer tokens have to save to be named where they stay."""
WORTH_TOKENS: Final = 0.02
"""The share of the loss that twice the tokens have to gain to be named."""
REQUANTISED: Final = "the parent is quantised already: losses are beside it as it is"


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
    """Carve a child out of a parent, a folder or a model of the hub, and write it where a folder is named.

    ``compute`` says where networks run, and how. Without ``costs``, weight bytes are those of the types that
    weights are stored in. A run that was killed goes on when it is started again. Raises ``ValueError``, in
    one line, for what cannot be done; nothing is written then.
    """
    size.check()
    size.experts.check()
    file = gguf_file(parent) if size.experts.are_cut else None
    if file is not None:
        from zerolm.carving.experts.carve_gguf import GgufExpertCarving

        compute.check()
        return GgufExpertCarving(file, size, methods, destination, compute, progress).carved()
    checkpoint = _opened(parent, destination, packed=size.experts.are_cut)
    costs = costs or StoredCosts()
    if size.experts.are_cut:
        from zerolm.carving.experts.carve_experts import ExpertCarving

        compute.check()
        mixture = str(parent), checkpoint, size, methods, destination, costs, compute, progress
        return ExpertCarving(*mixture).carved()
    if size.space is not None:
        SIZE_SPACES[size.space].choices(checkpoint)
    limits = budgets_of(size.budgets, _whole_costs(checkpoint, costs, size.space))
    limits = size.weights.limits(limits, costs_of(checkpoint, costs)["params"])
    if methods.sequences is None and methods.text is not None:
        from zerolm.carving.amount import usual_sequences

        methods = replace(methods, sequences=usual_sequences(checkpoint, methods))
    methods.check()
    compute.check()
    place = replace(destination, form=destination.form or "hf")
    size.weights.check(str(place.form), limits)
    size.vocabulary.check(methods.text, limits)
    if size.vocabulary.cuts:
        size.weights.check_parent(_quantised(checkpoint), types_alone=False)
    size, whole = size.within(limits), ParentModel(str(parent), checkpoint)
    with TemporaryDirectory(prefix="zerolm-tokens-") as folder:
        model = _with_vocabulary(whole, size, methods, place, costs, compute, Path(folder), progress)
        if model.checkpoint.fewer is not None and _nothing_else(model.checkpoint, size, costs):
            methods, size = Methods(), SizeRequest(vocabulary=size.vocabulary)  # nothing but tokens leaves
        session = _session(model.checkpoint, methods, compute, progress)
        return Carving(model, size, methods, place, costs, compute, progress, session).planned()


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
    """Carve the child of a recipe out of its parent again.

    Without repair the bytes are the same anywhere; with it ``text`` must be the text that the recipe names,
    and the bytes are the same on the same machine. The ``note`` says where they are not.
    """
    file = gguf_file(parent)
    if file is not None:
        from zerolm.carving.experts.carve_gguf import rebuilt_file

        carved = rebuilt_file(file, Path(recipe), destination, progress)
        if carved is not None:
            return carved
    checkpoint, costs = _opened(parent, destination, packed=True), costs or StoredCosts()
    ledger_of(checkpoint, progress=progress)  # refuses weights that are not finite
    read = read_recipe(Path(recipe), checkpoint, fingerprint(checkpoint, progress=progress))
    if checkpoint.packed and read.experts is None:
        raise ValueError(f"checkpoint {str(checkpoint.folder)!r}: {quantised(checkpoint.config)}")
    if _quantised(checkpoint):
        alone = bool(read.types) and read.cut.is_whole and read.width is None
        WeightsRequest(requantize=True).check_parent(_quantised(checkpoint), types_alone=alone)
    methods = read.methods(None if text is None else str(text))
    if read.experts is not None:
        from zerolm.carving.experts.carve_experts import ExpertCarving

        size = SizeRequest(shape=read.method.shape)
        mixture = str(parent), checkpoint, size, methods, destination, costs, compute, progress
        return ExpertCarving(*mixture, recipe=read).carved()
    place = replace(destination, form=destination.form or read.method.format)
    size = SizeRequest(shape=read.method.shape, space=read.method.space)
    with TemporaryDirectory(prefix="zerolm-tokens-") as folder:
        model = ParentModel(str(parent), checkpoint)
        if read.kept is not None:
            from zerolm.carving.vocabulary.cut_parent import cut_parent

            model = cut_parent(
                model, read.kept, Path(folder), methods.text, place.folder is not None, progress=progress
            )
        session = _session(model.checkpoint, methods, compute, progress)
        if session is not None:
            read.check_text(session.tokens.text)
        note = "" if session is None else read.other_tokens(session.tokens.digest())
        carving = Carving(model, size, methods, place, costs, compute, progress, session, read)._proven()
        return carving.finished(carving.narrowed(read.cut, read.width), note=note)


def _with_vocabulary(
    parent: ParentModel,
    size: SizeRequest,
    methods: Methods,
    destination: Destination,
    costs: CostModel,
    compute: ComputeRequest,
    folder: Path,
    progress: Progress,
) -> ParentModel:
    """Return the parent with the tokens that are kept; whole, with what fewer would save, if none go.

    Where nothing is given of tokens, a text and budgets choose as many as pay, if they can.
    """
    if not size.vocabulary.cuts and methods.text in NO_FILES:
        return parent
    from zerolm.carving.vocabulary.cut_parent import can_lose_tokens, chosen, cut_parent, suggested

    whole = Carving(parent, size, methods, destination, costs, compute, progress, None)
    is_usual = size.vocabulary.is_usual and bool(size.budgets) and not whole.usual_tokens_stay
    is_usual = is_usual and can_lose_tokens(parent.checkpoint)
    if not size.vocabulary.cuts and not is_usual:
        return suggested(parent, methods.text, costs, progress)
    ledger_of(parent.checkpoint, progress=progress)  # refuses weights that are not finite
    request = replace(size, vocabulary=VocabularyRequest(AUTO)) if is_usual else size
    model, kept = chosen(parent, request, methods, costs, whole.beside(), progress)
    if len(kept) == parent.checkpoint.layout.vocab:
        if not size.cuts_layers:
            raise ValueError(f"nothing would be cut: all {len(kept):,} tokens stay")
        return model
    is_written = destination.folder is not None
    try:
        return cut_parent(model, kept, folder, methods.text, is_written, progress=progress)
    except ValueError as error:
        if not is_usual:
            raise
        announce(progress, f"all tokens stay: {error}")
        return suggested(parent, methods.text, costs, progress)


def _nothing_else(checkpoint: Checkpoint, size: SizeRequest, costs: CostModel) -> bool:
    """Return whether a checkpoint keeps the budgets as it is, with no share of other units to leave."""
    if size.space is not None or any(share < 1 for share in size.keep.values()):
        return False
    whole = costs_of(checkpoint, costs)
    return all(whole[name.removeprefix("max_")] <= limit for name, limit in size.budgets.items())


def _opened(parent: str | Path, destination: Destination, *, packed: bool) -> Checkpoint:
    """Return the parent, when the child may be written where it is to be; if asked, also a ``packed`` one."""
    place = destination.folder
    if place is None:
        return Checkpoint.open(parent, packed=packed)
    if Path(parent).is_dir() and not place.exists():
        _check_outside(place, Path(parent))
    check_new(place, destination.force)  # before a model of the hub is downloaded
    checkpoint = Checkpoint.open(parent, packed=packed)
    _check_outside(place, checkpoint.root)
    if destination.form in FORMATS:
        FORMATS[str(destination.form)].check_tokenizer(checkpoint)
    if current() is not None:
        from zerolm.networks.opener import check_stock_class

        check_stock_class(checkpoint)
    return checkpoint


def _whole_costs(checkpoint: Checkpoint, costs: CostModel, space: str | None) -> dict[str, int]:
    """Return the costs of the parent; the bytes of a quantised one are those of its file."""
    whole = costs_of(checkpoint, costs, space=space)
    if _quantised(checkpoint) and checkpoint.source is not None and isinstance(costs, StoredCosts):
        whole["weight_bytes"] = checkpoint.source.bytes
    return whole


def _quantised(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the types of a quantised parent; none of another."""
    return checkpoint.source.quantised if checkpoint.source else ()


def _check_outside(place: Path, parent: Path) -> None:
    if place.resolve().is_relative_to(parent.resolve()):
        raise ValueError(
            f"output {str(place)!r} is the parent or in it, which is never touched; name another"
        )


def _session(
    checkpoint: Checkpoint, methods: Methods, compute: ComputeRequest, progress: Progress
) -> Session | None:
    """Return what runs the parent on tokens; None where no method needs any.

    ``ValueError`` for a device that is not here, also where nothing runs, and for a parent that memory does
    not hold where it has to generate a text.
    """
    if methods.text is None:
        if compute != ANYWHERE:
            from zerolm.networks.compute import compute as checked

            checked(compute)
        return None
    from zerolm.carving.session import Session

    session = Session(checkpoint, methods, progress, compute)
    if methods.text == GENERATED:
        from zerolm.text.generated import check_room

        check_room(checkpoint, session.compute)
    return session


@dataclass(frozen=True, eq=False)
class Carving:
    """A parent and what is to be done with it; ``session`` is None where no tokens are needed.

    ``recipe`` is that of a child that is built again.
    """

    parent: ParentModel
    size: SizeRequest
    methods: Methods
    destination: Destination
    costs: CostModel
    compute: ComputeRequest
    progress: Progress
    session: Session | None
    recipe: Recipe | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The parent as it is carved, with the tokens that are kept."""
        return self.parent.checkpoint

    @property
    def format(self) -> Format:
        return FORMATS[str(self.destination.form)]

    @cached_property
    def typing(self) -> TypePlanner | None:
        """The planner of types of weights; None where they stay as they are stored."""
        is_typed = self.size.weights.are_chosen(str(self.destination.form), self.size.budgets)
        if not is_typed or self.recipe is not None:
            return None
        from zerolm.carving.bits.planner import TypePlanner

        return TypePlanner(self.checkpoint, self.size, self.session, self.costs, self.progress)

    @cached_property
    def basis(self) -> Basis:
        """The basis of the stream: that of the session, without one by the weights."""
        if self.session is not None:
            return self.session.basis
        return weights_basis(self.checkpoint, progress=self.progress)

    def costs_of(self, cut: Cut | None = None) -> dict[str, int]:
        if cut is None:
            return _whole_costs(self.checkpoint, self.costs, self.size.space)
        return costs_of(self.checkpoint, self.costs, cut, self.size.space)

    def planned(self) -> Carved:
        """Plan the sizes, and return the outcome."""
        self._check_possible()
        return self._proven()._in_time()._planned()

    def _proven(self) -> Carving:
        """Return the carving, its parent compared with stock software's if a child is written."""
        if self.destination.folder is None or self.parent.proof is not None:
            return self
        from zerolm.carving.export.parent_proof import compare_with_stock
        from zerolm.networks.compute import compute

        whole, memory = self.checkpoint.whole, compute(self.compute).limit
        ledger_of(whole, progress=self.progress)  # refuses weights that are not finite
        proof = compare_with_stock(whole, memory, self.progress)
        return replace(self, parent=replace(self.parent, proof=proof))

    def _in_time(self) -> Carving:
        """Return the carving with as many sequences as its time allows, and say what it takes."""
        session, methods = self.session, self.methods
        if session is None or (methods.for_ is None and self.progress is silent):
            return self
        from zerolm.carving.pace import CarvingWork, announcement, fitting

        work = CarvingWork(
            dimensions(self.checkpoint),
            methods if methods.text == GENERATED else _read(methods, session.tokens),
            self._narrows,
            self._finalists(session),
            self.destination.folder is not None,
            0 if self.typing is None else len(self.typing.types),
            self.checkpoint.layout.vocab,
        )
        if methods.for_ is None:
            announced = announcement(work, session.pace)
            if announced:
                announce(self.progress, announced)
            return self
        sequences = fitting(work, session.pace, methods.for_)
        methods = replace(methods, sequences=sequences)
        session = _session(self.checkpoint, methods, self.compute, self.progress)
        announce(self.progress, _time_note(methods))
        return replace(self, methods=methods, session=session)

    def _finalists(self, session: Session) -> int:
        """Return how many of the best plans are repaired and measured before one of them is chosen."""
        many = self.methods.plan == "prices" and bool(self.size.budgets) and session.foretells_repair
        return FINALISTS if self._narrows or many else 0

    @property
    def _narrows(self) -> bool:
        """Whether losses choose the width of the stream."""
        size = self.size
        is_free = bool(size.budgets) and size.space is None and size.keep.get("hidden") != 1
        return self.checkpoint.family.cut.hidden and is_free and self.methods.plan in BY_LOSS

    def _planned(self) -> Carved:
        checkpoint, size, session = self.checkpoint, self.size, self.session
        if self.typing is not None:
            return self._typed(self.typing)
        if checkpoint.fewer is not None and not size.cuts_layers:
            return self.finished(Cut.whole(dimensions(checkpoint)))
        criterion = self._criterion()
        if self.methods.plan == "heuristic":
            return self.finished(heuristic_of(checkpoint, criterion, size))
        if self.methods.plan == "weights" or session is None:
            return self._with_notes(plan_of(checkpoint, criterion, size, self.costs))
        table = self._table(session, criterion)
        ranked = [plans_of(checkpoint, each, size, self.costs) for each in table.every]
        plan, measured = self._best_measured(session, finalists(ranked, FINALISTS))
        name, losses = self._shown(table)
        predicted = losses.predicted(self.narrowed(plan.cut, plan.width))
        by_width = losses.stream.by_width(checkpoint.layout.tied) if losses.stream else None
        return self._with_notes(plan, {name: predicted}, by_width, measured)

    def _shown(self, table: LossTable) -> tuple[str, LossTable]:
        """Return the losses that are losses, with their name: where layers have sizes of their own, what
        repair leaves, if that is known; it gives back more in some layers than in others."""
        if self.size.is_uniform or table.repaired is None:
            return "predicted", table
        return "predicted_repaired", table.repaired

    @property
    def tokens_stay(self) -> str:
        """Return why tokens are not weighed against other units within the budgets; empty where they are."""
        if self.size.space is not None:
            return f"the space {self.size.space}"
        if self.methods.plan not in BY_LOSS:
            return f"--plan {self.methods.plan}"
        return "a quantised parent" if _quantised(self.checkpoint) else ""

    @property
    def usual_tokens_stay(self) -> str:
        """Return why all tokens stay within the budgets where nothing is given of them; empty if they do not.

        Time that is limited is not spent on passes that weigh tokens.
        """
        keeps_all = "--keep 1" if self.size.shares.all is not None else ""
        return self.tokens_stay or keeps_all or ("--for" if self.methods.for_ is not None else "")

    def beside(self) -> Beside:
        """Return the best child within the budgets as a function of its tokens.

        Its loss is that of all other cuts, and of types, in nats a token; of an encoder 1 - cosine.
        ``ValueError`` where it is not known.
        """
        from zerolm.carving.vocabulary.fewer_tokens import shaped
        from zerolm.carving.vocabulary.planned_size import Beside, Rest

        reason = self.tokens_stay
        if self.size.vocabulary.size == AUTO and reason:
            raise ValueError(
                f"--keep-vocab {AUTO} does not weigh tokens against other units beside {reason}: "
                f"{self._two_steps()}"
            )
        session = _session(self.checkpoint, self.methods, self.compute, self.progress)
        whole = replace(self, session=session)

        @cache
        def table() -> Criterion:
            by = whole._losses_by()[0]
            if whole.typing is not None:
                whole.typing.prices(by)  # of the parent's rows, and kept for all numbers of tokens
            return by

        def sized(tokens: int) -> Carving:
            return replace(whole, parent=replace(self.parent, checkpoint=shaped(self.checkpoint, tokens)))

        def best(tokens: int) -> Rest:
            by, child = table(), sized(tokens)
            if child.typing is not None:
                plan = child.typing.foretold(by)[0]
                return Rest(child.costs_of(plan.cut)["params"], plan.loss, plan.bytes)
            planned = plans_of(child.checkpoint, by, self.size, self.costs)[0]
            return Rest(planned.costs["params"], -planned.worth)

        def fits(tokens: int) -> bool:
            return _nothing_else(shaped(self.checkpoint, tokens), self.size, self.costs)

        return Beside(
            lambda tokens: None if fits(tokens) else sized(tokens)._check_sizes(),
            lambda tokens: sized(tokens).costs_of()["params"],
            fits,
            best,
        )

    def _two_steps(self) -> str:
        """Return the commands that cut tokens first, and then what this request does."""
        size, parent, text = self.size, self.parent.name, self.methods.text
        types = f" --format {self.destination.form}" if self.destination.form != "hf" else ""
        whole = " --keep 1" if size.shares.all is not None else ""
        space = f" --space {size.space}" if size.space else ""
        budgets = "".join(f" --{name.replace('_', '-')} {value}" for name, value in size.budgets.items())
        return (
            f"first zerolm carve {parent} --keep-vocab {USED} --text {text} --out few, then "
            f"zerolm carve few{types}{whole}{space}{budgets} --text {text}"
        )

    @property
    def _tokens_note(self) -> str:
        """Return how tokens could leave, too, where they are not among the units of the budgets."""
        vocabulary, fewer = self.parent.vocabulary or {}, self.checkpoint.fewer
        saves, reason = vocabulary.get("saves") or 0, self.usual_tokens_stay
        if not (reason and self.size.budgets and self.size.vocabulary.is_usual and fewer is None):
            return ""
        if saves < WORTHWHILE * self.costs_of()["params"]:
            return ""
        return f"all tokens stay beside {reason}; to cut them too: {self._two_steps()}"

    def _table(self, session: Session, criterion: Criterion) -> LossTable:
        """Return the losses of cutting one layer alone, and of narrowing the stream where that may be."""
        return session.table(criterion, _cuttable(self.checkpoint), with_stream=self._narrows)

    def _losses_by(self) -> Sequence[Criterion]:
        """Return what plans rank by: tables of losses, those that are shown first; else the criterion."""
        typing, session = self.typing, self.session
        by = Indifferent(None) if typing is not None and typing.keeps_all else self._criterion()
        if session is None or (typing is not None and not typing.may_cut) or self.methods.plan not in BY_LOSS:
            return [by]
        table = self._table(session, by)
        return [*(table.every if self._shown(table)[1] is table else reversed(table.every))]

    def _typed(self, typing: TypePlanner) -> Carved:
        """Return the outcome of the best plan of types, beside cuts where anything may be cut."""
        session = self.session
        if typing.keeps_all:
            ledger_of(self.checkpoint, progress=self.progress)  # refuses weights that are not finite
        chosen = typing.best(self._losses_by())
        plan = chosen.plan
        notes = (
            _time_note(self.methods),
            window_note(self.checkpoint, self.costs),
            chosen.sentence(),
            *typing.fit(plan),
            REQUANTISED if _quantised(self.checkpoint) else "",
        )
        typed = TypedWeights(plan.bytes, rows_of(plan.types, self.checkpoint), chosen.to_json())
        return self.finished(
            typing.narrowed(plan),
            optimal=plan.is_proven,
            losses={} if session is None else {"predicted": plan.loss},
            note="; ".join(filter(None, notes)),
            typed=typed,
        )

    def _check_possible(self) -> None:
        """Refuse before the long work what could only fail after it."""
        checkpoint, size, form = self.checkpoint, self.size, self.destination.form
        layout, family, is_written = checkpoint.layout, checkpoint.family, self.destination.folder is not None
        if family.task == "next" and layout.name("head") is None and not layout.tied:
            raise ValueError(
                f"a {family.name} without a language-model head cannot be compared, so it is not carved"
            )
        if family.task == "next" and layout.name("classifier") is not None:
            raise ValueError(
                f"a {family.name} with a classification head ({layout.name('classifier')}) cannot be "
                "compared by its predictions of tokens, so it is not carved; a language model is, and an "
                "encoder with any head"
            )
        alone = self.typing is not None and self.typing.keeps_all
        size.weights.check_parent(_quantised(checkpoint), types_alone=alone)
        file_format = self.format  # one that is not known is refused also where nothing is written
        if is_written and form == "hf" and not size.is_uniform and size.budgets:
            raise ValueError(UNEVEN)
        self._check_sizes()
        if is_written and form != "hf":
            file_format.check(checkpoint, Cut.whole(dimensions(checkpoint)))

    def _check_sizes(self) -> None:
        """Refuse sizes and budgets that no child has."""
        checkpoint, size, by_loss = self.checkpoint, self.size, self.methods.plan in BY_LOSS
        if self.typing is not None:
            self.typing.check(by_loss and self.session is not None)
        elif self.methods.plan != "heuristic" and (size.cuts_layers or checkpoint.fewer is None):
            any_layer = Indifferent(-1.0 if by_loss else None)
            rounding(checkpoint, size, plan_of(checkpoint, any_layer, size, self.costs))

    def _criterion(self) -> Criterion:
        """Return the criterion, with the weights or the tokens that it needs."""
        name = self.methods.criterion
        ledger = ledger_of(self.checkpoint, progress=self.progress)  # refuses weights that are not finite
        if needs_tokens(name) and self.session is not None:
            return self.session.importance()
        return criterion_of(name, self.checkpoint, ledger, seed=self.methods.seed)

    def _best_measured(self, session: Session, near: Sequence[Planned]) -> tuple[Planned, str]:
        """Return the plan that loses least when it is repaired, and what was measured, in words."""
        if len(near) < 2:
            return near[0], ""
        cuts = [self.narrowed(plan.cut, plan.width) for plan in near]
        losses = session.finals(cuts)
        best = min(range(len(near)), key=losses.__getitem__)
        texts = ", ".join(f"{loss:.3g} at {_width_of(cut)}" for cut, loss in zip(cuts, losses, strict=True))
        return near[best], f"the best plans by hidden size, repair {self.methods.repair}, lose {texts}"

    def narrowed(self, cut: Cut, width: Width | None) -> Cut:
        """Return the cut with a stream of this width."""
        if width is None:
            return cut
        narrowing = self.basis.narrowing(width)
        share = f"{narrowing.kept:.1%} of its energy stays"
        self.progress(f"narrowing the stream to {width.hidden} of {cut.parent.hidden} directions: {share}")
        return replace(cut, narrowing=narrowing)

    def _with_notes(
        self,
        plan: Planned,
        losses: Mapping[str, float] | None = None,
        by_width: Mapping[int, float] | None = None,
        measured: str = "",
    ) -> Carved:
        """Return the outcome of a plan; ``by_width`` are measured losses by the width of the stream."""
        cut = self.narrowed(plan.cut, plan.width)
        notes = (
            _time_note(self.methods),
            rounding(self.checkpoint, self.size, plan),
            window_note(self.checkpoint, self.costs),
            width_note(cut),
            measured,
        )
        rows = spectrum(self.basis, by_width) if cut.narrowing or by_width else []
        note = "; ".join(filter(None, notes))
        return self.finished(cut, optimal=plan.optimal, losses=losses, note=note, rows=rows)

    def finished(
        self,
        cut: Cut,
        *,
        optimal: bool | None = None,
        losses: Mapping[str, float] | None = None,
        note: str = "",
        rows: Sequence[dict[str, Any]] = (),
        typed: TypedWeights | None = None,
    ) -> Carved:
        """Return the outcome of a cut, with its child on the disk where one is wanted.

        ``rows`` are the spectrum of the stream. ``typed`` says what types its weights have.
        """
        if self.destination.folder is not None:
            self.format.check(self.checkpoint, cut)
        whole = _whole_costs(self.checkpoint.whole, self.costs, self.size.space)
        costs = {"parent": whole, "child": self.costs_of(cut)}
        if self.format.pads:
            costs["stored"] = self.costs_of(cut.padded())
        if typed is not None:
            costs["child"]["weight_bytes"] = typed.bytes
        methods, size, form = self.methods, self.size, str(self.destination.form)
        measured = {} if self.session is None else {"measured": self.session.loss(cut)}
        carved = Carved(
            self.parent.name,
            self.checkpoint.family.name,
            CarvingMethod(
                methods.criterion, methods.repair, methods.plan, size.layer_shape, form, size.space
            ),
            costs,
            stored_bits(self.checkpoint, self.costs),
            optimal,
            {**(losses or {}), **measured},
            widths(cut),
            stream(cut),
            {part.name: getattr(cut.parent, part.name) for part in fields(CoreSizes)},
            "; ".join(
                filter(
                    None,
                    [
                        *self.checkpoint.whole.layout.notes,
                        note,
                        self._text_note(cut, typed),
                        self._tokens_note,
                    ],
                )
            ),
            spectrum=list(rows),
            types=typed.rows if typed else [],
            equal_bytes=typed.equal_bytes if typed else [],
            vocabulary=self.parent.vocabulary,
            units=self._units(cut),
            kept=cut,
        )
        folder = self.destination.folder
        return carved if folder is None else self._written(carved, cut, folder)

    def _text_note(self, cut: Cut, typed: TypedWeights | None) -> str:
        """Return in words what units and types were chosen by, where that was no text of the user."""
        methods = self.methods
        if self.session is not None and methods.text == GENERATED:
            of = (
                "tokens sampled from the parent" if self.checkpoint.family.task == "next" else "random tokens"
            )
            count = f"{self.session.tokens.count:,} {of}"
            return f"calibrated on {count}; a text like what the child will serve is better: --text FILE"
        is_chosen = typed is not None or not cut.is_whole or cut.narrowing is not None
        by_weights = self.recipe is None and self.session is None and is_chosen
        return f"{methods.criterion}: {BY_WEIGHTS}" if by_weights else ""

    def _units(self, cut: Cut) -> list[dict[str, Any]]:
        """Return what each kind of unit gave up, one after another: ``before``, ``after``, and parameters.

        The parameters add up to those that the child has fewer than its parent.
        """
        parent, whole = cut.parent, self.checkpoint.whole
        if self.size.space is not None:
            return []
        layers = tuple(Cut.whole(parent).layers[kept.layer] for kept in cut.layers)
        narrower = tuple(replace(kept, ffn=each.ffn) for kept, each in zip(cut.layers, layers, strict=True))
        sizes = {
            "tokens": (whole.layout.vocab, self.checkpoint.layout.vocab, Cut.whole(parent)),
            "layers": (parent.depth, len(layers), Cut(parent, layers)),
            "KV groups": (
                parent.kv_heads * len(layers),
                sum(len(kept.groups) for kept in cut.layers),
                Cut(parent, narrower),
            ),
            "FFN neurons": (
                parent.ffn * len(layers),
                sum(len(kept.ffn) for kept in cut.layers),
                Cut(parent, cut.layers),
            ),
            "hidden size": (parent.hidden, cut.hidden, cut),
        }
        rows, params = [], costs_of(whole, self.costs)["params"]
        for unit, (before, after, step) in sizes.items():
            left = costs_of(self.checkpoint, self.costs, step)["params"]
            rows.append({"unit": unit, "before": before, "after": after, "params": params - left})
            params = left
        return rows

    def _written(self, carved: Carved, cut: Cut, out: Path) -> Carved:
        """Write the child into a new folder, opened again and compared before the folder gets its name."""
        from zerolm.carving.export.rotated import check_rotation
        from zerolm.carving.export.write_child import write
        from zerolm.carving.session import Session
        from zerolm.networks.pooling import settings_note

        if cut.narrowing:
            check_rotation(self.checkpoint)  # before the long repair
        session = self.session or Session(self.checkpoint, self.methods, self.progress, self.compute)
        finish = self.destination.finish
        repaired, typed = self._repaired(session, cut)
        losses = dict(carved.losses)
        if losses and repaired.arrays and typed is None:
            losses["repaired"] = session.loss(cut, repaired)
        notes = [carved.note, repaired.note, self._more_tokens(session, cut, losses.get("repaired"))]
        if typed is not None:
            rows = rows_of(typed.types, self.checkpoint)
            costs = {**carved.costs, "child": {**carved.costs["child"], "weight_bytes": typed.bytes}}
            carved = replace(carved, types=rows, costs=costs)
            if self.session is not None:
                losses["as_read_back"] = session.typed_loss(typed, repaired)
        versions = versions_of("torch", "transformers") | session.compute.to_json()
        whole = self.checkpoint.whole
        parent = origin_of(whole.root), fingerprint(whole, progress=self.progress)
        recipe = document(
            replace(carved, losses=losses), *parent, session.calibration, repaired.ridges, versions
        )
        if self.checkpoint.fewer is not None:
            recipe = with_kept(recipe, self.checkpoint.fewer.kept)
        with new_folder(out, self.destination.force) as folder:
            child, more = Child(self.checkpoint, cut, repaired), REPORT if finish else ()
            more = (*more, *self._more_files(typed))
            sha256 = write(child, recipe, folder, more, typed=typed, progress=self.progress)
            if self.recipe and self.recipe.method.format == self.destination.form:
                notes.append(self.recipe.difference(sha256, versions))
            self._write_more(folder, typed)
            self.progress("opening the child again")
            proof = self.format.verified(session, cut, repaired, folder, typed).of(self.parent.proof)
            notes += [proof.note, settings_note(self.checkpoint, in_file=self.format.has_tokenizer)]
            note = "; ".join(filter(None, notes))
            carved = replace(carved, losses=losses, note=note, verified=proof.to_json())
            if finish:
                finish(folder, carved)
            for shard in self.checkpoint.shards:
                check_unchanged(shard)  # else the child is of two parents, and its recipe names one
        session.done()
        return carved

    def _more_tokens(self, session: Session, cut: Cut, loss: float | None) -> str:
        """Return what twice the tokens would gain, in words, where they are fewer than suit the parent."""
        from zerolm.carving.amount import loss_by_twice, tokens_wanted
        from zerolm.carving.session import FEWER

        methods = self.methods
        is_repaired = loss is not None and methods.repair == "least-squares" and self.recipe is None
        if not is_repaired or methods.text in NO_FILES or methods.for_ is not None:
            return ""
        if session.tokens.count >= tokens_wanted(self.checkpoint):
            return ""
        by_fewer, loss = session.loss_by_fewer(cut), loss or 0.0
        by_twice = loss_by_twice(loss, by_fewer, FEWER)
        if loss - by_twice < WORTH_TOKENS * loss:
            return ""
        return (
            f"repaired on a quarter of the tokens it loses {by_fewer:.3g}, on twice as many about "
            f"{by_twice:.3g}: --sequences {2 * methods.count}"
        )

    def _more_files(self, typed: TypedChild | None) -> tuple[str, ...]:
        """Return the names of files that are asked for beside the child."""
        if typed is None or not self.size.weights.imatrix:
            return ()
        from zerolm.carving.bits.imatrix import IMATRIX

        return (IMATRIX,)

    def _write_more(self, folder: Path, typed: TypedChild | None) -> None:
        """Write the files that are asked for beside the child."""
        if typed is None or self.session is None:
            return
        for name in self._more_files(typed):
            from zerolm.carving.bits.imatrix import write_imatrix

            write_imatrix(typed.weighed, folder / name, str(self.session.tokens.text))

    def _repaired(self, session: Session, cut: Cut) -> tuple[Repaired, TypedChild | None]:
        """Return what is repaired, and the child with its types where weights have any.

        These are those of the recipe, or those of least loss by its own weights, repaired without them.
        """
        from zerolm.carving.pruning import Repaired

        ridges = self.recipe.ridges or None if self.recipe else None
        types: Types | None = self.recipe.types if self.recipe else None
        if self.typing is None and types is None:
            return session.repaired(cut, ridges), None
        from zerolm.carving.bits.typed_child import TypedChild

        if types is None:
            assert self.typing is not None
            is_whole = cut.is_whole and cut.narrowing is None
            repaired = Repaired() if is_whole else session.repaired(cut)
            types = self.typing.typed(session.weighed(cut, repaired)).types
            if not session.repairs_types:
                return repaired, TypedChild(session.weighed(cut, repaired), types)
        repaired = session.repaired(cut, ridges, types if session.repairs_types else None)
        return repaired, TypedChild(session.weighed(cut, repaired), types)


def _read(methods: Methods, tokens: Tokens) -> Methods:
    """Return methods with the sequences that a text gives, and their length without padding, in the mean."""
    return replace(methods, sequences=len(tokens), length=max(2, tokens.count // len(tokens)))


def _cuttable(checkpoint: Checkpoint) -> list[str]:
    """Return the kinds of units that the stock class can lack."""
    can = checkpoint.family.cut
    return [kind for kind, possible in (("groups", can.heads), ("ffn", can.ffn)) if possible]


def _time_note(methods: Methods) -> str:
    """Return how its time was kept, in words; empty where it was not limited."""
    return f"{methods.count} sequences, to last about {about(methods.for_)}" if methods.for_ else ""


def _width_of(cut: Cut) -> str:
    """Return the width of the stream in words."""
    untied = cut.narrowing and not cut.narrowing.width.tied
    return f"{cut.hidden} with its own head" if untied else str(cut.hidden)
