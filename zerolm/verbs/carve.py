"""``zerolm carve``: cut a smaller checkpoint out of a larger one, write it, reopen it and compare."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.carving.request import MethodRequest, methods_of
from zerolm.cost_columns import COLUMNS, cost_label, shown_costs
from zerolm.families.core_sizes import CoreSizes
from zerolm.healing.result import CarvedAndHealed
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import Progress, silent
from zerolm.settings.compute import ComputeRequest, TrainedOn
from zerolm.settings.domains import domains_of
from zerolm.settings.messages import plural
from zerolm.settings.request import PLACED, Request, part, setting, settings_of, values_of
from zerolm.show.charts import Axis, Bar, Bars, LayerSizes, Strips, from_zero
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Sheet, pairs
from zerolm.show.text import base_name, sentence, show_amount, show_cost, span
from zerolm.text.defaults import GENERATED, RANDOM
from zerolm.verbs import shared
from zerolm.verbs.carve_parts import (
    bytes_line,
    experts_line,
    experts_sheet,
    stream_line,
    stream_sheets,
    tokens_line,
    tokens_sheets,
    types_line,
    types_sheets,
)
from zerolm.verbs.heal import HealingReport
from zerolm.verbs.report import Report, run_of
from zerolm.verbs.shared import Conditions, needing_torch

if TYPE_CHECKING:
    from zerolm.carving.request import Methods
    from zerolm.carving.result import CarvedChild, LayerSize
    from zerolm.costs import CostModel

LOSSES: Final = {
    "predicted": "predicted, as cut",
    "predicted_repaired": "predicted, repaired",
    "measured": "measured, as cut",
    "repaired": "measured, repaired",
    "as_read_back": "measured, quantised",
}
PLAN: Final = "Nothing was written or opened: this is a plan."
UNMEASURED: Final = "No loss was measured."


@dataclass(frozen=True, kw_only=True)
class CarveSettings(Request):
    """Return the child of a pruned checkpoint, after it was written, opened again and compared.

    ``parent`` is a folder or a model of the hub; without ``out`` the child is only planned. Budgets are
    amounts or shares of the parent's (``max_params="0.8x"``), ``keep_ffn`` and the like shares of widths.
    ``text`` is a file, ``generated`` (sampled from the parent; default) or ``random``. A run that was killed
    goes on when it is started again. Raises ``ValueError``, in one line, for what cannot be done; nothing is
    written then.
    """

    name: ClassVar[str] = "carve"
    examples = (
        (
            "zerolm carve PARENT --max-params 0.8x",
            "the plan only, calibrated on text that the parent generates",
        ),
        (
            "zerolm carve PARENT --max-params 0.8x --text TEXT --out child",
            "by what units do on a text, repaired, written, reopened and compared",
        ),
        (
            "zerolm carve PARENT --keep-ffn .5 --text TEXT --heal 10M --steps 2 --out child",
            "half of the FFN in two cuts, each healed on five million tokens",
        ),
        ("zerolm carve PARENT --recipe child/recipe.json --text TEXT --out again", "the same child again"),
    )
    notes = (
        "A killed run resumes when started again. Weight bytes are counted at the stored dtype unless "
        "--bits or --group-size is given. --format gguf --max-weight-bytes .3x --text TEXT also chooses "
        "quantisation types."
    )
    parent: str = shared.parent(group=PLACED)
    like: str | None = shared.like(group="Reading")
    size: SizeRequest = part(SizeRequest)
    methods: MethodRequest = part(MethodRequest)
    heal: Any = setting(
        "amount",
        None,
        "heal the child on this number of tokens of the text (distillation from the parent)",
        group="Healing",
        metavar="TOKENS",
    )
    steps: int = setting(
        "integer", 1, "prune in this number of stages, each followed by healing", low=1, high=100
    )
    conditions: Conditions = part(Conditions, group="Costs", bits=None, group_size=None)
    compute: ComputeRequest = part(ComputeRequest, group="Where it runs")
    format: str | None = setting(
        "text",
        None,
        "output format: hf (default, or the recipe's), padded, or gguf",
        group="The child",
        metavar="NAME",
    )
    recipe: str | None = setting(
        "path", None, "rebuild the child of this recipe.json or folder, instead of giving sizes and methods"
    )
    out: str | None = setting(
        "path",
        None,
        "folder for the child; without it the child is only planned",
        by_place=True,
        metavar="DIR",
    )
    force: bool = setting("flag", False, "replace the output folder if it holds an earlier child")

    def run(self, progress: Progress = silent) -> CarvingReport:
        with shared.read_like(self.like), shared.field_read(self.methods.text_field, self.methods.text):
            return self._carved(progress)

    def _carved(self, progress: Progress) -> CarvingReport:
        if self.heal is not None or self.steps > 1:
            return self._healed(progress)
        from zerolm.carving import carve as carving
        from zerolm.carving.request import Destination

        out = None if self.out is None else Path(self.out)
        place = Destination(out, self.format, self.force, self._write)
        running: dict[str, Any] = {"costs": self._costs(), "compute": self.compute, "progress": progress}
        with needing_torch("writing a child, and tokens (all but --criterion capacity), run networks"):
            if self.recipe is None:
                carved = carving.carve(self.parent, self.size, self._methods(), place, **running)
            else:
                self._check_alone()
                text = self.methods.text
                carved = carving.rebuild(self.recipe, self.parent, place, text=text, **running)
        return self._report(carved.child)

    def _methods(self) -> Methods:
        return methods_of(self.size, self.methods)

    def _costs(self) -> CostModel:
        """Return how the child is run; weights count as they are stored where their bits are not given."""
        from zerolm.costs import CostModel
        from zerolm.planning.part_costs import StoredCosts

        conditions = {name: value for name, value in vars(self.conditions).items() if value is not None}
        is_stored = "bits" not in conditions and "group_size" not in conditions
        return StoredCosts(**conditions) if is_stored else CostModel(**conditions)

    def _check_alone(self) -> None:
        values = values_of(self.size) | values_of(self.methods)
        for item in (*settings_of(SizeRequest), *settings_of(MethodRequest)):
            if item.name not in ("text", "text_field") and values[item.name] != item.default:
                raise ValueError(f"--recipe fixes everything about the child; drop {item.flag}")

    def _healed(self, progress: Progress) -> CarvingReport:
        """Return the report of a child that is healed too."""
        text, out = self._healed_on()
        with needing_torch("healing trains networks", "train"):
            from zerolm.carving.request import Destination
            from zerolm.healing.request import HealRequest, Texts
            from zerolm.healing.stages import Stages, carve_and_heal
            from zerolm.training.request import Execution

            execution = Execution(TrainedOn(self.compute.device, self.compute.dtype))
            seed = self.methods.seed % 2**32
            texts = Texts(tuple(domains_of(text).values()) or (text,))
            request = HealRequest(texts, self.heal, seed=seed, execution=execution)
            outcome = carve_and_heal(
                self.parent,
                Stages(self.size, self._methods(), request, self.steps, self._costs(), self.compute),
                Destination(Path(out), self.format, self.force),
                finish=self._write,
                progress=progress,
            )
        return self._report(outcome)

    def _healed_on(self) -> tuple[str, str]:
        """Return the text and the output of a healing; ``ValueError`` for what does not go with one."""
        if self.heal is None:
            raise ValueError(f"{self.steps} steps have healing between them: give --heal TOKENS too")
        if isinstance(self.heal, str):
            raise ValueError(f"--heal takes tokens, not the share {self.heal}")
        if self.methods.text is None:
            raise ValueError("--heal trains and writes: give --text")
        if self.out is None:
            raise ValueError("--heal trains and writes: give --out")
        if self.methods.for_ is not None:
            raise ValueError("--for is the time of a carving: heal the child afterwards, zerolm heal --for")
        if self.recipe:
            raise ValueError(
                "--heal cannot be combined with --recipe: rebuild the child first, then run zerolm heal"
            )
        if self.methods.text in (RANDOM, GENERATED):
            raise ValueError(f"--heal trains on a file: give --text FILE, not {self.methods.text}")
        return self.methods.text, self.out

    def _report(self, child: CarvedChild) -> CarvingReport:
        is_open = self.methods.text is None and self.recipe is None
        used = {"text": self._methods().text} if is_open else {}
        return CarvingReport(**vars(child), run=run_of(self, **used))

    def _write(self, folder: Path, child: CarvedChild) -> None:
        self._report(child).write_into(folder)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class CarvingReport(CarvedAndHealed, Report):
    """A child: the sizes of its layers, its costs compared with the parent's, and whether it was verified."""

    command: ClassVar[str] = "carve"

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        return {name: value for name, value in document.items() if name != "healing" or value}

    @property
    def remarks(self) -> list[str]:
        return self.notes

    @property
    def written(self) -> list[str]:
        return ["the child", *super().written] if self.verified else super().written

    def rows(self) -> list[dict[str, Any]]:
        return [dict(vars(layer)) for layer in self.widths]

    def lines(self) -> list[str]:
        heads, kv, ffn = (
            span([getattr(layer, name) for layer in self.widths]) for name in ("heads", "kv_heads", "ffn")
        )
        return [
            *self._changes(),
            f"{plural(len(self.widths), 'layer')}: heads {heads}, kv {kv}, ffn {ffn}",
            *filter(None, [stream_line(self), self._tokens()]),
            *self._outcome(),
        ]

    def _changes(self) -> list[str]:
        """Return the pruned units, the quantisation types, and the losses of plans of the same bytes."""
        pruned = [
            f"{row.unit} {row.before:,} -> {row.after:,} ({show_amount(row.params)} parameters)"
            for row in self.units
            if row.after < row.before
        ]
        compared = bytes_line(self.equal_bytes, self.costs["child"]["weight_bytes"], self.unit)
        gave_up = f"pruned: {', '.join(pruned)}" if pruned else ""
        return [*filter(None, [gave_up, types_line(self.types), compared])]

    def _outcome(self) -> list[str]:
        losses = ", ".join(f"{name.replace('_', ' ')} {loss:.3g}" for name, loss in self.losses.items())
        proof = self.verified and self.verified.text("trained network" if self.healing else "carved parent")
        return [
            *([experts_line(self.experts)] if self.experts else []),
            *([f"loss on held-out text, {self.unit}: {losses}"] if losses else []),
            *([f"healed: {self._healing.gains}"] if self._healing else []),
            *([f"verified: opened again, {proof}"] if proof else []),
        ]

    @property
    def _healing(self) -> HealingReport | None:
        return HealingReport(**vars(self.healing)) if self.healing else None

    def _tokens(self) -> str:
        return tokens_line(self.vocabulary) if self.vocabulary else ""

    def _share(self, cost: str, who: str = "child") -> str:
        parent = self.costs["parent"][cost]
        return f"{self.costs[who][cost] / parent if parent else 1.0:.1%}"

    def heading(self) -> Heading:
        notes = [UNMEASURED] * (not self.losses) + [PLAN] * (not self.verified)
        size = f"cut to {self._share('params')} of its parameters"
        if self.types:
            size = f"in {self._share('weight_bytes')} of its bytes"
        return Heading(
            f"{base_name(self.parent)} {size}",
            f"A {self.family} model, {self.criterion} as criterion, repair {self.repair}.",
            " ".join(map(sentence, filter(None, [*self._changes(), stream_line(self), *self._outcome()]))),
            trust=" ".join([*notes, *map(sentence, self.remarks)]),
        )

    def sheets(self) -> list[Sheet]:
        is_plan, healed = self.verified is None, list[Sheet]()
        if healing := self._healing:
            losses, charts = healing.losses_sheet(), healing.curves()
            healed = [replace(losses, title="How healing went", charts=charts, on=(PAGE,))]
        rebuilding = Sheet("Build the same child again", commands=[self._rebuilding()], on=(PAGE,))
        units = [
            [row.unit, f"{row.before:,}", f"{row.after:,}", show_amount(row.params)] for row in self.units
        ]
        head = ["unit", "before", "after", "parameters"]
        return [
            Sheet("Sizes, layer by layer", charts=[self._strips()], on=(PAGE,)),
            *self._layer_sheets(),
            self._costs_sheet(),
            *([Sheet("Pruned by kind of unit", head, units, on=(PAGE,))] if units else []),
            *types_sheets(self.types, self.equal_bytes, self.unit),
            *([experts_sheet(self.experts)] if self.experts else []),
            *(tokens_sheets(self.vocabulary) if self.vocabulary else []),
            *stream_sheets(self, (PAGE, TERMINAL) if is_plan else (PAGE,)),
            *([self._losses_sheet()] if self.losses else []),
            *healed,
            pairs("How it was made", self._making(), on=(PAGE,)),
            *([] if is_plan or self.healing else [rebuilding]),
        ]

    def _layer_sheets(self) -> list[Sheet]:
        """Return the sizes of each layer for the terminal, which has no strips, where they differ."""
        rows = [[str(value) for value in vars(layer).values()] for layer in self.widths]
        if all(row[1:] == rows[0][1:] for row in rows):
            return []
        return [Sheet("Sizes, layer by layer", ["layer", "heads", "kv", "ffn"], rows, on=(TERMINAL,))]

    def _strips(self) -> Strips:
        whole = self.parent_sizes
        kept = {layer.layer: layer for layer in self.widths}
        hidden = self.stream.hidden if self.stream else whole.hidden
        gone = LayerSizes(0, 0, 0, 0, 0)
        child = [self._drawn(kept[i], hidden) if i in kept else gone for i in range(whole.depth)]
        return Strips([("Parent", [self._drawn(whole, whole.hidden)] * whole.depth), ("Child", child)])

    def _drawn(self, layer: LayerSize | CoreSizes, hidden: int) -> LayerSizes:
        queries, keys = (count * self.parent_sizes.head_size for count in (layer.heads, layer.kv_heads))
        return LayerSizes(hidden, queries, keys, layer.heads, layer.ffn)

    def _costs_sheet(self) -> Sheet:
        parent, child = self.costs["parent"], self.costs["child"]
        bits = " and ".join(map(str, self.weight_bits))
        rows = [
            Bar(
                cost_label(cost) + (f", {bits}-bit" if cost == "weight_bytes" and not self.types else ""),
                100 * child[cost] / parent[cost] if parent[cost] else 100.0,
                f"{show_cost(cost, parent[cost])} → {show_cost(cost, child[cost])}, {self._share(cost)}",
            )
            for cost in shown_costs(COLUMNS, self.costs.values())
            if cost in parent  # a gguf file of any architecture contains only some
        ]
        scale = Axis(0.0, 100.0, "% of the parent's", form=lambda value: f"{value:g} %")
        chart = Bars("Costs of the child in percent of the parent's", scale, rows)
        stored = []
        if "stored" in self.costs:
            share = self._share("params", "stored")
            stored = [f"Stored with zeros, for evaluation: {share} of the parent's parameters."]
        on = (PAGE, TERMINAL, NOTEBOOK)
        return Sheet("Costs compared with the parent", charts=[chart], sentences=stored, on=on)

    def _losses_sheet(self) -> Sheet:
        scale = from_zero(self.losses.values(), f"loss on held-out tokens, {self.unit}")
        rows = [
            Bar(LOSSES.get(name, name), loss, f"{loss:.3g}", "green" if name == "repaired" else "grey")
            for name, loss in self.losses.items()
        ]
        chart = Bars("Losses on held-out tokens", scale, rows)
        return Sheet("Loss on held-out tokens", charts=[chart], on=(PAGE,))

    def _making(self) -> list[tuple[str, str]]:
        names = ("parent", "family", "criterion", "repair", "plan", "shape", "format", "space")
        values = {name: getattr(self, name) for name in names}
        rows = [(name, str(value)) for name, value in values.items() if value is not None]
        rows += [] if self.optimal is None else [("proven the best plan", "yes" if self.optimal else "no")]
        rows += [("stream", stream_line(self))] if self.stream else []
        return rows + ([("vocabulary", self._tokens())] if self._tokens() else [])

    def _rebuilding(self) -> str:
        line = f"zerolm carve {shlex.quote(self.parent)} --recipe recipe.json --out child"
        text, field, like = (self.run.configuration.get(name) for name in ("text", "text_field", "like"))
        by_loss = self.stream is not None and self.stream.basis == "loss"
        if text != GENERATED and (by_loss or (self.repair != "none" and (text or self.losses))):
            line += f" --text {shlex.quote(str(text)) if text else 'FILE'}"
            line += f" --text-field {shlex.quote(field)}" if field else ""
        return line + (f" --like {like}" if like else "")
