"""Settings and keys, what is drawn from a space, memory, and LIBRA's verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from drawn import architectures
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture
from zerolm.lab.zero_cost import find_proxy, proxy_names
from zerolm.lab.zero_cost.candidates import Candidate
from zerolm.lab.zero_cost.compute import compute
from zerolm.lab.zero_cost.job import LIBRARIES, evaluate
from zerolm.lab.zero_cost.memory import bytes_needed
from zerolm.lab.zero_cost.passes import NEEDS
from zerolm.lab.zero_cost.settings import Settings
from zerolm.lab.zero_cost.store import Store
from zerolm.networks.build import build
from zerolm.spaces import make_space
from zerolm.text.batches import random_source

LLAMA = make_space("llama", vocab=64)
FEW = Settings(batch=4, length=8, parts=2)


def llama(**sizes: int) -> Architecture:
    usual = {"depth": 1, "hidden": 16, "head_size": 8, "heads": 2, "kv_heads": 1, "ffn": 24}
    return LLAMA.read(usual | sizes)


@given(st.integers(-3, 200), st.integers(-3, 200))
def test_micro_batches_are_equal_or_the_nearest_is_named(batch: int, parts: int) -> None:
    possible = [k for k in range(1, batch + 1) if batch % k == 0]
    if parts in possible:
        assert Settings(batch=batch, parts=parts).parts == parts
        return
    with pytest.raises(ValueError, match="is empty" if batch < 1 else "are not possible; ") as caught:
        Settings(batch=batch, parts=parts)
    if batch > 0:
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
    source = random_source(64)
    ids = torch.arange(10)
    sources = [
        source,
        random_source(65),
        random_source(64, seed=1),
        replace(source, mask=1),
        replace(source, classes=None),
        replace(source, ids=ids),
        replace(source, ids=ids.flip(0)),
    ]
    settings = [
        FEW,
        replace(FEW, mode="faithful"),
        replace(FEW, upstream="task"),
        replace(FEW, batch=8),
        replace(FEW, length=9),
        replace(FEW, parts=4),
        replace(FEW, seed=1),
    ]
    keys = [FEW.key(each) for each in sources] + [each.key(source) for each in settings[1:]]
    assert len(set(keys)) == len(keys)
    assert FEW.key(random_source(64)) == keys[0]
    assert all(json.loads(key) for key in keys)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_names_that_mean_the_same_are_one(dtype: str) -> None:
    assert replace(FEW, dtype=dtype).key(random_source(64)) == FEW.key(random_source(64))
    assert replace(FEW, dtype=dtype).named == FEW


@pytest.mark.parametrize("name", ["cuda:7", "npu"])
def test_an_absent_device_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"there is no device '{name}' here; possible are cpu"):
        Settings(device=name)


def test_products_in_bfloat16_are_stored_apart_and_nearly_the_same() -> None:
    """Within two per cent; ZiCo divides by how two micro-batches differ, and EZNAS counts signs."""
    candidates, source = [Candidate.of(llama(ffn=ffn), str(ffn)) for ffn in (24, 40)], random_source(64)
    settings = replace(FEW, batch=16, length=16)
    names = [name for name in proxy_names() if name != "eznas"]
    with Store() as store:
        evaluate(candidates, names, source, settings, store=store)
        half = evaluate(candidates, names, source, replace(settings, dtype="bfloat16"), store=store)
        again = evaluate(candidates, names, source, settings, store=store)
    assert half.values != again.values
    for name, rows in again.values.items():
        near = 0.1 if name == "zico" else 0.02
        for row, ours in zip(rows, half.values[name], strict=True):
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
    with Store() as store:
        found = evaluate(candidates, names, source, FEW, store=store)
        backwards = evaluate(candidates[::-1], names, source, FEW, store=store)
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
    with Store() as store:
        found = evaluate([Candidate.of(llama(), "one")], ["az_nas"], random_source(64), FEW, store=store)
    terms = {"az_expressivity", "az_progressivity", "az_trainability", "az_complexity"}
    assert set(found.columns) == set(found.seconds) == terms
    assert found.left_out == {"az_nas": "it adds up ranks, and one network has none: take several"}


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_another_version_of_a_library_computes_again(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"{library} 99"
    with Store() as store:
        for libraries in (LIBRARIES, other):
            monkeypatch.setattr("zerolm.lab.zero_cost.job.LIBRARIES", libraries)
            evaluate([Candidate.of(llama(), "one")], ["params"], random_source(64), FEW, store=store)
        versions = [row[0] for row in store._database.execute("SELECT version FROM evaluations")]
    assert len(versions) == 2
    assert f"{library} {import_module(library).__version__}" in LIBRARIES


def test_no_memory_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate\n 20 GiB")

    monkeypatch.setattr("zerolm.lab.zero_cost.job.compute", out_of_memory)
    with (
        Store() as store,
        pytest.raises(ValueError, match=r"^one: the passes do not fit into the memory"),
    ):
        evaluate([Candidate.of(llama(), "one")], ["snip"], random_source(64), FEW, store=store)
