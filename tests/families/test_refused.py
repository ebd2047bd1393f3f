"""Types that are refused by name, each with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from zerolm.families.known import FOLDER, families, family_of, refused
from zerolm.families.reading import others_like

OWN_CODE = ("new",)
"""Types of files with code of their own, which transformers does not know."""


def test_no_family_is_refused() -> None:
    assert refused().keys().isdisjoint(families())
    assert list(refused()) == sorted(refused())


@pytest.mark.parametrize("kind", refused())
def test_a_type_is_refused_with_its_reason(kind: str) -> None:
    """In one line, also where it is to be read like another; and it is one that transformers has."""
    assert (kind in CONFIG_MAPPING) is (kind not in OWN_CODE)
    reason = refused()[kind]
    assert reason.isprintable()
    assert not reason.endswith(".")
    for other in (None, "llama"):
        with others_like(other), pytest.raises(ValueError, match="is refused: ") as caught:
            family_of({"model_type": kind})
        assert str(caught.value) == f"model_type {kind!r} is refused: {reason}"


@pytest.mark.parametrize("kind", ["albert", "t5"])
def test_commands_say_the_reason(kind: str, zerolm: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "num_hidden_layers": 2}))
    config = str(tmp_path / "config.json")
    for command in (("score", config), ("search", "--baseline", config), ("families", kind)):
        zerolm(*command).refused(refused()[kind])
    assert kind in zerolm("families").out


def test_a_document_of_ones_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zerolm: Any) -> None:
    """A user may know better."""
    (tmp_path / "mine.json").write_text(
        json.dumps({"model_type": "bloom", "like": "llama", "head_classes": []})
    )
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert family_of({"model_type": "bloom"}).name == "bloom"
    assert zerolm("families", "bloom").status == 0
