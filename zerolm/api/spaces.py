"""``zerolm.list_spaces``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from zerolm.api.documented import documented
from zerolm.api.report import Shown
from zerolm.commands.listings import SPACES as COMMAND
from zerolm.costs import CostModel
from zerolm.report.phrases import show_cost
from zerolm.settings import REQUIRED, Setting
from zerolm.spaces import SPACES, make_space, shape_text
from zerolm.spaces.decoders import Decoder, decoders
from zerolm.spaces.membership import exclusions


@dataclass(frozen=True, repr=False)
class SpacesReport(Shown):
    """The search spaces; each has ``name``, exact ``size``, ``summary`` and default ``settings``."""

    spaces: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        return [{name: space[name] for name in ("name", "size", "summary")} for space in self.spaces]

    def lines(self) -> list[str]:
        width = max(len(f"{space['size']:,}") for space in self.spaces)
        return [f"{s['name']:<15} {s['size']:>{width},}  {s['summary']}" for s in self.spaces]

    def to_json(self) -> list[dict[str, Any]]:
        return self.spaces


@dataclass(frozen=True, repr=False)
class SpaceReport(Shown):
    """One search space: its ``name``, its exact ``size``, a ``summary`` and what can be set of it."""

    name: str
    size: int
    summary: str
    settings: tuple[Setting, ...]

    def rows(self) -> list[dict[str, Any]]:
        return [_document(setting) for setting in self.settings]

    def lines(self) -> list[str]:
        cells = [(s.flag, s.placeholder, s.default_text) for s in self.settings]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [f"{self.name}: {self.summary}"]
        for setting, row in zip(self.settings, cells, strict=True):
            padded = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {'  '.join(padded)}  {setting.help}")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "summary": self.summary, "settings": self.rows()}


@dataclass(frozen=True, repr=False)
class DecodersReport(Shown):
    """Published decoders: each one's facts, ``params`` and ``kv_bytes`` of a token at 16 bits, and ratios.

    ``space`` is that of its family, None where there is none, ``exclusions`` what keeps it out of that
    space's defaults.
    """

    decoders: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        return self.decoders

    def lines(self) -> list[str]:
        if not self.decoders:
            return ["no published decoder is known of this space"]
        heads = ["", "params", "KV B/token", "FFN/d", "FFN/attn", "d/depth", "space", "shape"]
        cells = [heads, *(_cells(row) for row in self.decoders)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        aligned = (
            [cell.rjust(width) if 0 < place < 6 else cell.ljust(width) for place, (cell, width) in pairs]
            for pairs in (enumerate(zip(row, widths, strict=True)) for row in cells)
        )
        outside = [
            f"{row['name']}: {', '.join(row['exclusions'])}" for row in self.decoders if row["exclusions"]
        ]
        told = ["", "outside the defaults of the space:", *outside] if outside else []
        return ["  ".join(row).rstrip() for row in aligned] + told

    def to_json(self) -> list[dict[str, Any]]:
        return self.decoders


@documented(COMMAND)
def list_spaces(
    name: str | None = None, *, known: bool = False
) -> SpacesReport | SpaceReport | DecodersReport:
    """Return the search spaces with their exact size, the settings of one, or known decoders.

    Raises ``ValueError`` for a space that is not known.
    """
    own = COMMAND.values({"name": name, "known": known})
    name = own["name"]
    if own["known"]:
        of = None if name is None else SPACES.entry(name).name
        rows = [_decoder(decoder) for decoder in decoders().values()]
        return DecodersReport([row for row in rows if of in (None, row["space"])])
    if name is None:
        made = [make_space(known) for known in SPACES]
        return SpacesReport([_row(space.name) | {"settings": space.settings} for space in made])
    return SpaceReport(**_row(name), settings=SPACES[name].declared)


def _row(name: str) -> dict[str, Any]:
    return {"name": name, "size": make_space(name).size(), "summary": SPACES[name].summary}


def _decoder(decoder: Decoder) -> dict[str, Any]:
    """Return the facts of a decoder, what follows from them, and where its space stands to it."""
    architecture, space = decoder.architecture, decoder.space
    weights = {"attention": 0, "ffn": 0}
    for matrix in architecture.layers[0].matrices:
        weights[matrix.role] += matrix.weights
    costs = CostModel(context=1).of(architecture)
    facts = asdict(decoder)
    sizes = facts.pop("choices")
    return {
        **facts,
        **sizes,
        "shape": shape_text(architecture),
        "params": costs["params"],
        "body_params": costs["body_params"],
        "kv_bytes": costs["kv_bytes"],
        "ffn_per_hidden": sizes["ffn"] / sizes["hidden"],
        "ffn_per_attention": weights["ffn"] / weights["attention"],
        "hidden_per_depth": sizes["hidden"] / sizes["depth"],
        "space": None if space is None else space.name,
        "exclusions": [] if space is None else exclusions(space, decoder.choices),
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    ratios = [f"{row[name]:.3g}" for name in ("ffn_per_hidden", "ffn_per_attention", "hidden_per_depth")]
    space = row["space"] or f"none of {row['family']}"
    return [
        row["name"],
        show_cost("params", row["params"]),
        f"{row['kv_bytes']:,}",
        *ratios,
        f"outside {space}" if row["exclusions"] else space,
        f"{row['shape']}, head size {row['head_size']}, vocabulary {row['vocab']:,}"
        + (", tied" if row["tied"] else ", untied"),
    ]


def _document(setting: Setting) -> dict[str, Any]:
    default = None if setting.default is REQUIRED else setting.default
    return {
        "name": setting.name,
        "kind": setting.kind,
        "default": list(default) if isinstance(default, range | tuple) else default,
        "help": setting.help,
        "choices": list(setting.choices),
    }
