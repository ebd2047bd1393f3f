"""What every result of a command holds to: small to look at, the same when read again or run again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from zerolm.verbs import commands
from zerolm.verbs.report import Report


def timeless(document: dict[str, Any], differing: Collection[str] = ()) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in differing}


def check_report(
    report: Report, zerolm: Callable[..., Any], folder: Path, differing: Collection[str] = ()
) -> None:
    """Save it into a new folder, read it again, and run it again from the configuration in it.

    ``differing`` are the fields that another run gives otherwise, such as seconds.
    """
    assert len(repr(report)) <= 1500
    assert len(repr(report).splitlines()) <= 15
    assert len(report._repr_html_()) < 30_000
    report.save(folder)
    again = type(report).load(folder)
    assert again.to_json() == report.to_json()
    assert (again.run_yaml, repr(again)) == (report.run_yaml, repr(report))
    assert again.page() == (folder / "report.html").read_text("utf-8")
    assert set(report.configuration) <= {
        setting.name for setting in commands()[report.command].request.settings()
    }
    words = [*report.command.split(), "--config", str(folder / "run.yaml"), "--json"]
    ran = zerolm(*words)
    assert ran.status == 0, ran.err
    assert timeless(json.loads(ran.out), differing) == timeless(report.to_json(), differing)
