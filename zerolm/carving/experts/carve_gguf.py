"""From a GGUF file with experts to one with fewer experts, compared with it byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts import expert_scores
from zerolm.carving.experts.expert_choice import ChosenExperts, best_experts
from zerolm.carving.experts.expert_count import check_domains, check_request, check_text, count_of
from zerolm.carving.experts.gguf_fewer import FewerGgufExperts
from zerolm.carving.experts.gguf_mixture import GgufMixture
from zerolm.carving.experts.gguf_recipe import GgufRecipe, gguf_document, gguf_recipe
from zerolm.carving.experts.result import ChildExperts, ExpertRow
from zerolm.carving.experts.routing import Routing
from zerolm.carving.request import Destination, Methods
from zerolm.carving.result import Carved, LayerSize
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.parts import stem_of
from zerolm.checkpoints.weight_types import BLOCKS
from zerolm.children.card import card
from zerolm.children.verification import Verification
from zerolm.families.core_sizes import CoreSizes
from zerolm.io.files import write_json
from zerolm.io.folders import REPORT, check_new, new_folder
from zerolm.io.memory import free_memory
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import Progress
from zerolm.settings import shown
from zerolm.settings.compute import ComputeRequest

if TYPE_CHECKING:
    from zerolm.carving.experts.expert_selection import ExpertSelection

FORMAT: Final = "gguf"
COPIED: Final = "experts of a gguf file are copied as they are, and none is repaired"
SIZES: Final = {
    "depth": "block_count", "hidden": "embedding_length", "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv", "head_size": "attention.key_length", "ffn": "feed_forward_length",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class GgufExpertCarving:
    """A file and the request for its experts; ``document`` is the recipe of a child to rebuild.

    Where the criterion needs a text, the file is run in the stock class.
    """

    file: Path
    size: SizeRequest
    methods: Methods
    destination: Destination
    compute: ComputeRequest
    progress: Progress
    document: Mapping[str, Any] | None = None

    @cached_property
    def mixture(self) -> GgufMixture:
        return GgufMixture.open(self.file)

    @cached_property
    def recipe(self) -> GgufRecipe | None:
        """The recipe of the document, checked against the file."""
        return None if self.document is None else GgufRecipe.of(self.document, self.mixture)

    @cached_property
    def selection(self) -> ExpertSelection | None:
        """The experts chosen from tokens; None where no tokens are used."""
        if self.document is not None or not expert_scores.needs_tokens(self.methods.criterion):
            return None
        from zerolm.carving.experts.expert_selection import ExpertSelection

        try:
            checkpoint = Checkpoint.open(self.file, packed=True)
        except ValueError as error:
            raise ValueError(f"{error}; --criterion aimer needs no text") from None
        return ExpertSelection(
            checkpoint, self.size, self.methods, StoredCosts(), self.compute, self.progress
        )

    @property
    def routing(self) -> Routing:
        return self.mixture.routing

    def carved(self) -> Carved:
        """Return the outcome, with the child written if a folder is given."""
        self._check()
        fewer = self._fewer()
        outcome = self._outcome(fewer)
        folder = self.destination.folder
        return outcome if folder is None else self._written(outcome, fewer, folder)

    def _fewer(self) -> FewerGgufExperts:
        """Return the child with the best experts of each layer, or with the recipe's."""
        return FewerGgufExperts(self.mixture, {layer: each.kept for layer, each in self._chosen.items()})

    @cached_property
    def _chosen(self) -> dict[int, ChosenExperts]:
        """The experts of each layer, chosen by the criterion, or those of the recipe."""
        if self.recipe is not None:
            return {layer: ChosenExperts(kept) for layer, kept in self.recipe.experts.items()}
        count = count_of(self.size, self.routing, self._costs(self.routing.experts), self._costs)
        if self.selection is not None:
            return self.selection.chosen_of(count)
        return {
            layer: ChosenExperts(best_experts(self._scores(layer), count, self.routing.groups))
            for layer in self.mixture.layers
        }

    def _check(self) -> None:
        """Raise ``ValueError`` for an impossible request before any work."""
        criterion = self.methods.criterion
        out = self.destination.folder
        if out is not None:
            if self.file.resolve().is_relative_to(out.resolve()):
                raise ValueError(
                    f"output {str(out)!r} holds the parent, which is never touched; name another"
                )
            check_new(out, self.destination.force)
        check_request(self.size, self.methods, alone=True)
        if self.size.experts.ffn is not None:
            raise ValueError(
                "a gguf file stores neurons in blocks, so that none can be pruned: drop --keep-expert-ffn"
            )
        if self.destination.form not in (None, FORMAT):
            raise ValueError(
                "experts of a gguf file are taken out into a gguf file, not as "
                f"{shown(self.destination.form)}: give --format gguf"
            )
        check_domains(self.size, self.methods)
        if self.document is None:
            check_text(self.methods)
            if self.methods.text is not None and not expert_scores.needs_tokens(criterion):
                raise ValueError(
                    f"criterion {criterion} reads no text, and nothing is repaired: give no --text"
                )
            if criterion != expert_scores.RANDOM:
                _needing_gguf()
        _ = self.mixture, self.recipe, self.selection

    def _scores(self, layer: int) -> Floats:
        if self.methods.criterion == expert_scores.RANDOM:
            return expert_scores.drawn(self.methods.seed, layer, self.routing.experts)
        self.progress("scoring experts by their weights", layer, self.mixture.layers[-1] + 1)
        return self.mixture.scores(layer)

    @property
    def _calibration(self) -> Mapping[str, Any] | None:
        """The tokens that experts were chosen from, in the form of a recipe; None without."""
        if self.document is not None:
            return self.document.get("calibration")
        return None if self.selection is None else self.selection.session.calibration

    def _described(self, layer: int) -> ExpertRow:
        """Return the description of a layer's choice."""
        chosen = self._chosen[layer]
        if self.selection is None:
            return ExpertRow(layer, chosen.kept.tolist())
        return self.selection.described(layer, chosen)

    def _costs(self, count: int) -> dict[str, int]:
        """Return the costs that a file's tensors determine, with ``count`` experts in each layer."""
        mixture, routing = self.mixture, self.routing
        params = active = size = 0
        for name, (start, end) in mixture.header.places.items():
            numbers, whole = mixture.count_of(name), end - start
            used = numbers
            if name in mixture.of_experts:
                numbers, whole = (each * count // routing.experts for each in (numbers, whole))
                is_routed = "_exps." in name
                used = numbers * routing.active // count if is_routed else numbers
            params, active, size = params + numbers, active + used, size + whole
        return {"params": params, "active_params": active, "weight_bytes": size}

    def _sizes(self) -> dict[str, list[int]]:
        """Return the sizes of the layers from the metadata; 0 where missing."""
        header = self.mixture.header
        depth = header.metadata.get(f"{header.architecture}.block_count")
        layers = depth if type(depth) is int and 0 < depth <= 4096 else self.mixture.layers[-1] + 1
        return {name: list(header.of_layers(key) or [0] * layers) for name, key in SIZES.items()}

    def _outcome(self, fewer: FewerGgufExperts) -> Carved:
        sizes, routing, mixture = self._sizes(), self.routing, self.mixture
        widths = zip(sizes["heads"], sizes["kv_heads"], sizes["ffn"], strict=True)
        kinds = {BLOCKS[kind] for kind in mixture.header.types.values()}
        criterion, counts = self.methods.criterion, (routing.experts, fewer.count)
        return Carved(
            parent=str(self.file),
            family=mixture.header.architecture,
            costs={name: self._costs(count) for name, count in zip(("parent", "child"), counts, strict=True)},
            weight_bits=sorted({round(8 * size / weights) for weights, size in kinds}),
            optimal=None if self.recipe else all(each.is_proven for each in self._chosen.values()),
            losses={},
            note="" if self.methods.repair == "none" else COPIED,
            verified=None,
            experts=ChildExperts(
                criterion,
                *counts,
                routing.active,
                routing.groups,
                layers=[self._described(layer) for layer in self._chosen],
            ),
            criterion=criterion,
            repair="none",
            plan="weights",
            shape=self.size.layer_shape,
            format=FORMAT,
            widths=[LayerSize(layer, *each) for layer, each in enumerate(widths)],
            parent_sizes=CoreSizes(**{name: max(each) for name, each in sizes.items()}),
        )

    def _written(self, carved: Carved, fewer: FewerGgufExperts, out: Path) -> Carved:
        """Write the child into a new folder, and compare it with its parent before the folder is renamed."""
        finish, files = self.destination.finish, self.mixture.model.files
        states = [each.stat() for each in files]
        with new_folder(out, self.destination.force) as folder:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{stem_of(self.file)}-carved.gguf"
            fewer.write(file, self.progress)
            self.progress("comparing the child with its parent")
            fewer.compare(file)
            differing = self.recipe.difference(file) if self.recipe else ""
            note = "; ".join(filter(None, [carved.note, self._opened(file), differing]))
            carved = replace(carved, note=note, verified=Verification(0.0, 0.0, "bytes"))
            more = REPORT if finish else ()
            document = gguf_recipe(carved, fewer, self._calibration, self.methods.seed, file, more)
            page = card(document, carved.family, file.name, carved.parent_sizes.hidden)
            (folder / "README.md").write_text(page, "utf-8")
            write_json(folder / "recipe.json", document)
            if finish:
                finish(folder, carved.child)
            for each, state in zip(files, states, strict=True):
                now = each.stat()
                if (now.st_size, now.st_mtime_ns) != (state.st_size, state.st_mtime_ns):
                    raise ValueError(f"{str(each)!r} has changed since it was opened")
        return carved

    def _opened(self, file: Path) -> str:
        """Return why llama.cpp did not open the child; empty after it ran a token through it.

        It is skipped without llama-cpp-python, or where memory does not hold the file. Raises ``ValueError``
        where the file does not open, or its outputs are not finite.
        """
        from zerolm.checkpoints.gguf.same_tokens import has_llama_cpp, opened_by_llama_cpp

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


def rebuilt_file(file: Path, recipe: Path, destination: Destination, progress: Progress) -> Carved | None:
    """Return the outcome of a recipe that removed experts from a file; None for a recipe of another kind."""
    document = gguf_document(recipe)
    if document is None:
        return None
    methods = Methods(criterion=str(document.get("criterion")))
    try:
        return GgufExpertCarving(
            file, SizeRequest(), methods, destination, ComputeRequest(), progress, document
        ).carved()
    except ValueError as error:
        raise ValueError(f"recipe {str(recipe)!r} cannot be used: {error}") from None


def _needing_gguf() -> None:
    try:
        import gguf  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a gguf file needs the package gguf: pip install 'zerolm[gguf]'") from None
