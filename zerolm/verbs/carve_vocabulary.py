"""The vocabulary of a child: how many tokens stay, what the text needs, and what fewer would cost."""

from __future__ import annotations

from collections.abc import Iterator

from zerolm.carving.vocabulary.result import ChildVocabulary
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Sheet
from zerolm.show.text import show_amount


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
    unit = "bits a byte" if tokens.losses.get("parent") else "1 - cosine"
    if tokens.losses:
        before, after = tokens.losses["parent"], tokens.losses["child"]
        where = "on held-out text" if tokens.held_out else "on the text itself, too short to hold any out"
        share = f" ({after / before - 1:+.1%})" if before else ""
        yield f"{before:.4g} becomes {after:.4g} {unit}{share} {where}"
    rows = {row.size: row for row in tokens.sizes}
    ours, whole = rows.get(tokens.child), rows.get(tokens.parent)
    if ours is not None and len(rows) > 1:
        beside = f"{whole.loss:.3g} with all tokens" if whole else "all tokens do not fit"
        alone = next((row for row in tokens.sizes if row.rest == 0), None)
        if alone is not None and alone is not ours:
            beside += f"; {alone.loss:.3g} with {alone.size:,} tokens and nothing else cut"
        yield f"within the budgets {ours.loss:.3g} {unit} are predicted to be lost ({beside})"
    if tokens.proof is not None:
        yield f"{tokens.proof.strings} strings read back alike, outputs apart {tokens.proof.relative:.1g}"


def tokens_sheets(tokens: ChildVocabulary) -> Iterator[Sheet]:
    """Yield the costs of sizes of the vocabulary, and how they lengthen held-out text."""
    if tokens.sizes:
        rows = [
            [f"{row.size:,}", show_amount(row.params), f"{row.tokens:.4f}", f"{row.rest:.4f}",
             f"{row.loss:.4f}"]
            for row in tokens.sizes
        ]  # fmt: skip
        has_types = any(row.bytes is not None for row in tokens.sizes)
        other = "other cuts and types" if has_types else "all other cuts"
        head = ["tokens", "parameters", "fewer tokens", other, "both, bits a byte"]
        on = (PAGE, TERMINAL, NOTEBOOK) if tokens.child < tokens.parent else (PAGE,)
        yield Sheet("Sizes of the vocabulary within the budgets", head, rows, on=on)
    if tokens.curve:
        curve = [[f"{row.size:,}", show_amount(row.params), f"{row.grows:.2%}"] for row in tokens.curve]
        names = ["tokens", "parameters", "held-out text grows by"]
        yield Sheet("Sizes of the vocabulary and held-out text", names, curve, on=(PAGE,))
