"""The experts of a carved child, its tokens, and the types of its matrices, as its report has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from zerolm.carving.result import ChildExperts, ChildVocabulary, EqualBytes, TypeRow
from zerolm.show.charts import Heat
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Sheet
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
    """Return the kept experts, layer by layer."""
    layers = experts.layers
    columns = {
        head: [_cell(getattr(row, name), form) for row in layers]
        for head, (name, form) in EXPERT_COLUMNS.items()
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
        title, line = "Quantisation types, layer by layer", f"{types_line(types)}."
        yield Sheet(title, charts=[_map(types)], sentences=[line], on=(PAGE,))
    if types and equal_bytes:
        rows = [
            [row.name, show_cost("weight_bytes", row.bytes), f"{row.predicted:.3g}",
             "" if row.measured is None else f"{row.measured:.3g}"]
            for row in equal_bytes
        ]  # fmt: skip
        head = ["at these bytes", "weights", f"predicted ({unit})", "measured before the choice"]
        yield Sheet("What the bytes buy", head, rows, [COMPARED], on=(PAGE, TERMINAL, NOTEBOOK))


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
