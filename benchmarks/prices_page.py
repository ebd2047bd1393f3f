"""The page of ``prices.py``, printed from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final

import numpy as np
from prices_runs import BEST, JOINT, LENGTH, SIXTEENTHS, WORSE, Scale, Shape
from scipy.stats import spearmanr
from timing import machine, table

from zerolm.architecture import Floats

SMALL: Final = 0.1
"""Nats a token up to which a cut is small."""
RANGES: Final = (0.01, 0.03, 0.1, 0.3, 0.6)
RANKED: Final = 0.97
"""Spearman's correlation of foretold and measured losses of joint cuts that is aimed at."""
WITHIN: Final = 1.03
"""A plan by prices should lose at most so many times what the best of a grid loses."""
AGREEMENT: Final = ("cuts", "number", "Spearman", "foretold / measured, median", "spread, a factor")

Parts = dict[str, Any]
Row = list[str | float]


def page(parts: Parts, names: Sequence[str], models: Sequence[str], scale: Scale) -> None:
    """Print the page; ``names`` are those of all parts, measured or not."""
    print("# Prices: what they foretell of cuts, and plans by them\n")
    print(
        f"Written by `python benchmarks/prices.py`. Machine: {machine()}, torch {version('torch')}, "
        f"transformers {version('transformers')}; one thread. Seconds are those that the processor spent on "
        "the process.\n"
    )
    print(
        "A plan says what a smaller model keeps: the width of its stream, the KV groups and the neurons of "
        "its layers. It needs the loss of every single cut, KL to the parent in nats a token. Prices "
        "foretell them all from two passes forward and back; here some are measured one by one too. Prices "
        "are added up, the best plan beside each width of the stream is sought, and the best few of these "
        "(finalists) are repaired and measured. Prices are as cut and of what repair leaves: finalists are "
        "the best by either, and by their geometric mean.\n"
    )
    print(
        f"Tables are made on at most 64 of {scale.calibrated} calibration sequences of {LENGTH} tokens of "
        f"text that the models were trained on. Unseen text is {scale.judged} sequences of modules that they "
        "were not trained on.\n"
    )
    missing = [name for name in names if name not in parts and "joint cut" not in name]
    if missing:
        print(f"Not measured so far: {'; '.join(missing)}. The command goes on with these.\n")
    summary(parts, models)
    for model in models:
        sheet(of_model(parts, model), model, scale)
    depths(parts, names)


def summary(parts: Parts, models: Sequence[str]) -> None:
    print("## In short\n")
    rows: list[Row] = []
    for model in models:
        ours = of_model(parts, model)
        ratios = [ratio for _, ratio in compared(ours)]
        joint = joint_cuts(ours)
        rows += [
            [
                model,
                f"{rank(pairs(joint, 'prices')):.3f}" if len(joint) > 2 else "-",
                f"{rank(pairs(joint, 'repaired', 'after')):.3f}" if len(joint) > 2 else "-",
                f"{np.median(ratios):.3f}" if ratios else "-",
                f"{max(ratios):.3f}" if ratios else "-",
                f"{sum(ratio <= WITHIN for ratio in ratios)} of {len(ratios)}",
            ]
        ]
    head = (
        "model",
        "joint cuts, Spearman",
        "repaired",
        "KL by prices / by the grid, median",
        "the worst",
        f"within {WITHIN:g}",
    )
    table(head, rows)
    print(f"Aimed at: {RANKED:g}, and {WITHIN:g} at most at every budget.\n")


def sheet(parts: Parts, model: str, scale: Scale) -> None:
    """Print what was measured of one model; ``parts`` are named without it."""
    if "sizes" not in parts:
        return
    sizes = parts["sizes"]
    print(
        f"## {model}: {sizes['depth']} layers x {sizes['hidden']}, {sizes['kv_heads']} KV groups, FFN "
        f"{sizes['ffn']}, {sizes['params'] / 1e6:.1f} M parameters\n"
    )
    if "table by prices" in parts:
        seconds = parts["table by prices"]
        print(
            f"With nothing in the cache, prices take {sum(seconds.values()):.1f} seconds: "
            f"{seconds['felt']:.1f} for what the loss feels, {seconds['units']:.1f} for the choice of units, "
            f"{seconds['table']:.1f} for the table.\n"
        )
    if "single cuts" in parts:
        single_cuts(parts["single cuts"])
    joint = joint_cuts(parts)
    if len(joint) > 2:
        joint_table(joint)
    plans(parts, scale)


