"""Hostile files, impossible cuts and vocabularies of carve, ledger and eval: one line, status 2, no trace.

Wrong values of single settings are generated in test_wrong_commands.
"""

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_folders import configured, cut_off, stored, with_a_pickle, with_a_shard_outside, without_a_shard
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder
from refusals import Zerolm, refused, state
from tiny import saved, word_tokenizer

from zerolm.carving.formats import StockFolder

BY_WEIGHTS = ("--criterion", "capacity")
CARVE = ("--keep-ffn", "0.5", "--out", "child", *BY_WEIGHTS)
BY_TEXT = CARVE[:4]
TOKENS = ("--sequences", "4", "--length", "8")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened_here: None) -> Path:
    """An empty folder to stand in, beside others."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def parent(name: str = "llama", **settings: Any) -> Path:
    folder = saved(Path("parent"), name, **settings)
    word_tokenizer(folder)
    return folder


def text() -> str:
    Path("text.txt").write_text(" ".join(f"w{i * 7 % 64}" for i in range(400)))
    return "text.txt"


def overlapping(folder: Path) -> None:
    """Two tensors of the same size that are said to lie in the same bytes."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    first, second = (header[f"model.layers.0.mlp.{part}_proj.weight"] for part in ("gate", "up"))
    second["data_offsets"] = first["data_offsets"]
    changed = json.dumps(header, separators=(",", ":")).encode().ljust(size)
    file.write_bytes(content[:8] + changed + content[8 + size :])


def sharded(damage: Callable[[Path], object]) -> Callable[[Path], None]:
    def damaged(folder: Path) -> None:
        shutil.rmtree(folder)
        damage(saved(folder, "llama", shard="20KB"))

    return damaged


def misshapen(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(40, 47)


UNSOUND: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (cut_off, "is cut off"),
    "overlapping": (overlapping, "overlaps another"),
    "a shard is lost": (sharded(without_a_shard), "which is missing"),
    "an index that escapes": (sharded(with_a_shard_outside), "'../outside.safetensors', no safetensors"),
    "a wrong shape": (partial(stored, change=misshapen), "has shape [40, 47]"),
    "absurd sizes": (partial(configured, num_hidden_layers=10**12), "num_hidden_layers 1000000000000"),
    "an unknown family": (partial(configured, model_type="rwkv"), "'rwkv' is not known; there are afmoe"),
    "no family": (partial(configured, model_type=None), "no model_type"),
    "a pickle": (with_a_pickle, r"a pickle (pytorch_model.bin), which is not opened"),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "there is no such file"),
    "a configuration that is none": (
        lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"),
        "config.json' cannot be read",
    ),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_unsound_checkpoints(case: str, zerolm: Zerolm) -> None:
    damage, words = UNSOUND[case]
    damage(parent())
    good, written = str(saved(Path("good"), "llama")), text()
    refused(zerolm, "carve", "parent", *CARVE, words=words)
    refused(zerolm, "ledger", "parent", words=words)
    refused(zerolm, "eval", "parent", "--parent", good, "--text", written, words=words)
    refused(zerolm, "eval", good, "--parent", "parent", "--text", written, words=words)
    ran = zerolm("doctor", "parent", "--json")
    assert ran.status == 0
    assert words in ran.out or case in ("an unknown family", "no family")
    assert not Path("opened").exists()


TEXTS = {
    "spaces": (b" \n\n \n", "bad.txt"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(4000), "bad.txt"),
    "too short": (b"w1 w2", "has 2 tokens, one sequence needs 8"),
}


@pytest.mark.parametrize(
    ("name", "case"), [("llama", "spaces"), ("bert", "spaces"), ("bert", "a picture"), ("llama", "too short")]
)
def test_texts_that_are_none(case: str, name: str, zerolm: Zerolm) -> None:
    parent(name)
    content, words = TEXTS[case]
    Path("bad.txt").write_bytes(content)
    refused(zerolm, "carve", "parent", *BY_TEXT, "--text", "bad.txt", *TOKENS, words=words)
    refused(zerolm, "eval", "parent", "--parent", "parent", "--text", "bad.txt", *TOKENS, words=words)


