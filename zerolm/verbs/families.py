"""``zerolm families``: the families of models that are known, or one of them: what of it is read and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.io.plain import as_plain
from zerolm.progress import Progress, silent
from zerolm.settings import shown
from zerolm.settings.request import Request, argument
from zerolm.show.sheet import Cell, Row, Sheet, pairs
from zerolm.verbs.report import Shown

if TYPE_CHECKING:
    from zerolm.diagnosis.runtimes import Runtime
    from zerolm.families.family import Family, Field, Pattern

KINDS: Final = ("layers", "heads", "ffn", "hidden")


@dataclass(frozen=True, kw_only=True)
class FamiliesSettings(Request):
    """Return the families of models that are known, those of your own too, or one of them.

    Raises ``ValueError`` for a family that is not known.
    """

    name: ClassVar[str] = "families"
    writes_no_result = True
    takes_progress = False
    examples = (
        ("zerolm families", "all families, and what can be cut of each"),
        ("zerolm families qwen3", "the fields and tensors of one, its cuts, and why others are refused"),
        ("zerolm families qwen3 --json", "the same for machines"),
    )
    notes = (
        "A family is a JSON document without code. Put your own in the folder ZEROLM_FAMILIES, or in a "
        'plug-in. With "like": "llama" a document lists only its differences from another.'
    )
    family: str | None = argument(
        "text", None, "family to show, by its `model_type`", name="name", metavar="FAMILY"
    )

    def run(self, progress: Progress = silent) -> FamiliesReport | FamilyReport:
        from zerolm.families.known import families, refused
        from zerolm.settings import nearest

        by_name = families()
        others = {name: reason for name, reason in refused().items() if name not in by_name}
        if self.family is None:
            return FamiliesReport([family_row(family) for family in by_name.values()], others)
        if self.family in others:
            raise ValueError(f"family {shown(self.family)} is refused: {others[self.family]}")
        if self.family not in by_name:
            raise ValueError(f"family {shown(self.family)} is not known{nearest(self.family, by_name)}")
        return FamilyReport(by_name[self.family])


@dataclass(frozen=True)
class FamilyRow:
    """A family: its ``task``, the kinds of ``cuts`` that it takes, and whether it is written as ``gguf``.

    ``types``: the matrices of a GGUF file may have types of their own. ``experts``: it is an MoE, or may be
    one, whose experts can be pruned.

    ``counted``: its tensors are described. ``note`` says what of heads, and ``hidden_note`` why the stream
    cannot be narrowed; it is empty where it can.
    """

    name: str
    task: str
    counted: bool
    cuts: list[str]
    gguf: bool
    types: bool
    experts: bool
    note: str
    hidden_note: str


def family_row(family: Family) -> FamilyRow:
    """Return the row of a family in the list."""
    return FamilyRow(
        family.name,
        family.task,
        bool(family.tensors.body),
        [kind for kind in KINDS if getattr(family.cut, kind)],
        family.gguf is not None,
        family.gguf is not None,
        family.has_experts,
        family.cut.note,
        "" if family.cut.hidden else family.cut.hidden_note,
    )


@dataclass(frozen=True, repr=False, eq=False)
class FamiliesReport(Shown):
    """The families; each has ``name``, ``task``, ``cuts``, whether there is ``gguf``, and notes.

    ``refused`` has the reason of each type that is refused by name; it is no part of the JSON.
    """

    families: list[FamilyRow]
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.families]

    def lines(self) -> list[str]:
        names = ", ".join(row.name for row in self.families)
        refused = f"refused, and `zerolm families NAME` says why: {', '.join(self.refused)}"
        lines = [f"{len(self.families)} families: {names}", *([refused] if self.refused else [])]
        return [*lines, f"tokenizers written as GGUF: {tokenizers()}"]

    def sheets(self) -> list[Sheet]:
        head: Row = ["family", *KINDS, "experts", "gguf", "types", Cell("note", "shape")]
        return [Sheet(head=head, rows=[_cells(row) for row in self.families])]

    def rows(self) -> list[dict[str, Any]]:
        return [{**asdict(row), "cuts": ", ".join(row.cuts)} for row in self.families]


def tokenizers() -> str:
    """Return the kinds of tokenizers that a GGUF child can have."""
    from zerolm.checkpoints.gguf.words import WORDS

    names = ", ".join(words.name for words in WORDS)
    return f"byte-level BPE with the words of {names}; SentencePiece's BPE with bytes; WordPiece"


def _cells(row: FamilyRow) -> Row:
    marks = ["yes" if kind in row.cuts else "-" for kind in KINDS]
    marks += ["yes" if can else "-" for can in (row.experts, row.gguf, row.types)]
    return [row.name, *marks, Cell(row.note, "shape")]


@dataclass(frozen=True, repr=False, eq=False)
class FamilyReport(Shown):
    """One family: the fields of its configuration, its tensors with roles and axes, its cuts and refusals."""

    family: Family

    def to_json(self) -> dict[str, Any]:
        family = self.family
        config = as_plain(family.config)
        return {
            **asdict(family_row(family)),
            "norm": family.norm,
            "head_classes": list(family.head_classes),
            "config": config,
            "tensors": self.rows(),
            "runtimes": {
                runtime.name: {"lists": runtime.of_family(family), **asdict(runtime.source)}
                for runtime in _runtimes()
            },
        }

    def lines(self) -> list[str]:
        row = family_row(self.family)
        cut = f"can be cut in {', '.join(row.cuts)}" if row.cuts else "cannot be cut"
        return [f"{row.name}: {', '.join(self.family.head_classes)}", f"it {cut}"]

    def sheets(self) -> list[Sheet]:
        family = self.family
        sizes: list[Row] = [
            [label, size.field or "-", _default(size), ", ".join(size.also)]
            for label, size in family.config.sizes.items()
        ]
        tensors: list[Row] = [
            [one.role, " x ".join(one.axes), _condition(one), Cell(one.name, "shape")]
            for one in (*family.tensors.body, *family.tensors.head)
        ]
        more = Sheet("Tensors", ["role", "axes", "there", Cell("name", "shape")], tensors)
        return [
            pairs("Cuts", self._cuts()),
            Sheet("Sizes", ["size", "field", "default", "also called"], sizes),
            pairs("Other fields", self._fields()),
            *([more] if tensors else []),
            pairs("Runtimes", self._listed()),
        ]

    def rows(self) -> list[dict[str, Any]]:
        tensors = self.family.tensors
        return [as_plain(pattern) for pattern in (*tensors.body, *tensors.head)]

    def _cuts(self) -> list[tuple[str, str]]:
        """Return the kinds of units, each with whether it can be cut, or why not."""
        row, cut = family_row(self.family), self.family.cut
        reasons = {"hidden": cut.hidden_note} if row.counted else {}
        rows = [(kind, "yes" if kind in row.cuts else f"no: {reasons.get(kind, cut.note)}") for kind in KINDS]
        kept = {"kept": "need not divide the hidden size", "refused": "must divide the hidden size"}
        heads = kept.get(cut.indivisible, f"that do not divide the hidden size make it a {cut.indivisible}")
        gguf = self.family.gguf
        return [
            *rows,
            *([("heads that are left", heads)] if "heads" in row.cuts else []),
            *([("note", cut.note)] if "heads" in row.cuts else []),
            ("gguf", f"as {gguf.architecture}" if gguf else "no"),
            ("types", "yes" if row.types else "no"),
        ]

    def _fields(self) -> list[tuple[str, str]]:
        """Return the further fields of the configuration that are read."""
        config, window = self.family.config, self.family.config.window
        rows = [("tied head", f"{config.tied.field or 'always'}, {_json(config.tied.default)} by default")]
        rows += [(f"flag {name}", f"{_json(value)} by default") for name, value in config.flags.items()]
        if window:
            rows.append(("window", f"{window.size.field}, {_json(window.size.default)} by default"))
        rows += [(f"one value a layer: {name}", "is cut with the layers") for name in config.per_layer]
        return rows + [(name, f"only {_json(value)} is read") for name, value in config.only.items()]

    def _listed(self) -> list[tuple[str, str]]:
        """The classes that each runtime lists of the family, and its version."""
        each = ((runtime, runtime.of_family(self.family)) for runtime in _runtimes())
        return [
            (runtime.name, f"{', '.join(names) or 'not listed'} ({runtime.dated})") for runtime, names in each
        ]


def _runtimes() -> list[Runtime]:
    from zerolm.diagnosis.runtimes import RUNTIMES

    return list(RUNTIMES.values())


def _default(size: Field) -> str:
    """Return the value of a size where its field is absent, and where it is null if that differs."""
    null = "" if size.null in (None, size.default) else f", {size.null} for null"
    return f"{'needed' if size.default is None else size.default}{null}"


def _condition(pattern: Pattern) -> str:
    """Return when a tensor must be there."""
    words = {"always": "", "head": "with a head", "untied": "with a head of its own", "optional": "perhaps"}
    return words.get(pattern.when, f"if {pattern.when}")


def _json(value: object) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, str(value))  # type: ignore[call-overload, no-any-return]
