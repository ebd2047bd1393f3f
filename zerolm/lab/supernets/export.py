"""A path as a model of transformers in a folder, with the supernet's weights or from scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor

import zerolm
from zerolm.architecture import Architecture
from zerolm.children.card import plain
from zerolm.costs import CostModel
from zerolm.io.files import write_json
from zerolm.io.folders import check_new, new_folder, work_folder
from zerolm.lab.supernets.distillation import taught
from zerolm.lab.supernets.heads import head_similarity, with_fewer_heads, without_heads
from zerolm.lab.supernets.learner import PathLearner
from zerolm.lab.supernets.model import ElasticConfig, ElasticForCausalLM, ElasticForMaskedLM
from zerolm.lab.supernets.request import UNTRAINED, Exported, PathLayer, Row, Teaching
from zerolm.lab.supernets.supernet import Supernet, drawn_network, read_supernet
from zerolm.lab.supernets.text import ElasticText, supernet_text
from zerolm.networks.modules.layer import Stack
from zerolm.networks.opener import quiet
from zerolm.progress import Progress, silent
from zerolm.spaces import SPACES
from zerolm.training.losses import HELD_BATCH
from zerolm.training.randomness import without_dropout
from zerolm.training.request import TrainingRequest
from zerolm.training.train import train
from zerolm.training.watch import TrainingRun

PATH_FORMAT: Final = "zerolm-path"
PATH_FILE: Final = "path.json"
LOGITS_TOLERANCE: Final = 1e-5
"""How far logits of what was written may be from those of the network, over the largest."""
CARD: Final = """---
library_name: transformers
tags: [zerolm, elastic]
---

# A path of the supernet {supernet}

{params:,} parameters: {words}.

{lines}

```python
import zerolm.lab.supernets.model
from transformers import {auto}

model = {auto}.from_pretrained(".")
```

