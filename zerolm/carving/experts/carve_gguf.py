"""From a GGUF file with experts to one with fewer, compared with it byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.carving.experts import expert_worth
from zerolm.carving.experts.expert_choice import best_experts
from zerolm.carving.experts.expert_count import check_alone, count_of
from zerolm.carving.experts.gguf_fewer import FewerGgufExperts
from zerolm.carving.experts.gguf_mixture import GgufMixture
from zerolm.carving.experts.routing import Routing
from zerolm.carving.export.card import card
from zerolm.carving.recipe import EXPERTS_VERSION, RECIPE_FORMAT, versions_of
from zerolm.carving.request import Destination, Methods, SizeRequest
from zerolm.carving.result import Carved, CarvingMethod
from zerolm.checkpoints.weight_types import BLOCKS
from zerolm.io.files import write_json
from zerolm.io.folders import REPORT, new_folder
from zerolm.io.memory import free_memory
from zerolm.progress import Progress
from zerolm.settings import shown

FORMAT: Final = "gguf"
SIZES: Final = {
    "depth": "block_count", "hidden": "embedding_length", "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv", "head_size": "attention.key_length", "ffn": "feed_forward_length",
}  # fmt: skip
HASHED_BYTES: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class GgufExpertCarving:
    """A file and what is to be done with it."""

    file: Path
    size: SizeRequest
    methods: Methods
    destination: Destination
    progress: Progress

    @cached_property
    def mixture(self) -> GgufMixture:
        return GgufMixture.open(self.file)

    @property
    def routing(self) -> Routing:
        return self.mixture.routing

    def carved(self) -> Carved:
        """Return the outcome, with the child on the disk where one is wanted."""
        self._check()
        count = count_of(self.size, self.routing, self._costs(self.routing.experts), self._costs)
        kept = {
            layer: best_experts(self._worth(layer), count, self.routing.groups)
            for layer in self.mixture.layers
        }
        fewer = FewerGgufExperts(self.mixture, kept)
        outcome = self._outcome(fewer)
        folder = self.destination.folder
        return outcome if folder is None else self._written(outcome, fewer, folder)

    def _check(self) -> None:
        """Refuse before any work what cannot be."""
        criterion = self.methods.criterion
        check_alone(self.size, self.methods)
        if self.destination.form != FORMAT:
            raise ValueError(
                "experts of a gguf file are taken out into a gguf file, not as "
                f"{shown(self.destination.form)}: give --format gguf"
            )
        if expert_worth.needs_tokens(criterion) or self.methods.text is not None:
            raise ValueError(
                f"criterion {criterion} on a text runs the network, and a gguf file of experts is not run: "
                "give --criterion aimer or random, and no --text"
            )
        if criterion == expert_worth.AIMER:
            _needing_gguf()
        _ = self.mixture

    def _worth(self, layer: int) -> Floats:
        if self.methods.criterion == expert_worth.RANDOM:
            return expert_worth.drawn(self.methods.seed, layer, self.routing.experts)
        self.progress("weighing experts by their weights", layer, self.mixture.layers[-1] + 1)
        return self.mixture.worth(layer)

    def _costs(self, count: int) -> dict[str, int]:
        """Return the costs that the tensors of a file tell, with so many experts a layer."""
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
        """Return the sizes of the layers as the metadata have them; 0 where they tell none."""
        header = self.mixture.header
        depth = header.metadata.get(f"{header.architecture}.block_count")
        layers = depth if type(depth) is int and 0 < depth <= 4096 else self.mixture.layers[-1] + 1
        return {name: list(header.of_layers(key) or [0] * layers) for name, key in SIZES.items()}

    def _outcome(self, fewer: FewerGgufExperts) -> Carved:
        sizes, routing, mixture = self._sizes(), self.routing, self.mixture
        widths = zip(sizes["heads"], sizes["kv_heads"], sizes["ffn"], strict=True)
        kinds = {BLOCKS[kind] for kind in mixture.header.types.values()}
        rows = [
            {"layer": layer, "kept": kept.tolist(), "tokens": None, "gates": None}
            for layer, kept in fewer.by_layer.items()
        ]
        return Carved(
            str(self.file),
            mixture.header.architecture,
            CarvingMethod(self.methods.criterion, "none", "weights", self.size.layer_shape, FORMAT, None),
            {"parent": self._costs(routing.experts), "child": self._costs(fewer.count)},
            sorted({round(8 * size / weights) for weights, size in kinds}),
            True,
            {},
            [{"layer": n, "heads": h, "kv_heads": k, "ffn": f} for n, (h, k, f) in enumerate(widths)],
            None,
            {name: max(each) for name, each in sizes.items()},
            experts={
                "parent": routing.experts,
                "child": fewer.count,
                "active": routing.active,
                "groups": routing.groups,
                "layers": rows,
            },
        )

    def _written(self, carved: Carved, fewer: FewerGgufExperts, out: Path) -> Carved:
        """Write the child into a new folder, compared with its parent before the folder gets its name."""
        finish, state = self.destination.finish, self.file.stat()
        with new_folder(out, self.destination.force) as folder:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{self.file.stem}-carved.gguf"
            fewer.write(file, self.progress)
            self.progress("comparing the child with its parent")
            fewer.compare(file)
            note = self._opened(file)
            carved = replace(
                carved,
                note=note,
                verified={"difference": 0.0, "relative": 0.0, "by": "bytes", "embeddings": None},
            )
            self._describe(carved, fewer, folder, file, REPORT if finish else ())
            if finish:
                finish(folder, carved)
            now = self.file.stat()
            if (now.st_size, now.st_mtime_ns) != (state.st_size, state.st_mtime_ns):
                raise ValueError(f"{str(self.file)!r} has changed since it was opened")
        return carved

    def _opened(self, file: Path) -> str:
        """Run a token through the child in llama.cpp, where it is there and memory holds the file.

        Return what was not done; ``ValueError`` where it does not open, or sends what is no number.
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
                raise ValueError("llama.cpp sends what is no number from the written child")
        finally:
            opened.close()
        return ""

    def _describe(
        self, carved: Carved, fewer: FewerGgufExperts, folder: Path, file: Path, more: Sequence[str]
    ) -> None:
        """Write the card and what was kept beside the file."""
        method = carved.method
        recipe = {
            "format": RECIPE_FORMAT, "version": EXPERTS_VERSION, "parent": self.file.name, "revision": None,
            "parent_header": self.mixture.header.digest, "family": carved.family,
            "criterion": method.criterion, "repair": method.repair, "plan": method.plan,
            "shape": method.shape,
            "written_as": FORMAT, "costs": carved.costs, "weight_bits": carved.weight_bits, "losses": {},
            "calibration": None, "seed": self.methods.seed, "versions": versions_of(), "stream": None,
            "experts": [{"layer": layer, "kept": kept.tolist()} for layer, kept in fewer.by_layer.items()],
            "sha256": {file.name: _sha256(file)},
            "files": sorted([file.name, "README.md", "recipe.json", *more]),
        }  # fmt: skip
        hidden = carved.parent_sizes["hidden"]
        (folder / "README.md").write_text(card(recipe, carved.family, file.name, hidden), encoding="utf-8")
        write_json(folder / "recipe.json", recipe)


def _needing_gguf() -> None:
    try:
        import gguf  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a gguf file needs the package gguf: pip install 'zerolm[gguf]'") from None


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
