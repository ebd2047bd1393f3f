"""From a mixture and the number of experts to keep to a child that was compared with its parent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from zerolm.architecture import Ints
from zerolm.carving.experts.expert_choice import UNTOLD, ChosenExperts
from zerolm.carving.experts.expert_count import (
    check_alone,
    check_domains,
    check_joint,
    check_merge,
    check_text,
    checked,
)
from zerolm.carving.experts.expert_file import FILE, FOLDER, check_file, written_file
from zerolm.carving.experts.expert_merge import merged_experts
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_width import ExpertWidth, to_hex
from zerolm.carving.experts.fewer_experts import NEURONS, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import compare_with_masked
from zerolm.carving.experts.ream import Groups
from zerolm.carving.experts.staying_experts import StayingExperts
from zerolm.carving.export.parent_proof import compare_with_stock
from zerolm.carving.export.read_again import ReadAgain
from zerolm.carving.export.verify import Verified, fits
from zerolm.carving.export.write_child import complete
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.parent_and_request import Carving
from zerolm.carving.planning.part_costs import stored_bits
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.recipe import Recipe, document, versions_of, with_experts, with_kept
from zerolm.carving.request import NO_MERGE, Methods, SizeRequest
from zerolm.carving.result import Carved, CarvingMethod, widths
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, write_shards
from zerolm.checkpoints.identity import check_unchanged, fingerprint
from zerolm.checkpoints.origin import origin_of
from zerolm.checkpoints.packed import PackedTensor
from zerolm.families.config import CoreSizes
from zerolm.io.files import write_json
from zerolm.io.folders import REPORT, new_folder
from zerolm.networks.opener import mapped_model
from zerolm.settings import shown

BY_BYTES: Final = "bytes"
COPIED: Final = "the parent is stored quantised, so that experts are copied as they are and none is repaired"
BY_WEIGHTS: Final = (
    "experts chosen by weights alone: 12 of the 16 of a small mixture lost 0.208 on code and 0.270 on "
    "English, and 0.012 and 0.020 with --text FILE"
)
MERGE_FORMAT: Final = 1
"""One more where experts are merged in another way."""


@dataclass(frozen=True, eq=False)
class ExpertCarving:
    """A mixture, and what is to be done with its experts."""

    carving: Carving

    @property
    def checkpoint(self) -> Checkpoint:
        """The mixture as it is carved, with the tokens that are kept."""
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
    def form(self) -> str:
        """The format of the child: as asked for, else that of the recipe, else a folder."""
        by_recipe = FOLDER if self.recipe is None else self.recipe.method.format
        return str(self.carving.destination.form or by_recipe)

    @property
    def repair(self) -> str:
        """How the child is repaired: experts that are stored quantised are copied as they are."""
        return "none" if self.checkpoint.packed else self.methods.repair

    @property
    def merge(self) -> str:
        """How experts that leave are merged into those that stay."""
        return self.size.experts.merge if self.recipe is None else self.recipe.merge

    @cached_property
    def staying(self) -> StayingExperts:
        """The experts and neurons that the request lets stay."""
        carving = self.carving
        return StayingExperts(
            self.checkpoint, self.size, self.methods, carving.costs, carving.compute, carving.progress
        )

    @property
    def session(self) -> Session:
        return self.staying.session

    def carved(self) -> Carved:
        """Return the outcome, with the child on the disk where one is wanted."""
        self.check()
        if self.carving.destination.folder is not None:
            _ = self.proof
        _ = self.staying.ledger
        fewer, groups = self._merged(self._fewer())
        fewer, left = self._repaired(fewer)
        outcome = self._outcome(fewer, left, groups)
        folder = self.carving.destination.folder
        return outcome if folder is None else self._written(outcome, fewer, folder)

    @cached_property
    def proof(self) -> Verified:
        """How far the parent lies from what stock software makes of its files."""
        return compare_with_stock(self.checkpoint.whole, self.session.compute.limit, self.carving.progress)

    def check(self) -> None:
        """Refuse before any work what cannot be."""
        methods, family = self.methods, self.checkpoint.family
        check_alone(self.size, methods, rebuilt=self.recipe is not None)
        if self.form not in (FOLDER, FILE):
            raise ValueError(f"a mixture is written as {FOLDER} or {FILE}, not as {shown(self.form)}")
        if self.form == FILE:
            check_file(self.checkpoint)
        check_domains(self.size, methods)
        if methods.repair != "none" and methods.text is None:
            raise ValueError(f"repair {methods.repair} needs tokens: give --text FILE, or --repair none")
        if self.merge != NO_MERGE:
            self._check_merge()
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
        _ = self.staying.routing
        if self.recipe is None:
            check_joint(self.size, methods)
            self.staying.check()

    def _check_merge(self) -> None:
        """Refuse to merge experts that are copied as they are, or by no text."""
        if self.checkpoint.packed:
            raise ValueError(
                "the parent is stored quantised, so that experts are copied as they are: give no --merge"
            )
        check_merge(self.methods.text)

    def _fewer(self) -> FewerExperts:
        """Return the child with the best experts of each layer, or with those of the recipe."""
        recipe = self.recipe
        if recipe is None or recipe.experts is None:
            return self.staying.fewer
        kept = checked(recipe.experts, expert_layers(self.checkpoint), self.staying.routing)
        neurons: Mapping[int, Ints] = recipe.neurons(self.checkpoint.layout.sizes.get(NEURONS, 0))
        if neurons:
            neurons = ExpertWidth.of(self.checkpoint, self.size).checked(neurons)
        return FewerExperts(self.checkpoint, kept, neurons=neurons)

    def _merged(self, fewer: FewerExperts) -> tuple[FewerExperts, dict[int, Groups]]:
        """Return the child that is written, merged where that is wanted, and what went into what."""
        if self.merge == NO_MERGE or self.carving.destination.folder is None:
            return fewer, {}
        session = self._of_recipe()
        cache = session.cache("merged experts", _kept(fewer), MERGE_FORMAT)
        changed, groups = merged_experts(
            fewer, session.model, session.tokens, cache=cache, progress=self.carving.progress
        )
        return replace(fewer, changed=changed), groups

    def _of_recipe(self) -> Session:
        """Return the session on the text, which is that of the recipe where there is one."""
        if self.recipe is not None:
            self.recipe.check_text(self.session.tokens.text)
        return self.session

    def _repaired(self, fewer: FewerExperts) -> tuple[FewerExperts, dict[int, float]]:
        """Return the child that is written, repaired where that is wanted, and the shares of error left."""
        if self.repair == "none" or self.carving.destination.folder is None:
            return fewer, {}
        session = self._of_recipe()
        merging = [] if self.merge == NO_MERGE else [self.merge, MERGE_FORMAT]
        cache = session.cache("repaired experts", _kept(fewer), *merging, *_in_hex(fewer).items())
        changed, left = repaired_experts(
            fewer, session.model, session.tokens, cache=cache, progress=self.carving.progress
        )
        return replace(fewer, changed=changed), left

    def _outcome(
        self, fewer: FewerExperts, left: Mapping[int, float], groups: Mapping[int, Groups]
    ) -> Carved:
        checkpoint, methods = self.checkpoint, self.methods
        cut = Cut.whole(dimensions(checkpoint))
        copied = "" if self.repair == methods.repair else COPIED
        is_alone = self.recipe is None and methods.criterion == "aimer" and self.size.experts.keep is not None
        notes = [*checkpoint.layout.notes, copied, self.staying.rounding(), BY_WEIGHTS if is_alone else ""]
        child = fewer.shaped()
        costs = {
            "parent": costs_of(checkpoint.whole, self.carving.costs),
            "child": costs_of(child, self.carving.costs),
        }
        return Carved(
            self.carving.parent.name,
            checkpoint.family.name,
            CarvingMethod(methods.criterion, self.repair, "weights", self.size.layer_shape, self.form, None),
            costs,
            stored_bits(checkpoint, self.carving.costs),
            None if self.recipe else not any(self._gaps.values()),
            {},
            widths(Cut.whole(dimensions(child))),
            None,
            {part.name: getattr(cut.parent, part.name) for part in fields(CoreSizes)},
            note="; ".join(filter(None, notes)),
            experts=self._described(fewer, left, groups),
            vocabulary=self.carving.parent.vocabulary,
            kept=cut,
        )

    @property
    def _gaps(self) -> dict[int, float]:
        """The gap of the choice of each layer, where pairs told it."""
        gaps = {layer: each.gap for layer, each in self._chosen.items()}
        return {layer: gap for layer, gap in gaps.items() if gap is not None}

    @property
    def _chosen(self) -> dict[int, ChosenExperts]:
        """The choice of each layer; empty where a recipe names the experts."""
        return {} if self.recipe is not None else self.staying.chosen

    def _described(
        self, fewer: FewerExperts, left: Mapping[int, float], groups: Mapping[int, Groups]
    ) -> dict[str, Any]:
        """Return what is to be said of the experts as plain JSON."""
        staying, chosen, is_chosen = self.staying, self._chosen, self.recipe is None
        routing, neurons = staying.routing, _in_hex(fewer)
        lost = {layer: staying.neuron_loss(layer) for layer in neurons} if is_chosen else {}
        rows = [
            {
                "layer": layer,
                "kept": kept.tolist(),
                **(staying.said_of(layer, chosen[layer]) if is_chosen else UNTOLD),
                "left": left.get(layer),
                "merged": {str(centre): members for centre, members in groups.get(layer, {}).items()},
                **({"neurons": {"kept": neurons[layer], "loss": lost.get(layer)}} if neurons else {}),
            }
            for layer, kept in fewer.by_layer.items()
        ]
        whole = self.checkpoint.layout.sizes.get(NEURONS, 0)
        return {
            "parent": routing.experts,
            "child": fewer.count,
            "active": routing.active,
            "groups": routing.groups,
            "merge": self.merge,
            **({"ffn": {"parent": whole, "child": fewer.width}} if neurons or self.size.experts.ffn else {}),
            "layers": rows,
        }

    def _written(self, carved: Carved, fewer: FewerExperts, out: Path) -> Carved:
        """Write the child into a new folder, compared with its parent before the folder gets its name."""
        checkpoint, finish = self.checkpoint, self.carving.destination.finish
        versions = versions_of("torch", "transformers")
        whole = checkpoint.whole
        parent = origin_of(whole.root), fingerprint(whole, progress=self.carving.progress)
        by_text = self.recipe is None and self.staying.are_told_by_tokens
        calibration = self.session.calibration if by_text or fewer.changed else None
        if self.recipe is not None:
            calibration = None if self.recipe.calibration is None else dict(self.recipe.calibration)
        plain = document(carved, *parent, calibration, {}, versions)
        recipe = with_experts(plain, fewer.by_layer, self._gaps, self.merge, _in_hex(fewer))
        if checkpoint.fewer is not None:
            recipe = with_kept(recipe, checkpoint.fewer.kept)
        with new_folder(out, self.carving.destination.force) as folder, ExitStack() as scratch:
            root = folder
            if self.form == FILE:  # made of a folder, which is proven as any other
                scratch_folder = scratch.enter_context(TemporaryDirectory(prefix=".zerolm-", dir=out.parent))
                root = Path(scratch_folder) / parent[0].name.rpartition("/")[2]
            place = root / checkpoint.folder.relative_to(checkpoint.root)
            place.mkdir(parents=True, exist_ok=True)
            outgoing, config = fewer.outgoing(), fewer.configuration()
            with ReadAgain() as again:
                write_shards(place, outgoing, progress=self.carving.progress, written=again.written)
                self.carving.progress("comparing the child with its parent")
                digests = again.digests()
            write_json(place / "config.json", config)
            kind, more = str(config["model_type"]), REPORT if finish else ()
            as_folder = {**recipe, "written_as": FOLDER}
            sha256 = complete(checkpoint, as_folder, root, kind, config, more, digests)
            proof = self._verified(Checkpoint.open(root, packed=True), fewer)
            if self.form == FILE:
                kind, proof = written_file(root, folder, self.carving.compute, self.carving.progress)
                sha256 = complete(checkpoint, recipe, folder, kind, None, more)
            note = self.recipe.difference(sha256, versions) if self.recipe else ""
            proof = proof.of(self.proof)
            notes = "; ".join(filter(None, [carved.note, note, proof.note]))
            carved = replace(carved, note=notes, verified=proof.to_json())
            if finish:
                finish(folder, carved)
            for shard in checkpoint.shards:
                check_unchanged(shard)  # else the child is of two parents, and its recipe names one
        return carved

    def _verified(self, child: Checkpoint, fewer: FewerExperts) -> Verified:
        """Return the proof: all bytes are the parent's, and so are outputs, where memory holds its layers."""
        if fits(fewer.parent, self.session.compute.limit):
            return compare_with_masked(child, fewer)
        mapped_model(child)  # the stock class has a place for each weight, and no other
        return Verified(0.0, 0.0, BY_BYTES)


def _kept(fewer: FewerExperts) -> list[tuple[int, list[int]]]:
    """Return the experts that stay by layer, as a key of the cache."""
    return [(layer, kept.tolist()) for layer, kept in fewer.by_layer.items()]


def _in_hex(fewer: FewerExperts) -> dict[int, list[str]]:
    """Return the neurons that stay of each expert by layer, as hexadecimal digits; empty where all do."""
    whole = fewer.parent.layout.sizes.get(NEURONS, 0)
    return {layer: [to_hex(kept, whole) for kept in rows] for layer, rows in fewer.neurons.items()}
