"""Texts of several domains in one setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolm.text.domains import domains_of


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
