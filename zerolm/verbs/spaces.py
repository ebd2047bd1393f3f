"""``zerolm spaces``: the search spaces, what can be set of one, or known decoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import Request, argument, setting
from zerolm.show.sheet import Cell, Row, Sheet, pairs
from zerolm.show.text import show_amount
from zerolm.verbs.report import Listing, Shown

if TYPE_CHECKING:
    from zerolm.spaces.decoders import Decoder


@dataclass(frozen=True, kw_only=True)
class SpacesSettings(Request):
    """Return the search spaces with their exact size, the settings of one, or known decoders.

    Raises ``ValueError`` for a space that is not known.
    """

    name: ClassVar[str] = "spaces"
    writes_no_result = True
    takes_progress = False
    examples = (
        ("zerolm spaces", "all spaces, and how many architectures each holds"),
        ("zerolm spaces llama", "what can be set in one of them, with the defaults"),
        ("zerolm spaces --known", "published decoders: shapes, counts, and whether a space holds them"),
    )
    notes = "Every setting of a space is a flag of `zerolm search`, and a keyword of `zerolm.search`."
    space: str | None = argument("text", None, "space to describe", name="name", metavar="SPACE")
    known: bool = setting(
        "flag",
        False,
        "list published decoders (of the space, if named)",
        group="Known decoders",
    )

    def run(self, progress: Progress = silent) -> SpacesReport | SpaceReport | DecodersReport:
        from zerolm.spaces import SPACES, make_space
        from zerolm.spaces.decoders import decoders

        if self.known:
            name = None if self.space is None else SPACES.entry(self.space).name
            rows = [decoder_row(decoder) for decoder in decoders().values()]
            return DecodersReport([row for row in rows if name in (None, row["space"])])
        if self.space is not None:
            settings = SPACES[self.space].declared
            return SpaceReport(
                self.space, make_space(self.space).size(), SPACES[self.space].summary, settings
            )
        spaces = [make_space(name) for name in SPACES]
        return SpacesReport(
            [{"name": s.name, "size": s.size(), "summary": s.summary, "settings": s.settings} for s in spaces]
        )


@dataclass(frozen=True, repr=False, eq=False)
class SpacesReport(Listing):
    """The search spaces; each has ``name``, exact ``size``, ``summary`` and default ``settings``."""

    things: ClassVar[str] = "search spaces"

    def sheets(self) -> list[Sheet]:
        head: Row = ["space", "architectures", Cell("what it holds", "shape")]
        rows = [[one["name"], f"{one['size']:,}", Cell(one["summary"], "shape")] for one in self.entries]
        return [Sheet(head=head, rows=rows)]


@dataclass(frozen=True, repr=False, eq=False)
class SpaceReport(Shown):
    """One search space: its ``name``, its exact ``size``, a ``summary`` and what can be set of it."""

    name: str
    size: int
    summary: str
    settings: tuple[Setting, ...]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "summary": self.summary, "settings": self.rows()}

    def lines(self) -> list[str]:
        return [f"{self.name}: {self.summary}", f"{self.size:,} architectures"]

    def sheets(self) -> list[Sheet]:
        rows: list[Row] = [
            [one.flag, one.placeholder, one.default_text, Cell(one.help, "shape")] for one in self.settings
        ]
        head: Row = ["setting", "value", "default", Cell("", "shape")]
        return [Sheet(head=head, rows=rows)]

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for one in self.settings:
            default = None if one.default is REQUIRED else one.default
            default = list(default) if isinstance(default, range | tuple) else default
            head = {"name": one.name, "kind": one.kind, "default": default}
            rows.append({**head, "help": one.help, "choices": list(one.choices)})
        return rows


def decoder_row(decoder: Decoder) -> dict[str, Any]:
    """Return the facts of a decoder, what follows from them, and where its space stands to it.

    ``kv_bytes`` are those of a token at 16 bits; ``space`` is that of its family, None where there is none,
    ``exclusions`` what keeps it out of that space's defaults.
    """
    from zerolm.costs import CostModel
    from zerolm.spaces import shape_text
    from zerolm.spaces.membership import exclusions

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
        **{cost: costs[cost] for cost in ("params", "body_params", "kv_bytes")},
        "ffn_per_hidden": sizes["ffn"] / sizes["hidden"],
        "ffn_per_attention": weights["ffn"] / weights["attention"],
        "hidden_per_depth": sizes["hidden"] / sizes["depth"],
        "space": None if space is None else space.name,
        "exclusions": [] if space is None else exclusions(space, decoder.choices),
    }


@dataclass(frozen=True, repr=False, eq=False)
class DecodersReport(Listing):
    """Published decoders, with what follows from their shapes."""

    things: ClassVar[str] = "published decoders"

    def sheets(self) -> list[Sheet]:
        if not self.entries:
            return []
        numbers = ["params", "KV B/token", "FFN/d", "FFN/attn", "d/depth"]
        head: Row = ["", *numbers, Cell("space", "shape"), Cell("shape", "shape")]
        outside = [(one["name"], ", ".join(one["exclusions"])) for one in self.entries if one["exclusions"]]
        sheets = [Sheet(head=head, rows=[_decoder_cells(one) for one in self.entries])]
        return sheets + ([pairs("Outside the defaults of the space", outside)] if outside else [])


def _decoder_cells(row: Mapping[str, Any]) -> Row:
    space = row["space"] or f"none of {row['family']}"
    tying = "tied" if row["tied"] else "untied"
    return [
        row["name"],
        show_amount(row["params"]),
        f"{row['kv_bytes']:,}",
        *(f"{row[ratio]:.3g}" for ratio in ("ffn_per_hidden", "ffn_per_attention", "hidden_per_depth")),
        Cell(f"outside {space}" if row["exclusions"] else space, "shape"),
        Cell(f"{row['shape']}, head size {row['head_size']}, vocabulary {row['vocab']:,}, {tying}", "shape"),
    ]
