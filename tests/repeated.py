"""What every result of a command holds to: small to look at, the same when read again or run again."""

import json
import pickle
from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from zerolm.verbs.report import Report, Shown, load


def timeless(document: Any, differing: Collection[str] = ()) -> Any:
    """Return JSON without what no two runs share: seconds, and what differs."""
    if isinstance(document, dict):
        kept = document.keys() - {"seconds", *differing}
        return {name: timeless(document[name], differing) for name in kept}
    return [timeless(item, differing) for item in document] if isinstance(document, list) else document


def check_small(report: Shown) -> None:
    text, html = repr(report), report._repr_html_()
    assert 0 < len(text) <= 1500
    assert len(text.splitlines()) <= 15
    assert 0 < len(html) < 30_000
    assert "<script" not in html


def check_report(
    report: Report, zerolm: Callable[..., Any], folder: Path, differing: Collection[str] = ()
) -> None:
    """Save it into a new folder, read it again, and run it again from the configuration in it.

    ``differing`` are the fields that another run gives otherwise.
    """
    check_small(report)
    report.save(folder)
    with pytest.raises(ValueError, match="exists"):
        report.save(folder)
    again = load(folder)
    assert (type(again), repr(again)) == (type(report), repr(report))
    assert pickle.loads(pickle.dumps(report)) == report == again
    document = json.loads(json.dumps(report.to_json()))
    assert json.loads((folder / "result.json").read_text()) == document
    page = (folder / "report.html").read_text("utf-8")
    assert page.endswith("</html>\n")
    assert len(page) < 1_000_000
    if "{here}" not in page:  # what lies beside it is named by its place once it is loaded
        assert (again.run_yaml, again.page()) == (report.run_yaml, page)
    assert timeless(
        zerolm(*report.command.split(), "--config", str(folder / "run.yaml"), "--json").document, differing
    ) == timeless(document, differing)
    assert report.rows()
    if find_spec("pandas"):
        assert len(report.to_pandas()) == len(report.rows())
