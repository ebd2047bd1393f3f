"""``zerolm.carve``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from zerolm.api.configuration import absolute
from zerolm.api.document_report import DocumentReport
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.carving import carve as carving
from zerolm.carving.planning.part_costs import StoredCosts
from zerolm.carving.request import Destination, Methods, SizeRequest, methods_of
from zerolm.carving.result import Carved
from zerolm.commands.carve import CARVE
from zerolm.costs import COSTS, CostModel
from zerolm.progress import Progress, silent
from zerolm.report.carving import carving_fragment, carving_page
from zerolm.report.healing import healing_line
from zerolm.report.phrases import cost_label, show_cost
from zerolm.report.width import width_line, widths_line
from zerolm.text.defaults import RANDOM

Amount = int | str
Text = str | PathLike[str]
BUDGETS: Final = tuple(f"max_{cost}" for cost in COSTS)
CONDITIONS: Final = tuple(setting.name for setting in CARVE.groups["Costs"])
SHARES: Final = ("ffn", "heads", "layers", "hidden")
SIZES: Final = tuple(field.name for field in fields(SizeRequest) if field.name not in ("keep", "budgets"))
METHODS: Final = tuple(field.name for field in fields(Methods) if field.name != "text")
OF_A_RECIPE: Final = (*BUDGETS, *(f"keep_{kind}" for kind in SHARES), *SIZES, *METHODS)
"""Settings that a recipe says for itself."""


class CarvingReport(DocumentReport):
    """A child: the sizes of its layers, its costs beside the parent's, and whether it was verified."""

    command: ClassVar[str] = CARVE.name

    @property
    def widths(self) -> list[dict[str, int]]:
        """Return the sizes of each kept layer: ``layer``, ``heads``, ``kv_heads`` and ``ffn``."""
        return list(self.document["widths"])

    @property
    def stream(self) -> dict[str, Any] | None:
        """Return the narrower stream: ``hidden``, ``tied``, ``basis``, ``kept_energy``; None where whole."""
        return self.document.get("stream")

    @property
    def spectrum(self) -> list[dict[str, Any]]:
        """Return what widths of the stream keep: ``hidden``, ``kept_energy``, ``loss``; empty if unknown."""
        return list(self.document.get("spectrum", []))

    @property
    def costs(self) -> dict[str, dict[str, int]]:
        """Return the costs of ``parent`` and ``child`` by name, and of what is ``stored`` with zeros."""
        return dict(self.document["costs"])

    @property
    def losses(self) -> dict[str, float]:
        """Return the losses on the calibration tokens by name; empty where none were measured."""
        return dict(self.document["losses"])

    @property
    def healing(self) -> dict[str, Any] | None:
        """Return what the last healing did, as a result of ``zerolm heal``; None where there was none."""
        return self.document.get("healing")

    @property
    def verified(self) -> dict[str, Any] | None:
        """Return how far the written child differs from the carved parent; None where none was written."""
        return self.document["verified"]  # type: ignore[no-any-return]

    @property
    def remarks(self) -> list[str]:
        return [self.document["note"]] if self.document["note"] else []

    @property
    def written(self) -> list[str]:
        return ["the child", *super().written] if self.verified else super().written

    def lines(self) -> list[str]:
        first = f"{self.document['family']} of {len(self.widths)} layers, {self.document['shape']}"
        parts = (
            f"{name} {_span([layer[name] for layer in self.widths])}" for name in ("heads", "kv_heads", "ffn")
        )
        costs = [f"  {cost_label(cost)} {self._share(cost)}" for cost in COSTS]
        others = "" if self.verified else widths_line(self.document)
        widths = f"hidden size, energy kept, loss alone: {others}" if others else ""
        width = width_line(self.document)
        sizes = [f"{first}: {', '.join(parts)}", *([width] if width else [])]
        return [*sizes, *costs, *self.judged(), *([widths] if widths else [])]

    def _share(self, cost: str) -> str:
        parent, child = self.costs["parent"][cost], self.costs["child"][cost]
        return f"{show_cost(cost, child)}, {child / parent if parent else 1.0:.1%} of the parent's"

    def judged(self) -> list[str]:
        """Return the losses on the calibration text and the verification, as lines."""
        losses = [f"{name} {loss:.3g}" for name, loss in self.losses.items()]
        lines = [f"loss on the calibration text: {', '.join(losses)}"] if losses else []
        if self.healing:
            lines.append(f"healed: {healing_line(self.healing)}")
        if self.verified:
            difference = self.verified["difference"]
            whose = "trained network" if self.healing else "carved parent"
            lines.append(f"verified: opened again, outputs within {difference:.2g} of the {whose}'s")
        return lines

    def rows(self) -> list[dict[str, Any]]:
        return [dict(layer) for layer in self.widths]

    def page(self) -> str:
        return carving_page(self.document, self.run_yaml)

    def fragment(self) -> str:
        return carving_fragment(self.document)


