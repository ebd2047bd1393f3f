"""``zerolm families``: the families of models that are known, or one of them: what of it is read and cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zerolm.io.plain import as_plain
from zerolm.progress import Progress, silent
from zerolm.settings import check_known, shown
from zerolm.settings.request import Request, argument
from zerolm.show.sheet import Cell, Row, Sheet, pairs
from zerolm.verbs.report import Listing, Shown

if TYPE_CHECKING:
    from zerolm.diagnosis.runtimes import Runtime
    from zerolm.families.family import Family

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

        by_name = families()
        others = {name: reason for name, reason in refused().items() if name not in by_name}
        if self.family is None:
            return FamiliesReport([family_row(family) for family in by_name.values()], others)
        if self.family in others:
            raise ValueError(f"family {shown(self.family)} is refused: {others[self.family]}")
        check_known("family", self.family, by_name)
        return FamilyReport(by_name[self.family])


def family_row(family: Family) -> dict[str, Any]:
    """Return the entry of a family: its ``task``, the kinds of ``cuts`` that it takes, whether as ``gguf``.

    ``types``: the matrices of a GGUF file may have types of their own. ``experts``: it is an MoE, or may be
    one, whose experts can be pruned. ``counted``: its tensors are described. ``note`` says what of heads, and
    ``hidden_note`` why the stream cannot be narrowed; it is empty where it can.
    """
    return {
        "name": family.name,
        "task": family.task,
        "counted": bool(family.tensors.body),
        "cuts": [kind for kind in KINDS if getattr(family.cut, kind)],
        "gguf": family.gguf is not None,
        "types": family.gguf is not None,
        "experts": family.has_experts,
        "note": family.cut.note,
        "hidden_note": "" if family.cut.hidden else family.cut.hidden_note,
    }


@dataclass(frozen=True, repr=False, eq=False)
class FamiliesReport(Listing):
    """The families; each has ``name``, ``task``, ``cuts``, whether there is ``gguf``, and notes.

    ``refused`` has the reason of each type that is refused by name; it is no part of the JSON.
    """

    things: ClassVar[str] = "families"
    refused: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        refused = f"refused, and `zerolm families NAME` says why: {', '.join(self.refused)}"
        return [
            *super().lines(),
            *([refused] if self.refused else []),
            f"tokenizers written as GGUF: {tokenizers()}",
        ]

    def sheets(self) -> list[Sheet]:
        head: Row = ["family", *KINDS, "experts", "gguf", "types", Cell("note", "shape")]
        rows: list[Row] = []
        for entry in self.entries:
            has = [
                *(kind in entry["cuts"] for kind in KINDS),
                *(entry[name] for name in ("experts", "gguf", "types")),
            ]
            marks = ["yes" if one else "-" for one in has]
            rows.append([entry["name"], *marks, Cell(entry["note"], "shape")])
        return [Sheet(head=head, rows=rows)]


def tokenizers() -> str:
    """Return the kinds of tokenizers that a GGUF child can have."""
    from zerolm.checkpoints.gguf.words import WORDS

    names = ", ".join(words.name for words in WORDS)
    return f"byte-level BPE with the words of {names}; SentencePiece's BPE with bytes; WordPiece"


@dataclass(frozen=True, repr=False, eq=False)
class FamilyReport(Shown):
    """One family: the fields of its configuration, its tensors with roles and axes, its cuts and refusals."""

    family: Family

    def to_json(self) -> dict[str, Any]:
        family = self.family
        config = as_plain(family.config)
        return {
            **family_row(family),
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
        cut = f"can be cut in {', '.join(row['cuts'])}" if row["cuts"] else "cannot be cut"
        return [f"{row['name']}: {', '.join(self.family.head_classes)}", f"it {cut}"]

    def sheets(self) -> list[Sheet]:
        family = self.family
        sizes: list[Row] = [
            [
                label,
                size.field or "-",
                "needed" if size.default is None else str(size.default),
                ", ".join(size.also),
            ]
            for label, size in family.config.sizes.items()
        ]
        tensors: list[Row] = [
            [one.role, " x ".join(one.axes), one.when, Cell(one.name, "shape")]
            for one in (*family.tensors.body, *family.tensors.head)
        ]
        others = _given({**as_plain(family.config), "sizes": None, "only": None})
        fields = [(name, json.dumps(value)) for name, value in others.items()]
        fields += [(name, f"only {json.dumps(value)} is read") for name, value in family.config.only.items()]
        more = Sheet("Tensors", ["role", "axes", "there", Cell("name", "shape")], tensors)
        return [
            pairs("Cuts", self._cuts()),
            Sheet("Sizes", ["size", "field", "default", "also called"], sizes),
            pairs("Other fields", fields),
            *([more] if tensors else []),
            pairs("Runtimes", self._listed()),
        ]

    def rows(self) -> list[dict[str, Any]]:
        tensors = self.family.tensors
        return [as_plain(pattern) for pattern in (*tensors.body, *tensors.head)]

    def _cuts(self) -> list[tuple[str, str]]:
        """Return the kinds of units, each with whether it can be cut, or why not."""
        row, cut = family_row(self.family), self.family.cut
        cuts = row["cuts"]
        reasons = {"hidden": cut.hidden_note} if row["counted"] else {}
        rows = [(kind, "yes" if kind in cuts else f"no: {reasons.get(kind, cut.note)}") for kind in KINDS]
        kept = {"kept": "need not divide the hidden size", "refused": "must divide the hidden size"}
        heads = kept.get(cut.indivisible, f"that do not divide the hidden size make it a {cut.indivisible}")
        gguf = self.family.gguf
        return [
            *rows,
            *([("heads that are left", heads)] if "heads" in cuts else []),
            *([("note", cut.note)] if "heads" in cuts else []),
            ("gguf", f"as {gguf.architecture}" if gguf else "no"),
            ("types", "yes" if row["types"] else "no"),
        ]

    def _listed(self) -> list[tuple[str, str]]:
        """The classes that each runtime lists of the family, and its version."""
        each = ((runtime, runtime.of_family(self.family)) for runtime in _runtimes())
        return [
            (runtime.name, f"{', '.join(names) or 'not listed'} ({runtime.dated})") for runtime, names in each
        ]


def _runtimes() -> list[Runtime]:
    from zerolm.diagnosis.runtimes import RUNTIMES

    return list(RUNTIMES.values())


def _given(value: Any) -> Any:
    """Return a document without its empty entries."""
    if not isinstance(value, dict):
        return [_given(item) for item in value] if isinstance(value, list) else value
    return {name: _given(item) for name, item in value.items() if item not in (None, [], {})}