The first import makes the type `zerolm_elastic` known to transformers. `path.json` has all of it.
"""


@dataclass(frozen=True)
class ExportRequest:
    """A path by its ``choices``, with the weights that it ``starts`` from, and fewer ``heads`` where asked.

    Heads that repeat others are fused into fewer and wider ones of the same width (ELM, algorithm 1), or
    removed. They are compared by sequences, ``unbiased`` by tokens. With ``training`` it is trained further
    on the ``text``, None for that of the supernet, by a ``teacher`` or without.
    """

    choices: Mapping[str, Any]
    starts: Literal["supernet", "scratch"] = "supernet"
    heads: Literal["keep", "fuse", "remove"] = "keep"
    unbiased: bool = False
    training: TrainingRequest | None = None
    text: str | None = None
    teaching: Teaching = field(default_factory=Teaching)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.training is None and (self.starts == "scratch" or self.teaching.teacher is not None):
            raise ValueError("weights from scratch, or a teacher, are of no use without training")


Finish = Callable[[Path, Exported], None]
"""Writes further files into the folder of a path."""


def export(
    supernet: Path,
    request: ExportRequest,
    out: Path,
    *,
    force: bool = False,
    finish: Finish | None = None,
    progress: Progress = silent,
) -> Exported:
    """Write a path of the supernet in a folder as a model that ``from_pretrained`` opens, and open it again.

    ``ValueError`` where the choices are no path of the supernet, or what was written gives other logits.
    """
    quiet()
    check_new(out, force)
    net, tokenizer, facts = read_supernet(supernet)
    space = net.grown_space()
    text = supernet_text(supernet, space, facts, request.text, request.training, progress)
    architecture, network, similarity = _start(net, request, text)
    losses, log = {"before" if request.training else UNTRAINED: text.loss(network)}, list[Row]()
    identity = {**asdict(request), "supernet": facts, "text_sha256": text.sha256}
    with work_folder(out, identity, force) if request.training else nullcontext() as work:
        if request.training and work:
            teacher, compare = taught(request.teaching, text, space, architecture.depth, request.training)
            learner = PathLearner(architecture, network, request.teaching, compare)
            log = _trained(learner, text, request.training, teacher, work, progress)
            losses["after"] = text.loss(network)
        choices, costs = architecture.choices, CostModel().of_task(space.task).of(architecture)
        layers = [PathLayer(**layer) for layer in choices["layers"]]
        alike = [matrix.tolist() for matrix in similarity]
        words = space.words(choices)
        exported = Exported(space.name, layers, words, costs, losses, request.heads, alike, log)
        document = {
            "format": PATH_FORMAT,
            "zerolm": zerolm.__version__,
            "supernet": supernet.name,
            "space": space.name,
            "settings": space.settings,
            "architecture": choices,
            "request": asdict(request),
            "text_sha256": text.sha256,
            "costs": costs,
            "losses": losses,
        }
        maker = ElasticForCausalLM if space.task == "next" else ElasticForMaskedLM
        special = {
            name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")
        }
        model = maker(ElasticConfig.of(space, architecture, **special)).train(False)
        model.load_state_dict(named(network.state_dict()))
        with new_folder(out, force) as place:
            model.save_pretrained(place)
            tokenizer.save_pretrained(place)
            auto = f"AutoModel{maker.__name__.removeprefix('Elastic')}"
            (place / "README.md").write_text(card(document, auto), encoding="utf-8")
            if finish:
                finish(place, exported)
            files = sorted([PATH_FILE, *(file.name for file in place.iterdir())])
            write_json(place / PATH_FILE, {**document, "files": files})
            _check(network, maker.from_pretrained(place).train(False), text.held_out[0][:HELD_BATCH])
    return exported


def _start(
    supernet: Supernet, request: ExportRequest, text: ElasticText
) -> tuple[Architecture, Stack, list[Tensor]]:
    """Return an architecture and its network before any training, and how alike its heads were.

    Heads are compared as the supernet has them.
    """
    whole = architecture = supernet.grown_space().read(dict(request.choices))
    state, alike = dict[str, Tensor](), list[Tensor]()
    if request.starts == "supernet" or request.heads != "keep":
        state = supernet.path_state(supernet.path_of(whole))
    if request.heads != "keep":
        network, by_tokens = drawn_network(whole, request.seed), request.unbiased
        network.load_state_dict(state)
        alike = head_similarity(network, text.held_out[0], tokens=by_tokens, unbiased=by_tokens)
        architecture = with_fewer_heads(supernet.space, whole, alike, request.heads)
        state = without_heads(state, whole, alike) if request.heads == "remove" else state
    network = drawn_network(architecture, request.seed)
    if request.starts == "supernet":
        network.load_state_dict(state)
    return architecture, network, alike


def _trained(
    learner: PathLearner,
    text: ElasticText,
    run: TrainingRequest,
    teacher: Any,
    work: Path,
    progress: Progress,
) -> list[Row]:
    """Train a network further by the losses that are asked for, and return the log; a killed run goes on."""
    network = learner.network
    without_dropout(network)

    def judge() -> dict[str, float]:
        return {"held_out": text.loss(network, next(network.parameters()).device)}

    data, watched = text.data(run.sequences, run.seed), TrainingRun(work, judge, progress)
    log = train(learner, data, run, watched, teacher=teacher).rows
    learner.to("cpu").train(False)
    return log


@torch.no_grad()
def _check(network: Stack, opened: Any, ids: Tensor) -> None:
    """Raise ``ValueError`` where what was written gives other logits than the network."""
    ours, theirs = network(ids), opened(ids).logits
    if float((ours - theirs).abs().max()) > LOGITS_TOLERANCE * max(1.0, float(ours.abs().max())):
        raise ValueError("what was written gives other logits than the network; nothing is left")


def named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a network by their names in the models of transformers."""
    return {name if name.startswith("head.") else f"network.{name}": value for name, value in state.items()}


def card(document: Mapping[str, Any], auto: str) -> str:
    """Return the card of a path from the content of ``path.json``; ``auto`` is the class that opens it."""
    request = document["request"]
    weights = "those of the supernet" if request["starts"] == "supernet" else "new random ones"
    lines = [f"weights: {weights}", f"heads: {request['heads']}"]
    if request["training"]:
        run, teacher = request["training"], request["teaching"]["teacher"]
        by = f"by the teacher {plain(teacher)}" if teacher else "without a teacher"
        lines += [f"then trained {by}: {run['tokens']:,} tokens, rate {run['schedule']['rate']:g}"]
    lines += [f"loss on text held out, {when}: {loss:.4g}" for when, loss in document["losses"].items()]
    lines += [f"made with zerolm {document['zerolm']}"]
    return CARD.format(
        supernet=plain(document["supernet"]),
        params=document["costs"]["params"],
        words=SPACES[document["space"]].words(document["architecture"]),
        lines="\n".join(f"- {line}" for line in lines),
        auto=auto,
    )
