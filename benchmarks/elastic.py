"""Elastic supernets: ``python benchmarks/elastic.py WORK`` measures in parts and writes ``elastic.md``.

Every part is kept in WORK once it is measured, so a run that was stopped goes on; ``--seeds 0`` measures one
seed, ``--stored`` writes the page of what is there. Encoders are trained on docstrings of the standard
library, decoders on its code; modules that ``corpus.py`` holds out are left out. One process, one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from corpus import docstrings, seen_files, sources
from timing import machine, note, one_thread
from torch import nn
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

from zerolm.architecture import Architecture
from zerolm.elastic.export import ExportRequest, export
from zerolm.elastic.folder import read_supernet
from zerolm.elastic.learner import Aim, Growth, PathLearner, SupernetLearner
from zerolm.elastic.search import ElasticSearch, path_loss, pca_counts, pca_score, search_paths
from zerolm.elastic.supernet import Supernet, drawn_path
from zerolm.elastic.text import ElasticText, supernet_text, tokens_read
from zerolm.elastic.train import SupernetRequest, train_supernet
from zerolm.networks.build import build
from zerolm.scores import make_score
from zerolm.solvers.evolution import Evolution
from zerolm.spaces.elastic import Elastic
from zerolm.statistics.correlations import kendall
from zerolm.training.learner import Labelled
from zerolm.training.request import Schedule, TrainingRequest
from zerolm.training.train import train
from zerolm.training.watch import TrainingRun

PLACE: Final = Path(__file__).with_suffix(".md")
KINDS: Final = {"encoder": "elastic", "decoder": "elastic-causal"}
SHAPE: Final = {
    "depth": 4, "hidden": 64, "heads": 4, "embedding": 32, "positions": 64, "step": 16, "steps": 6,
}  # fmt: skip
WORDS, BATCH, LENGTH = 1024, 16, 64
SUPERNET, ALONE, TEACHER = 1_000_000, 400_000, 1_000_000
RATE: Final = 3e-3
SEEDS: Final = (0, 1, 2)
PATHS: Final = 20
"""Paths that are trained alone, to rank scores by."""
SIZES: Final = Evolution(population=20, generations=10, parents=5)
SHARE: Final = 0.8
"""The limit of a search: this share of the parameters of the largest path."""
SUPERNETS: Final[dict[str, dict[str, Any]]] = {
    "grown": {},
    "fixed": {"growth": "fixed"},
    "relational": {"teacher": "relational"},
    "classical": {"teacher": "classical"},
    "no sharing": {"shares": ["none"]},
}


def run_of(tokens: int, seed: int) -> TrainingRequest:
    return TrainingRequest(tokens, BATCH, LENGTH, Schedule(RATE), seed, checkpoints=4, measured=4)


@dataclass(frozen=True)
class Place:
    """The folder of what was made of a kind of network: text, teacher, supernets and results."""

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
            files = seen_files()
            told = [one.docstring for one in docstrings(files)] if self.kind == "encoder" else sources(files)
            file.write_text("\n".join(told)[: 8 << 20], encoding="utf-8")
        return str(file)

    def measured(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what a part measured, now or earlier."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            note(f"{self.kind}: {name}")
            result = measure()
            file.write_text(json.dumps(result), encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))

    def stored(self, name: str) -> Any:
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None

    @property
    def teacher(self) -> Path:
        """Return the folder of a stock model, trained on the same text by the same loop."""
        place = self.folder / "teacher"
        if not (place / "config.json").exists():
            run = run_of(TEACHER, 0)
            text = ElasticText.of(
                self.text, self.task, length=LENGTH, batch=BATCH, most=tokens_read(run), vocabulary=WORDS
            )
            vocab = len(text.tokenizer)
            sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
            sizes |= {"intermediate_size": 512, "vocab_size": vocab, "max_position_embeddings": LENGTH}
            torch.manual_seed(0)
            model: Any = (
                BertForMaskedLM(
                    BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
                )
                if self.kind == "encoder"
                else LlamaForCausalLM(LlamaConfig(**sizes))
            )
            note(f"{self.kind}: teacher")
            with tempfile.TemporaryDirectory() as folder:
                learner = Labelled(_Logits(model), None)
                train(learner, text.data(run), run, TrainingRun(Path(folder)))
            model.save_pretrained(place)
            text.tokenizer.save_pretrained(place)
        return place

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
                Growth(epochs=10, every=10, fixed=own.get("growth") == "fixed"),
                Aim(distillation=distilled, predictions=1.0 if distilled else 0.0),
                str(self.teacher),
                teacher=str(self.teacher) if distilled else None,
            )
            train_supernet(request, place, progress=note)
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


def picked(place: Place, name: str, seed: int, score: str, method: str = "auto") -> dict[str, Any]:
    """Return the layers that a search of a supernet picks within the limit, and their loss in it."""

    def measure() -> dict[str, Any]:
        net, text = opened(place, name, seed)
        asked = ElasticSearch(score, {"max_params": limit_of(place, seed)}, method, SIZES, seed)
        start = time.process_time()
        best = search_paths(net, *text.held_out, asked).best[0]
        seconds = time.process_time() - start
        path = net.path_of(best.architecture)
        loss = path_loss(net, path, *text.held_out)
        return {**told(best.architecture, loss), "params": best.costs["params"], "seconds": seconds}

    part = f"pick-{name.replace(' ', '-')}-{score}-{method}-{seed}"
    return dict(place.measured(part, measure))


def uniform(place: Place, seed: int) -> dict[str, Any]:
    """Return the best path of one and the same kind in all layers within the limit, by its loss."""

    def measure() -> dict[str, Any]:
        net, text = opened(place, "grown", seed)
        rows = []
        for kind in range(net.shape[1]):
            path = [kind] * net.shape[0]
            params = int(net.params()[:, kind].sum()) + net.ends_params
            if params <= limit_of(place, seed):
                loss = path_loss(net, path, *text.held_out)
                rows.append({**told(net.architecture(path), loss), "params": params, "seconds": 0.0})
        return min(rows, key=lambda row: row["loss"])

    return dict(place.measured(f"pick-uniform-{seed}", measure))


def opened(place: Place, name: str, seed: int) -> tuple[Supernet, ElasticText]:
    folder = place.supernet(name, seed)
    net, _, facts = read_supernet(folder)
    return net, supernet_text(folder, net.space, facts)


def told(architecture: Architecture, loss: float) -> dict[str, Any]:
    return {"layers": architecture.choices["layers"], "loss": loss}


def alone(
    place: Place, name: str, seed: int, layers: Sequence[Mapping[str, Any]], part: str, **more: Any
) -> dict[str, float]:
    """Return the losses of a path before and after it is trained alone, and its parameters."""

    def measure() -> dict[str, float]:
        request = ExportRequest(
            {"layers": [dict(layer) for layer in layers]},
            **{"starts": "scratch", "training": run_of(ALONE, seed), "seed": seed, **more},
        )
        with tempfile.TemporaryDirectory() as folder:
            done = export(place.supernet(name, seed), request, Path(folder) / "model")
        return {**done.losses, "params": done.costs["params"]}

    return dict(place.measured(f"alone-{part}-{seed}", measure))


def comparisons(place: Place, seed: int) -> dict[str, dict[str, float]]:
    """Return what is compared, by name: the loss of the path trained alone, and its parameters."""
    rows: dict[str, dict[str, float]] = {}

    def add(title: str, name: str, pick: Mapping[str, Any], **more: Any) -> None:
        result = alone(place, name, seed, pick["layers"], title.replace(" ", "-").replace(",", ""), **more)
        rows[title] = {**result, "supernet": pick["loss"]}

    bred = picked(place, "grown", seed, "supernet")
    add("evolution", "grown", bred)
    add("random", "grown", picked(place, "grown", seed, "supernet", "random"))
    for score in ("w_pca", "v_pca", "geo", "params"):
        add(score, "grown", picked(place, "grown", seed, score))
    add("uniform block", "grown", uniform(place, seed))
    add("from the supernet's weights", "grown", bred, starts="supernet")
    add("heads fused", "grown", bred, heads="fuse")
    add("heads removed", "grown", bred, heads="remove")
    for name in ("fixed", "relational", "classical", "no sharing"):
        add(name, name, picked(place, name, seed, "supernet"))
    return rows


def agreement(place: Place, seed: int) -> dict[str, float]:
    """Return tau-b of scores with the losses of paths that were trained alone."""
    net, text = opened(place, "grown", seed)
    paths = [drawn_path(net.shape, seed + 100, number) for number in range(PATHS)]
    shapes = [net.architecture(path) for path in paths]
    losses = [
        alone(place, "grown", seed, shape.choices["layers"], f"path-{number}")["after"]
        for number, shape in enumerate(shapes)
    ]

    def measure() -> dict[str, float]:
        counts = pca_counts(net, text.held_out[0][:BATCH], seed=seed)
        columns = {
            "supernet's loss": [-path_loss(net, path, *text.held_out) for path in paths],
            **{
                name: [pca_score(net, counts, weighed=name == "w_pca").of(shape) for shape in shapes]
                for name in ("w_pca", "v_pca")
            },
            **{name: [make_score(name).of(shape) for shape in shapes] for name in ("geo", "params")},
        }
        taus = kendall(np.array(list(columns.values())), -np.array(losses))
        return dict(zip(columns, taus.tolist(), strict=True))

    return dict(place.measured(f"agreement-{seed}", measure))


def costs(place: Place) -> dict[str, float]:
    """Return seconds of a step and parameters in memory, of a supernet and of one of its paths alone."""

    def measure() -> dict[str, float]:
        net, text = opened(place, "grown", 0)
        space: Elastic = net.space
        path = drawn_path(net.shape, 0, 1)
        data = text.data(run_of(BATCH * LENGTH, 0))
        batch = {
            name: torch.stack([data[row][name] for row in range(BATCH)]) for name in ("input_ids", "labels")
        }
        shape = net.architecture(path)
        stack = build(shape).module
        supernet = SupernetLearner(Supernet(net.grown_space()), Aim(), Growth(), 10_000)
        learners: dict[str, nn.Module] = {"supernet": supernet, "alone": PathLearner(shape, stack, Aim())}  # type: ignore[arg-type]
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

    return dict(place.measured("costs", measure))


def document(places: Sequence[Place]) -> Iterator[str]:
    """Yield the lines of the page, of what is stored."""
    yield from ("# Elastic supernets", "")
    yield "`python benchmarks/elastic.py WORK`."
    yield from (f"{machine()}; torch {torch.__version__}, one thread.", "")
    shape = f"{SHAPE['depth']} layers, hidden {SHAPE['hidden']}, {SHAPE['heads']} heads"
    yield (
        f"Supernets of {shape}, FFNs of {SHAPE['step']} to {SHAPE['step'] * SHAPE['steps']}, a vocabulary of "
        f"{WORDS}: encoders on docstrings, decoders on code of the standard library, {SUPERNET:,} tokens "
        f"in steps of {BATCH} x {LENGTH}. Every pick keeps a limit of {SHARE:.0%} of the largest path's "
        f"parameters and is trained alone on {ALONE:,} tokens, from scratch unless the row says other. "
        "Losses are in nats a predicted token, on text held out; mean and deviation over seeds."
    )
    for place in places:
        rows = _rows(place)
        if rows:
            yield from ("", f"## {place.kind.capitalize()}s", "")
            yield from (
                "| pick of | seeds | parameters | loss alone | loss in its supernet |",
                "|---|---:|---:|---:|---:|",
            )
            yield from rows
        ranks = [found for seed in SEEDS if (found := place.stored(f"agreement-{seed}"))]
        if ranks:
            yield from ("", f"tau-b with the losses of {PATHS} paths trained alone, {len(ranks)} seeds:", "")
            yield from ("| score | tau-b |", "|---|---:|")
            yield from (f"| {name} | {_spread([row[name] for row in ranks])} |" for name in ranks[0])
        if cost := place.stored("costs"):
            yield ""
            yield (
                f"A step of the supernet takes {cost['step']:.2f} times that of the same path alone; it "
                f"holds {cost['params']:,} parameters, the path {cost['path']:,}."
            )


def _rows(place: Place) -> list[str]:
    lines = []
    every = [result for seed in SEEDS if (result := place.stored(f"comparisons-{seed}"))]
    for title in every[0] if every else ():
        results = [result[title] for result in every]
        params = statistics.mean(result["params"] for result in results)
        after, inside = (_spread([result[name] for result in results]) for name in ("after", "supernet"))
        lines.append(f"| {title} | {len(results)} | {params:,.0f} | {after} | {inside} |")
    return lines


def _spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder of texts, supernets and results")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--stored", action="store_true", help="write the page of what is measured already")
    given = parser.parse_args()
    one_thread()
    work = given.work.resolve()
    for kind in () if given.stored else given.kinds:
        place = Place(work, kind)
        costs(place)
        for seed in given.seeds:
            place.measured(f"comparisons-{seed}", lambda p=place, s=seed: comparisons(p, s))
            agreement(place, seed)
    PLACE.write_text(
        "\n".join(document([Place(work, kind) for kind in KINDS])).rstrip() + "\n", encoding="utf-8"
    )
    note(f"wrote {PLACE.name}")


if __name__ == "__main__":
    main()
