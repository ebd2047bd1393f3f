"""A supernet: the candidate blocks of every layer, of which a path takes one (SPOS, arXiv 1904.00420).

Its folder holds its weights and widths, the space, and how it was trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path as File
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Architecture, Ints, Shapes
from zerolm.costs import COSTS, CostModel
from zerolm.io.brief import one_line
from zerolm.io.files import parse_json, read_text, write_json
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.distillation import Features, watched
from zerolm.lab.supernets.request import GrowthEpoch
from zerolm.networks.build import build
from zerolm.networks.modules.layer import Stack, part
from zerolm.networks.opener import stock_tokenizer
from zerolm.settings.messages import plural
from zerolm.spaces import make_space

SUPERNET_FORMAT: Final = "zerolm-supernet"
SUPERNET_FILE: Final = "supernet.json"
SUPERNET_WEIGHTS: Final = "supernet.safetensors"
HISTORY: Final = "history.jsonl"
MAX_FACTS: Final = 16 << 20
DRAWN_AT: Final = 528
"""The hidden size at which matrices are as ``build`` draws them: ELM-Small's."""
Path = Sequence[int]
"""The kind of each layer, by its number among the kinds of the space."""
Block = Callable[[Tensor, Tensor | None], Tensor]
"""Hidden states (b, t, d) and padding (b, t), 0 there, to hidden states."""


class Supernet(nn.Module):
    """Blocks of every kind for every layer, their FFNs as wide as they may grow, an embedding and a head.

    Of each FFN only a prefix of its neurons is active: ``widths`` (layers, kinds), int64. Kinds that share
    projections have weights of their own. A path is the network of an architecture of the space.
    """

    widths: Tensor

    def __init__(self, space: Elastic, seed: int = 0) -> None:
        super().__init__()
        self.space, self.shape = space, (space.depth, len(space.kinds))
        every = [{"block": b, "share": s, "ffn": space.largest} for b, s in space.kinds] * space.depth
        self.stack = drawn_network(space.read({"layers": every}), seed)
        widths = space.widths or (space.step,) * (space.depth * len(space.kinds))
        self.register_buffer("widths", torch.tensor(widths).reshape(self.shape))

    def forward(self, ids: Tensor, path: Path, classes: int | None = None) -> Tensor:
        """Return logits (b, t, v) of token ids (b, t) on a path."""
        hidden = self.stack.embeddings(ids)
        for block in self.blocks(path):
            hidden = block(hidden, None)
        logits: Tensor = self.stack.head(self.stack.final(hidden), classes)
        return logits

    def layer(self, layer: int, kind: int) -> nn.Module:
        """Return a block with its whole FFN."""
        return self.stack.layers[layer * self.shape[1] + kind]

    def blocks(self, path: Path) -> list[Block]:
        """Return the blocks of a path, their FFNs as wide as they are active."""
        widths = self.widths.tolist()
        return [self.active(layer, kind, widths[layer][kind]) for layer, kind in enumerate(path)]

    def active(self, layer: int, kind: int, width: int) -> Block:
        """Return a block of which the first ``width`` neurons are active."""
        block = self.layer(layer, kind)
        if width == self.space.largest:
            return block
        prefix = narrowed(block, width)
        return lambda hidden, padding: functional_call(block, prefix, (hidden, padding))

    def behind(self, ids: Tensor, path: Path) -> Iterator[list[Tensor]]:
        """Yield the outputs of every block of each layer behind the blocks of a path, in evaluation mode."""
        was_training, widths = self.training, self.widths.tolist()
        self.train(False)
        hidden = self.stack.embeddings(ids.to(self.widths.device))
        for layer, chosen in enumerate(path):
            outputs = [self.active(layer, *place)(hidden, None) for place in enumerate(widths[layer])]
            yield outputs
            hidden = outputs[chosen]
        self.train(was_training)

    def features(self, ids: Tensor, path: Path) -> tuple[Features, Tensor]:
        """Return the features that are compared with a teacher's, and the logits (b, t, v)."""
        layers = [self.layer(layer, kind) for layer, kind in enumerate(path)]
        return features_of(self.stack, layers, self.blocks(path), ids)

    def architecture(self, path: Path) -> Architecture:
        """Return the architecture that a path is."""
        widths = self.widths.tolist()
        chosen = [(*self.space.kinds[kind], widths[layer][kind]) for layer, kind in enumerate(path)]
        return self.space.read({"layers": [{"block": b, "share": s, "ffn": f} for b, s, f in chosen]})

    def path_of(self, architecture: Architecture) -> list[int]:
        """Return the path that an architecture is; ``ValueError`` where it is none of this supernet."""
        layers = architecture.choices["layers"]
        if architecture.space != self.space.name or len(layers) != self.shape[0]:
            raise ValueError(
                f"a network of {plural(len(layers), 'layer')} of {architecture.space!r} is no path through "
                f"{self.shape[0]} layers of {self.space.name!r}"
            )
        kinds = self.space.kinds
        path = []
        for place, layer in enumerate(layers):
            kind = (layer["block"], layer["share"])
            if kind not in kinds or layer["ffn"] != int(self.widths[place, kinds.index(kind)]):
                raise ValueError(f"layer {place + 1}, {kind} with ffn {layer['ffn']}, is not of the supernet")
            path.append(kinds.index(kind))
        return path

    def path_state(self, path: Path) -> dict[str, Tensor]:
        """Return the weights of a path by their names in the network that ``build`` makes of it."""
        state: dict[str, Tensor] = {
            name: value for name, value in self.stack.state_dict().items() if not name.startswith("layers.")
        }
        widths = self.widths.tolist()
        for layer, kind in enumerate(path):
            block = self.layer(layer, kind)
            whole = block.state_dict() | narrowed(block, widths[layer][kind])
            state |= {f"layers.{layer}.{name}": value.detach() for name, value in whole.items()}
        return state

    @property
    def ends_params(self) -> int:
        """Return the parameters outside the layers."""
        return int(CostModel().ends(self.space.ends())[COSTS.index("params")])

    def grown_space(self) -> Elastic:
        """Return the space of the supernet's paths: one width of each kind of each layer."""
        return self.space.with_settings(widths=self.widths.flatten().tolist())

    def params(self, widths: Tensor | None = None) -> Ints:
        """Return the parameters of every block at its width, or at other ``widths``, (layers, kinds)."""
        widths = self.widths if widths is None else widths
        layers = [
            self.space.layer({"block": block, "share": share, "ffn": width})
            for row in widths.tolist()
            for (block, share), width in zip(self.space.kinds, row, strict=True)
        ]
        return CostModel().layers(Shapes.of(layers))[:, COSTS.index("params")].reshape(self.shape)


