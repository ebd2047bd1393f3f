"""Settings and keys, what is drawn from a space, memory, and LIBRA's verdict."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn import architectures
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture
from zerolm.io.kept_rows import KeptRows
from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.candidates import Candidate, bytes_needed
from zerolm.lab.zero_cost.job import (
    LIBRARIES,
    Outcome,
    ProxyWork,
    _outcome,
    _row,
    compute,
    evaluate,
    kept_values,
)
from zerolm.lab.zero_cost.passes import NEEDS
from zerolm.lab.zero_cost.settings import Settings, random_source
from zerolm.networks.build import build
from zerolm.spaces import make_space

LLAMA = make_space("llama", vocab=64)
FEW = Settings(batch=4, length=8, parts=2)


def llama(**sizes: int) -> Architecture:
    usual = {"depth": 1, "hidden": 16, "head_size": 8, "heads": 2, "kv_heads": 1, "ffn": 24}
    return LLAMA.read(usual | sizes)


@given(st.integers(1, 200), st.integers(-3, 200))
def test_micro_batches_are_equal_or_the_nearest_is_named(batch: int, parts: int) -> None:
    possible = [k for k in range(1, batch + 1) if batch % k == 0]
    if parts in possible:
        assert Settings(batch=batch, parts=parts).parts == parts
        return
    with pytest.raises(ValueError, match="are not possible; ") as caught:
        Settings(batch=batch, parts=parts)
    nearest = int(str(caught.value).split("; ")[1].split()[0])
    assert nearest in possible
    assert abs(nearest - parts) == min(abs(k - parts) for k in possible)


def test_upstream_by_mode_and_task() -> None:
    for task in ("next", "masked", "image"):
        assert Settings().protocol(task).upstream == "task"
        assert Settings(upstream="ones").protocol(task).upstream == "ones"
        usual = Settings(mode="faithful").protocol(task).upstream
        assert usual == ("ones" if task == "masked" else "task")
        assert Settings(mode="faithful", upstream="task").protocol(task).upstream == "task"


def test_a_key_tells_apart_whatever_changes_a_value() -> None:
    source, ids = random_source(64), torch.arange(10)
    changes = ({"mask": 1}, {"classes": None}, {"ids": ids}, {"ids": ids.flip(0)})
    sources = [source, random_source(65), random_source(64, seed=1)]
    sources += [replace(source, **change) for change in changes]  # type: ignore[arg-type]
    passes = {"mode": "faithful", "upstream": "task", "batch": 8, "length": 9, "parts": 4, "seed": 1}
    keys = [FEW.key(each) for each in sources]
    keys += [replace(FEW, **{name: value}).key(source) for name, value in passes.items()]  # type: ignore[arg-type]
    assert len(set(keys)) == len(keys) == 13
    assert FEW.key(random_source(64)) == keys[0]
    assert all(json.loads(key) for key in keys)


def test_names_that_mean_the_same_are_one() -> None:
    for dtype in ("auto", "float32"):
        assert replace(FEW, dtype=dtype).key(random_source(64)) == FEW.key(random_source(64))
        assert replace(FEW, dtype=dtype).named == FEW


def test_products_in_bfloat16_are_stored_apart_and_nearly_the_same() -> None:
    """Within two per cent; ZiCo divides by how two micro-batches differ, and EZNAS counts signs."""
    candidates, source = [Candidate.of(llama(ffn=ffn), str(ffn)) for ffn in (24, 40)], random_source(64)
    settings = replace(FEW, batch=16, length=16)
    names = [name for name in proxy_names() if name != "eznas"]
    rows = KeptRows(None)
    evaluate(candidates, names, source, settings, rows=rows)
    half = evaluate(candidates, names, source, replace(settings, dtype="bfloat16"), rows=rows)
    again = evaluate(candidates, names, source, settings, rows=rows)
    assert half.values != again.values
    for name, values in again.values.items():
        near = 0.1 if name == "zico" else 0.02
        for row, ours in zip(values, half.values[name], strict=True):
            assert np.linalg.norm(np.subtract(row, ours)) <= near * np.linalg.norm(row), name


@given(architectures(max_depth=3), architectures(max_depth=3))
def test_candidates_are_the_same_where_the_networks_are(one: Architecture, other: Architecture) -> None:
    """Also where matrices differ by their names alone, by which networks are built."""
    identities = [Candidate.of(each, name).identity for each, name in ((one, "a"), (other, "b"))]
    names = [[matrix.name for layer in each.layers for matrix in layer.matrices] for each in (one, other)]
    assert (identities[0] == identities[1]) == (one == other and names[0] == names[1])


@given(
    st.sampled_from(["depth", "hidden", "ffn", "batch", "length"]),
    st.sets(st.sampled_from([*NEEDS.values()])),
)
def test_more_needs_more_memory(what: str, passes: set[str]) -> None:
    small = bytes_needed(llama(), passes, FEW)
    if what in ("batch", "length"):
        large = bytes_needed(llama(), passes, replace(FEW, **{what: 2 * getattr(FEW, what)}))
    else:
        sizes = {"depth": 2} if what == "depth" else {what: 48} | ({"heads": 6} if what == "hidden" else {})
        large = bytes_needed(llama(**sizes), passes, FEW)
    assert large > small >= 4 * build(llama()).params
    assert bytes_needed(llama(), passes, replace(FEW, parts=4)) <= small
    assert bytes_needed(llama(), passes | {"flow"}, FEW) >= small


def test_columns_are_what_the_proxies_compute() -> None:
    """One by one, in any order of candidates, with the sign by which higher is better."""
    networks = [llama(ffn=ffn) for ffn in (24, 32, 40)]
    candidates = [Candidate.of(each, f"n{i}") for i, each in enumerate(networks)]
    names = ["snip", "lpzero_gpt2", "az_nas", "snip"]
    source = random_source(64)
    rows = KeptRows(None)
    found = evaluate(candidates, names, source, FEW, rows=rows)
    backwards = evaluate(candidates[::-1], names, source, FEW, rows=rows)
    assert list(found.values) == ["snip", "lpzero_gpt2", "az_nas"]
    for name in found.columns:
        np.testing.assert_array_equal(found.columns[name], backwards.columns[name][::-1])
    for i, network in enumerate(map(build, networks)):
        batch = source.batch("next", 64, 4, 8, 0)
        for name, sign in (("snip", 1), ("lpzero_gpt2", -1)):
            (value,) = compute(network, [find_proxy(name)], batch, FEW.protocol("next"))[name].value
            assert found.columns[name][i] == sign * value
    assert {"az_nas", "az_expressivity"} <= set(found.columns)
    assert set(found.seconds) == set(found.columns)


def test_ranks_of_one_network_say_nothing() -> None:
    """AZ-NAS adds up ranks: of one network it is left out, its four terms are not."""
    rows = KeptRows(None)
    found = evaluate([Candidate.of(llama(), "one")], ["az_nas"], random_source(64), FEW, rows=rows)
    terms = {"az_expressivity", "az_progressivity", "az_trainability", "az_complexity"}
    assert set(found.columns) == set(found.seconds) == terms
    assert found.left_out == {"az_nas": "it adds up ranks, and one network has none: take several"}


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_another_version_of_a_library_computes_again(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"{library} 99"
    rows = KeptRows(None)
    for libraries in (LIBRARIES, other):
        monkeypatch.setattr("zerolm.lab.zero_cost.job.LIBRARIES", libraries)
        evaluate([Candidate.of(llama(), "one")], ["params"], random_source(64), FEW, rows=rows)
    assert len(rows.results) == 2
    assert f"{library} {import_module(library).__version__}" in LIBRARIES


def test_no_memory_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\n 20 GiB")

    monkeypatch.setattr("zerolm.lab.zero_cost.job.compute", out_of_memory)
    with pytest.raises(ValueError, match=r"^one: the passes do not fit into the memory"):
        evaluate([Candidate.of(llama(), "one")], ["snip"], random_source(64), FEW, rows=KeptRows(None))


@given(st.lists(st.lists(st.floats(), max_size=3), min_size=1, max_size=3))
def test_values_are_kept_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    """In a file that another run may append to; a line that was not written to its end is computed again."""
    file = tmp_path_factory.mktemp("kept") / "new" / "values.jsonl"
    rows, other = kept_values(file), kept_values(file)
    for number, value in enumerate(values):
        (rows if number % 2 else other).add({str(number): _row(Outcome(tuple(value), 0.5))})
    with file.open("a") as cut_short:
        cut_short.write('{"name": "late", "res')
    again = [_outcome(row) for _, row in sorted(kept_values(file).results.items())]
    assert repr(again) == repr([Outcome(tuple(value), 0.5) for value in values])


@pytest.mark.parametrize("make", [lambda f: f.write_text("a,b\n1,2\n"), Path.mkdir, os.mkfifo])
def test_another_file_is_no_store_and_is_left_alone(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "s")
    with pytest.raises(ValueError, match="/s' is no file of proxy values: name another with --store"):
        kept_values(tmp_path / "s")
    assert not (tmp_path / "s").is_file() or (tmp_path / "s").read_text() == "a,b\n1,2\n"


def test_each_network_is_computed_once_and_an_error_costs_nothing_that_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of equal networks the first is; only the proxies that the store lacks."""
    tasks, steps, rows = list[tuple[str, int]](), list[tuple[int, int]](), KeptRows(None)
    call = ProxyWork.__call__

    def counting(self: ProxyWork, task: Any) -> Any:
        tasks.append((task[0].name, len(task[1])))
        if task[0].name == "bad":
            raise ValueError("too wide")
        return call(self, task)

    def run(candidates: list[Candidate], *names: str) -> Any:
        report: Any = lambda text, done, of: steps.append((done, of))  # noqa: E731
        return evaluate(candidates, names, random_source(64), FEW, rows=rows, progress=report)

    monkeypatch.setattr(ProxyWork, "__call__", counting)
    widths = {"one": 24, "two": 32, "same": 24, "bad": 40}
    one, two, same, bad = (Candidate.of(llama(ffn=ffn), name) for name, ffn in widths.items())
    with pytest.raises(ValueError, match=r"^bad: too wide$"):
        run([one, bad, two], "params")
    measured = run([one, two, same], "params", "snip")
    assert tasks == [("one", 1), ("bad", 1), ("one", 1), ("two", 2)]
    assert steps == [(0, 3), (1, 3), (1, 3), (2, 3), (3, 3)]
    assert measured.values["snip"][0] == measured.values["snip"][2] != measured.values["snip"][1]
    assert run([two, same], "snip", "params").values["params"] == measured.values["params"][1:]
    assert len(tasks) == 4
