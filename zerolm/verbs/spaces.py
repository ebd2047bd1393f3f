"""``zerolm spaces``: the search spaces, what can be set of one, or known decoders."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings import REQUIRED, Setting
from zerolm.settings.request import Request, argument, setting
from zerolm.show.sheet import Cell, Row, Sheet, pairs
from zerolm.show.text import show_amount
from zerolm.verbs.report import Shown

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
            return DecodersReport([row for row in rows if name in (None, row.space)])
        if self.space is not None:
            settings = SPACES[self.space].declared
            return SpaceReport(
                self.space, make_space(self.space).size(), SPACES[self.space].summary, settings
            )
        spaces = [make_space(name) for name in SPACES]
        return SpacesReport([SpaceRow(s.name, s.size(), SPACES[s.name].summary, s.settings) for s in spaces])


@dataclass(frozen=True)
class SpaceRow:
    """A search space: its exact ``size``, in words, and its default settings."""

    name: str
    size: int
    summary: str
    settings: dict[str, Any]


@dataclass(frozen=True, repr=False, eq=False)
class SpacesReport(Shown):
    """The search spaces; each has ``name``, exact ``size``, ``summary`` and default ``settings``."""

    spaces: list[SpaceRow]

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.spaces]

    def lines(self) -> list[str]:
        return [f"{len(self.spaces)} search spaces: {', '.join(row.name for row in self.spaces)}"]

    def sheets(self) -> list[Sheet]:
        head: Row = ["space", "architectures", Cell("what it holds", "shape")]
        rows: list[Row] = [[row.name, f"{row.size:,}", Cell(row.summary, "shape")] for row in self.spaces]
        return [Sheet(head=head, rows=rows)]

    def rows(self) -> list[dict[str, Any]]:
        return [{"name": row.name, "size": row.size, "summary": row.summary} for row in self.spaces]


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
        return [_setting(one) for one in self.settings]


def _setting(one: Setting) -> dict[str, Any]:
    default = None if one.default is REQUIRED else one.default
    return {
        "name": one.name,
        "kind": one.kind,
        "default": list(default) if isinstance(default, range | tuple) else default,
        "help": one.help,
        "choices": list(one.choices),
    }


@dataclass(frozen=True)
class DecoderRow:
    """A published decoder: its facts, ``params`` and ``kv_bytes`` of a token at 16 bits, and ratios.

    ``space`` is that of its family, None where there is none, ``exclusions`` what keeps it out of that
    space's defaults.
    """

    name: str
    hub: str
    family: str
    vocab: int
    positions: int
    tied: bool
    published: str
    source: str
    published_body: int | None
    depth: int
    hidden: int
    head_size: int
    heads: int
    kv_heads: int
    ffn: int
    shape: str
    params: int
    body_params: int
    kv_bytes: int
    ffn_per_hidden: float
    ffn_per_attention: float
    hidden_per_depth: float
    space: str | None
    exclusions: list[str]

    def cells(self) -> Row:
        """Return the row of a table."""
        ratios = (self.ffn_per_hidden, self.ffn_per_attention, self.hidden_per_depth)
        space = self.space or f"none of {self.family}"
        tying = "tied" if self.tied else "untied"
        words = f"{self.shape}, head size {self.head_size}, vocabulary {self.vocab:,}, {tying}"
        return [
            self.name,
            show_amount(self.params),
            f"{self.kv_bytes:,}",
            *(f"{ratio:.3g}" for ratio in ratios),
            Cell(f"outside {space}" if self.exclusions else space, "shape"),
            Cell(words, "shape"),
        ]


def decoder_row(decoder: Decoder) -> DecoderRow:
    """Return the facts of a decoder, what follows from them, and where its space stands to it."""
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
    return DecoderRow(
        **facts,
        **sizes,
        shape=shape_text(architecture),
        params=costs["params"],
        body_params=costs["body_params"],
        kv_bytes=costs["kv_bytes"],
        ffn_per_hidden=sizes["ffn"] / sizes["hidden"],
        ffn_per_attention=weights["ffn"] / weights["attention"],
        hidden_per_depth=sizes["hidden"] / sizes["depth"],
        space=None if space is None else space.name,
        exclusions=[] if space is None else exclusions(space, decoder.choices),
    )


@dataclass(frozen=True, repr=False, eq=False)
class DecodersReport(Shown):
    """Published decoders, with what follows from their shapes."""

    decoders: list[DecoderRow]

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.decoders]

    def lines(self) -> list[str]:
        if not self.decoders:
            return ["no published decoder is known of this space"]
        return [f"{len(self.decoders)} published decoders: {', '.join(row.name for row in self.decoders)}"]

    def sheets(self) -> list[Sheet]:
        if not self.decoders:
            return []
        numbers = ["params", "KV B/token", "FFN/d", "FFN/attn", "d/depth"]
        head: Row = ["", *numbers, Cell("space", "shape"), Cell("shape", "shape")]
        outside = [(row.name, ", ".join(row.exclusions)) for row in self.decoders if row.exclusions]
        sheets = [Sheet(head=head, rows=[row.cells() for row in self.decoders])]
        return sheets + ([pairs("Outside the defaults of the space", outside)] if outside else [])

    def rows(self) -> list[dict[str, Any]]:
        return self.to_json()
