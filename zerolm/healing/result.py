"""The result of a healing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, get_type_hints

from zerolm.carving.result import read_fields

NAME_FIELDS: Final = ("family", "child", "parent", "teacher", "format")
"""The fields of ``names`` of a child that was written."""


@dataclass(frozen=True, eq=False)
class Healed:
    """The outcome of a healing: the losses on held-out text ``before``, ``after`` and of the ``parent``.

    They are ``perplexity`` and ``kl`` to the parent in nats a token, or ``cosine``; ``curve`` has them by
    ``tokens``. ``texts`` say what was trained on, ``training`` how; ``verified`` how far the written child
    differs from the trained network.
    """

    names: dict[str, str]
    texts: list[dict[str, Any]]
    training: dict[str, Any]
    losses: dict[str, dict[str, float]]
    curve: list[dict[str, float]]
    note: str = ""
    verified: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object."""
        fields = asdict(self)
        return {**fields.pop("names"), **fields}

    @classmethod
    def from_json(cls, document: Any) -> Healed:
        """Return the result that ``to_json`` gave; ``ValueError`` names the first field that is wrong."""
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name != "names"}
        fields = read_fields(dict.fromkeys(NAME_FIELDS, str) | kinds, document)
        return cls({name: fields.pop(name) for name in NAME_FIELDS}, **fields)
