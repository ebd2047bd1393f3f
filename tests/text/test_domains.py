"""Texts of several domains in one setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolm.carving.request import MethodRequest
from zerolm.settings.domains import domains_of
from zerolm.settings.kinds import KINDS
from zerolm.settings.request import settings_of


def test_names_stand_before_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert domains_of("code=a.txt,chat=b,c.txt,noise=random") == {
        "code": "a.txt", "chat": "b,c.txt", "noise": "random",
    }  # fmt: skip
    for one in (None, "random", "a.txt", "a,b.txt", "/data/x=1/text.txt", "a.txt,b=c"):
        assert domains_of(one) == {}
    (tmp_path / "a=b").write_text("a file of that name")
    assert domains_of("a=b") == {}
    with pytest.raises(ValueError, match="'code' has two texts"):
        domains_of("code=a,code=b")
    for empty in ("code=,chat=a", "chat=a,code=", "code="):
        with pytest.raises(ValueError, match="'code' has no text"):
            domains_of(empty)


def test_a_run_names_texts_wherever_it_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute paths, of files with a comma in their name, too; words stay."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b,c.txt").write_text("words")
    text = next(each for each in settings_of(MethodRequest) if each.name == "text")
    kind = KINDS["texts"]
    assert kind.repeatable(text, "chat=b,c.txt,noise=random") == f"chat={tmp_path / 'b,c.txt'},noise=random"
    assert kind.repeatable(text, "b,c.txt") == str(tmp_path / "b,c.txt")
    assert kind.repeatable(text, "random") == "random"
