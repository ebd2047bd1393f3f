"""Vocabularies that cannot be cut: one line, status 2, nothing written.

Tokenizers that cannot be are refused in ``tests/carving/test_vocabulary.py``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder
from refusals import Zerolm, refused

USED = ("--keep-vocab", "used", "--text", "text.txt")
LISTED = ("--keep-tokens", "ids.txt")
Change = Callable[[Path], object]


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def edit(parent: Path) -> None:
        document = json.loads((parent / name).read_text())
        change(document)
        (parent / name).write_text(json.dumps(document))

    return edit


def text(content: bytes) -> Change:
    return lambda _: Path("text.txt").write_bytes(content)


def ids(content: str) -> Change:
    return lambda _: Path("ids.txt").write_text(content)


def nothing(_: Path) -> None:
    """Leave the parent as it is."""


CASES: dict[str, tuple[tuple[str, ...], Change, str]] = {
    "latin 1": (USED, text("na\xefve".encode("latin-1")), "not text in UTF-8: byte 2 is wrong"),
    "cut off": (USED, text("naïve 🙂".encode()[:-1]), "not text in UTF-8: byte 7 is wrong"),
    "no text": (USED, text(b"\x7fELF\0\0"), "it holds zero bytes"),
    "empty": (USED, text(b""), "is empty"),
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
