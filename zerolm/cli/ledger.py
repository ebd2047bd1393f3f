"""``zerolm ledger``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import numpy as np
import typer

from zerolm.architecture import Floats
from zerolm.carving.importance.weights import shares
from zerolm.checkpoints import Checkpoint, Ledger, Slot, Totals, ledger_of
from zerolm.io.files import cache_folder
from zerolm.report.phrases import show_amount

STEPS: Final = 20
"""How often progress is shown in all."""


def ledger(
    parent: Annotated[str, typer.Argument(help="A folder with a checkpoint, or a model of the hub.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the SHA-256 of the content of the files, too.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Energies of the weights of each layer, from one pass over the files that is kept for later commands.

    energy: sum of squares; strongest half: its share in the energy of all FFN neurons (.5 were even);
    strongest group: its share in the energy of all KV groups.
    """
    checkpoint = Checkpoint.open(parent)
    watch = Watch(len(checkpoint.shards))
    start = time.monotonic()
    made = ledger_of(checkpoint, verify=verify, progress=watch.told)
    summary: dict[str, Any] = {
        "parent": parent,
        "family": checkpoint.family.name,
        "bytes": sum(shard.size for shard in checkpoint.shards),
        "layers": [of_layer(checkpoint, made, layer) for layer in range(checkpoint.layout.depth)],
        "total": {
            "attention": weighed(_totals(checkpoint, made, "attention")),
            "ffn": weighed(_totals(checkpoint, made, "ffn")),
            "all": weighed([made.total(name) for name in checkpoint.layout.slots]),
        },
        "kept": str(cache_folder("ledgers")),
        "from_cache": watch.passes == 0,
        "verified": verify,
        "seconds": time.monotonic() - start,
    }
    if json_output:
        print(json.dumps(summary))
    else:
        show(summary, checkpoint.layout.kv_heads)


class Watch:
    """Shows bytes done on stderr after some seconds, and counts the steps of passes over files."""

    def __init__(self, shards: int, show: Callable[[str], None] | None = None, patience: float = 3.0) -> None:
        self.passes = -shards  # each shard is reported once when it is done, from the cache too
        self._show = show or (lambda text: print(text, file=sys.stderr, flush=True))
        self._next = time.monotonic() + patience
        self._shown = 0

    def told(self, text: str, done: int = 0, of: int = 0, /) -> None:
        """Bytes done, and bytes in all."""
        self.passes += 1
        step = done * STEPS // max(of, 1)
        if step > self._shown and time.monotonic() > self._next:
            self._shown = step
            self._show(f"zerolm: read {show_amount(done, size=True)} of {show_amount(of, size=True)} ...")


def of_layer(checkpoint: Checkpoint, made: Ledger, layer: int) -> dict[str, Any]:
    """Return the energies of one layer, and how much of them its strongest units hold.

    Neurons of experts are not compared with each other.
    """
    attention, ffn = (weighed(_totals(checkpoint, made, part, layer)) for part in ("attention", "ffn"))
    groups, half = _energies(checkpoint, made, layer, "groups"), None
    if not checkpoint.family.has_experts:
        neurons = _energies(checkpoint, made, layer, "ffn")
        half = held(neurons, (len(neurons) + 1) // 2)
    return {
        "layer": layer,
        "attention": attention | {"strongest_group": held(groups, 1)},
        "ffn": ffn | {"strongest_half": half},
    }


def _energies(checkpoint: Checkpoint, made: Ledger, layer: int, kind: str) -> Floats:
    """Return the energy of each KV group or neuron of a layer."""
    return np.asarray(sum(share.squares for share in shares(checkpoint, made, layer, kind)), np.float64)


def _totals(checkpoint: Checkpoint, made: Ledger, part: str, layer: int | None = None) -> list[Totals]:
    """Return the totals of the matrices of ``attention`` or of the ``ffn`` in one layer, else in all."""
    slots = checkpoint.layout.slots.items()
    inside = ((name, slot) for name, slot in slots if slot.layer is not None and layer in (None, slot.layer))
    return [made.total(name) for name, slot in inside if slot.is_matrix and _part(slot) == part]


def _part(slot: Slot) -> str:
    labels = {label for axis in slot.axes for label in axis.split("+")}
    return "attention" if labels & {"q", "kv"} else "ffn"


def weighed(totals: list[Totals]) -> dict[str, Any]:
    """Return the weights, their sum and mean of squares, and the largest magnitude, of several tensors."""
    count, energy = sum(total.count for total in totals), sum(total.squares for total in totals)
    largest = max((abs(end) for total in totals for end in (total.largest, total.smallest)), default=0.0)
    return {
        "weights": count,
        "energy": energy,
        "mean_square": energy / count if count else 0.0,
        "largest": largest,
    }


def held(energies: Floats, strongest: int) -> float | None:
    """Return the share of the strongest units in the energy of all; None where there is no energy."""
    whole = float(energies.sum())
    return float(np.sort(energies)[len(energies) - strongest :].sum()) / whole if whole else None


def show(summary: dict[str, Any], groups: int) -> None:
    """Print a line for each layer, the totals, and where all this is kept."""
    columns = f"{'energy':>10} {'mean square':>11} {'largest':>8} {'strongest':>10}"
    print(f"{'':5} {'attention':^42}  {'FFN':^42}".rstrip())
    print(f"{'layer':5} {columns}  {columns}")
    for layer in summary["layers"]:
        attention, ffn = layer["attention"], layer["ffn"]
        group, half = _share(attention["strongest_group"]), _share(ffn["strongest_half"])
        print(f"{layer['layer']:>5} {_numbers(attention)} {group:>10}  {_numbers(ffn)} {half:>10}")
    total = summary["total"]
    print(f"{'all':>5} {_numbers(total['attention'])} {'':>10}  {_numbers(total['ffn'])}")
    print(f"strongest: of {groups} KV groups one; of the FFN neurons half")
    whole = total["all"]
    print(f"\n{whole['weights']:,} weights, energy {whole['energy']:.6g}, largest {whole['largest']:.4g}")
    source = "kept from before" if summary["from_cache"] else "one pass over the files"
    checked = ", content compared" if summary["verified"] else ""
    print(f"{show_amount(summary['bytes'], size=True)}, {source}{checked}: {summary['seconds']:.2f} s")
    print(f"the ledger is in {summary['kept']}")


def _numbers(part: dict[str, Any]) -> str:
    return f"{part['energy']:>10.5g} {part['mean_square']:>11.3g} {part['largest']:>8.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
