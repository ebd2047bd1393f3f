"""From a mixture of experts and a number of experts to a child that was compared with its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.carving.experts.expert_choice import ChosenExperts
from zerolm.carving.experts.expert_count import check_domains, check_joint, check_request, check_text, checked
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_selection import ExpertSelection
from zerolm.carving.experts.expert_width import ExpertWidth, to_hex
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import compare_with_masked
from zerolm.carving.experts.result import ChildExperts, ChildWidth, ExpertRow, NeuronRow
from zerolm.carving.parent_and_request import Carving
from zerolm.carving.parent_model import KeptExperts, ParentModel
from zerolm.carving.recipe import Recipe, with_experts
from zerolm.carving.request import Methods
from zerolm.carving.result import UnitRow
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.checkpoint import Fewer
from zerolm.checkpoints.packed_values import PackedTensor
from zerolm.children.parent_proof import compare_with_stock
from zerolm.children.verify import Verified, fits
from zerolm.networks.opener import mapped_model
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import costs_of

FOLDER: Final = "hf"
COPIED: Final = "the parent is stored quantised, so that experts are copied as they are and none is repaired"
BY_WEIGHTS: Final = (
    "experts chosen by weights alone: 12 of the 16 of a small mixture of experts lost 0.208 on code, 0.270 "
    "on English, and 0.012 and 0.020 with --text FILE"
)


@dataclass(frozen=True, eq=False)
class ExpertCarving:
    """A mixture of experts, and the request for its experts."""

    carving: Carving

    @property
    def checkpoint(self) -> Checkpoint:
        """The mixture of experts to be carved, with the kept tokens."""
        return self.carving.checkpoint

    @property
    def size(self) -> SizeRequest:
        return self.carving.size

    @property
    def methods(self) -> Methods:
        return self.carving.methods

    @property
    def recipe(self) -> Recipe | None:
        return self.carving.recipe

    @property
    def criterion(self) -> str:
        """The criterion of the choice of experts, from the request or the recipe."""
        return (self.recipe.fields.criterion_of_experts if self.recipe else self.methods.criterion) or ""

    @property
    def repair(self) -> str:
        """The repair of experts, from the request or the recipe; quantised experts are not repaired."""
        repair = (self.recipe.fields.repair_of_experts if self.recipe else self.methods.repair) or "none"
        return "none" if self.checkpoint.packed else repair

    @cached_property
    def selection(self) -> ExpertSelection:
        """The experts and neurons that the request keeps."""
        carving = self.carving
        return ExpertSelection(
            self.checkpoint, self.size, self.methods, carving.costs, carving.compute, carving.progress
        )

    @property
    def session(self) -> Session:
        return self.selection.session

    def shaped(self) -> ParentModel:
        """Return the MoE with its number of kept experts, for counting; ``ValueError`` if impossible."""
        self._check()
        smaller = replace(self.selection.shaped(), fewer=Fewer(self.checkpoint))
        return replace(self.carving.parent, checkpoint=smaller)

    def as_parent(self, folder: Path, *, is_tried: bool = False) -> ParentModel:
        """Return the MoE with the kept experts; its files are in a folder, which is new.

        With ``is_tried`` it is not compared with the parent. Raises ``ValueError`` for an impossible request.
        """
        is_written = self.carving.destination.folder is not None and not is_tried
        fewer, error_shares = self._made(proves=is_written)
        smaller = fewer.checkpoint(folder, progress=self.carving.progress)
        experts = KeptExperts(
            self._described(fewer, error_shares),
            partial(self._recorded, fewer),
            self._units(fewer),
            self._note(),
            self._verified(smaller, fewer) if is_written else None,
            self._is_optimal,
        )
        proof = self.proof if is_written else None
        return replace(self.carving.parent, checkpoint=smaller, proof=proof, experts=experts)

    def _made(self, *, proves: bool) -> tuple[FewerExperts, dict[int, float]]:
        """Return the kept experts, and by layer the remaining share of their error after repair.

        Where only experts are removed, the kept ones are repaired if a child is written. Together with other
        cuts they are always repaired, because all else is measured on the result. If a child is proven, the
        parent is first compared with that of stock software.
        """
        self._check()
        if proves:
            _ = self.proof
        _ = self.selection.ledger
        fewer = self._fewer()
        if self.is_alone and self.recipe is None and self.carving.destination.folder is None:
            return fewer, {}
        return self._repaired(fewer)

    @cached_property
    def proof(self) -> Verified:
        """The distance of the parent's outputs from those of stock software."""
        return compare_with_stock(self.checkpoint.whole, self.session.compute.limit, self.carving.progress)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else is cut; tokens may be removed."""
        if self.recipe is not None:
            return self.recipe.takes_experts_alone
        return self.size.cuts_experts_alone

    def _check(self) -> None:
        """Raise ``ValueError`` for an impossible request before any work."""
        methods, family = self.methods, self.checkpoint.family
        if self.checkpoint.packed and not (self.is_alone and self.carving.destination.form == FOLDER):
            raise ValueError(f"{COPIED}, alone and in --format {FOLDER}: give nothing else to cut")
        check_request(self.size, methods, alone=self.is_alone)
        check_domains(self.size, methods)
        if methods.repair != "none" and methods.text is None:
            raise ValueError(f"repair {methods.repair} needs tokens: give --text FILE, or --repair none")
        if self.recipe is None:
            check_text(methods)
        if (
            family.task == "next"
            and self.checkpoint.layout.name("head") is None
            and not self.checkpoint.layout.tied
        ):
            raise ValueError(f"a {family.name} without a language-model head cannot be compared")
        embedding = self.checkpoint.layout.name("embedding")
        if embedding is not None and isinstance(self.checkpoint.tensors[embedding], PackedTensor):
            raise ValueError(
                f"tensor {embedding!r} is stored quantised, and rows of an embedding are not read so"
            )
        _ = self.selection.routing
        if self.recipe is None:
            check_joint(self.size, methods)
            self.selection.check()

    def _fewer(self) -> FewerExperts:
        """Return the child with the best experts of each layer, or with the recipe's."""
        recipe = self.recipe
        if recipe is None or recipe.experts is None:
            return self.selection.fewer
        kept = checked(recipe.experts, expert_layers(self.checkpoint), self.selection.routing)
        neurons: Mapping[int, Ints] = recipe.neurons
        if neurons:
            neurons = ExpertWidth.of(self.checkpoint, self.size).checked(neurons)
        return FewerExperts(self.checkpoint, kept, neurons=neurons)

    def _repaired(self, fewer: FewerExperts) -> tuple[FewerExperts, dict[int, float]]:
        """Return the child, repaired if requested, and the remaining shares of error."""
        if self.repair == "none":
            return fewer, {}
        session = self.session
        if self.recipe is not None:
            self.recipe.check_text(session.tokens.text)
        kept = [(layer, kept.tolist()) for layer, kept in fewer.by_layer.items()]
        cache = session.cache("repaired experts", kept, *_in_hex(fewer).items())
        changed, error_shares = repaired_experts(
            fewer, session.model, session.divided.fitted, cache=cache, progress=self.carving.progress
        )
        return replace(fewer, changed=changed), error_shares

    def _note(self) -> str:
        """Return notes on the choice."""
        copied = COPIED if self.checkpoint.packed and self.methods.repair != "none" else ""
        is_chosen = self.recipe is None and self.size.experts.keep is not None
        by_weights = BY_WEIGHTS if is_chosen and self.methods.criterion == "aimer" else ""
        return "; ".join(filter(None, [copied, self.selection.rounding(), by_weights]))

    @property
    def _is_optimal(self) -> bool | None:
        """Whether it is proven that no choice is better; None where a recipe names the experts."""
        return None if self.recipe else all(each.is_proven for each in self._chosen.values())

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

    def _recorded(self, fewer: FewerExperts, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Return a recipe with these experts, and these neurons of each."""
        by = {"criterion_of_experts": self.criterion, "repair_of_experts": self.repair}
        return with_experts(recipe, fewer.by_layer, by, self._gaps, _in_hex(fewer))

    @property
    def _gaps(self) -> dict[int, float]:
        """The gap of the choice of each layer, for choices by domains."""
        gaps = {layer: each.gap for layer, each in self._chosen.items()}
        return {layer: gap for layer, gap in gaps.items() if gap is not None}

    @property
    def _chosen(self) -> dict[int, ChosenExperts]:
        """The choice of each layer; empty where a recipe names the experts."""
        return {} if self.recipe is not None else self.selection.chosen

    def _described(self, fewer: FewerExperts, error_shares: Mapping[int, float]) -> ChildExperts:
        """Return the description of the experts."""
        selection, chosen = self.selection, self._chosen
        routing, neurons = selection.routing, _in_hex(fewer)
        rows = [
            selection.described(layer, chosen[layer]) if chosen else ExpertRow(layer, kept.tolist())
            for layer, kept in fewer.by_layer.items()
        ]
        rows = [replace(row, left=error_shares.get(row.layer)) for row in rows]
        if neurons:
            losses = {layer: selection.neuron_loss(layer) for layer in chosen}
            rows = [
                replace(row, neurons=NeuronRow(neurons[row.layer], losses.get(row.layer))) for row in rows
            ]
        whole = self.checkpoint.layout.sizes.get(NEURONS, 0)
        ffn = ChildWidth(whole, fewer.width) if neurons or self.size.experts.ffn else None
        counts = routing.experts, fewer.count, routing.active, routing.groups
        return ChildExperts(self.criterion, *counts, ffn, rows)

    def _verified(self, child: Checkpoint, fewer: FewerExperts) -> Verified:
        """Return the proof that all bytes are the parent's, and outputs too, if memory holds its layers."""
        if fits(fewer.parent, self.session.compute.limit):
            return compare_with_masked(child, fewer)
        mapped_model(child)  # the stock class has a place for each weight, and no other
        return Verified(0.0, 0.0, "bytes")


def _in_hex(fewer: FewerExperts) -> dict[int, list[str]]:
    """Return the kept neurons of each expert by layer, as hexadecimal digits; empty where all are kept."""
    whole = fewer.parent.layout.sizes.get(NEURONS, 0)
    return {layer: [to_hex(kept, whole) for kept in rows] for layer, rows in fewer.neurons.items()}
