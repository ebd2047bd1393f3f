"""Depth against width by how long one trains: ``python benchmarks/aspect.py CURVES`` writes ``aspect.md``.

CURVES is the file of the Gemstones' losses after rising counts of tokens. Forms are fitted to them alone;
what they predict of the runs of ``llama_small.py --longer...`` was written before any of these had ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

import numpy as np
from aspect_form import DRIVERS, Curves, ShapeForm, Trainings, fit, gemstones
from llama_small import LLAMA, LONGER, LONGER_BATCH, LONGER_LARGE, LONGER_SMALL, Plan, tokens_of
from llama_small_plan import DEPTHS, Planned
from timing import table

PLACE: Final = Path(__file__).with_suffix(".md")
RUNS: Final = (
    (LLAMA, ".1M"),
    (LLAMA, ".3M"),
    (LLAMA, "1M"),
    (LONGER, ".3M"),
    (LONGER_BATCH, ".3M"),
    (LONGER_SMALL, ".1M"),
    (LONGER_LARGE, "1M"),
)
"""Plans with the size whose four depths they train; the first four had ended before."""
ENDED: Final = 4


def four_depths(plan: Plan, size: str) -> list[Planned]:
    """Return the four depths of a size, from shallow to deep."""
    chosen = [one for one in plan.planned() if one.id in DEPTHS[size]]
    return sorted(chosen, key=lambda one: one.architecture.depth)


def trainings(plan: Plan, shapes: Sequence[Planned]) -> Trainings:
    request, count = plan.request, len(shapes)
    architectures = [one.architecture for one in shapes]
    return Trainings.of(architectures, [tokens_of(request)] * count, [request.steps] * count)


def differences(form: ShapeForm, plan: Plan, size: str) -> list[float]:
    """Return ln N_eff of the four depths less that of the base."""
    shapes = four_depths(plan, size)
    scores = form.score(trainings(plan, shapes))
    base = next(place for place, one in enumerate(shapes) if one.line == "base")
    return [float(score - scores[base]) for score in scores]


def order(values: Sequence[float], depths: Sequence[int]) -> str:
    """Return depths from the best to the worst."""
    ranked = sorted(zip(values, depths, strict=True), reverse=True)
    return " > ".join(str(depth) for _, depth in ranked)


def named(plan: Plan, size: str) -> str:
    request = plan.request
    return f"{size}, {tokens_of(request) / 1e6:.0f} M tokens, {request.steps:,} steps"


def show_fits(forms: Sequence[ShapeForm], curves: Curves) -> None:
    print("## Fitted to the Gemstones alone\n")
    count, levels = len(np.unique(curves.networks)), np.unique(curves.levels)
    print(
        f"{count} networks at {len(levels)} counts of tokens, {levels[0] / 1e9:.0f} to "
        f"{levels[-1] / 1e9:.0f} B, at constant rate; least squares of what a parabola in ln N_eff, one at "
        "each count, leaves of the logarithm of the loss. D and steps are one variable here, for every "
        "Gemstone has the same batch.\n"
    )
    formulas = {
        "static": "{0:.1f}",
        "T": "{0:.1f} (tokens / body / 20)^{1:.3f}",
        "D": "{0:.1f} (tokens / 1e10)^{1:.3f}",
        "steps+floor": "{0:.1f} (1 + ({2:,.0f} / steps)^2)",
    }
    rows: list[list[str | float]] = []
    for form in forms:
        e, k, m, *more = form.weights.tolist()
        values = (np.exp(m), *more, *np.exp(more))
        formula = formulas[form.driver.name].format(*values)
        rows.append([form.driver.name, f"{e:.3f}", f"{k:.4f}", formula])
    table(["m is", "e", "k", "best hidden / depth"], rows)


def show_predictions(forms: Sequence[ShapeForm]) -> None:
    print("## Predicted before\n")
    print(
        "ln N_eff of four depths less that of the base of the size, by forms that saw the Gemstones alone: "
        "the best hidden / depth, the four from shallow to deep, and their order from the best. The runs of "
        "the first four rows had ended when the forms were found; the rows after them were written before "
        "any of their runs had ended.\n"
    )
    rows: list[list[str | float]] = []
    for place, (plan, size) in enumerate(RUNS):
        shapes = four_depths(plan, size)
        depths = [one.architecture.depth for one in shapes]
        for form in forms:
            values = differences(form, plan, size)
            best = form.best(trainings(plan, shapes))[0]
            cells = [f"{best:.0f}", *(f"{value:+.3f}" for value in values), order(values, depths)]
            told = named(plan, size) + ("" if place >= ENDED else ", had ended")
            sizes = ", ".join(
                f"{one.architecture.depth} x {one.architecture.choices['hidden']}" for one in shapes
            )
            rows.append([told, sizes, form.driver.name, *cells])
    table(["run", "four depths", "m is", "best", "1st", "2nd", "3rd", "4th", "order of depths"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("curves", type=Path, metavar="CURVES")
    given = parser.parse_args()
    curves = gemstones(given.curves)
    forms = [fit(driver, curves) for driver in DRIVERS]
    page = StringIO()
    with redirect_stdout(page):
        print("# Depth against width, by how long one trains\n")
        print("`python benchmarks/aspect.py CURVES`.\n")
        show_fits(forms, curves)
        show_predictions(forms)
    PLACE.write_text(page.getvalue().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
