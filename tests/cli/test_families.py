"""``zerolm families``: the list, one family, those of a user, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from covering import chosen
from refusals import Zerolm

from zerolm.diagnosis.runtimes import RUNTIMES
from zerolm.families.known import FOLDER, families


def test_the_list_says_what_can_be_cut_of_each(zerolm: Zerolm) -> None:
    rows = {row["name"]: row for row in json.loads(zerolm("families", "--json").out)}
    assert list(rows) == list(families())
    assert rows["llama"]["cuts"] == ["layers", "heads", "ffn", "hidden"]
    assert rows["llama"]["gguf"] is True
    assert rows["llama"]["hidden_note"] == ""
    assert rows["bert"]["cuts"] == ["layers", "ffn"]
    assert "derives the head size" in rows["bert"]["note"]
    assert "norms act on the residual stream itself" in rows["bert"]["hidden_note"]
    assert (rows["vit"]["cuts"], rows["vit"]["counted"]) == ([], False)
    text = zerolm("families").out
    (line,) = (line for line in text.splitlines() if line.startswith("stablelm "))
    assert line.split()[:6] == ["stablelm", "yes", "-", "yes", "-", "-"]


@pytest.mark.parametrize("name", chosen(families()))
def test_one_family_shows_all_that_its_document_says(name: str, zerolm: Zerolm) -> None:
    family, shown = families()[name], json.loads(zerolm("families", name, "--json").out)
    patterns = (*family.tensors.body, *family.tensors.head)
    assert [(row["name"], row["role"], tuple(row["axes"])) for row in shown["tensors"]] == [
        (pattern.name, pattern.role, pattern.axes) for pattern in patterns
    ]
    assert shown["config"]["sizes"].keys() == family.config.sizes.keys()
    assert shown["runtimes"].keys() == RUNTIMES.keys()
    for runtime, listed in shown["runtimes"].items():
        assert listed["lists"] == RUNTIMES[runtime].of_family(family)
        assert listed["version"] == RUNTIMES[runtime].source.version
    ran = zerolm("families", name)
    assert ran.status == 0
    fields = [size.field for size in family.config.sizes.values() if size.field]
    for word in (*fields, *family.config.flags, *family.config.only, *RUNTIMES, *family.head_classes):
        assert word in ran.out
    reasons = {kind: family.cut.note for kind in ("layers", "heads", "ffn")} | {
        "hidden": family.cut.hidden_note if family.tensors.body else family.cut.note
    }
    for kind, reason in reasons.items():
        assert f"{kind}: {'yes' if getattr(family.cut, kind) else f'no: {reason}'}" in ran.out


def test_a_users_family_is_listed(zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"model_type": "mine", "like": "qwen3", "head_classes": ["Mine"]}
    (tmp_path / "mine.json").write_text(json.dumps(document))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert "\nmine " in zerolm("families").out
    assert "self_attn.q_norm.weight" in zerolm("families", "mine").out


def test_a_family_that_is_not_known_is_told(zerolm: Zerolm) -> None:
    zerolm("families", "qwen33").refused("zerolm: family 'qwen33' is not known; did you mean 'qwen3'?")
