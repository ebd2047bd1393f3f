"""The experts of a child: how many stay in each layer, by what, and which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zerolm.carving.experts.result import ChildExperts
from zerolm.carving.request import SUMMED
from zerolm.show.sheet import NOTEBOOK, PAGE, Sheet

COLUMNS: Final = {
    "of the tokens": ("tokens", ".1%"),
    "of the gates": ("gates", ".1%"),
    "lost by pairs": ("loss", ".4g"),
    "lost by neurons": ("lost_by_neurons", ".4g"),
    "gap": ("gap", ".2g"),
    "error that repair leaves": ("left", ".1%"),
}
"""Heads of columns with the field of a layer and its digits."""
ALWAYS: Final = ("of the tokens", "of the gates")
"""Columns that each report has."""


def experts_line(experts: ChildExperts) -> str:
    """Return the number of kept experts and neurons, their criterion, and their shares of the text."""
    groups = f", equal in {experts.groups} groups" if experts.groups > 1 else ""
    chosen = (
        f"experts {experts.child} of {experts.parent} in {len(experts.layers)} layers{groups} "
        f"({experts.active} active), chosen by {experts.criterion}"
    )
    return "; ".join([chosen, *_remarks(experts)])


def _remarks(experts: ChildExperts) -> Iterator[str]:
    layers = experts.layers
    gates, gaps, left, losses, lost_by_neurons = (
        [getattr(row, name) for row in layers if getattr(row, name) is not None]
        for name in ("gates", "gap", "left", "loss", "lost_by_neurons")
    )
    if gates:
        yield f"{sum(gates) / len(gates):.1%} of the gates of the text were theirs"
    proven = sum(gap == 0 for gap in gaps)
    if gaps and proven == len(gaps):
        yield "proven to be the best in each layer"
    elif gaps:
        yield f"proven to be the best in {proven} layers, elsewhere within {max(gaps):.2g} of it"
    if experts.ffn is not None:
        parts = [f"{sum(losses):.3g} by experts"] if losses and experts.criterion == SUMMED else []
        parts += [f"{sum(lost_by_neurons):.3g} by neurons"] if lost_by_neurons else []
        lost = f", estimated loss: {', '.join(parts)}" if parts else ""
        yield f"{experts.ffn.child} of {experts.ffn.parent} neurons of each kept{lost}"
    if left:
        yield f"repair leaves {min(left):.0%} to {max(left):.0%} of the layers' errors"
    if layers and layers[0].domains:
        kept = (
            f"{sum(row.domains[name] for row in layers) / len(layers):.1%} of {name}"
            for name in layers[0].domains
        )
        yield f"share of their score kept: {', '.join(kept)}"


def experts_sheet(experts: ChildExperts) -> Sheet:
    """Return the kept experts, layer by layer."""
    layers = experts.layers
    columns = {
        head: [_cell(getattr(row, name), form) for row in layers] for head, (name, form) in COLUMNS.items()
    }
    shown = {head: cells for head, cells in columns.items() if any(cells) or head in ALWAYS}
    for name in layers[0].domains if layers else ():
        shown[f"kept of {name}"] = [f"{row.domains[name]:.1%}" for row in layers]
    shown = {"layer": [str(row.layer) for row in layers], **shown}
    shown["experts kept"] = [" ".join(map(str, row.kept)) for row in layers]
    rows = list(zip(*shown.values(), strict=True))
    return Sheet("Experts, layer by layer", list(shown), rows, on=(PAGE, NOTEBOOK))


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
