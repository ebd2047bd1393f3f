"""From the authors' own files to the common format: the same architectures, the same results.

Nothing here runs code of a file: YAML is read with the safe loader, ``.pth`` with ``weights_only``.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from typing import Any, Final

import yaml

from published.sources import GEMSTONE_LOSSES, GEMSTONE_RUNS, Source
from zerolm.groundtruth.truth import check
from zerolm.io.files import parse_json

Document = dict[str, Any]
Files = dict[str, bytes]
"""The files of a folder, by path within it."""

CHOICES: Final = ("n_layer", "d_model", "d_inner", "n_head", "d_embed", "div_val")
CONSTANTS: Final = (
    "n_token",
    "tgt_len",
    "mem_len",
    "weight_init_std",
    "proj_init_std",
    "dropout",
    "tie_weight",
    "pre_lnorm",
)
"""What all configurations of a folder of archai share, and a reader may want to know."""

HEAD: Final = 128
"""The head size of every Gemstone."""


def needs_torch(source: Source) -> bool:
    return source.pinned.path.endswith(".pth")


def convert(source: Source, content: bytes | Files) -> Document:
    """The document of a benchmark, from its file's bytes or from its parts or its folder's files, by path.

    ``ValueError`` if it does not hold what the source promises.
    """
    try:
        fields = dict(source.fields)
        if isinstance(content, dict) and source.pinned.parts:
            entries = _gemstones(source, content)
        elif isinstance(content, dict):
            entries, fields["constant"] = _archai(source, content)
        elif needs_torch(source):
            entries = _auto_prox(source, content)
        else:
            entries = _flexibert(source, content)
    except (
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        StopIteration,
        RecursionError,
        yaml.YAMLError,
    ) as error:
        raise ValueError(f"{source.pinned.path} is not laid out as expected: {error!r}") from None
    document = {
        "name": source.name,
        "space": source.space,
        "task": source.task,
        "metric": source.metric,
        "higher_is_better": source.higher_is_better,
        "source": source.record(),
        "fields": fields,
        "count": source.count,
        "architectures": entries,
    }
    check(document)
    return document


def _flexibert(source: Source, content: bytes) -> list[Document]:
    """BERT_benchmark.json: a list of runs, with the choices where the trainer's overrides are."""
    entries = []
    for run in parse_json(content.decode()):
        choices = run["hparams"]["model_hparam_overrides"]
        entries.append(
            {
                "id": str(run["id"]),
                "architecture": {
                    "hidden_size": choices["hidden_size"],
                    "encoder_layers": choices["nas_config"]["encoder_layers"],
                },
                "results": _results(source, run["scores"]),
                "train_seconds": round(_finite(run["time_to_train"]), 1),
            }
        )
    return entries


def _auto_prox(source: Source, content: bytes) -> list[Document]:
    """gt_autoformer.pth, gt_pit.pth: a list of dictionaries, ``arch`` and one number a metric."""
    import torch

    try:
        runs = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except (RuntimeError, pickle.UnpicklingError, EOFError):
        raise ValueError(f"{source.pinned.path} is no PyTorch file of plain numbers") from None
    return [
        {"id": str(number), "architecture": _plain(run["arch"]), "results": _results(source, run)}
        for number, run in enumerate(runs)
    ]


def _archai(source: Source, files: Files) -> tuple[list[Document], Document]:
    """A folder ``random_*``: the entries that have a configuration, parameters and a perplexity.

    They are named ``config_I_jJ`` after their folders, and ordered by I and J. The second return value holds
    what the configurations share.
    """
    perplexities, parameters = (_yaml(files[f"{name}_summary.yaml"]) for name in ("ppl", "params"))
    configurations = {
        "_".join(path.split("/")[:2]): content for path, content in files.items() if "/" in path
    }
    names = sorted(configurations.keys() & perplexities.keys() & parameters.keys(), key=_numbers)
    entries, constants = [], []
    for name in names:
        configuration = _yaml(configurations[name])
        constants.append({key: configuration[key] for key in CONSTANTS})
        entries.append(
            {
                "id": name,
                "architecture": {key: _plain(configuration[key]) for key in CHOICES},
                "results": _results(source, perplexities[name]),
                "parameters": {key: int(_finite(count)) for key, count in parameters[name].items()},
            }
        )
    if any(constant != constants[0] for constant in constants):
        raise ValueError(f"the configurations in {source.pinned.path} do not share {', '.join(CONSTANTS)}")
    return entries, constants[0]


def _gemstones(source: Source, files: Files) -> list[Document]:
    """The runs' losses while they trained, and a file for each corpus and network with those afterwards.

    Head size 128, half as many KV heads as heads (one where there is one), FFN 4 x hidden: with these sizes
    the published parameters are met. The loss after so many billion tokens is that of the first row there.
    """
    rows = [parse_json(line) for line in files[GEMSTONE_RUNS].decode().splitlines()]
    names = [
        path.removesuffix(".json").rpartition("-")[2]
        for path in source.pinned.parts
        if "/fineweb_losses/" in path
    ]
    entries = []
    for name in names:
        hidden, depth = map(int, name.split("x"))
        run = sorted(
            (row for row in rows if (row["width"], row["depth"]) == (hidden, depth)),
            key=lambda row: _finite(row["tokens"]),
        )
        results = {}
        for metric in source.metrics:
            corpus, trained, billions = metric.partition("train_loss_")
            if trained:
                least = int(billions.removesuffix("B")) * 10**9
                results[metric] = next(row["final_loss"] for row in run if row["tokens"] >= least)
            else:
                path = f"{GEMSTONE_LOSSES}/{corpus.removesuffix('_loss')}_losses/Gemstone-{name}.json"
                results[metric] = parse_json(files[path].decode())["main"]
        heads = hidden // HEAD
        sizes = {"depth": depth, "hidden": hidden, "head_size": HEAD, "heads": heads}
        entries.append(
            {
                "id": name,
                "architecture": {**sizes, "kv_heads": max(heads // 2, 1), "ffn": 4 * hidden},
                "results": _results(source, results),
                "parameters": {"total": int(_finite(run[0]["params_active_precise"]))},
            }
        )
    return entries


def _numbers(name: str) -> list[int]:
    """[12, 3] of ``config_12_j3``."""
    _, config, job = name.split("_")
    return [int(config), int(job[1:])]


def _yaml(content: bytes) -> Any:
    return yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _results(source: Source, results: Mapping[str, Any]) -> dict[str, float]:
    return {metric: _finite(results[metric]) for metric in source.metrics}


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a finite number")
    return value


def _plain(value: Any) -> Any:
    """Choices made of numbers, lists and objects only; ``TypeError`` for anything else."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _finite(value)
