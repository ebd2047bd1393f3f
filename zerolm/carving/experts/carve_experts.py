"""From a mixture of experts and a number of experts to a child that was compared with its parent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_selection import ExpertSelection
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts
from zerolm.carving.experts.masked_parent import compare_with_masked
from zerolm.carving.experts.stock_mixture import StockMixture
from zerolm.carving.parent_and_request import Carving, KeptExperts, ParentModel
from zerolm.carving.result import UnitRow
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.checkpoint import Fewer
from zerolm.checkpoints.packed_values import PackedTensor
from zerolm.children.parent_proof import compare_with_stock
from zerolm.children.verify import Verified, fits
from zerolm.networks.opener import mapped_model
from zerolm.planning.sizes import costs_of

FOLDER: Final = "hf"
COPIED: Final = "the parent is stored quantised, so that experts are copied as they are and none is repaired"
BY_WEIGHTS: Final = (
    "experts chosen by weights alone: 12 of the 16 of a small mixture of experts lost 0.208 on code, 0.270 "
    "on English, and 0.012 and 0.020 with --text FILE"
)


@dataclass(frozen=True, eq=False)
class ExpertCarving:
    """A mixture of experts, and the request for its experts, whose ``methods.criterion`` is theirs."""

    carving: Carving

    @property
    def checkpoint(self) -> Checkpoint:
        return self.carving.checkpoint

    @cached_property
    def mixture(self) -> StockMixture:
        carving = self.carving
        return StockMixture(self.checkpoint, carving.size.without_experts, carving.costs, carving.progress)

    @cached_property
    def selection(self) -> ExpertSelection:
        carving, of_recipe = self.carving, self.carving.recipe.experts if self.carving.recipe else None
        return ExpertSelection(
            self.mixture, carving.size, carving.methods, carving.compute, carving.progress, of_recipe
        )

    @property
    def repair(self) -> str:
        """The repair of experts, from the request or the recipe; quantised experts are not repaired."""
        recipe, methods = self.carving.recipe, self.carving.methods
        repair = (recipe.fields.repair_of_experts if recipe else methods.repair) or "none"
        return "none" if self.checkpoint.packed else repair

    @property
    def is_alone(self) -> bool:
        """Whether nothing else is cut; tokens may be removed."""
        recipe = self.carving.recipe
        return recipe.takes_experts_alone if recipe else self.carving.size.cuts_experts_alone

    def shaped(self) -> ParentModel:
        """Return the MoE with its number of kept experts, for counting; ``ValueError`` if impossible."""
        self._check()
        smaller = replace(self.mixture.shaped(*self.selection.least), fewer=Fewer(self.checkpoint))
        return replace(self.carving.parent, checkpoint=smaller)

    def as_parent(self, folder: Path, *, is_tried: bool = False) -> ParentModel:
        """Return the MoE with the kept experts; its files are in a folder, which is new.

        If a child is written, the parent is first compared with that of stock software, and then with the
        result; with ``is_tried`` it is not. Raises ``ValueError`` for an impossible request.
        """
        self._check()
        carving, selection, proof, verified = self.carving, self.selection, None, None
        is_written = carving.destination.folder is not None and not is_tried
        if is_written:
            proof = compare_with_stock(
                self.checkpoint.whole, selection.session.compute.limit, carving.progress
            )
        _ = self.mixture.ledger  # rejects weights that are not finite
        kept = FewerExperts(self.checkpoint, selection.kept, neurons=selection.neurons)
        fewer, error_shares = self._repaired(kept)
        smaller = fewer.checkpoint(folder, progress=carving.progress)
        if is_written:
            verified = self._verified(smaller, fewer)
        experts = KeptExperts(
            selection.described(error_shares),
            self.repair,
            self._units(kept),
            self._notes(),
            verified,
            selection.is_optimal,
        )
        return replace(carving.parent, checkpoint=smaller, proof=proof, experts=experts)

    def _check(self) -> None:
        methods, family, layout = self.carving.methods, self.checkpoint.family, self.checkpoint.layout
        if self.checkpoint.packed and not (self.is_alone and self.carving.destination.form == FOLDER):
            raise ValueError(f"{COPIED}, alone and in --format {FOLDER}: give nothing else to cut")
        if self.repair != "none" and methods.text is None:
            raise ValueError(f"repair {self.repair} needs tokens: give --text FILE, or --repair none")
        if family.task == "next" and layout.name("head") is None and not layout.tied:
            raise ValueError(f"a {family.name} without a language-model head cannot be compared")
        embedding = layout.name("embedding")
        if embedding is not None and isinstance(self.checkpoint.tensors[embedding], PackedTensor):
            raise ValueError(
                f"tensor {embedding!r} is stored quantised, and rows of an embedding are not read so"
            )
        self.selection.check(alone=self.is_alone)

    def _repaired(self, fewer: FewerExperts) -> tuple[FewerExperts, dict[int, float]]:
        """Return the child, repaired if requested, and by layer the remaining share of its error.

        Experts that are removed alone are repaired if a child is written. Together with other cuts they are
        always repaired, because all else is measured on the result.
        """
        recipe = self.carving.recipe
        is_counted = self.is_alone and recipe is None and self.carving.destination.folder is None
        if is_counted or self.repair == "none":
            return fewer, {}
        session = self.selection.session
        if recipe is not None:
            recipe.check_text(session.tokens.text)
        kept = [(layer, kept.tolist()) for layer, kept in fewer.by_layer.items()]
        cache = session.cache("repaired experts", kept, *self.selection.in_hex.items())
        changed, error_shares = repaired_experts(
            fewer, session.model, session.divided.fitted, cache=cache, progress=self.carving.progress
        )
        return replace(fewer, changed=changed), error_shares

    def _notes(self) -> tuple[str, ...]:
        carving, methods = self.carving, self.carving.methods
        copied = COPIED if self.checkpoint.packed and methods.repair != "none" else ""
        is_chosen = carving.recipe is None and carving.size.experts.keep is not None
        by_weights = BY_WEIGHTS if is_chosen and methods.criterion == "aimer" else ""
        return tuple(filter(None, [copied, self.selection.rounding(), by_weights]))

    def _units(self, fewer: FewerExperts) -> list[UnitRow]:
        """Return rows of experts, and of neurons of each, before and after, with the removed parameters."""
        sizes, costs, layers = self.checkpoint.layout.sizes, self.carving.costs, len(fewer.by_layer)
        whole, few, narrow = (
            costs_of(each, costs)["params"]
            for each in (self.checkpoint, replace(fewer, neurons={}).shaped(), fewer.shaped())
        )
        before, after = layers * sizes[AXIS], layers * fewer.count
        rows = [UnitRow("experts", before, after, whole - few)]
        if fewer.neurons:
            neurons = after * sizes[NEURONS], after * fewer.width, few - narrow
            rows.append(UnitRow("neurons of experts", *neurons))
        return rows

    def _verified(self, child: Checkpoint, fewer: FewerExperts) -> Verified:
        """Return the proof that all bytes are the parent's, and outputs too, if memory holds its layers."""
        if fits(fewer.parent, self.selection.session.compute.limit):
            return compare_with_masked(child, fewer)
        mapped_model(child)  # the stock class has a place for each weight, and no other
        return Verified(0.0, 0.0, "bytes")
