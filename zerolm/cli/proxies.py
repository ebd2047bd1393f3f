"""``zerolm proxies``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from zerolm.api.extras import needing_torch
from zerolm.cli.progress import patient
from zerolm.cli.proxy_options import Chosen, Data, Metric, Store, listed
from zerolm.cli.tables import aligned
from zerolm.settings.units import parse_amount

TARGET = "A space, a benchmark (by name or file), a folder with a model; or `ls`, which lists the proxies."


def proxies(
    target: Annotated[str, typer.Argument(help=TARGET)],
    names: Chosen = None,
    text: Annotated[
        str, typer.Option(metavar="FILE|random", help="What tokens come from; random needs no data.")
    ] = "random",
    batch: Annotated[int, typer.Option(help="Sequences, or images.")] = 64,
    length: Annotated[int, typer.Option(help="Tokens of each.")] = 128,
    parts: Annotated[int, typer.Option("--micro-batches", help="Equal parts of the batch.")] = 8,
    mode: Annotated[
        str, typer.Option(help="sane: what papers mean, on a real loss; faithful: what code does.")
    ] = "sane",
    upstream: Annotated[
        str | None, typer.Option(help="What gradients come from: the task's loss (task), or ones.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, masks and samples.")] = 0,
    count: Annotated[int | None, typer.Option(help="Networks drawn from a space; else 20.")] = None,
    max_params: Annotated[
        str | None, typer.Option(metavar="N", help="Parameters of networks drawn from a space at most: 50M.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=2, help="Architectures of a benchmark at most, evenly spread.")
    ] = None,
    view: Annotated[str | None, typer.Option(help="Of flexibert: declared, published or trained.")] = None,
    metric: Metric = None,
    data: Data = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[int, typer.Option(help="Networks computed at the same time.")] = 1,
    backend: Annotated[str, typer.Option(help="loky: on this machine; ray: on a Ray cluster.")] = "loky",
    store: Store = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Training-free proxies of networks that run, all of them from a handful of shared passes.

    What is computed is stored at once: a second run reuses it, and a killed one goes on where it was.
    """
    with needing_torch():
        from zerolm.cli import proxies_shown
        from zerolm.proxies.measure import Request, Selection, measure
    if target == "ls":
        listing(json_output)
        return
    results = measure(
        target,
        Request(
            names=None if names is None else listed(names),
            text=text,
            settings={
                "mode": mode,
                "upstream": upstream,
                "batch": batch,
                "length": length,
                "parts": parts,
                "seed": seed,
                "device": device,
            },
            networks=Selection(
                count=count,
                max_params=None if max_params is None else parse_amount("max_params", max_params),
                limit=limit,
                view=view,
                metric=metric,
                data=data,
            ),
            jobs=jobs,
            backend=backend,
            store=store,
        ),
        progress=patient(),
    )
    if json_output:
        print(json.dumps(results.to_json(), allow_nan=False))
    else:
        proxies_shown.show(results)


def listing(json_output: bool) -> None:
    """All proxies: what they need, and where they come from."""
    from zerolm.proxies import find_proxy, proxy_names

    every = [find_proxy(name) for name in proxy_names()]
    if json_output:
        rows = [{"name": p.name, "needs": list(p.needs), "sign": p.sign, "source": p.source} for p in every]
        print(json.dumps({"proxies": rows}))
        return
    cells = [(p.name, ", ".join(p.needs) or "-", "higher" if p.sign > 0 else "lower") for p in every]
    sources = ["source", *(p.source for p in every)]
    for line, source in zip(aligned([("proxy", "needs", "better"), *cells]), sources, strict=True):
        print(f"{line}  {source}")
