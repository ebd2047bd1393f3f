"""The runs behind ``elastic.md``: supernets, searches of them, and paths that are trained alone."""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from corpus import docstrings, seen_files, sources, unseen_files
from parts import Parts
from timing import note
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.export import ExportRequest, export, named
from zerolm.lab.supernets.heads import head_similarity
from zerolm.lab.supernets.learner import PathLearner, SupernetLearner
from zerolm.lab.supernets.model import ElasticConfig, ElasticForCausalLM, ElasticForMaskedLM
from zerolm.lab.supernets.request import Growth, Teaching
from zerolm.lab.supernets.search import ElasticSearch, path_loss, pca_counts, pca_score, search_paths
from zerolm.lab.supernets.supernet import Supernet, drawn_network, drawn_path, read_supernet
from zerolm.lab.supernets.text import ElasticText, network_loss, supernet_text
from zerolm.lab.supernets.train import SupernetRequest, train_supernet
from zerolm.networks.build import build
from zerolm.networks.opener import stock_tokenizer
from zerolm.scores import make_score
from zerolm.solvers.evolution import Evolution
from zerolm.spaces import make_space
from zerolm.statistics.correlations import kendall
from zerolm.text.predictions import predicted
from zerolm.training.learner import Labelled
from zerolm.training.request import Schedule, TrainingRequest
from zerolm.training.train import train
from zerolm.training.watch import TrainingRun

RESULTS: Final = Path(__file__).with_name("elastic")
KINDS: Final = {"encoder": "elastic", "decoder": "elastic-causal"}
SHAPE: Final = {
    "depth": 4, "hidden": 64, "heads": 4, "embedding": 32, "positions": 64, "step": 16, "steps": 6,
}  # fmt: skip
WORDS, BATCH, LENGTH = 1024, 8, 64
SUPERNET, TEACHER = 800_000, 1_600_000
ALONE: Final = {"encoder": 800_000, "decoder": 400_000}
"""Tokens of a path alone; an encoder learns from the 15 % that are masked."""
JUDGED: Final = 512
"""Sequences of modules held out that judge a network."""
SCHEDULE: Final = Schedule(rate=3e-3, warmup=0.3)
"""With a short warm-up BERT blocks, normed behind their sums, do not learn at this rate."""
SEEDS: Final = (0, 1, 2)
PATHS: Final = 20
"""Paths that are trained alone, to rank scores by."""
SIZES: Final = Evolution(population=20, generations=10, parents=5)
SHARE: Final = 0.8
"""The limit of a search: this share of the parameters of the largest path."""
LIKE: Final = 2
"""FFN widths of a block that shares nothing, in steps; kinds that share get wider ones for it."""
SUPERNETS: Final[dict[str, dict[str, Any]]] = {
    "grown": {},
    "fixed": {"growth": "fixed"},
    "relational": {"teacher": "relational"},
    "classical": {"teacher": "classical"},
    "no sharing": {"shares": ["none"]},
}


def run_of(tokens: int, seed: int) -> TrainingRequest:
    return TrainingRequest(tokens, BATCH, LENGTH, SCHEDULE, seed, checkpoints=1, measured=1)