@documented(CARVE)
def carve(
    parent: Text,
    out: Text | None = None,
    *,
    max_params: Amount | None = None,
    max_body_params: Amount | None = None,
    max_macs: Amount | None = None,
    max_kv_bytes: Amount | None = None,
    max_weight_bytes: Amount | None = None,
    keep_ffn: float | None = None,
    keep_heads: float | None = None,
    keep_layers: float | None = None,
    keep_hidden: float | None = None,
    shape: str | None = None,
    space: str | None = None,
    multiple_of: int | None = None,
    tensor_parallel: int = 1,
    least_groups: int = 1,
    least_ffn: int = 1,
    criterion: str | None = None,
    plan: str | None = None,
    text: Text | None = None,
    sequences: int = 256,
    length: int = 256,
    repair: str | None = None,
    seed: int = 0,
    heal: Amount | None = None,
    steps: int = 1,
    context: Amount = 1024,
    batch: int = 1,
    kv_bits: int = 16,
    bits: int | None = None,
    group_size: int | None = None,
    format: str | None = None,
    recipe: Text | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> CarvingReport:
    """Return what is left of a checkpoint that is cut smaller, written, opened again and compared.

    ``parent`` is a folder or a model of the hub; without ``out`` the child is only planned. Budgets are
    amounts or shares of the parent's (``max_params="0.8x"``), ``keep_ffn`` and the like shares of widths.
    ``text`` is a file, or ``random``. A run that was killed goes on when it is started again. Raises
    ``ValueError``, in one line, for what cannot be done; nothing is written then.
    """
    own = CARVE.values({name: value for name, value in locals().items() if name != "progress"})
    kept = {name: absolute(own[name]) for name in ("parent", "recipe")}
    kept["text"] = own["text"] if own["text"] == RANDOM else absolute(own["text"])
    ran = {name: value for name, value in (own | kept).items() if name not in ("out", "force")}
    configuration = {name: value for name, value in ran.items() if value is not None}

    def finish(folder: Path, carved: Carved) -> None:
        CarvingReport.of(carved.to_json(), configuration).write_into(folder)

    if own["heal"] is not None or own["steps"] > 1:
        with needing_torch("healing trains networks", "train"):
            return _healed(own, configuration, progress)
    place = Destination(None if own["out"] is None else Path(own["out"]), own["format"], own["force"], finish)
    costs, size = _costs(own), size_of(own)
    with needing_torch("writing a child, and tokens, run networks"):
        if own["recipe"] is None:
            carved = carving.carve(
                own["parent"], size, _methods(own, size), place, costs=costs, progress=progress
            )
        else:
            _check_alone(own)
            carved = carving.rebuild(
                own["recipe"], own["parent"], place, text=own["text"], costs=costs, progress=progress
            )
    return CarvingReport.of(carved.to_json(), configuration)


def size_of(own: Mapping[str, Any]) -> SizeRequest:
    """Return the sizes that the settings of the command ask for."""
    keep = {kind: own[f"keep_{kind}"] for kind in SHARES if own[f"keep_{kind}"] is not None}
    budgets = {name: own[name] for name in BUDGETS if own[name] is not None}
    shape = own["shape"] or ("per-layer" if own["space"] else "uniform")
    return SizeRequest(keep=keep, budgets=budgets, **{name: own[name] for name in SIZES} | {"shape": shape})


def _methods(own: Mapping[str, Any], size: SizeRequest) -> Methods:
    return methods_of(size, own["text"], **{name: own[name] for name in METHODS})


def _healed(own: Mapping[str, Any], configuration: dict[str, Any], progress: Progress) -> CarvingReport:
    """Return the report of a child that is healed too."""
    from zerolm.healing.request import HealRequest, Texts
    from zerolm.healing.stages import CarvedAndHealed, Stages, carve_and_heal

    if own["heal"] is None:
        raise ValueError(f"{own['steps']} steps have healing between them: give --heal TOKENS too")
    if isinstance(own["heal"], str):
        raise ValueError(f"--heal takes tokens, not the share {own['heal']}")
    lacking = next((name for name in ("text", "out") if own[name] is None), None)
    if lacking or own["text"] == RANDOM or own["recipe"]:
        wrong = "a recipe cannot stand beside it" if own["recipe"] else "random tokens teach nothing"
        raise ValueError(f"--heal trains and writes: {f'give --{lacking}' if lacking else wrong}")
    size = size_of(own)

    def report(made: CarvedAndHealed) -> CarvingReport:
        healed = made.healed.to_json()
        document = {**made.carving, "format": healed["format"], "verified": healed["verified"]}
        return CarvingReport.of({**document, "healing": healed}, configuration)

    request = HealRequest(Texts((own["text"],)), own["heal"], seed=own["seed"] % 2**32)
    made = carve_and_heal(
        own["parent"],
        Stages(size, _methods(own, size), request, own["steps"], _costs(own)),
        Destination(Path(own["out"]), own["format"], own["force"]),
        finish=lambda folder, made: report(made).write_into(folder),
        progress=progress,
    )
    return report(made)


def _check_alone(own: Mapping[str, Any]) -> None:
    """Refuse what a recipe says for itself."""
    usual = {setting.name: setting.default for setting in CARVE.settings}
    for name in OF_A_RECIPE:
        if own[name] != usual[name]:
            said = name.replace("_", "-")
            raise ValueError(f"a recipe says all of the child: {said} cannot stand beside it")


def _costs(own: Mapping[str, Any]) -> CostModel:
    """Return how the child is run; weights count as they are stored where their bits are not given."""
    given = {name: own[name] for name in CONDITIONS if own[name] is not None}
    stored = "bits" not in given and "group_size" not in given
    return StoredCosts(**given) if stored else CostModel(**given)


def _span(sizes: list[int]) -> str:
    low, high = min(sizes), max(sizes)
    return str(low) if low == high else f"{low} to {high}"
