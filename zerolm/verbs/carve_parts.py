"""The parts of a carved child as its report shows them: experts, tokens, types, the width of its stream."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from zerolm.carving.result import (
    TYPES_ALONE,
    CarvedChild,
    ChildExperts,
    ChildVocabulary,
    EqualBytes,
    SpectrumRow,
    TypeRow,
)
from zerolm.show.charts import Axis, Dots, Heat, Limit, Line, Linked, Mark, Plot, Sign, axis
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Cell, Row, Sheet
from zerolm.show.text import show_amount, show_cost

EXPERT_COLUMNS: Final = {
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
COMPARED: Final = (
    "These plans are repaired on a part of the text and measured on the tokens that choose among them; the "
    "child's loss is on others."
)
FEW: Final = (0.875, 0.75, 0.625, 0.5)
"""Shares of the parent's width that the table has."""
ROUNDING: Final = 1e-9
"""Shares of the energy below this are rounding errors."""
LOST: Final = "share of the energy lost"
ENERGY: Final = {
    "loss": "Energy is that of the normalised stream on the calibration tokens.",
    "weights": "Energy is that of the embeddings and of what the layers write: no tokens were looked at.",
}
ALONE: Final = (
    "Losses are those of the narrower stream alone: all else is whole, and the head is tied as the parent's, "
    "or not."
)
AFTER: Final = {False: "Nothing is repaired.", True: "They are predicted after repair."}


def experts_line(experts: ChildExperts) -> str:
    """Return the number of kept experts and neurons, their criterion, and their share of the gates."""
    groups = f", equal in {experts.groups} groups" if experts.groups > 1 else ""
    parts = [
        f"experts {experts.child} of {experts.parent} in {len(experts.layers)} layers{groups} "
        f"({experts.active} active), chosen by {experts.criterion}"
    ]
    gates = [row.gates for row in experts.layers if row.gates is not None]
    if gates:
        parts.append(f"{sum(gates) / len(gates):.1%} of the gates of the text were theirs")
    if experts.ffn is not None:
        parts.append(f"{experts.ffn.child} of {experts.ffn.parent} neurons of each kept")
    return "; ".join(parts)


def experts_sheet(experts: ChildExperts) -> Sheet:
    layers = experts.layers
    columns = {"layer": [str(row.layer) for row in layers]}
    for head, (name, form) in EXPERT_COLUMNS.items():
        values = [getattr(row, name) for row in layers]
        cells = ["" if value is None else format(value, form) for value in values]
        if any(cells) or head in ALWAYS:
            columns[head] = cells
    for name in layers[0].domains if layers else ():
        columns[f"kept of {name}"] = [f"{row.domains[name]:.1%}" for row in layers]
    columns["experts kept"] = [" ".join(map(str, row.kept)) for row in layers]
    rows = list(zip(*columns.values(), strict=True))
    return Sheet("Experts, layer by layer", list(columns), rows, on=(PAGE, NOTEBOOK))


def tokens_line(tokens: ChildVocabulary) -> str:
    """Return the number of kept tokens, or the saving by keeping only those that the text needs."""
    if tokens.child < tokens.parent:
        return "; ".join(_kept(tokens))
    if tokens.used is None or tokens.saves is None or tokens.used >= tokens.parent:
        return ""
    return (
        f"the text needs {tokens.used:,} of {tokens.parent:,} tokens: --keep-vocab used saves "
        f"{show_amount(tokens.saves)} parameters"
    )


def _kept(tokens: ChildVocabulary) -> Iterator[str]:
    grows = tokens.grows / tokens.tokens if tokens.tokens else 0.0
    grown = f", the text grows by {grows:.2%}" if grows else ""
    needed = "" if tokens.used is None else f" (the text needs {tokens.used:,}{grown})"
    yield f"{tokens.child:,} of {tokens.parent:,} tokens{needed}"
    if tokens.losses:
        before, after = tokens.losses["parent"], tokens.losses["child"]
        where = "on held-out text" if tokens.held_out else "on the text itself, too short to hold any out"
        yield (
            f"{before:.4g} becomes {after:.4g} {tokens.unit} ({after / before - 1:+.1%}) {where}"
            if before
            else f"{tokens.unit} {after:.3g} {where}"
        )
    if tokens.proof is not None:
        yield f"{tokens.proof.strings} strings read back alike, outputs apart {tokens.proof.relative:.1g}"


