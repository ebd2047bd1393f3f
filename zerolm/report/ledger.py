"""The page of a ledger: where the energy of the weights lies, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from zerolm.report.bars import BarRow, bars
from zerolm.report.chart import Axis
from zerolm.report.page import Heading, page, pairs, section, table
from zerolm.report.phrases import show_amount

ENERGY: Final = "energy of the weights (sum of squares)"
PARTS: Final = {"attention": "blue", "ffn": "orange"}
MOST_LAYERS: Final = 48
"""Of a table in a notebook."""
TRUST: Final = (
    "The sums are over every stored weight. What a layer is worth is another matter: `zerolm carve --text` "
    "measures it."
)


def ledger_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm ledger --json`` prints; ``configuration`` is that of ``run.yaml``."""
    whole, layers = document["total"]["all"], document["layers"]
    name = str(document["parent"]).rstrip("/").rsplit("/", 1)[-1]
    heading = Heading(
        "zerolm ledger",
        f"{whole['weights']:,} weights of {name}",
        f"A {document['family']} of {len(layers)} layers, {show_amount(document['bytes'], size=True)}.",
        f"Energy {whole['energy']:.6g} in all, largest {whole['largest']:.4g}. {_strongest(document)}",
        _evenness(document),
        TRUST,
    )
    body = [
        section("Energy of each layer", *(_energies(document, part) for part in PARTS)),
        section("All numbers", _table(document, len(layers))),
        section(
            "The pass",
            pairs(
                [("kept in", str(document["kept"])), ("verified", str(document["verified"]))], "pairs wide"
            ),
        ),
    ]
    return page(heading, body, configuration)


def ledger_fragment(document: Mapping[str, Any]) -> str:
    """Return the table of layers, without style or script."""
    more = len(document["layers"]) - MOST_LAYERS
    rest = f"<p>and {more} more layers</p>" if more > 0 else ""
    said = escape(_strongest(document))
    return f'<div style="max-width:820px"><p>{said}</p>{_table(document, MOST_LAYERS)}{rest}</div>'


def _strongest(document: Mapping[str, Any]) -> str:
    layers = document["layers"]
    most = max(layers, key=lambda layer: layer["attention"]["energy"] + layer["ffn"]["energy"])
    return f"Layer {most['layer']} holds the most."


def _evenness(document: Mapping[str, Any]) -> str:
    halves = [layer["ffn"]["strongest_half"] for layer in document["layers"]]
    known = [half for half in halves if half is not None]
    if not known:
        return "Neurons of experts are not compared with each other."
    return (
        f"The stronger half of a layer's FFN neurons holds {min(known):.1%} to {max(known):.1%} of their "
        "energy; 50 % if all were even."
    )


def _energies(document: Mapping[str, Any], part: str) -> str:
    values = [(layer["layer"], layer[part]["energy"]) for layer in document["layers"]]
    rows = [BarRow(f"{part} {layer}", energy, f"{energy:.5g}", PARTS[part]) for layer, energy in values]
    most = max(energy for _, energy in values) or 1.0
    return bars(rows, Axis(0.0, most, ENERGY), ENERGY)


def _table(document: Mapping[str, Any], most: int) -> str:
    heads = ["layer"]
    for part, unit in (("attention", "group"), ("FFN", "half")):
        heads += [f"{part} energy", "mean square", "largest", f"strongest {unit}"]
    rows = [
        [
            str(layer["layer"]),
            *_numbers(layer["attention"], "strongest_group"),
            *_numbers(layer["ffn"], "strongest_half"),
        ]
        for layer in document["layers"][:most]
    ]
    return table(heads, rows, "layers")


def _numbers(part: Mapping[str, Any], strongest: str) -> list[str]:
    share = "-" if part[strongest] is None else f"{part[strongest]:.1%}"
    return [f"{part['energy']:.5g}", f"{part['mean_square']:.3g}", f"{part['largest']:.3g}", share]
