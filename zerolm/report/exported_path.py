"""The page of a path that was handed over: its layers, its losses, and how alike its heads were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerolm.report.heat import heat
from zerolm.report.loss_curve import loss_curve
from zerolm.report.page import Heading, note, page, pairs, section, table
from zerolm.report.phrases import show_amount

LOSS = "loss on text held out, nats"
Document = Mapping[str, Any]


def exported_page(document: Document, configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm elastic export --json`` prints, with how to repeat the run."""
    heading = Heading(
        "zerolm elastic export",
        f"{show_amount(document['costs']['params'])} parameters in {len(document['layers'])} layers",
        f"{document['words']}.",
        losses_sentence(document),
        heads_sentence(document),
        "One run, no interval. The model was opened again and gives the network's logits.",
    )
    body = [
        section("Its layers", _layers(document)),
        section("Its losses", _losses(document), _curve(document)),
        section("How alike its heads were (CKA)", *_similarity(document)),
        section("Costs", pairs([(name, f"{value:,}") for name, value in document["costs"].items()])),
    ]
    return page(heading, body, configuration)


def exported_fragment(document: Document) -> str:
    """Return layers and losses, without style or script."""
    return f'<div style="max-width:640px"><p>{losses_sentence(document)}</p>{_layers(document)}</div>'


def losses_sentence(document: Document) -> str:
    """Return the losses on the way."""
    told = ", ".join(f"{name} {value:.4f}" for name, value in document["losses"].items())
    return f"Loss on text held out, in nats: {told}."


def heads_sentence(document: Document) -> str:
    """Return what became of the heads."""
    if document["heads"] == "keep":
        return "Its heads are those of the supernet."
    counts = ", ".join(str(layer["heads"]) for layer in document["layers"])
    what = "fused into wider ones" if document["heads"] == "fuse" else "cut out"
    return f"Heads that repeat others were {what}: {counts} are left in the layers."


def _layers(document: Document) -> str:
    rows = [
        [str(place), layer["block"], layer["share"], str(layer["heads"]), f"{layer['ffn']:,}"]
        for place, layer in enumerate(document["layers"], 1)
    ]
    return table(["layer", "block", "shared", "heads", "FFN width"], rows, "layers")


def _losses(document: Document) -> str:
    return table(["network", LOSS], [[name, f"{v:.4f}"] for name, v in document["losses"].items()], "losses")


def _curve(document: Document) -> str:
    points = [(row["tokens"], row["held_out"]) for row in document["log"] if "held_out" in row]
    return loss_curve(points, LOSS) if points else ""


def _similarity(document: Document) -> Iterator[str]:
    if not document["similarity"]:
        yield note("Heads were not compared.")
        return
    maps = []
    for place, matrix in enumerate(document["similarity"], 1):
        names = [str(head) for head in range(1, len(matrix) + 1)]
        texts = [[f"{value:.2f}" for value in line] for line in matrix]
        maps.append(heat(f"layer {place}", names, names, matrix, texts, (0.0, 1.0)))
    yield f'<div class="triple">{"".join(maps)}</div>'
