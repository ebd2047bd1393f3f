"""``zerolm ledger``: energies are those of the weights, and a second run reads nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Zerolm
from repeated import check_report
from safetensors.numpy import load_file, save_file
from tiny import saved

import zerolm as package
from zerolm.units.energies import strongest_share
from zerolm.verbs.ledger import Watch
from zerolm.verbs.ledger_report import LedgerReport


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "ledgers"


def found(zerolm: Zerolm, folder: Path, *flags: str) -> dict[str, Any]:
    ran = zerolm("ledger", str(folder), "--json", *flags)
    assert ran.status == 0, ran.err
    return json.loads(ran.out)  # type: ignore[no-any-return]


def test_energies_are_those_of_the_weights(zerolm: Zerolm, tmp_path: Path) -> None:
    """Against plain numpy, for a model with grouped queries."""
    folder = saved(tmp_path / "model", "llama")
    weights = {name: w.astype(np.float64) for name, w in load_file(folder / "model.safetensors").items()}
    ledger = found(zerolm, folder)
    assert len(ledger["layers"]) == 3
    for layer in ledger["layers"]:
        prefix = f"model.layers.{layer['layer']}."
        attention = [weights[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkvo"]
        ffn = [weights[f"{prefix}mlp.{part}_proj.weight"] for part in ("gate", "up", "down")]
        for part, matrices in (("attention", attention), ("ffn", ffn)):
            values = np.concatenate([matrix.ravel() for matrix in matrices])
            assert layer[part]["weights"] == values.size
            assert layer[part]["energy"] == pytest.approx((values**2).sum())
            assert layer[part]["mean_square"] == pytest.approx((values**2).mean())
            assert layer[part]["largest"] == pytest.approx(np.abs(values).max())
        neurons = (ffn[0] ** 2).sum(1) + (ffn[1] ** 2).sum(1) + (ffn[2] ** 2).sum(0)
        half = np.sort(neurons)[len(neurons) // 2 :].sum() / neurons.sum()
        assert layer["ffn"]["strongest_half"] == pytest.approx(half)
        q, k, v, o = (matrix**2 for matrix in attention)
        rows = q.reshape(2, -1).sum(1) + k.reshape(2, -1).sum(1) + v.reshape(2, -1).sum(1)
        groups = rows + o.T.reshape(2, -1).sum(1)
        assert layer["attention"]["strongest_group"] == pytest.approx(groups.max() / groups.sum())
    whole = sum(float((matrix**2).sum()) for matrix in weights.values())
    assert ledger["total"]["all"]["energy"] == pytest.approx(whole)
    for part in ("attention", "ffn"):
        assert ledger["total"][part]["energy"] == pytest.approx(
            sum(layer[part]["energy"] for layer in ledger["layers"])
        )


@pytest.mark.parametrize("name", ["gpt2", "bert", "qwen3", "gemma2", "mistral"])
def test_every_family_has_one(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    """The attention of gpt2 is one fused matrix and counts all the same."""
    folder = saved(tmp_path / "model", name)
    weights = load_file(folder / "model.safetensors")
    ours = [w for n, w in weights.items() if w.ndim == 2 and (".0.attn." in n or ".layer.0.attention." in n)]
    ours += [w for n, w in weights.items() if w.ndim == 2 and ".0.self_attn." in n]
    first = found(zerolm, folder)["layers"][0]["attention"]
    assert first["energy"] == pytest.approx(sum(float((w.astype(float) ** 2).sum()) for w in ours))


def test_the_second_time_it_is_kept(zerolm: Zerolm, tmp_path: Path, cache: Path) -> None:
    folder = saved(tmp_path / "model", "llama", shard="20KB")
    first, second = found(zerolm, folder), found(zerolm, folder)
    assert (first.pop("from_cache"), second.pop("from_cache")) == (False, True)
    assert first.pop("seconds") >= 0 <= second.pop("seconds")
    assert first == second
    assert Path(first["kept"]) == cache
    assert len(list(cache.iterdir())) == len(list(folder.glob("*.safetensors"))) > 1


def test_an_edit_that_header_size_and_time_hide_is_seen(zerolm: Zerolm, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "llama")
    file = folder / "model.safetensors"
    before = found(zerolm, folder, "--verify")
    state = file.stat()
    weights = load_file(file)
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"] * 2
    save_file(weights, file, metadata={"format": "pt"})
    assert file.stat().st_size == state.st_size
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    again = found(zerolm, folder)
    assert not again["from_cache"]
    assert again["layers"][0]["ffn"]["energy"] > before["layers"][0]["ffn"]["energy"]
    assert found(zerolm, folder)["from_cache"]
    assert [found(zerolm, folder, "--verify")["from_cache"] for _ in range(2)] == [False, True]


def test_the_table_has_a_line_for_each_layer(zerolm: Zerolm, tmp_path: Path, cache: Path) -> None:
    ran = zerolm("ledger", str(saved(tmp_path / "model", "bert")))
    assert ran.status == 0
    lines = ran.out.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("layer "))
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == ["0", "1", "2", "all"]
    assert "one pass over the files" in ran.out
    assert str(cache) in lines[-1]


def test_progress_tells_bytes_and_passes_are_counted() -> None:
    told: list[tuple[Any, ...]] = []
    watch = Watch(1, lambda *step: told.append(step))
    watch.step("reading the weights", 5, 10)
    watch.step("reading the weights", 10, 10)
    assert (told[-1], watch.passes) == (("reading the weights", 10, 10), 1)
    cached = Watch(1, lambda *step: told.append(step))
    cached.step("reading the weights", 5, 5)
    assert cached.passes == 0


def test_no_energy_has_no_share() -> None:
    assert strongest_share(np.zeros(4), 2) is None
    assert strongest_share(np.array([1.0, 3.0]), 1) == 0.75


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_it_saves_loads_and_repeats(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    report = package.ledger(saved(tmp_path / "model", name))
    assert repr(report).startswith(f"{name} of 3 layers")
    check_report(report, zerolm, tmp_path / "out", ("seconds", "from_cache"))
    document = report.to_json()
    del document["layers"][1]["ffn"]["strongest_half"]
    with pytest.raises(ValueError, match=r"layers.*strongest_half"):
        LedgerReport.from_json(document)
    rows, total = report.rows(), report.total
    assert [row["layer"] for row in rows] == [0, 1, 2]
    sums = [sum(row[f"{part}_energy"] for row in rows) for part in ("attention", "ffn")]
    assert sums == pytest.approx([total.attention.energy, total.ffn.energy])
