"""Results that are their own JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from zerolm.api.report import Report


@dataclass(frozen=True, repr=False)
class DocumentReport(Report):
    """A result whose ``document`` is all there is to know: what ``--json`` of its command prints."""

    document: Mapping[str, Any]
    configuration: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any], configuration: Mapping[str, Any]) -> Self:
        """Return the report of a document, in the plain form that it has when it is read again."""
        return cls(json.loads(json.dumps(document)), configuration)

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        report = cls(document, configuration)
        report.lines()
        report.page()  # what it does not find is not there
        return report
