"""The networks of an evaluation, opened; those that cannot be compared are refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.carving.recipe import read_recipe
from zerolm.carving.vocabulary.fewer_tokens import with_tokens
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.gguf.configuration import has_experts
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.same_tokens import opened_by_llama_cpp
from zerolm.checkpoints.gguf.unpack import gguf_file
from zerolm.checkpoints.identity import fingerprint
from zerolm.costs import CostModel
from zerolm.evaluation.quantised_parent import QUANTISED_PARENT
from zerolm.io.memory import free_memory
from zerolm.networks.compute import Compute, computed, put_on
from zerolm.networks.opener import is_decoder, open_model
from zerolm.planning.sizes import costs_of
from zerolm.progress import Progress
from zerolm.units.kept_units import Cut

RECIPE: Final = "recipe.json"
ROWS: Final = ("child", "parent", "random", "uniform", "frequency", QUANTISED_PARENT)
"""Names that no other child has."""


FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors of a file that are no weights."""


class LlamaCppNetwork(nn.Module):
    """A stand-in for a stock class where files are not read as it: llama.cpp's logits, on one thread."""

    device = torch.device("cpu")

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self._opened: Any = None
        self._room = 0

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **unused: object
    ) -> SimpleNamespace:
        """Return ``logits`` (b, t, v) of tokens (b, t); those of padding, which comes last, are 0."""
        del unused  # options of stock classes
        opened = self._for(input_ids.shape[1])
        lengths = [input_ids.shape[1]] * len(input_ids)
        if attention_mask is not None:
            lengths = attention_mask.sum(1).tolist()
        rows = np.zeros((*input_ids.shape, opened.n_vocab()), np.float32)
        for row, ids, length in zip(rows, input_ids.tolist(), lengths, strict=True):
            opened.reset()
            for token in ids[:length]:  # several at a time crash some builds, where weights are quantised
                opened.eval([token])
            row[:length] = opened.scores[:length]
        return SimpleNamespace(logits=torch.from_numpy(rows))

    def _for(self, length: int) -> Any:
        if length > self._room:
            sizes = {"n_ctx": length, "n_batch": length, "n_threads": 1, "n_threads_batch": 1}
            self._opened = opened_by_llama_cpp(self.file, logits_all=True, **sizes)
            self._room = length
        return self._opened

    @property
    def params(self) -> int:
        """The weights of the file."""
        shapes = read_gguf_header(self.file).tensors
        return sum(math.prod(shape) for name, shape in shapes.items() if name not in FACTORS)


@dataclass(frozen=True, eq=False)
class OpenedChild:
    """A child with the ``checkpoint`` that has its class and its tokens.

    Of a GGUF ``file`` that is its parent, with the tokens of the file, of which the network is a ``cut``; the
    cut is None where llama.cpp alone reads the file.
    """

    place: Path
    checkpoint: Checkpoint
    file: Path | None = None
    cut: Cut | None = None

    def network(self, running: Compute) -> PreTrainedModel:
        """Return the network in memory, put where networks run; that of a file is dequantised."""
        if self.file is None:
            return put_on(open_model(self.checkpoint), running)
        if self.by_llama_cpp:
            return cast(PreTrainedModel, computed(LlamaCppNetwork(self.file), Compute(torch.device("cpu"))))
        from zerolm.children.gguf.network import network_in

        return put_on(network_in(self.file, self.checkpoint), running)

    @property
    def by_llama_cpp(self) -> bool:
        """Whether llama.cpp alone reads it."""
        return self.file is not None and self.cut is None

    @property
    def params(self) -> int:
        """The parameters of the network."""
        if self.file is not None and self.by_llama_cpp:
            return LlamaCppNetwork(self.file).params
        return params_of(self.checkpoint, self.cut)


@dataclass(frozen=True, eq=False)
class Compared:
    """A parent and its children, of which the first is the one that is judged."""

    parent: Checkpoint
    children: Sequence[OpenedChild]

    @classmethod
    def opened(
        cls, children: Sequence[str | Path], parent: str | Path, stack: ExitStack, progress: Progress
    ) -> Compared:
        """Open all networks, each of the other children once; with the ``stack`` go tokens of files.

        ``ValueError`` where they cannot be compared, or weights are not finite.
        """
        of_file = is_mixture_file(parent)
        parent_checkpoint = Checkpoint.open(parent, packed=of_file or gguf_file(children[0]) is None)
        every = [_opened(name, parent_checkpoint, of_file, stack, progress) for name in children]
        ledger_of(parent_checkpoint)  # refuses weights that are not finite
        others = {other.place.resolve(): other for other in every[1:]}
        return cls(parent_checkpoint, [every[0], *others.values()])

    def networks(self, running: Compute) -> list[PreTrainedModel]:
        """Return the parent and its children in memory, put where networks run."""
        parent = put_on(open_model(self.parent), running)
        return [parent, *(each.network(running) for each in self.children)]

    def why_by_layers(self) -> str:
        """Return why networks, and one more like the largest, are not in memory together; empty if they are.

        They are in float32 there. ``ValueError`` for a GGUF file, which is read into memory, and a network
        that is stored quantised.
        """
        checkpoints = [*(each.checkpoint for each in self.children), self.parent]
        files = [str(each.file) for each in self.children if each.file]
        packed = [f"{str(one.place)!r} is stored quantised" for one in checkpoints if one.packed]
        why = packed[0] if packed else ""
        if files and why:
            raise ValueError(f"{why}, and the GGUF file {files[0]!r} is read into memory: evaluate it alone")
        sizes = [4 * sum(one.tensors[name].count for name in one.layout.slots) for one in checkpoints]
        needed, free = sum(sizes) + max(sizes), free_memory()
        if files or why or needed <= free:
            return why
        return f"all of them would take {needed / 1e9:.3g} of {free / 1e9:.3g} GB free"


