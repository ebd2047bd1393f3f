"""The card and the recipe of a child name its parent: of the hub with revision and licence, or a folder."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml
from carvings import BY_WEIGHTS
from tiny import saved

import zerolm as package
from zerolm.checkpoints.origin import origin_of
from zerolm.children.card import plain

REVISION = "0123456789abcdef0123456789abcdef01234567"
HOSTILE = "other\n---\n# x"


def in_hub(cache: Path, card: str, name: str = "someone/tiny-llama") -> Path:
    """Put a model into the hub's cache as huggingface_hub has it: blobs, and links to them by revision."""
    model = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = model / "snapshots" / REVISION, model / "blobs"
    source = saved(cache / "source", "llama")
    (source / "README.md").write_text(card)
    (source / "LICENSE").write_text("terms")
    for folder in (snapshot, blobs, model / "refs"):
        folder.mkdir(parents=True)
    for file in source.iterdir():
        shutil.copyfile(file, blobs / file.name)
        (snapshot / file.name).symlink_to(blobs / file.name)
    shutil.rmtree(source)
    (model / "refs" / "main").write_text(REVISION)
    return snapshot


def front_matter(card: str) -> dict[str, Any]:
    front = re.match(r"---\n(.*?)\n---\n", card, re.S)
    assert front
    return dict(yaml.safe_load(front[1]))


def carved(zerolm: Callable[..., Any], parent: str, out: Path, *flags: str) -> tuple[str, dict[str, Any]]:
    ran = zerolm("carve", parent, "--keep-ffn", "0.5", *BY_WEIGHTS, *flags, "--out", str(out))
    assert ran.status == 0, ran.err
    return (out / "README.md").read_text(), json.loads((out / "recipe.json").read_text())


def test_a_parent_of_the_hub_keeps_its_name_revision_and_licence(
    zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"
    in_hub(
        hub, "---\nlicense: other\nlicense_name: tiny-1.0\ntags: [x]\nlicense_link: LICENSE\n---\n# Tiny\n"
    )
    download = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **given: download(name, cache_dir=hub, **given)
    )
    monkeypatch.setattr("zerolm.checkpoints.folder.hub_problem", lambda ask: "nobody answers")
    text = ("--text", "random", "--sequences", "6", "--length", "12", "--plan", "measured")
    card, recipe = carved(zerolm, "someone/tiny-llama", tmp_path / "child", *text)
    front = front_matter(card)
    licence = {"license": "other", "license_name": "tiny-1.0", "license_link": "LICENSE"}
    assert front == {
        "base_model": "someone/tiny-llama",
        **licence,
        "library_name": "transformers",
        "tags": ["zerolm", "pruned", "llama"],
    }
    assert recipe.items() >= {"parent": "someone/tiny-llama", "revision": REVISION, **licence}.items()
    versions = {name: version(name) for name in ("torch", "transformers")}
    running = {"device": "cpu", "dtype": "float32"}
    assert recipe["versions"] == {"zerolm": package.__version__, **versions, **running}
    assert REVISION in card
    assert all(f"{name} {number}" in card for name, number in recipe["versions"].items())
    assert all(f"{name} {loss:.4g}" in card for name, loss in recipe["losses"].items())
    assert {"predicted", "measured", "repaired"} == recipe["losses"].keys()
    assert f"{recipe['costs']['child']['params']:,} of {recipe['costs']['parent']['params']:,}" in card
    assert "32-bit weights" in card
    assert "AutoModelForCausalLM.from_pretrained" in card
    content = (tmp_path / "child" / "model.safetensors").read_bytes()
    assert recipe["sha256"] == {"model.safetensors": hashlib.sha256(content).hexdigest()}


CARDS = {
    "none": "# Only a title\n",
    "no YAML": "---\n{{{[\n---\n",
    "a bomb": "---\na: &a [x, x]\nb: &b [*a, *a]\nlicense: [*b, *b]\n---\n",
    "endless": "---\nlicense: " + "x" * 10_000 + "\n---\n",
}


@pytest.mark.parametrize("case", CARDS)
def test_licences_that_cannot_be_read_are_left_out(case: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(CARDS[case])
    assert origin_of(tmp_path).licence == {}


@pytest.mark.parametrize(
    "name", ["it's: {a} - [b]", "- x", "#1 `rm`", 'a"b\\c', "名前: 🙂", "yes", "a\nb: c\n---\n"]
)
def test_front_matter_is_sound_whatever_names_hold(
    name: str, zerolm: Callable[..., Any], tmp_path: Path
) -> None:
    parent = saved(tmp_path / name, "llama")
    (parent / "README.md").write_text("---\n" + yaml.safe_dump({"license": HOSTILE}) + "---\n")
    card, recipe = carved(zerolm, str(parent), tmp_path / "child")
    front = front_matter(card)
    assert (front["base_model"], front["license"]) == (name, HOSTILE)
    assert (recipe["parent"], recipe["revision"]) == (name, None)
    titles = [line for line in card.splitlines() if line.startswith("# ")]
    assert titles == [f"# Carved from {plain(name)}"]
    assert "local folder" in card


def test_gguf_cards_name_the_file(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    parent = str(saved(tmp_path / "parent", "llama"))
    card, recipe = carved(zerolm, parent, tmp_path / "child", "--format", "gguf")
    assert front_matter(card)["library_name"] == "gguf"
    assert "llama-cli -m parent-carved.gguf" in card
    assert list(recipe["sha256"]) == ["parent-carved.gguf"]


@pytest.mark.parametrize("name", ["llama", "llama_tied"])
def test_a_narrower_stream_is_on_the_card(name: str, zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = str(saved(tmp_path / "parent", name))
    card, recipe = carved(zerolm, parent, tmp_path / "child", "--keep-hidden", "0.75")
    stream = recipe["stream"]
    assert {key: stream[key] for key in ("hidden", "tied", "basis")} == {
        "hidden": 36, "tied": name == "llama_tied", "basis": "weights"
    }  # fmt: skip
    assert 0.36 < stream["kept_energy"] < 1
    said = next(line for line in card.splitlines() if line.startswith("- hidden"))
    assert said.startswith("- hidden 36 of 48: the residual stream in one basis by the weights")
    assert f"{stream['kept_energy']:.1%}" in said
    assert said.endswith("the head is " + ("the embedding" if stream["tied"] else "a matrix of its own"))
    card, recipe = carved(zerolm, parent, tmp_path / "whole")
    assert recipe["stream"] is None
    assert "hidden" not in card


def test_no_child_refers_to_code_of_its_parent(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    code = {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}, "custom_pipelines": {"x": {"impl": "y.Z"}}}
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        file = parent / name
        given = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(given | code | {"deeper": {"auto_map": 1, "kept": 2}}))
    carved(zerolm, str(parent), tmp_path / "child")
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        written = (tmp_path / "child" / name).read_text()
        assert json.loads(written)["deeper"] == {"kept": 2}
        assert "auto_map" not in written
        assert "custom_pipelines" not in written