@dataclass(frozen=True)
class Place:
    """The folder of what was made of a kind of network: text, teacher and supernets."""

    work: Path
    kind: str

    @property
    def folder(self) -> Path:
        return self.work / self.kind

    @property
    def text(self) -> str:
        """Return the file of the text."""
        file = self.folder / "text.txt"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(self._documents(seen_files()))[: 8 << 20], encoding="utf-8")
        return str(file)

    def _documents(self, files: Sequence[Path]) -> list[str]:
        return [one.docstring for one in docstrings(files)] if self.kind == "encoder" else sources(files)

    @cached_property
    def judged(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs and labels (n, t) of modules held out, by the teacher's tokenizer."""
        tokenizer: PreTrainedTokenizerBase = stock_tokenizer(self.teacher)
        text = "\n".join(self._documents(unseen_files()))
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        count = min(JUDGED, len(ids) // LENGTH)
        sequences = torch.tensor(ids[: count * LENGTH]).reshape(count, LENGTH)
        return predicted(sequences, self.task, tokenizer.mask_token_id or 0)

    def loss(self, network: Callable[[torch.Tensor], torch.Tensor]) -> float:
        """Return the mean loss of logits on modules held out."""
        return network_loss(network, *self.judged)

    @property
    def parts(self) -> Parts:
        """Return the results, which lie beside the page: a run on another machine goes on from them."""
        return Parts(RESULTS / f"{self.kind}.jsonl")

    @property
    def teacher(self) -> Path:
        """Return the folder of a wider model, trained on the same text by the same loop."""
        place = self.folder / "teacher"
        if not (place / "config.json").exists():
            run = run_of(TEACHER, 0)
            text = ElasticText.of(
                self.text, self.task, length=LENGTH, batch=BATCH, most=run.tokens_read, vocabulary=WORDS
            )
            note(f"{self.kind}: teacher")
            model = self._teacher(len(text.tokenizer))
            with tempfile.TemporaryDirectory() as folder:
                learner = Labelled(_Logits(model), None)
                train(learner, text.data(run.sequences, run.seed), run, TrainingRun(Path(folder)))
            model.save_pretrained(place)
            text.tokenizer.save_pretrained(place)
        return place

    def _teacher(self, vocab: int) -> Any:
        """Return a stock llama, or for encoders BERT blocks behind ELM's embeddings: a stock BERT, which has
        to find out what a neighbour is, learns nothing of masked words in as many tokens."""
        torch.manual_seed(0)
        if self.kind == "encoder":
            wide = {"depth": 4, "hidden": 128, "heads": 4, "embedding": 64, "step": 512, "steps": 1}
            only = {"blocks": ["bert"], "shares": ["none"]}
            space: Any = make_space(KINDS[self.kind], vocab=vocab, positions=LENGTH, **wide, **only)
            shape = space.read(_layers(space, "bert", "none", 1))
            model = ElasticForMaskedLM(ElasticConfig.of(space, shape))
            model.load_state_dict(named(drawn_network(shape, 0).state_dict()))
            return model
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=128,
                num_hidden_layers=4,
                num_attention_heads=4,
                intermediate_size=512,
                vocab_size=vocab,
                max_position_embeddings=LENGTH,
            )
        )

    @property
    def task(self) -> Any:
        return "masked" if self.kind == "encoder" else "next"

    def supernet(self, name: str, seed: int) -> Path:
        """Return the folder of a trained supernet."""
        place, own = self.folder / f"net-{name.replace(' ', '-')}-{seed}", SUPERNETS[name]
        if not place.exists():
            note(f"{self.kind}: supernet {name}, seed {seed}")
            shape: dict[str, Any] = {**SHAPE, **({"shares": own["shares"]} if "shares" in own else {})}
            if own.get("growth") == "fixed":
                shape["widths"] = self._mean_widths(seed)
            distilled = own.get("teacher")
            request = SupernetRequest(
                self.text,
                run_of(SUPERNET, seed),
                KINDS[self.kind],
                shape,
                Growth(epochs=10, growth=0 if own.get("growth") == "fixed" else 3, every=20),
                Teaching(str(self.teacher), distilled, predictions=1.0) if distilled else Teaching(),
                str(self.teacher),
            )
            start = time.process_time()
            done = train_supernet(request, place, progress=note)
            seconds = time.process_time() - start
            net, last = read_supernet(place)[0], done.history[-1]
            inside = [self.loss(partial(net, path=path)) for path in paths_of(net, seed)]
            self.parts.measured(
                f"{place.name}-told",
                lambda: {
                    "seconds": seconds,
                    "params": last.mean_params,
                    "alike": statistics.mean(last.diversity),
                    "paths": statistics.mean(inside),
                },
            )
        return place

    def _mean_widths(self, seed: int) -> list[int]:
        """Return for every block the mean width that the grown supernet ends with: as many parameters."""
        net, _, _ = read_supernet(self.supernet("grown", seed))
        mean = round(float(net.widths.double().mean()))
        return [mean] * net.widths.numel()


