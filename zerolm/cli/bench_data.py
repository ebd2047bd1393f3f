"""``zerolm bench ls`` and ``zerolm bench download``."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from zerolm.cli.progress import patient
from zerolm.groundtruth.cache import cache_folder
from zerolm.groundtruth.download.benchmarks import download as fetch
from zerolm.groundtruth.listing import Listed, listing
from zerolm.groundtruth.sources import SOURCES


def ls(
    data: Annotated[str | None, typer.Option(help="Only this folder of benchmark files.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the benchmarks at hand, in the folder of ZEROLM_DATA and in the cache, and those to download."""
    rows = listing(data)
    if json_output:
        print(json.dumps([row.to_json() for row in rows]))
        return
    for row in rows:
        print(_line(row))


def download(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(SOURCES)}; all if none is named.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also what is there and up to date.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """Fetch published benchmarks from GitHub, check and convert them, and store them in the cache.

    The cache is the folder benchmarks below ZEROLM_CACHE, else zerolm/benchmarks below XDG_CACHE_HOME or
    ~/.cache. ZEROLM_MIRROR=URL names a server to ask, for the same paths, in place of
    raw.githubusercontent.com and codeload.github.com; checksums hold for it too.
    """
    stored = fetch(names or (), force=force, progress=patient())
    for row in stored:
        if not row.fetched:
            print(f"zerolm: {row.name} is already there", file=sys.stderr)
    folder = os.environ.get("ZEROLM_DATA")
    if folder:
        print(
            f"zerolm: ZEROLM_DATA is set, so names stand for files in {folder!r}; unset it, or give "
            f"--data {str(cache_folder())!r}",
            file=sys.stderr,
        )
    if json_output:
        print(json.dumps([row.to_json() for row in stored]))
        return
    for row in stored:
        print(f"{row.name:<21} {row.licence:<11} {row.path}")


def _line(row: Listed) -> str:
    if row.problem:
        return f"{row.name:<21} {row.problem}"
    where = row.path or f"zerolm bench download {row.name}"
    start = f"{row.name:<21} {row.space:<15} {row.count:>5}  {row.licence or '-':<11}"
    return f"{start} {where}\n{'':<21} {', '.join(row.metrics)}"
