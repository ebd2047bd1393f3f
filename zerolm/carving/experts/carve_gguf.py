"""From a GGUF file with experts to one with fewer experts, compared with it byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.carving.experts.expert_scores import needs_tokens
from zerolm.carving.experts.expert_selection import ExpertSelection
from zerolm.carving.experts.gguf_mixture import FewerGgufExperts, GgufMixture
from zerolm.carving.formats import describe
from zerolm.carving.parent_and_request import ANYWHERE, within_budgets
from zerolm.carving.recipe import HEADER, RecipeOfExperts, document, fields_of, reading, versions_of
from zerolm.carving.request import Destination, Methods
from zerolm.carving.result import Carved, LayerSize
from zerolm.checkpoints.gguf.configuration import SIZES
from zerolm.checkpoints.gguf.parts import stem_of
from zerolm.checkpoints.gguf.same_tokens import has_llama_cpp, opened_by_llama_cpp
from zerolm.checkpoints.identity import check_unchanged
from zerolm.checkpoints.origin import Origin
from zerolm.checkpoints.weight_types import BLOCKS
from zerolm.children.card import LOSS, card
from zerolm.children.verification import Verification
from zerolm.families.core_sizes import CoreSizes
from zerolm.io.files import sha256_of
from zerolm.io.folders import REPORT, new_folder
from zerolm.io.memory import free_memory
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import Progress
from zerolm.settings import shown
from zerolm.settings.compute import ComputeRequest

FORMAT: Final = "gguf"
COPIED: Final = "experts of a gguf file are copied as they are, and none is repaired"


@dataclass(frozen=True, eq=False)
class GgufExpertCarving:
    """A file with experts and the request for them; ``recipe`` is that of a child that is rebuilt.

    Where the criterion needs a text, the file is run in the stock class.
    """

    mixture: GgufMixture
    size: SizeRequest
    methods: Methods
    destination: Destination
    compute: ComputeRequest
    progress: Progress
    recipe: RecipeOfExperts | None = None

    @cached_property
    def selection(self) -> ExpertSelection:
        costs = self.mixture.costs(self.mixture.routing.experts)
        size = within_budgets(self.size, self.methods, FORMAT, costs, costs["params"])
        of_recipe = self.recipe.experts if self.recipe else None
        return ExpertSelection(self.mixture, size, self.methods, self.compute, self.progress, of_recipe)

    def carved(self) -> Carved:
        """Return the outcome, with the child written if a folder is given."""
        self._check()
        fewer = FewerGgufExperts(self.mixture, self.selection.kept)
        outcome = self._outcome(fewer)
        folder = self.destination.folder
        return outcome if folder is None else self._written(outcome, fewer, folder)

    def _check(self) -> None:
        criterion = self.methods.criterion
        if self.size.experts.ffn is not None:
            raise ValueError(
                "a gguf file stores neurons in blocks, so that none can be pruned: drop --keep-expert-ffn"
            )
        if self.destination.form not in (None, FORMAT):
            raise ValueError(
                "experts of a gguf file are taken out into a gguf file, not as "
                f"{shown(self.destination.form)}: give --format gguf"
            )
        self.selection.check(alone=True)
        if self.methods.text is not None and not needs_tokens(criterion):
            raise ValueError(f"criterion {criterion} reads no text, and nothing is repaired: give no --text")

    def _outcome(self, fewer: FewerGgufExperts) -> Carved:
        mixture, selection, header = self.mixture, self.selection, self.mixture.header
        layers = len(header.of_layers(SIZES["depth"]) or range(mixture.layers[-1] + 1))
        names = (part.name for part in fields(CoreSizes))
        sizes = {name: header.of_layers(SIZES[name]) or (0,) * layers for name in names}
        widths = zip(sizes["heads"], sizes["kv_heads"], sizes["ffn"], strict=True)
        kinds = {BLOCKS[kind] for kind in header.types.values()}
        counts = {"parent": mixture.routing.experts, "child": fewer.count}
        return Carved(
            parent=str(mixture.file),
            family=header.architecture,
            costs={name: mixture.costs(count) for name, count in counts.items()},
            weight_bits=sorted({round(8 * size / weights) for weights, size in kinds}),
            optimal=selection.is_optimal,
            losses={},
            unit=LOSS["next"],
            notes=[] if self.methods.repair == "none" else [COPIED],
            verified=None,
            experts=selection.described({}),
            criterion=self.methods.criterion,
            repair="none",
            plan="weights",
            shape=self.size.layer_shape,
            format=FORMAT,
            widths=[LayerSize(layer, *each) for layer, each in enumerate(widths)],
            parent_sizes=CoreSizes(**{name: max(each) for name, each in sizes.items()}),
        )

    def _written(self, carved: Carved, fewer: FewerGgufExperts, out: Path) -> Carved:
        """Write the child into a new folder, and compare it with its parent before the folder is renamed."""
        mixture, finish, calibration = self.mixture, self.destination.finish, None
        if self.recipe is not None:
            calibration = self.recipe.document["calibration"]
        elif self.selection.are_chosen_by_tokens:
            calibration = self.selection.session.calibration
        origin, versions = Origin(mixture.file.name), versions_of()
        recipe = document(carved, origin, {HEADER: mixture.header.digest}, calibration, {}, versions)
        with new_folder(out, self.destination.force) as folder:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{stem_of(mixture.file)}-carved.gguf"
            fewer.write(file, self.progress)
            self.progress("comparing the child with its parent")
            fewer.compare(file)
            sha256 = {file.name: sha256_of(file)}
            differing = self.recipe.difference(sha256, versions) if self.recipe else ""
            notes = [*carved.notes, *filter(None, [self._opened(file), differing])]
            carved = replace(carved, notes=notes, verified=Verification(0.0, 0.0, "bytes"))
            text = card(recipe, carved.family, file.name)
            describe(folder, text, {**recipe, "sha256": sha256}, REPORT if finish else ())
            if finish:
                finish(folder, carved.child)
            for shard in mixture.shards:
                check_unchanged(shard)
        return carved

    def _opened(self, file: Path) -> str:
        """Return why llama.cpp did not open the child; empty after it ran a token through it.

        It is skipped without llama-cpp-python, or where memory does not hold the file. Raises ``ValueError``
        where the file does not open, or its outputs are not finite.
        """
        if not has_llama_cpp():
            return "llama.cpp did not open it: llama-cpp-python is not installed"
        if 2 * file.stat().st_size > free_memory():
            return "llama.cpp did not open it: half of the free memory does not hold it"
        opened: Any = opened_by_llama_cpp(file, n_ctx=8, n_batch=8, logits_all=True, n_threads=1)
        try:
            opened.eval([0])
            if not np.isfinite(opened.scores[0]).all():
                raise ValueError("the outputs of the written child in llama.cpp are not finite")
        finally:
            opened.close()
        return ""


def rebuilt_file(
    file: Path, recipe: Path, document: Mapping[str, Any], destination: Destination, progress: Progress
) -> Carved:
    """Return the outcome of the ``document`` of a recipe that removed experts from a file."""
    mixture = GgufMixture.open(file)
    with reading(recipe):
        fields = fields_of(document, HEADER, mixture.header.digest)
        read = RecipeOfExperts(fields, document, fields.kept_experts(mixture.sizes))
    methods = Methods(criterion=fields.criterion, experts=fields.criterion)
    return GgufExpertCarving(mixture, SizeRequest(), methods, destination, ANYWHERE, progress, read).carved()
