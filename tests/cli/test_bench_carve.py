"""``zerolm bench carve``: what carving takes here, foretold and measured, of a model and of a shape alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import saved

import zerolm as package
from zerolm.checkpoints import Checkpoint
from zerolm.networks.random_weights import random_checkpoint
from zerolm.verbs.bench_carve import CarvingTimes, show_seconds

Zerolm = Callable[..., Any]
FEW = ("--sequences", "4", "--length", "8")
COMMANDS = 5
BY_PRICES = (
    *("files and planning", "scoring units", "Fisher information", "predicting cuts"),
    *("measuring the best plans", "repair", "losses"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny model, another with its shape alone, and one for what is temporary."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    saved(tmp_path / "model", "qwen2_tied", dtype="bfloat16")
    (tmp_path / "shape").mkdir()
    (tmp_path / "shape" / "config.json").write_bytes((tmp_path / "model" / "config.json").read_bytes())
    return tmp_path


def left_over(place: Path) -> list[str]:
    return [file.name for file in (place / "temporary").iterdir()]


def test_what_is_foretold_adds_up(zerolm: Zerolm, place: Path) -> None:
    ran = zerolm("bench", "carve", "model", *FEW, "--out", "times")
    assert ran.status == 0, ran.err
    report: CarvingTimes = package.load("times")
    without, by_prices, more, measured, _ = report.commands
    assert len(report.commands) == COMMANDS
    assert [part.part for part in without.parts] == ["files and planning"]
    assert [part.part for part in by_prices.parts] == list(BY_PRICES)
    assert "measuring cuts" in [part.part for part in measured.parts]
    assert (without.tokens, by_prices.tokens, more.tokens) == (0, 32, 128)
    for command in report.commands:
        assert all(part.foretold >= 0 and part.measured is None for part in command.parts)
        assert command.seconds == pytest.approx(sum(part.foretold for part in command.parts))
        assert show_seconds(command.seconds) in ran.out
    assert more.seconds > by_prices.seconds > without.seconds
    assert report.documented in ran.out
    assert report.documented.count("|") == COMMANDS + 2
    assert report.machine.processor in ran.out
    assert report.machine.versions.keys() == {"zerolm", "torch", "transformers"}
    assert CarvingTimes.from_json(json.loads(json.dumps(report.to_json()))) == report
    assert not report.drawn
    assert not left_over(place)


def test_a_shape_alone_is_enough_and_carved_too(zerolm: Zerolm, place: Path) -> None:
    ran = zerolm("bench", "carve", "shape", *FEW, "--run", "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    report = CarvingTimes.from_json(document)
    assert report.to_json() == document
    assert report.drawn
    assert report.weights == sum(tensor.count for tensor in Checkpoint.open(place / "model").tensors.values())
    assert report.bytes == 2 * report.weights
    carved = report.carved
    assert carved is not None
    assert [part.part for part in carved.parts] == list(BY_PRICES)
    quick = "measuring the best plans"  # where all finalists are one plan
    assert not [part for part in carved.parts if not part.measured and part.part != quick]
    assert all(part.processor is not None for part in carved.parts)
    assert carved.measured == pytest.approx(sum(part.measured or 0.0 for part in carved.parts))
    assert carved.seconds == pytest.approx(report.commands[1].seconds)
    assert carved.peak_memory is None or carved.peak_memory > 1 << 20
    assert carved.device_memory is None
    assert len(report.rows()) == sum(len(command.parts) for command in (*report.commands, carved))
    assert not left_over(place)
    assert not (place / "cache").exists() or not list((place / "cache").glob("importances/*"))
    assert "qwen2 of 3 layers, hidden 48" in repr(report)
    assert carved.command in report.page()


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "qwen3"])
def test_every_family_of_decoders(name: str, zerolm: Zerolm, place: Path) -> None:
    saved(place / name, name)
    (place / name / "model.safetensors").unlink()
    ran = zerolm("bench", "carve", name, *FEW, "--json")
    assert ran.status == 0, ran.err
    parts = {part["part"] for part in json.loads(ran.out)["commands"][1]["parts"]}
    assert parts >= {"files and planning", "scoring units", "predicting cuts", "repair", "losses"}


def test_random_weights_are_those_of_the_shape(place: Path) -> None:
    (place / "drawn").mkdir()
    drawn, stored = random_checkpoint(place / "shape", place / "drawn"), Checkpoint.open(place / "model")
    shapes = [
        {name: (info.shape, info.dtype) for name, info in each.tensors.items()} for each in (drawn, stored)
    ]
    assert shapes[0] == shapes[1]
    weights = drawn.read("model.layers.0.mlp.up_proj.weight")
    assert 0.018 < weights.std() < 0.022
    assert (drawn.read("model.norm.weight") == 1).all()
    assert not drawn.read("model.layers.0.self_attn.q_proj.bias").any()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nowhere",), "there is no folder 'nowhere'"),
        (("empty",), "there is no such file"),
        (("encoder",), "a bert is no decoder"),
        (("encoder_shape",), "a bert is no decoder"),
        (("strange",), "model_type 'strange' is not known"),
        (("shape", "--device", "tpu"), "there is no device 'tpu' here"),
        (("shape", "--sequences", "1000000", "--length", "1000"), "tokens cannot be"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], reason: str, zerolm: Zerolm, place: Path) -> None:
    (place / "empty").mkdir()
    saved(place / "encoder", "bert")
    for name, content in (
        ("encoder_shape", (place / "encoder" / "config.json").read_text()),
        ("strange", json.dumps({"model_type": "strange"})),
    ):
        (place / name).mkdir()
        (place / name / "config.json").write_text(content)
    ran = zerolm("bench", "carve", *words)
    assert (ran.status, ran.out) == (2, "")
    assert reason in ran.err.splitlines()[-1]
    assert ran.err.startswith("zerolm: ")
    assert not left_over(place)


def test_too_little_disk_is_one_line(zerolm: Zerolm, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        free = 1000

    monkeypatch.setattr("zerolm.networks.random_weights.disk_usage", lambda folder: Full)
    ran = zerolm("bench", "carve", "shape", *FEW)
    assert ran.status == 2
    assert "GB on disk" in ran.err.splitlines()[-1]
    assert not left_over(place)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0123, "0.012 s"), (3.14, "3.1 s"), (80.0, "80 s"), (89.9, "90 s")),
        *((300.0, "5 min"), (5399.0, "90 min"), (5400.0, "1.5 h"), (9000.0, "2.5 h"), (1e6, "278 h")),
    ],
)
def test_seconds_as_people_say_them(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text