def drawn_network(architecture: Architecture, seed: int) -> Stack:
    """Return the network of an architecture with weights to train from, in evaluation mode.

    ``build`` draws them as ELM does at a hidden size of 528. Narrower networks so drawn pass on next to
    nothing and are slow to begin, so matrices are multiplied by sqrt(528 / hidden), as muP has it
    (arXiv 2203.03466).
    """
    module = build(architecture, seed).module
    assert isinstance(module, Stack)
    factor = (DRAWN_AT / architecture.layers[0].width) ** 0.5
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                part.weight.mul_(factor)
    return module


def features_of(
    stack: Stack, layers: Sequence[nn.Module], blocks: Sequence[Block], ids: Tensor
) -> tuple[Features, Tensor]:
    """Return the features of token ids (b, t) through ``blocks``, which are ``layers``, and the logits."""
    outputs = []
    with watched([part(layer, "attention").get_submodule("o") for layer in layers]) as attention:
        hidden = embedding = stack.embeddings(ids)
        for block in blocks:
            hidden = block(hidden, None)
            outputs.append(hidden)
    return Features(embedding, attention, outputs), stack.head(stack.final(hidden))


def narrowed(block: nn.Module, width: int) -> dict[str, Tensor]:
    """Return the parameters of a block's FFN that change where only its first neurons are active, by name."""
    place = "ffn.inner" if hasattr(block.get_submodule("ffn"), "inner") else "ffn"
    ffn = block.get_submodule(place)
    prefix = {f"{place}.down.weight": ffn.get_parameter("down.weight")[:, :width]}
    for name, value in ffn.named_parameters():
        if name.split(".")[0] in ("gate", "up"):
            prefix[f"{place}.{name}"] = value[:width]
    return prefix


def drawn_path(shape: tuple[int, int], seed: int, number: int) -> list[int]:
    """Return the path of a step: a kind for each layer, each equally likely, fixed by seed and number."""
    layers, kinds = shape
    drawn: list[int] = np.random.default_rng([seed, number]).integers(kinds, size=layers).tolist()
    return drawn


def write_supernet(
    folder: File,
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    facts: Mapping[str, Any],
    history: Sequence[GrowthEpoch],
) -> None:
    """Write a supernet with the ``facts`` of its training (plain JSON)."""
    space = supernet.grown_space()
    tokenizer.save_pretrained(folder)
    safetensors.torch.save_model(supernet, str(folder / SUPERNET_WEIGHTS))
    (folder / HISTORY).write_text(
        "".join(f"{json.dumps(asdict(row))}\n" for row in history), encoding="utf-8"
    )
    files = sorted([SUPERNET_FILE, *(file.name for file in folder.iterdir())])
    about = {"format": SUPERNET_FORMAT, "space": space.name, "settings": space.settings, "files": files}
    write_json(folder / SUPERNET_FILE, {**about, **facts})


def read_supernet(folder: File) -> tuple[Supernet, PreTrainedTokenizerBase, dict[str, Any]]:
    """Return the supernet of a folder, its tokenizer, and its description.

    ``ValueError``, in one line, where the folder is none of a supernet or damaged, or its weights are of
    another configuration.
    """
    file = folder / SUPERNET_FILE
    try:
        facts = parse_json(read_text(file, MAX_FACTS))
    except (OSError, ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != SUPERNET_FORMAT:
        raise ValueError(f"{str(folder)!r} is no folder of a supernet: it has no {SUPERNET_FILE} of one")
    settings, text = facts.get("settings"), facts.get("text")
    if not isinstance(settings, dict) or not isinstance(text, dict):
        raise ValueError(f"{str(file)!r} has no settings of a space, or no text")
    space = make_space(str(facts.get("space")), **settings)
    if not isinstance(space, Elastic):
        raise ValueError(f"{str(file)!r} is of space {space.name!r}, which has no supernets")
    supernet = Supernet(space)
    widths = supernet.widths.clone()
    with one_line(f"the weights in {str(folder / SUPERNET_WEIGHTS)!r}"):
        safetensors.torch.load_model(supernet, str(folder / SUPERNET_WEIGHTS))
    if not bool((supernet.widths == widths).all()):
        raise ValueError(f"the weights in {str(folder)!r} do not have the widths of {SUPERNET_FILE}")
    return supernet.train(False), stock_tokenizer(folder), facts