def single_cuts(cuts: dict[str, list[list[float]]]) -> None:
    """Print how foretold and measured losses of single cuts agree."""
    print("### Single cuts\n")
    print("One thing is cut and everything else whole; nothing is repaired.\n")
    kinds = {
        "KV groups of one layer": "groups",
        "neurons of one layer": "ffn",
        "width of the stream": "stream",
        "a whole layer": "gone",
    }
    rows: list[Row] = []
    for name, kind in kinds.items():
        both = np.array(cuts[kind])
        small = both[both[:, 1] < SMALL]
        rows.append(agreement(name, both))
        if 2 < len(small) < len(both):
            rows.append(agreement(f"{name}, below {SMALL:g} nats", small))
    table(AGREEMENT, rows)


def joint_table(joint: list[dict[str, Any]]) -> None:
    """Print how foretold and measured losses of joint cuts agree, and of which they do not."""
    print("### Joint cuts\n")
    print(
        f"{len(joint)} random cuts of several things at once: one size in all layers, or each layer its own; "
        "beside a narrower stream with the parent's head or one of its own; a fifth without a layer. Drawn "
        f"until they lose {JOINT[0]:g} to {JOINT[1]:g} on calibration text, unrepaired. The foretold loss is "
        "the sum of the parts'. What is foretold of repaired cuts counts only what least squares does not "
        "give back; they are repaired on some sequences and measured on others.\n"
    )
    whole = [row for row in joint if not Shape.read(row["shape"]).gone]
    rows = [
        agreement("all", pairs(joint, "prices")),
        agreement("all, measured on unseen text", pairs(joint, "prices", "unseen")),
        agreement("all, foretold by the measured table", pairs(joint, "measured")),
        agreement("all, repaired", pairs(joint, "repaired", "after")),
        agreement("all, repaired, foretold as if not", pairs(joint, "prices", "after")),
        agreement("all, repaired, foretold by the measured table", pairs(joint, "measured", "after")),
    ]
    for least, most in pairwise(RANGES):
        near = [row for row in joint if least <= row["calibrated"] < most]
        rows.append(agreement(f"measured {least:g} to {most:g}", pairs(near, "prices")))
    parent = max(row["shape"]["hidden"] for row in joint)
    wide = [row for row in whole if row["shape"]["hidden"] == parent]
    narrow = [row for row in whole if row["shape"]["hidden"] < parent]
    rows += [
        agreement("all layers stay", pairs(whole, "prices")),
        agreement("all layers stay, the stream whole", pairs(wide, "prices")),
        agreement("all layers stay, a narrower stream", pairs(narrow, "prices")),
        agreement("without a layer", pairs([row for row in joint if row not in whole], "prices")),
    ]
    table(AGREEMENT, rows)
    by_ratio = sorted(joint, key=lambda row: row["prices"] / row["calibrated"])
    low, high = (
        f"{Shape.read(row['shape'])} loses {row['calibrated']:.3f}, {row['prices'] / row['calibrated']:.2f} "
        "of it foretold"
        for row in (by_ratio[0], by_ratio[-1])
    )
    print(f"Furthest below: {low}. Furthest above: {high}.\n")


