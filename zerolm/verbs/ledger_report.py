"""The result of ``zerolm ledger``: the energies of the weights of each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from zerolm.show.charts import Axis, Bar, Bars
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet, pairs
from zerolm.show.text import base_name, show_amount
from zerolm.units.energies import Energies, LayerEnergies, TotalEnergies
from zerolm.verbs.report import Report

ENERGY: Final = "energy of the weights (sum of squares)"
TRUST: Final = (
    "The sums are over every stored weight. They do not measure how much a layer matters: zerolm carve "
    "--text does."
)


@dataclass(frozen=True, repr=False, eq=False)
class LedgerReport(Report):
    """The energies of the weights of a checkpoint, a row for each layer.

    ``kept`` is the folder of the pass, ``from_cache`` whether it was there; ``seconds`` is what it took.
    """

    command: ClassVar[str] = "ledger"
    parent: str
    family: str
    bytes: int
    kv_groups: int
    layers: list[LayerEnergies]
    total: TotalEnergies
    kept: str
    from_cache: bool
    verified: bool
    seconds: float

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"layer": one.layer}
            | {f"attention_{name}": value for name, value in vars(one.attention).items()}
            | {f"ffn_{name}": value for name, value in vars(one.ffn).items()}
            for one in self.layers
        ]

    def lines(self) -> list[str]:
        whole, size = self.total.all, show_amount(self.bytes, size=True)
        return [
            f"{self.family} of {len(self.layers)} layers, {whole.weights:,} weights in {size}",
            f"energy {whole.energy:.6g}, largest {whole.largest:.3g}",
            f"most energy in layer {max(self.layers, key=lambda one: one.energy).layer}",
        ]

    def heading(self) -> Heading:
        return Heading(f"The weights of {base_name(self.parent)}", self.parent, self.finding(), trust=TRUST)

    def sheets(self) -> list[Sheet]:
        charts = [
            self._bars("attention", "blue", [one.attention.energy for one in self.layers]),
            self._bars("ffn", "orange", [one.ffn.energy for one in self.layers]),
        ]
        source = "kept from before" if self.from_cache else "one pass over the files"
        checked = ", content compared" if self.verified else ""
        facts = [("read", f"{source}{checked}, {self.seconds:.2f} s"), ("kept in", self.kept)]
        return [
            Sheet("Energy of each layer", charts=charts, on=(PAGE,)),
            self._table(),
            pairs("The pass", facts, on=(PAGE, TERMINAL)),
        ]

    def _bars(self, part: str, colour: str, energies: list[float]) -> Bars:
        rows = [
            Bar(f"{part} {one.layer}", energy, f"{energy:.5g}", colour)
            for one, energy in zip(self.layers, energies, strict=True)
        ]
        return Bars(ENERGY, Axis(0.0, max(energies) or 1.0, ENERGY), rows)

    def _table(self) -> Sheet:
        rows: list[Row] = [
            [
                str(one.layer),
                *_texts(one.attention),
                _share(one.attention.strongest_group),
                *_texts(one.ffn),
                _share(one.ffn.strongest_half),
            ]
            for one in self.layers
        ]
        rows.append(["all", *_texts(self.total.attention), "", *_texts(self.total.ffn), ""])
        head = ["layer", "attention energy", "mean square", "largest", "strongest group"]
        head += ["FFN energy", "mean square", "largest", "strongest half"]
        strongest = f"Strongest: of {self.kv_groups} KV groups one; of the FFN neurons half (even: 50 %)."
        return Sheet("All numbers", head, rows, [strongest], kind="layers", on=(PAGE, TERMINAL, NOTEBOOK))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _texts(energies: Energies) -> list[str]:
    """Return energy, mean square and largest magnitude, as a table has them."""
    return [f"{energies.energy:.5g}", f"{energies.mean_square:.3g}", f"{energies.largest:.3g}"]
