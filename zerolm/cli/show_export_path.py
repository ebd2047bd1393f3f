"""The terminal's view of a path that was handed over."""

from __future__ import annotations

from zerolm.api.export_path import PathReport
from zerolm.cli.tables import show_table, show_text


def show(result: PathReport) -> None:
    """Print the layers, and the losses on the way."""
    for line in result.lines():
        show_text(line)
    rows = [
        [str(place), layer["block"], layer["share"], str(layer["heads"]), str(layer["ffn"])]
        for place, layer in enumerate(result.document["layers"], 1)
    ]
    show_table(["layer", "block", "shared", "heads", "FFN"], rows)