class _Logits(nn.Module):
    """The logits of a stock model, as networks of the spaces give them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, classes: int | None = None) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids).logits[..., :classes]
        return logits


def limit_of(place: Place, seed: int) -> int:
    """Return the limit of parameters of all searches under a seed: a share of the largest grown path."""
    net, _, _ = read_supernet(place.supernet("grown", seed))
    return round(SHARE * (int(net.params().max(axis=1).sum()) + net.ends_params))


def paths_of(net: Supernet, seed: int) -> list[Sequence[int]]:
    """Return paths at random, the same ones for supernets of as many kinds."""
    return [drawn_path(net.shape, seed + 100, number) for number in range(PATHS)]


def picked(place: Place, name: str, seed: int, score: str, method: str = "auto") -> dict[str, Any]:
    """Return the layers that a search of a supernet picks within the limit, and their loss in it."""

    def measure() -> dict[str, Any]:
        net, text = opened(place, name, seed)
        asked = ElasticSearch(score, {"max_params": limit_of(place, seed)}, method, SIZES, seed)
        start = time.process_time()
        best = search_paths(net, *text.held_out, asked).best[0]
        seconds = time.process_time() - start
        loss = place.loss(partial(net, path=net.path_of(best.architecture)))
        return {**told(best.architecture, loss), "params": best.costs["params"], "seconds": seconds}

    part = f"pick-{name.replace(' ', '-')}-{score}-{method}-{seed}"
    return dict(place.parts.measured(part, measure))


def uniform(place: Place, seed: int) -> dict[str, Any]:
    """Return the best path of one and the same kind in all layers within the limit, by its loss."""

    def measure() -> dict[str, Any]:
        net, text = opened(place, "grown", seed)
        most, params = limit_of(place, seed), net.params().sum(axis=0) + net.ends_params
        paths = [[kind] * net.shape[0] for kind in range(net.shape[1]) if params[kind] <= most]
        best = min(paths, key=lambda path: path_loss(net, path, *text.held_out))
        loss = place.loss(partial(net, path=best))
        return {**told(net.architecture(best), loss), "params": int(params[best[0]])}

    return dict(place.parts.measured(f"pick-uniform-{seed}", measure))


def opened(place: Place, name: str, seed: int) -> tuple[Supernet, ElasticText]:
    folder = place.supernet(name, seed)
    net, _, facts = read_supernet(folder)
    return net, supernet_text(folder, net.space, facts)


def told(architecture: Architecture, loss: float) -> dict[str, Any]:
    return {"layers": architecture.choices["layers"], "loss": loss}


def alone(
    place: Place, name: str, seed: int, layers: Sequence[Mapping[str, Any]], **more: Any
) -> dict[str, float]:
    """Return the loss of a path that is trained alone, and its parameters.

    A path that several parts ask for is trained once; where heads or weights of the supernet are taken the
    supernet counts too.
    """
    net = name if {"heads", "starts"} & more.keys() else ""
    asked = json.dumps([ALONE[place.kind], seed, net, [dict(layer) for layer in layers], str(more)])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]

    def measure() -> dict[str, float]:
        request = ExportRequest(
            {"layers": [dict(layer) for layer in layers]},
            **{"starts": "scratch", "training": run_of(ALONE[place.kind], seed), "seed": seed, **more},
        )
        with tempfile.TemporaryDirectory() as folder:
            done = export(place.supernet(name, seed), request, Path(folder) / "model")
            maker = ElasticForMaskedLM if place.kind == "encoder" else ElasticForCausalLM
            model = maker.from_pretrained(Path(folder) / "model").train(False)
            return {"loss": place.loss(lambda ids: model(ids).logits), "params": done.costs["params"]}

    return dict(place.parts.measured(f"trained-{digest}", measure))


def comparisons(place: Place, seed: int) -> dict[str, dict[str, float]]:
    """Return what is compared, by name: losses alone and in the supernet, and parameters."""
    rows: dict[str, dict[str, float]] = {}

    def add(title: str, name: str, pick: Mapping[str, Any], **more: Any) -> None:
        rows[title] = {**alone(place, name, seed, pick["layers"], **more), "supernet": pick["loss"]}

    bred = picked(place, "grown", seed, "supernet")
    add("evolution", "grown", bred)
    add("random", "grown", picked(place, "grown", seed, "supernet", "random"))
    for score in ("w_pca", "v_pca", "geo", "params"):
        add(score, "grown", picked(place, "grown", seed, score))
    add("uniform block", "grown", uniform(place, seed))
    add("evolution, from the supernet's weights", "grown", bred, starts="supernet")
    add("evolution, heads fused", "grown", bred, heads="fuse")
    add("evolution, heads removed", "grown", bred, heads="remove")
    for kind in ("relational", "classical"):
        teaching = Teaching(str(place.teacher), kind, predictions=1.0)
        add(f"evolution, trained by a teacher, {kind}", "grown", bred, teaching=teaching)
    for name in ("fixed", "relational", "classical", "no sharing"):
        add(f"evolution in the supernet: {name}", name, picked(place, name, seed, "supernet"))
    return rows


def fewer_heads(place: Place, seed: int) -> dict[str, dict[str, float]]:
    """Return the largest CKA of two heads of a layer of the pick, and the pick with every two heads fused.

    Fusion as ELM has it leaves all heads that are not alike; every two fused is the most that it could do.
    """
    pick = picked(place, "grown", seed, "supernet")
    net, text = opened(place, "grown", seed)
    shape = net.space.read({"layers": pick["layers"]})
    network = drawn_network(shape, 0)
    network.load_state_dict(net.path_state(net.path_of(shape)))
    alike = {}
    for name, own in (("sequences", False), ("tokens, unbiased", True)):
        every = head_similarity(network, text.held_out[0], tokens=own, unbiased=own)
        alike[name] = max(float((one - torch.eye(len(one))).max()) for one in every)
    layers = [{**layer, "heads": layer["heads"] // 2} for layer in pick["layers"]]
    return {"alike": alike, "fused": {**alone(place, "grown", seed, layers), "supernet": pick["loss"]}}


def longer(place: Place, seed: int) -> dict[str, float]:
    """Return the pick trained alone, from new weights, on the supernet's tokens and on its own."""
    pick = picked(place, "grown", seed, "supernet")
    tokens = run_of(SUPERNET + ALONE[place.kind], seed)
    return {**alone(place, "grown", seed, pick["layers"], training=tokens), "supernet": pick["loss"]}


