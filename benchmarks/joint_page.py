"""The page of ``joint.py``, printed from what was measured."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from joint_plans import JOINT, JUDGED, OF_EXPERTS, OF_REAL, PLANS, SEQUENCES, SHARES, Plan
from timing import machine, number, table

Rows = Mapping[str, Any]
MODELS: Final = {
    "pydec": "a llama of 7.3 million parameters",
    "pyenc": "a BERT of 6.9 million parameters",
    "moe_plain": "a mixture of experts of 26.6 million parameters",
    "gemma270": "Gemma 3 270M",
    "qwen05": "Qwen2.5-Coder-0.5B-Instruct",
}
SURE: Final = 2.0
"""Standard errors that a difference needs to be one."""
MEASURES: Final = {"bits": "bits a byte", "kl": "1 - cosine"}

LEAST: Final = re.compile(r"(?:at least|least[^.;]*?|smallest[^.;]*?) ([0-9][0-9,]*)")
"""How errors name the least bytes."""


def page(every: Mapping[str, Rows]) -> None:
    """Print the page of all rows, by model."""
    print("# One plan of all units, at equal bytes\n")
    print(
        f"Written by `python benchmarks/joint.py`. Machine: {machine()}, torch {version('torch')}, "
        f"llama-cpp-python {version('llama-cpp-python')}; one thread.\n"
    )
    print(
        "`zerolm carve MODEL --format gguf --max-weight-bytes B --text TEXT` chooses tokens, quantisation "
        "types and cuts of all kinds in one plan (`joint`), of a mixture also experts and their neurons. "
        "Here the plan is compared with plans of the same bytes in which only one kind of unit is free, or "
        "two. Parents are stored in 16 bits, as published models are. Budgets "
        f"are shares of their bytes: {', '.join(f'{share}x' for share in SHARES)}. With the first, types "
        "alone have seven bits a weight and lose next to nothing. The second is the usual four bits. The "
        "third has fewer bits than any type, so that something has to be pruned.\n"
    )
    print(
        "Losses are of the files, in llama.cpp, on text that nothing was trained or calibrated on. They are "
        "bits a byte, each file with its own tokens, and KL to the parent in nats a token where the tokens "
        "are the parent's. Of an encoder they are 1 - cosine of the embeddings of unseen sentences. `±` is "
        "the standard error of a difference over the same stretches of text. Seconds are those of the "
        "processor, and GB the most memory of one process, to calibrate, plan, write and check. All plans "
        f"read the same {SEQUENCES['pydec']} sequences of 256 tokens ({SEQUENCES['pyenc']} lines for the "
        f"encoder, {SEQUENCES['moe_plain']} sequences for the mixture and published models). "
        "Seconds in brackets are of a run that found passes of earlier plans in its cache.\n"
    )
    models = [name for name in MODELS if name in every]
    missing = not_measured(every)
    if missing:
        print(f"Not measured so far: {'; '.join(missing)}. The command goes on with these.\n")
    print("## Joint against the best of the others\n")
    summary({name: every[name] for name in models})
    for name in models:
        sheet(name, every[name])
    passes(every.get("passes", {}))


def not_measured(every: Mapping[str, Rows]) -> list[str]:
    """Return models, their budgets, or single plans that no row is of."""
    missing = [f"`{name}`" for name in MODELS if name not in every]
    for name in (name for name in MODELS if name in every):
        for share in SHARES:
            lacking = [
                plan.name for plan in plans_of(every[name]) if f"{share} {plan.name}" not in every[name]
            ]
            if lacking:
                whole = len(lacking) == len(plans_of(every[name]))
                missing.append(f"`{name}` at {share}x" + ("" if whole else f": {', '.join(lacking)}"))
    return missing


def plans_of(rows: Rows) -> tuple[Plan, ...]:
    """Return the plans that were measured of a model."""
    if any(name.endswith("experts alone") for name in rows):
        return OF_EXPERTS
    kinds = tuple(plan.name for plan in PLANS if plan.is_kind)
    return PLANS if any(name.endswith(kinds) for name in rows) else OF_REAL


def measure_of(rows: Rows) -> str:
    """Return the measure by which plans are compared."""
    return "bits" if "bits" in rows["parent"] else "kl"


def best(rows: Rows, share: float, units: int) -> str:
    """Return the name of the plan of least loss with this number of kinds of units; empty without any."""
    names = [plan.name for plan in plans_of(rows) if plan.units == units]
    done = {name: row for name in names if measure_of(rows) in (row := rows.get(f"{share} {name}", {}))}
    return min(done, key=lambda name: done[name][measure_of(rows)], default="")


def difference(rows: Rows, one: str, other: str) -> tuple[float, float]:
    """Return how much more the one plan loses than the other, and its standard error."""
    first, second = rows[one], rows[other]
    if measure_of(rows) == "kl":
        apart = np.array(first["apart"]) - np.array(second["apart"])
        return float(apart.mean()), float(apart.std(ddof=1) / math.sqrt(len(apart)))
    sizes = np.array(first["bytes_of_stretches"], float)
    apart = (np.array(first["nats"]) - np.array(second["nats"])) / math.log(2)
    mean = float(apart.sum() / sizes.sum())
    spread = float((apart - mean * sizes).std(ddof=1))
    return mean, spread * math.sqrt(len(apart)) / float(sizes.sum())


def summary(every: Mapping[str, Rows]) -> None:
    """Print how the joint plan compares at each budget."""
    cells = []
    for name, rows in every.items():
        for share in SHARES:
            joint = rows.get(f"{share} {JOINT}", {})
            measure = measure_of(rows)
            if measure not in joint:
                continue
            row = [f"{name}, {share}x", lost(rows, joint)]
            for units in (1, 2):
                other = best(rows, share, units)
                row += [_against(rows, share, other) if other else _without(rows, share, units)]
            cells.append(row)
    print(
        "What is lost compared with the parent: bits a byte of decoders, 1 - cosine of the encoder. Of the "
        "others: their loss, and how much more than the joint plan that is.\n"
    )
    table(("model, bytes", "joint", "best single unit", "best pair"), cells)


def _without(rows: Rows, share: float, units: int) -> str:
    """Return why there is no plan with this number of kinds of units."""
    names = [f"{share} {plan.name}" for plan in plans_of(rows) if plan.units == units]
    return "none reaches it" if all(name in rows for name in names) else "not measured"


def _against(rows: Rows, share: float, other: str) -> str:
    """Return the loss of another plan, and how it compares with the joint one."""
    more, error = difference(rows, f"{share} {other}", f"{share} {JOINT}")
    loss = lost(rows, rows[f"{share} {other}"])
    if more == 0:
        return f"{other}: the same"
    if abs(more) <= SURE * error:
        verdict = "no difference"
    else:
        verdict = "joint is better" if more > 0 else "**joint is worse**"
    return f"{other}: {loss} ({signed(more)} ± {number(error)}, {verdict})"


def lost(rows: Rows, row: Rows) -> str:
    """Return what a child loses in the measure of its model."""
    measure = measure_of(rows)
    return signed(row["bits"] - rows["parent"]["bits"]) if measure == "bits" else number(row["kl"])


def signed(value: float) -> str:
    return ("+" if value >= 0 else "-") + number(abs(value))


def sheet(name: str, rows: Rows) -> None:
    """Print the tables of a model."""
    parent, sizes = rows["parent"], rows["sizes"]
    decoder = measure_of(rows) == "bits"
    print(f"## `{name}`: {MODELS[name]}\n")
    figure = f", {parent['bits']:.4f} bits a byte" if decoder else ""
    amount = f"{JUDGED[name]} stretches of about 4,096 characters" if decoder else f"{JUDGED[name]} lines"
    print(f"The parent has {sizes['bytes'] / 1e6:.2f} MB{figure}. Judged on {amount}.\n")
    for share in SHARES:
        cells = [
            cells_of(plan, rows[part]) for plan in plans_of(rows) if (part := f"{share} {plan.name}") in rows
        ]
        if not cells:
            continue
        print(f"### {share}x: {share * sizes['bytes'] / 1e6:.2f} MB\n")
        loss = ("KL", "bits a byte") if decoder else ("1 - cosine",)
        table(("free units", "MB", *loss, "seconds", "GB", "pruned; types"), [
            row[:2] + (row[2:4] if decoder else row[2:3]) + row[4:] for row in cells
        ])  # fmt: skip


def cells_of(plan: Plan, row: Rows) -> list[str]:
    """Return a row of a table: of a child, or of why there is none."""
    seconds = f"{row['seconds']:.0f}" if row["from_nothing"] else f"({row['seconds']:.0f})"
    if "refused" in row:
        least = least_of(row["refused"])
        why = f"cannot reach: at least {int(least.replace(',', '')) / 1e6:.2f} MB" if least else "refused"
        return [plan.name, "-", "-", "-", seconds, f"{row['gb']:.1f}", why]
    kl = number(row["kl"]) if "kl" in row else "other tokens"
    bits = f"{row['bits']:.4f}" if "bits" in row else ""
    return [plan.name, f"{row['bytes'] / 1e6:.2f}", kl, bits, seconds, f"{row['gb']:.1f}", given_up(row)]


def least_of(refused: str) -> str:
    """Return the least bytes that an error names, as it writes them; empty where it names none."""
    found = LEAST.search(refused)
    return found[1].strip(",") if found else ""


def given_up(row: Rows) -> str:
    """Return what units a child lost, and the types that most of its matrices have."""
    parts = [
        f"{unit} {before:,} → {after:,}" for unit, (before, after) in row["units"].items() if after < before
    ]
    usual = sorted(row["types"].items(), key=lambda pair: -pair[1])[:3]
    types = ", ".join(kind for kind, _ in usual)
    return "; ".join([*parts, types] if types else parts) or "nothing"


def passes(rows: Rows) -> None:
    """Print the passes over the text of two versions of the package."""
    if not rows:
        return
    print("## Passes over the text\n")
    print(
        "`zerolm carve --max-params 0.8x --text TEXT --out child` on 32 sequences of 256 tokens, before "
        "units were composed (commit 40ab08d2) and today. A pass is all calibration tokens through all "
        "layers once: tokens through attention and FFNs are counted, and divided by the tokens and the "
        "depth. Passes that compare numbers of tokens count too.\n"
    )
    if any("-twice" in part for part in rows):
        print(
            "`pydec-twice` has each layer of `pydec` twice: of its 16 layers only the cost is of interest.\n"
        )
    cells = []
    for name in dict.fromkeys(part.rpartition(" ")[0] for part in rows):
        runs = [row for part, row in rows.items() if part.rpartition(" ")[0] == name]
        cells.append([
            name, f"{runs[0]['forward']:.1f}", f"{runs[0]['backward']:.1f}",
            " and ".join(f"{run['seconds']:.0f}" for run in runs), f"{max(run['gb'] for run in runs):.2f}",
        ])  # fmt: skip
    table(("model, package", "passes forward", "passes backward", "processor seconds", "GB"), cells)