def tokens_sheets(tokens: ChildVocabulary) -> Iterator[Sheet]:
    """Yield the costs of sizes of the vocabulary, and how they lengthen held-out text."""
    if tokens.sizes:
        rows = [
            [f"{row.size:,}", show_amount(row.params), f"{row.tokens:.4f}", f"{row.rest:.4f}",
             "" if row.measured is None else f"{row.measured:.4f}", f"{row.loss:.4f}"]
            for row in tokens.sizes
        ]  # fmt: skip
        has_types = any(row.bytes is not None for row in tokens.sizes)
        other = "other cuts and types" if has_types else "all other cuts"
        head = ["tokens", "parameters", "fewer tokens", other, "measured, repaired", "together"]
        on = (PAGE, TERMINAL, NOTEBOOK) if tokens.child < tokens.parent else (PAGE,)
        title = f"Sizes of the vocabulary within the budgets, and what they lose ({tokens.unit})"
        yield Sheet(title, head, rows, on=on)
    if tokens.curve:
        curve = [[f"{row.size:,}", show_amount(row.params), f"{row.grows:.2%}"] for row in tokens.curve]
        names = ["tokens", "parameters", "held-out text grows by"]
        yield Sheet("Sizes of the vocabulary and held-out text", names, curve, on=(PAGE,))


def types_line(types: Sequence[TypeRow]) -> str:
    """Return the number of matrices by type, the largest first; empty where none is chosen."""
    from zerolm.checkpoints.weight_types import BY_NAME

    counts = Counter(row.type for row in types)
    ordered = sorted(counts, key=lambda name: (-BY_NAME[name].bits, name))
    return "quantisation types: " + ", ".join(f"{counts[name]} {name}" for name in ordered) if counts else ""


def types_sheets(types: Sequence[TypeRow], equal_bytes: Sequence[EqualBytes], unit: str) -> Iterator[Sheet]:
    """Yield the map of types, and the table of what else the bytes buy; nothing where none is chosen."""
    if types:
        yield Sheet("Quantisation types, layer by layer", charts=[_map(types)], on=(PAGE,))
    if types and equal_bytes:
        rows = [
            [row.name, _weights(row),
             *("" if loss is None else f"{loss:.3g}" for loss in (row.predicted, row.measured))]
            for row in equal_bytes
        ]  # fmt: skip
        head = ["at these bytes", "weights", f"predicted ({unit})", "measured before the choice"]
        yield Sheet("What the bytes buy", head, rows, [COMPARED], on=(PAGE, TERMINAL, NOTEBOOK))


def bytes_line(equal_bytes: Sequence[EqualBytes], weight_bytes: int, unit: str) -> str:
    """Return the losses of the two best plans and of types alone, and what takes more than these bytes."""
    measured = sorted((row.measured, row.name) for row in equal_bytes if row.measured is not None)
    few = [*measured[:2], *(row for row in measured[2:] if row[1] == TYPES_ALONE)]
    losses = ", ".join(f"{loss:.3g} ({name})" for loss, name in few)
    best = f"the best plans of {show_cost('weight_bytes', weight_bytes)} lose {losses}, {unit}"
    large = [f"{row.name} take {_weights(row)}" for row in equal_bytes if row.predicted is None]
    return "; ".join(([best] if few else []) + large)


def _weights(row: EqualBytes) -> str:
    least = "at least " if row.predicted is None else ""
    return least + show_cost("weight_bytes", row.bytes)


def _map(types: Sequence[TypeRow]) -> Heat:
    """Return a map of bits a weight by role and layer, what is outside the layers last."""
    from zerolm.checkpoints.weight_types import BY_NAME, QUANTISED

    layers = sorted({row.layer for row in types if row.layer is not None})
    roles = list(dict.fromkeys(row.role for row in types if row.layer is not None))
    roles += [row.role for row in types if row.layer is None]
    by_place = {(row.layer, row.role): row.type for row in types}
    names = [[by_place.get((layer, role), "") for layer in (*layers, None)] for role in roles]
    values = [[BY_NAME[name].bits if name else 0.0 for name in row] for row in names]
    columns = [*map(str, layers), "ends"]
    return Heat("Bits a weight", columns, roles, values, names, (0.0, QUANTISED[0].bits))


