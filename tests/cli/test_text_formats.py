"""Commands on texts of records: the same child as of the plain text, and refusals in one line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from carvings import BY_WEIGHTS
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder
from refusals import Zerolm, refused

TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CUT = ("--keep-ffn", ".5", "--keep-vocab", "used", "--sequences", "8", "--length", "16")


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    parent = decoder(Path("parent"), byte_level())
    (parent / "chat_template.jinja").write_text(TURNS)
    lines = list(map(str.strip, CORPUS))
    Path("text.txt").write_text("\n".join(lines))
    Path("text.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    Path("whole.jsonl").write_text(json.dumps({"text": "\n".join(lines)}))
    Path("body.jsonl").write_text("\n".join(json.dumps({"id": 1, "body": line}) for line in lines))
    Path("hidden.txt").write_text(Path("body.jsonl").read_text())
    chats = [[{"role": "user", "content": line}] for line in lines]
    Path("chat.jsonl").write_text("\n".join(json.dumps({"messages": chat}) for chat in chats))
    Path("turns.jsonl").write_text(
        "\n".join(json.dumps({"text": f"user: {chat[0]['content']}\n"}) for chat in chats)
    )
    return parent


def recipe(folder: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((Path(folder) / "recipe.json").read_text())
    return document


def weights(folder: str) -> bytes:
    return (Path(folder) / "model.safetensors").read_bytes()


def test_a_child_is_the_same_by_any_format_of_a_text(texts: Path, zerolm: Zerolm) -> None:
    for text in ("text.txt", "text.txt.gz", "whole.jsonl"):
        ran = zerolm("carve", "parent", *CUT, "--text", text, "--out", f"{text}_child")
        assert ran.status == 0, ran.err
    assert weights("text.txt_child") == weights("text.txt.gz_child") == weights("whole.jsonl_child")
    assert recipe("text.txt_child") == recipe("text.txt.gz_child")


def test_a_recipe_builds_the_child_of_a_named_field_again(texts: Path, zerolm: Zerolm) -> None:
    field = ("--text", "body.jsonl", "--text-field", "body")
    assert zerolm("carve", "parent", *CUT, *field, "--out", "child").status == 0
    assert "--text-field body" in (Path("child") / "report.html").read_text()
    again = zerolm("carve", "parent", "--recipe", "child/recipe.json", *field, "--out", "again")
    assert again.status == 0, again.err
    assert weights("child") == weights("again")
    other = ("--text", "text.txt", "--out", "other")
    refused(zerolm, "carve", "parent", "--recipe", "child/recipe.json", *other, words="text")
    judged = ("--sequences", "4", "--length", "16")
    assert zerolm("eval", "child", "--parent", "parent", *field, *judged).status == 0


def test_chats_are_read_as_their_template_renders_them(texts: Path, zerolm: Zerolm) -> None:
    """By the parent's template, in calibration, vocabulary and healing."""
    assert zerolm("carve", "parent", *CUT, "--text", "chat.jsonl", "--out", "child").status == 0
    judged = [
        zerolm("eval", "child", "--parent", "parent", "--text", text, "--json").document["bits"]
        for text in ("chat.jsonl", "turns.jsonl")
    ]
    assert judged[0] == judged[1]
    how = ("--tokens", "64", "--batch", "2", "--length", "12")
    healed = zerolm("heal", "child", "--parent", "parent", "--text", "chat.jsonl", *how, "--out", "healed")
    assert healed.status == 0, healed.err


def test_the_command_refuses_what_it_would_misread(texts: Path, zerolm: Zerolm) -> None:
    carve = ("carve", "parent", "--keep-ffn", ".5", *BY_WEIGHTS, "--out", "child")
    refused(zerolm, *carve, "--text", "hidden.txt", words="rename it to 'hidden.jsonl'")
    refused(zerolm, *carve, "--text", "body.jsonl", words="it has id, body: name the field of the text")
    refused(zerolm, *carve, "--text", "text.txt", "--text-field", "a", words="leave --text-field out")
    refused(zerolm, *carve, "--text-field", "body", words="give --text FILE too")
    (texts / "chat_template.jinja").unlink()
    refused(zerolm, *carve, "--text", "chat.jsonl", words="add its chat_template.jinja to the folder")
    vocabulary = ("--keep-vocab", "used")
    refused(zerolm, *carve, *vocabulary, "--text", "hidden.txt", words="rename it to 'hidden.jsonl'")
    proxies = ("lab", "proxies", "parent", "--text", "hidden.txt", "--batch", "8", "--length", "8")
    refused(zerolm, *proxies, words="rename it to 'hidden.jsonl'")