def params_of(checkpoint: Checkpoint, cut: Cut | None = None) -> int:
    """Return the parameters of a checkpoint, or of a cut of it."""
    return costs_of(checkpoint, CostModel(), cut)["params"]


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return the shortest end of each path, with a slash, that is neither that of another nor of a row."""

    def end(folder: Path, count: int) -> str:
        return str(Path(*folder.parts[-count:]))

    def name(folder: Path) -> str:
        others = [other for other in folders if other != folder]
        counts = range(1, len(folder.parts) + 1)
        taken = {count: {*ROWS, *(end(other, count) for other in others)} for count in counts}
        return next(end(folder, count) for count in counts if end(folder, count) not in taken[count])

    return [f"{name(folder)}/" for folder in folders]


def is_mixture_file(name: str | Path) -> bool:
    """Return whether this is a GGUF file with experts."""
    file = gguf_file(name)
    return file is not None and has_experts(read_gguf_header(file))


def _opened(
    name: str | Path, parent: Checkpoint, of_mixture_file: bool, stack: ExitStack, progress: Progress
) -> OpenedChild:
    """Return a child; experts of a GGUF file are compared with those of their parent's file."""
    file = gguf_file(name)
    if file is None or (of_mixture_file and is_mixture_file(file)):
        child = Checkpoint.open(name, packed=True)
        _check_comparable(child, parent)
        return OpenedChild(child.place, child)
    from zerolm.children.gguf.network import check_architecture, cut_in, is_read_back, rows_in

    check_architecture(file, parent)
    rows, vocab = rows_in(file), parent.layout.vocab
    if rows not in (None, vocab):
        recipe = file.parent / RECIPE
        kept = read_recipe(recipe, parent, fingerprint(parent)).kept if recipe.is_file() else None
        if kept is None:
            raise ValueError(
                f"{str(file)!r} has {rows} tokens and its parent {vocab}: the {RECIPE} of its folder, which "
                "lists them, is not there"
            )
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="zerolm-tokens-")))
        parent = with_tokens(parent, kept, folder, progress=progress)
    return OpenedChild(
        Path(name), parent, file, cut_in(file, parent) if is_read_back(parent.family) else None
    )


def opened(
    child: str | Path, parent: str | Path, *, same_tokens: bool = True
) -> tuple[Checkpoint, Checkpoint]:
    """Return both checkpoints; ``ValueError`` where they cannot be compared, or weights are not finite."""
    if gguf_file(child) is not None:
        raise ValueError(f"{str(child)!r} is GGUF, which is compared with its parent alone")
    child_checkpoint, parent_checkpoint = Checkpoint.open(child), Checkpoint.open(parent)
    _check_comparable(child_checkpoint, parent_checkpoint)
    ledger_of(parent_checkpoint)  # refuses weights that are not finite
    if same_tokens:
        check_same_tokens(child_checkpoint, parent_checkpoint)
    return child_checkpoint, parent_checkpoint


def check_same_tokens(child: Checkpoint, parent: Checkpoint) -> None:
    """Raise ``ValueError`` where the predictions of two checkpoints cannot be compared token by token."""
    _check_same_kind(child, parent)
    if child.layout.vocab != parent.layout.vocab:
        sizes = f"{child.layout.vocab} and {parent.layout.vocab}"
        raise ValueError(f"vocabularies of {sizes} tokens cannot be compared token by token")


def _check_same_kind(child: Checkpoint, parent: Checkpoint) -> None:
    if is_decoder(child) != is_decoder(parent):
        kinds = f"{child.family.name} and {parent.family.name}"
        raise ValueError(f"a decoder and an encoder cannot be compared: {kinds}")


def _check_comparable(child: Checkpoint, parent: Checkpoint) -> None:
    """Raise ``ValueError`` for outputs that cannot be compared, exchanged networks, weights not finite."""
    _check_same_kind(child, parent)
    if (parent.root / RECIPE).is_file():  # any other two may be exchanged
        _check_not_exchanged(child, parent)
    sizes = child.layout.hidden, parent.layout.hidden
    if not is_decoder(parent) and sizes[0] != sizes[1]:
        raise ValueError(f"embeddings of {sizes[0]} and {sizes[1]} dimensions cannot be compared")
    ledger_of(child)  # refuses weights that are not finite


def _check_not_exchanged(child: Checkpoint, parent: Checkpoint) -> None:
    """Raise ``ValueError`` where a parent that was carved is smaller than its child in layers or tokens."""
    body, whole = (costs_of(each, CostModel())["body_params"] for each in (child, parent))
    if body > whole or (body == whole and child.layout.vocab > parent.layout.vocab):
        raise ValueError(
            f"the child {str(child.place)!r} is larger than its parent {str(parent.place)!r} ({body:,} "
            f"against {whole:,} body parameters, {child.layout.vocab:,} against {parent.layout.vocab:,} "
            "tokens): exchange them"
        )
