"""The vocabulary of a child: how many tokens stay, what the text needs, and what fewer would cost."""

from __future__ import annotations

from dataclasses import dataclass

from zerolm.carving.vocabulary.result import ChildVocabulary
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Sheet
from zerolm.show.text import show_amount


@dataclass(frozen=True)
class ShownVocabulary(ChildVocabulary):
    """The kept tokens in words, and as sheets."""

    def line(self) -> str:
        """Return the number of kept tokens, or the saving by keeping only those that the text needs."""
        if self.child < self.parent:
            grown = (
                f", the text grows by {self.grows / self.tokens:.2%}" if self.tokens and self.grows else ""
            )
            needed = "" if self.used is None else f" (the text needs {self.used:,}{grown})"
            lost = f"{self._lost()}{self._weighed()}"
            return f"{self.child:,} of {self.parent:,} tokens{needed}{lost}{self._proven()}"
        if self.used is None or self.saves is None or self.used >= self.parent:
            return ""
        return (
            f"the text needs {self.used:,} of {self.parent:,} tokens: --keep-vocab used saves "
            f"{show_amount(self.saves)} parameters"
        )

    def _lost(self) -> str:
        if not self.losses:
            return ""
        before, after = self.losses["parent"], self.losses["child"]
        unit = "bits a byte" if before else "1 - cosine"
        where = "on held-out text" if self.held_out else "on the text itself, too short to hold any out"
        share = f" ({after / before - 1:+.1%})" if before else ""
        return f"; {before:.4g} becomes {after:.4g} {unit}{share} {where}"

    def _weighed(self) -> str:
        """Return the predicted loss within the budgets, compared with that of all tokens and of fewer tokens
        alone."""
        rows = {row.size: row for row in self.sizes}
        ours, whole = rows.get(self.child), rows.get(self.parent)
        if ours is None or len(rows) < 2:
            return ""
        unit = "bits a byte" if self.losses.get("parent") else "1 - cosine"
        alone = next((row for row in self.sizes if row.rest == 0), None)
        others = [
            f"{whole.loss:.3g} with all tokens" if whole else "all tokens do not fit",
            f"{alone.loss:.3g} with {alone.size:,} tokens and nothing else cut" if alone else "",
        ]
        beside = "; ".join(filter(None, others)) if ours is not alone else others[0]
        return f"; within the budgets {ours.loss:.3g} {unit} are predicted to be lost ({beside})"

    def _proven(self) -> str:
        if self.proof is None:
            return ""
        return f"; {self.proof.strings} strings read back alike, outputs apart {self.proof.relative:.1g}"

    def sheets(self) -> list[Sheet]:
        """Return the costs of sizes of the vocabulary, and how they lengthen held-out text."""
        sheets = list[Sheet]()
        if self.sizes:
            rows = [
                [f"{row.size:,}", show_amount(row.params), f"{row.tokens:.4f}", f"{row.rest:.4f}",
                 f"{row.loss:.4f}"]
                for row in self.sizes
            ]  # fmt: skip
            has_types = any(row.bytes is not None for row in self.sizes)
            other = "other cuts and types" if has_types else "all other cuts"
            head = ["tokens", "parameters", "fewer tokens", other, "both, bits a byte"]
            on = (PAGE, TERMINAL, NOTEBOOK) if self.child < self.parent else (PAGE,)
            sheets.append(Sheet("Sizes of the vocabulary within the budgets", head, rows, on=on))
        if self.curve:
            curve = [[f"{row.size:,}", show_amount(row.params), f"{row.grows:.2%}"] for row in self.curve]
            names = ["tokens", "parameters", "held-out text grows by"]
            sheets.append(Sheet("Sizes of the vocabulary and held-out text", names, curve, on=(PAGE,)))
        return sheets