def sharing(place: Place, seed: int) -> dict[str, dict[str, float]]:
    """Return the loss of networks of one kind of block, trained alone, by the kind's name.

    What a kind shares is given to its FFN: the width, in steps, that comes nearest in parameters.
    """
    space = opened(place, "grown", seed)[0].space
    every: Any = make_space(
        space.name, **{**space.settings, "shares": ["none", "kv", "qv", "qk"], "widths": None}
    )
    rows = {}
    for block in every.blocks:
        whole = _layers(every, block, "none", LIKE)
        params = CostModel().of(every.read(whole))["params"]
        for share in every.shares:
            wide = [_layers(every, block, share, steps) for steps in range(1, every.steps + 1)]
            like = min(wide, key=lambda one: abs(CostModel().of(every.read(one))["params"] - params))
            rows[f"{block}, {share}"] = {
                **alone(place, "grown", seed, like["layers"]),
                "ffn": like["layers"][0]["ffn"],
            }
    return rows


def _layers(space: Elastic, block: str, share: str, steps: int) -> dict[str, Any]:
    return {"layers": [{"block": block, "share": share, "ffn": steps * space.step}] * space.depth}


def agreement(place: Place, seed: int) -> dict[str, Any]:
    """Return tau-b of scores with the losses of paths that were trained alone, and those losses."""
    net, text = opened(place, "grown", seed)
    paths = paths_of(net, seed)
    shapes = [net.architecture(path) for path in paths]
    trained = [alone(place, "grown", seed, shape.choices["layers"]) for shape in shapes]

    def measure() -> dict[str, Any]:
        counts = pca_counts(Supernet(net.grown_space(), seed), text.held_out[0][:BATCH], seed=seed)
        columns = {
            "supernet's loss": [-path_loss(net, path, *text.held_out) for path in paths],
            "supernet's loss on the judging text": [-place.loss(partial(net, path=path)) for path in paths],
            **{
                name: [pca_score(net, counts, weighed=name == "w_pca").of(shape) for shape in shapes]
                for name in ("w_pca", "v_pca")
            },
            **{name: [make_score(name).of(shape) for shape in shapes] for name in ("geo", "params")},
        }
        losses = [one["loss"] for one in trained]
        taus = kendall(np.array(list(columns.values())), -np.array(losses))
        return {"tau": dict(zip(columns, taus.tolist(), strict=True)), "paths": trained}

    return dict(place.parts.measured(f"agreement-{seed}", measure))


def costs(place: Place) -> dict[str, float]:
    """Return seconds of a step and parameters in memory, of a supernet and of one of its paths alone."""

    def measure() -> dict[str, float]:
        net, text = opened(place, "grown", 0)
        space: Elastic = net.space
        path = drawn_path(net.shape, 0, 1)
        data = text.data(BATCH, 0)
        batch = {
            name: torch.stack([data[row][name] for row in range(BATCH)]) for name in ("input_ids", "labels")
        }
        shape = net.architecture(path)
        stack = build(shape).module
        supernet = SupernetLearner(Supernet(net.grown_space()), Teaching(), Growth(), 10_000)
        lone = PathLearner(shape, stack, Teaching())  # type: ignore[arg-type]
        learners: dict[str, nn.Module] = {"supernet": supernet, "alone": lone}
        optimisers = {name: torch.optim.AdamW(one.parameters()) for name, one in learners.items()}
        seconds: dict[str, list[float]] = {name: [] for name in learners}
        for _ in range(60):
            supernet.number.fill_(1)  # the step that draws this path and counts nothing
            for name, learner in learners.items():
                start = time.process_time()
                loss = torch.stack(list(learner(**batch).values())).sum()
                loss.backward()
                optimisers[name].step()
                optimisers[name].zero_grad(set_to_none=True)
                seconds[name].append(time.process_time() - start)
        params = {name: sum(p.numel() for p in one.parameters()) for name, one in learners.items()}
        assert space.depth == len(path)
        return {
            "step": statistics.median(seconds["supernet"]) / statistics.median(seconds["alone"]),
            "params": params["supernet"],
            "path": params["alone"],
        }

    return dict(place.parts.measured("costs", measure))
