"""The page of a carving: what is left of each layer, what it costs beside the parent, how it was made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from zerolm.costs import COSTS
from zerolm.report.bars import BarRow, bars
from zerolm.report.chart import LINEAR, Axis, amount, axis
from zerolm.report.healing import healing_section
from zerolm.report.page import Heading, command, note, page, pairs, section
from zerolm.report.phrases import cost_label, show_cost
from zerolm.report.strip import LayerSizes, largest, strip
from zerolm.report.width import width_chart, width_line, width_sentence

NAMES: Final = {
    "predicted": "predicted by single cuts",
    "measured": "measured, as cut",
    "repaired": "repaired",
}
LOSS: Final = "loss on calibration tokens (KL in nats a token, or 1 - cosine)"


def carving_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm carve --json`` prints; ``configuration`` is that of ``run.yaml``."""
    share = _share(document, "params")
    heading = Heading(
        "zerolm carve",
        f"{_name(document)} cut to {share:.1%} of its parameters",
        f"A {document['family']} model, {document['criterion']} as criterion, repair {document['repair']}.",
        _found(document),
        _baseline(document),
        _trust(document),
    )
    body = [
        section("Sizes, layer by layer", _strips(document)),
        section("Costs beside the parent's", _costs(document), note(_stored(document))),
    ]
    widths = width_chart(document)
    if widths:
        body.append(section("What each width of the stream loses", widths))
    if document["losses"]:
        body.append(section("Loss on the calibration tokens", _losses(document)))
    if document.get("healing"):
        body.append(healing_section(document["healing"]))
    body.append(section("How it was made", pairs(_making(document), "pairs wide")))
    if document["verified"] and not document.get("healing"):
        body.append(section("Build the same child again", command(_rebuilding(document, configuration))))
    return page(heading, body, configuration)


def carving_fragment(document: Mapping[str, Any]) -> str:
    """Return what is left and its costs, without style or script."""
    costs = _costs(document, narrow=True)
    return f'<div style="max-width:640px"><p>{escape(_found(document))}</p>{costs}</div>'


def _name(document: Mapping[str, Any]) -> str:
    return str(document["parent"]).rstrip("/").rsplit("/", 1)[-1]


def _share(document: Mapping[str, Any], cost: str) -> float:
    parent, child = (document["costs"][who][cost] for who in ("parent", "child"))
    return float(child / parent) if parent else 1.0


def _found(document: Mapping[str, Any]) -> str:
    widths, whole = document["widths"], document.get("parent_sizes")
    spans = {name: _span([layer[name] for layer in widths]) for name in ("heads", "kv_heads", "ffn")}
    of = {name: f" of {whole[name]:,}" if whole else "" for name in ("depth", "heads", "kv_heads", "ffn")}
    layers = (
        f"{len(widths)}{of['depth']} layers are left, each with {spans['heads']}{of['heads']} heads "
        f"({spans['kv_heads']}{of['kv_heads']} KV) and an FFN of {spans['ffn']}{of['ffn']}."
    )
    return f"{width_sentence(document)} {layers}".strip()


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _baseline(document: Mapping[str, Any]) -> str:
    shares = ", ".join(f"{_share(document, cost):.0%} of its {cost_label(cost)}" for cost in COSTS[1:])
    return (
        f"Beside its parent the child has {_share(document, 'params'):.1%} of the parameters, {shares}. "
        "Whether it is better than a random or uniform cut of that size, `zerolm eval` tells."
    )


def _trust(document: Mapping[str, Any]) -> str:
    said = []
    verified = document["verified"]
    if verified:
        difference = verified["difference"]
        said.append(f"The child was opened again; its outputs are those of the plan within {difference:.2g}.")
    else:
        said.append("Nothing was written or opened: this is a plan.")
    if document["optimal"] is not None:
        proven = "is proven to be" if document["optimal"] else "is not proven to be"
        said.append(f"The plan {proven} the best by its criterion.")
    if document["losses"]:
        said.append("The losses are of the tokens that it was fitted to; other text may lose more.")
    else:
        said.append("No loss was measured: there was no text.")
    remark = document["note"]
    return " ".join([*said, *([f"{remark[0].upper()}{remark[1:]}."] if remark else [])])


def _strips(document: Mapping[str, Any]) -> str:
    whole, widths = document.get("parent_sizes"), document["widths"]
    stream = document.get("stream")
    left = {layer["layer"]: layer for layer in widths}
    hidden, size = (whole["hidden"], whole["head_size"]) if whole else (1, 1)
    depth = whole["depth"] if whole else max(left) + 1
    narrower = stream["hidden"] if stream else hidden
    child = [_sizes(left[place], narrower, size) if place in left else _gone() for place in range(depth)]
    drawn = {"Parent": [_sizes(whole, hidden, size)] * depth, "Child": child} if whole else {"Child": child}
    most = largest(list(drawn.values()))
    parts = "".join(f"<h3>{name}</h3>{strip(layers, most)}" for name, layers in drawn.items())
    return f'<div class="stack">{parts}</div>{note("Input to the left. A gap is a layer that went.")}'


def _sizes(layer: Mapping[str, int], hidden: int, size: int) -> LayerSizes:
    heads, kv_heads = layer["heads"], layer["kv_heads"]
    return LayerSizes(hidden, heads * size, kv_heads * size, heads, layer["ffn"])


def _gone() -> LayerSizes:
    return LayerSizes(0, 0, 0, 0, 0)


def _costs(document: Mapping[str, Any], narrow: bool = False) -> str:
    parent, child = document["costs"]["parent"], document["costs"]["child"]
    rows = [
        BarRow(
            cost_label(cost),
            100 * _share(document, cost),
            f"{show_cost(cost, parent[cost])} → {show_cost(cost, child[cost])}",
        )
        for cost in COSTS
    ]
    x = Axis(0.0, 100.0, "% of the parent's", form=lambda value: f"{value:g} %")
    return bars(rows, x, "Costs of the child in percent of the parent's", narrow=narrow)


def _stored(document: Mapping[str, Any]) -> str:
    stored = document["costs"].get("stored")
    if not stored:
        return ""
    share = stored["params"] / document["costs"]["parent"]["params"]
    return f"Stored with zeros, for evaluation: {share:.1%} of the parent's parameters."


def _losses(document: Mapping[str, Any]) -> str:
    losses = document["losses"]
    x = axis([0.0, *losses.values()], LOSS, wide=LINEAR)
    rows = [
        BarRow(NAMES.get(name, name), loss, f"{loss:.3g}", "green" if name == "repaired" else "grey")
        for name, loss in losses.items()
    ]
    return bars(rows, Axis(0.0, x.high or 1.0, LOSS, form=amount), "Losses on the calibration tokens")


def _making(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("parent", "family", "criterion", "repair", "plan", "shape", "format", "space"):
        if document.get(name) is not None:
            yield name, str(document[name])
    if document.get("stream"):
        yield "stream", width_line(document)
    yield "weights", " and ".join(f"{bits}-bit" for bits in document["weight_bits"])


def _rebuilding(document: Mapping[str, Any], configuration: Mapping[str, Any] | None) -> str:
    line = f"zerolm carve {shlex.quote(str(document['parent']))} --recipe recipe.json --out child"
    text = (configuration or {}).get("text")
    by_loss = (document.get("stream") or {}).get("basis") == "loss"
    if by_loss or (document["repair"] != "none" and (text or document["losses"])):
        line += f" --text {shlex.quote(str(text)) if text else 'FILE'}"
    return line
