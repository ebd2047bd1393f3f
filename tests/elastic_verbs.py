"""The verbs on a small supernet: trained, searched, handed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from small_supernets import SIZES, text_in

import zerolm

if TYPE_CHECKING:
    from zerolm.lab.verbs.elastic_export import PathReport
    from zerolm.lab.verbs.elastic_search_report import SupernetSearchReport
    from zerolm.lab.verbs.elastic_train import SupernetReport

SHAPE: dict[str, Any] = {name: value for name, value in SIZES.items() if name != "vocab"}
RUN: dict[str, Any] = {"batch": 4, "length": 16, "rate": 3e-3}


def train(folder: Path, name: str = "elastic", out: str = "net", **more: Any) -> SupernetReport:
    text = folder / "text.txt"
    source = {"text": text if text.exists() else text_in(folder), "tokens": 24 * 64, "words": 300}
    return zerolm.lab.elastic.train(name, folder / out, epochs=3, **{**source, **RUN, **SHAPE, **more})


def search(folder: Path, **more: Any) -> SupernetSearchReport:
    return zerolm.lab.elastic.search(folder / "net", **{"generations": 2, "population": 6, "top": 4, **more})


def path_in(folder: Path, report: SupernetSearchReport) -> Path:
    file = folder / "path.json"
    file.write_text(json.dumps(report.to_json()["pick"]))
    return file


def export(folder: Path, out: str = "model", **more: Any) -> PathReport:
    return zerolm.lab.elastic.export(
        folder / "net", folder / out, path=path_in(folder, search(folder)), **more
    )