@contextmanager
def limited(what: int, size: int) -> Iterator[None]:
    before = resource.getrlimit(what)
    resource.setrlimit(what, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def used() -> int:
    """Bytes of memory that this process has for its data."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


@pytest.mark.parametrize("path", ["/dev/zero", "parent"])
def test_texts_that_are_no_files(path: str, zerolm: Zerolm) -> None:
    parent()
    for command in (("carve", "parent", *CARVE), ("eval", "parent", "--parent", "parent")):
        with limited(resource.RLIMIT_DATA, used() + (1 << 30)):
            refused(zerolm, *command, "--text", path, *TOKENS, words=path)


IMPOSSIBLE: dict[str, str] = {
    "bert --keep-heads 0.5": "heads cannot be cut",
    "gpt2 --max-params 0.3x --max-macs 0.9x --criterion capacity": "would have to be at least",
    "llama": "no target size",
    "llama --keep 1 --keep-ffn .5": "--keep-ffn 0.5 cuts some of them",
    "llama --keep-ffn 0.5 --criterion capacity --for 9s": "capacity reads none",
    "llama --keep-ffn 0.5 --multiple-of 64": "steps of 64",
    "llama --keep-hidden .001": "0.001 of 48 components of the stream rounds to none",
    "llama --max-params 0.7x --shape per-layer": "--shape uniform",
    "llama --max-params 0.7x --shape per-layer --keep-layers .5": "--keep-layers needs --shape uniform",
    "llama --max-params 0.9x --tensor-parallel 7": "7",
    "llama --max-params 0x": "--max-params 0 would have to be at least",
    "llama --max-params 2x": "'2x' is no share of the parent's",
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_cuts_that_cannot_be(case: str, zerolm: Zerolm) -> None:
    name, *flags = case.split()
    parent(name)
    refused(zerolm, "carve", "parent", *flags, "--out", "child", words=IMPOSSIBLE[case])


def test_outputs_that_are_in_the_way(zerolm: Zerolm) -> None:
    parent()
    Path("file").write_text("mine")
    Path("folder").mkdir()
    Path("folder/mine").write_text("mine")
    Path("link").symlink_to("folder")
    Path("loop").symlink_to("loop")
    for out, words in (
        ("file", "is not a folder"),
        ("folder", "exists"),
        ("link", "is not a folder"),
        ("loop", "is not a folder"),
        ("absent/child", "does not exist"),
        ("parent", "exists"),
        ("parent/child", "parent"),
    ):
        refused(zerolm, "carve", "parent", "--keep-ffn", "0.5", "--out", out, words=words)
    for out in ("file", "folder", "link", "loop", "parent"):
        refused(zerolm, "carve", "parent", "--keep-ffn", "0.5", "--out", out, "--force", words="name another")


def test_eval_without_a_tokenizer(zerolm: Zerolm) -> None:
    parent()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        Path("parent", name).unlink()
    refused(zerolm, "eval", "parent", "--parent", "parent", "--text", text(), words="tokenizer")


@pytest.mark.parametrize("size", [0, 20_000])
def test_files_that_cannot_be_written(size: int, zerolm: Zerolm) -> None:
    parent()
    before = state(Path("parent"))
    with limited(resource.RLIMIT_FSIZE, size):  # as on a full disk
        refused(zerolm, "carve", "parent", *CARVE, words="cannot be written")
        refused(zerolm, "carve", "parent", *BY_TEXT, "--text", "random", *TOKENS, words="cannot be written")
    assert state(Path("parent")) == before
    assert zerolm("carve", "parent", *CARVE).status == 0


@pytest.mark.parametrize("missing", [1, 1000])
def test_a_full_disk(missing: int, zerolm: Zerolm, small_disk: Callable[[int], Path]) -> None:
    """Too small for the weights, and for what comes after them."""
    parent()
    assert zerolm("carve", "parent", *CARVE).status == 0
    pages = sum(-(-file.stat().st_size // 4096) for file in Path("child").iterdir())
    disk = small_disk(max(1, pages - missing))
    before = state(Path("parent"))
    zerolm("carve", "parent", "--keep-ffn", "0.5", *BY_WEIGHTS, "--out", str(disk / "child")).refused(
        "cannot be written: the disk is full: ", " are free"
    )
    assert list(disk.iterdir()) == []
    assert state(Path("parent")) == before


def test_a_full_disk_keeps_the_earlier_child(zerolm: Zerolm, small_disk: Callable[[int], Path]) -> None:
    parent()
    disk = small_disk(40)
    flags = (*BY_WEIGHTS, "--out", str(disk / "child"), "--force")
    assert zerolm("carve", "parent", "--keep-ffn", "0.1", "--keep-heads", "0.5", *flags).status == 0
    before = state(disk)
    zerolm("carve", "parent", "--keep-ffn", "1", *flags).refused()
    assert state(disk) == before


def test_a_parent_that_changes_has_no_child(zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the child would be of two parents, and verified."""
    saved(Path("parent"), "llama")
    verified = StockFolder.verified

    def changing(*given: Any, **more: Any) -> Any:
        for file in Path("parent").glob("*.safetensors"):
            os.utime(file, ns=(1, 1))
        return verified(*given, **more)

    monkeypatch.setattr(StockFolder, "verified", changing)
    zerolm("carve", "parent", *CARVE).refused("has changed since it was opened")
    assert sorted(path.name for path in Path().iterdir()) == ["parent"]


USED = ("--keep-vocab", "used", "--text", "text.txt")
LISTED = ("--keep-tokens", "ids.txt")
Edit = Callable[[Path], object]


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Edit:
    def edit(parent: Path) -> None:
        document = json.loads((parent / name).read_text())
        change(document)
        (parent / name).write_text(json.dumps(document))

    return edit


def written(content: bytes) -> Edit:
    return lambda _: Path("text.txt").write_bytes(content)


def ids(content: str) -> Edit:
    return lambda _: Path("ids.txt").write_text(content)


def nothing(_: Path) -> None:
    """Leave the parent as it is."""


CASES: dict[str, tuple[tuple[str, ...], Edit, str]] = {
    "latin 1": (USED, written("na\xefve".encode("latin-1")), "not text in UTF-8: byte 2 is wrong"),
    "cut off": (USED, written("naïve 🙂".encode()[:-1]), "not text in UTF-8: byte 7 is wrong"),
    "no text": (USED, written(b"\x7fELF\0\0"), "it holds zero bytes"),
    "empty": (USED, written(b""), "is empty"),
    "missing": (("--keep-vocab", "used", "--text", "none.txt"), nothing, "none.txt"),
    "without a text": (("--keep-vocab", "used"), nothing, "needs --text FILE"),
    "random": (("--keep-vocab", "used", "--text", "random"), nothing, "needs --text FILE"),
    "fewer than bytes": (("--keep-vocab", "100", *USED[2:]), nothing, "--keep-vocab 261 is the least"),
    "more than all": (("--keep-vocab", "5k", *USED[2:]), nothing, "more than the 960 tokens"),
    "no share": (("--keep-vocab", "1.5", *USED[2:]), nothing, "it must lie in 0 to 1"),
    "no size": (("--keep-vocab", "most", *USED[2:]), nothing, "a number of tokens such as 64k"),
    "all": (("--keep-vocab", "1x", *USED[2:]), nothing, "nothing to cut"),
    "no budget": (("--keep-vocab", "auto", *USED[2:]), nothing, "chooses within budgets"),
    "unknown ids": (LISTED, ids("300\n5000\n"), "no token of id 5000"),
    "a row without a token": (LISTED, ids("950"), "no token of id 950"),
    "no ids": (LISTED, ids("the\n"), "cannot be read"),
    "no list": (LISTED, ids('{"a": 1}'), "cannot be read"),
    "an empty list": (LISTED, ids(""), "no list of ids"),
    "Python code": (
        USED,
        edited(
            "tokenizer_config.json", lambda found: found.update(auto_map={"AutoTokenizer": ["a.B", None]})
        ),
        "is Python code of its folder (auto_map), not run",
    ),
    "a merge of nothing": (
        USED,
        edited("tokenizer.json", lambda found: found["model"]["merges"].append(["qqq", "zzz"])),
        "need the token 'qqq'",
    ),
    "no tokenizer": (USED, lambda parent: (parent / "tokenizer.json").unlink(), "tokenizer"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_cut_is_refused(
    case: str, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path.parent / "cache"))
    flags, change, words = CASES[case]
    parent = decoder(Path("parent"), byte_level())
    Path("text.txt").write_text(CORPUS[0], "utf-8")
    change(parent)
    refused(zerolm, "carve", "parent", *flags, "--out", "child", words=words)