def plans(parts: Parts, scale: Scale) -> None:
    """Print the plans of each budget, their children's losses, and what planning took."""
    every = budgets(parts)
    if not every:
        return
    print("### Whole plans\n")
    print(
        "Children repaired by least squares on all calibration sequences; KL on unseen text. The grid has "
        f"every {SIXTEENTHS}th of the stream beside every number of KV groups, with the parent's head and "
        "with one of its own, all layers, the FFN as wide as the budget lets. Those that lose more than "
        f"{WORSE:g} times the least, unrepaired, go; the others are repaired on {scale.fitted} sequences and "
        f"ranked on as many others. The best {BEST} are measured as plans are, and the best of these on "
        "unseen text counts.\n"
    )
    ratios, ways = dict(compared(parts)), ("prices", "grid")
    rows: list[Row] = []
    for budget in every:
        row: Row = [budget]
        for way in ways:
            plan = parts.get(f"plan {budget}, {way}")
            row += ["-", "-"] if plan is None else [str(Shape.read(plan["shape"])), f"{plan['kl']:.4f}"]
        rows.append([*row, f"{ratios[budget]:.3f}" if budget in ratios else "-"])
    table(("budget", "by prices", "KL", "by grid", "KL", "prices / grid"), rows)
    grids = {budget: parts.get(f"plan {budget}, grid", {}) for budget in every}
    entered = {budget: grid["entered"] for budget, grid in grids.items() if "entered" in grid}
    print("What follows a table, in seconds: finalists repaired and measured, and the whole of the grid.")
    for how in sorted(set(entered.values())):
        print(f"Grids of {', '.join(b for b in every if entered.get(b) == how)} are entered {how}.")
    print()
    rows = []
    for budget in every:
        row = [budget]
        for way in ways:
            plan = parts.get(f"plan {budget}, {way}")
            if plan is None:
                row += ["-", "-"]
            elif way == "grid":
                row += [f"{plan['tried']}, {plan['repaired']}", plan["seconds"]]
            else:
                row += [plan["finalists"], plan["seconds"]]
        rows.append(row)
    table(("budget", "finalists by prices", "seconds", "grid: tried, repaired", "seconds"), rows)


def depths(parts: Parts, names: Sequence[str]) -> None:
    """Print what prices take of networks of several depths."""
    print("## Deeper networks\n")
    print("Prices of units and layers of random llamas 128 wide, 1,024 tokens; seconds.\n")
    rows: list[Row] = []
    for name in names:
        if name.startswith("depth ") and name in parts:
            depth = int(name.removeprefix("depth "))
            rows.append([str(depth), parts[name]["prices"], parts[name]["prices"] / depth])
    table(("layers", "prices", "a layer"), rows)


def of_model(parts: Parts, model: str) -> Parts:
    """Return the parts of one model, named without it."""
    start = f"{model}: "
    return {name.removeprefix(start): part for name, part in parts.items() if name.startswith(start)}


def budgets(parts: Parts) -> list[str]:
    """Return the budgets that have a plan, in words."""
    names = (name.removeprefix("plan ").partition(", ")[0] for name in parts if name.startswith("plan "))
    return sorted(set(names), key=lambda name: (name.partition(" of ")[2] != "params", name))


def compared(parts: Parts) -> list[tuple[str, float]]:
    """Return by budget the loss of the plan by prices over that of the best of the grid."""
    plans = (
        (budget, [parts.get(f"plan {budget}, {way}") for way in ("prices", "grid")])
        for budget in budgets(parts)
    )
    return [(budget, ours["kl"] / grid["kl"]) for budget, (ours, grid) in plans if ours and grid]


def joint_cuts(parts: Parts) -> list[dict[str, Any]]:
    return [part for name, part in parts.items() if name.startswith("joint cut ")]


def pairs(joint: Sequence[dict[str, Any]], plan: str, text: str = "calibrated") -> Floats:
    """Return the losses that a table foretells and those that were measured, (n, 2)."""
    return np.array([(row[plan], row[text]) for row in joint]).reshape(-1, 2)


def rank(both: Floats) -> float:
    return float(spearmanr(*both.T)[0])


def agreement(name: str, both: Floats) -> Row:
    """Return a row of ``AGREEMENT`` of foretold and measured losses, (n, 2)."""
    if len(both) < 3:
        return [name, str(len(both)), "-", "-", "-"]
    ratios = both[:, 0] / both[:, 1]
    spread = np.exp(np.std(np.log(ratios)))
    return [name, str(len(both)), f"{rank(both):.3f}", f"{np.median(ratios):.2f}", f"{spread:.2f}"]