def stream_line(child: CarvedChild) -> str:
    """Return the width of the stream in a line; empty where it was not looked at."""
    stream, whole = child.stream, child.parent_sizes.hidden
    if stream is None:
        return f"hidden size {whole}, as the parent" if child.spectrum else ""
    basis = "loss-weighted basis" if stream.basis == "loss" else f"basis from {stream.basis}"
    return (
        f"hidden size {whole} -> {stream.hidden} ({stream.kept_energy:.1%} of energy, {basis}), "
        f"{'tied' if stream.tied else 'untied'} head"
    )


def stream_sheets(child: CarvedChild, on: Collection[str] = (PAGE, TERMINAL)) -> list[Sheet]:
    """Return the loss of each width of the stream, as charts and a short table; empty where unknown."""
    rows = _narrower(child)
    if not rows:
        return []
    lost = [(row, 1 - row.kept_energy) for row in rows if 1 - row.kept_energy > ROUNDING]
    losses = [(row, row.loss) for row in rows if row.loss is not None]
    drawn = [(row, loss) for row, loss in losses if 0 < loss < math.inf]
    head: Row = ["hidden size", "energy kept", *(["loss"] if losses else [])]
    chosen, whole = child.stream.hidden if child.stream else None, child.parent_sizes.hidden
    near = {min(rows, key=lambda row: abs(row.hidden - share * whole)).hidden for share in FEW}
    table: list[Row] = []
    for row in reversed(rows):
        if row.hidden in near or row.hidden == chosen:
            first, *others = _texts(row)
            table.append([Cell(first, note="chosen" * (row.hidden == chosen)), *others[: len(head) - 1]])
    basis = child.stream.basis if child.stream else "weights"
    after = AFTER["predicted_repaired" in child.losses]
    sentences = [ENERGY["loss"], ALONE, after] if losses else [ENERGY[basis]]
    both = ((lost, LOST), (drawn, f"loss, {child.unit}"))
    charts = [_stream_chart(child, points, name) for points, name in both if len(points) > 1]
    title = "What each width of the stream loses"
    return [Sheet(title, head, table, sentences, charts=charts, kind="widths", on=on, layout="pair")]


def _narrower(child: CarvedChild) -> list[SpectrumRow]:
    """Return the spectrum and the chosen width, ascending, without the parent's."""
    rows = {row.hidden: row for row in child.spectrum}
    if rows and child.stream:
        chosen = child.stream.hidden
        rows.setdefault(chosen, SpectrumRow(chosen, child.stream.kept_energy, None))
    return [rows[hidden] for hidden in sorted(rows) if hidden < child.parent_sizes.hidden]


def _stream_chart(child: CarvedChild, rows: Sequence[tuple[SpectrumRow, float]], name: str) -> Linked:
    points, whole = [(float(row.hidden), y) for row, y in rows], child.parent_sizes.hidden
    columns = [("energy kept", [_texts(row)[1] for row, _ in rows])]
    if name == LOST:
        marks: list[Mark] = [Line(points, "blue")]
    else:
        marks = [Line(points, "green"), Dots(points, "green", 9)]
        columns.append(("loss", [_texts(row)[2] for row, _ in rows]))
    if child.stream:
        hidden = child.stream.hidden
        marks.append(Limit(hidden, f"{hidden:,} chosen"))
        marks += [Sign("star", point, "orange") for point in points if point[0] == hidden]
    plot = Plot(
        f"{name}, by the hidden size of {whole}",
        Axis(0.0, float(whole), "hidden size"),
        axis([y for _, y in points], name),
        marks,
        height=240,
        points=points,
        columns=columns,
    )
    return Linked([plot], [f"hidden {row.hidden:,}" for row, _ in rows], "width")


def _texts(row: SpectrumRow) -> list[str]:
    """Return hidden size, energy kept and loss, which is empty where it was not estimated."""
    loss = "" if row.loss is None else f"{row.loss:.3g}"
    return [f"{row.hidden:,}", f"{row.kept_energy:.1%}", loss]
