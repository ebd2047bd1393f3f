"""The families that tests run on by default use all that documents say."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import covering
import pytest
from covering import (
    chosen,
    covering_of,
    in_folders,
    in_gguf,
    in_networks,
    in_orders,
    used_features,
    with_tensors,
)

from zerolm.families.known import families


def test_a_few_families_use_all_that_documents_say() -> None:
    """Those with tensors all that such say: their models are built. The numbers bound what tests cost."""
    few = covering.covering()
    used = used_features()
    assert frozenset().union(*(used[name] for name in few)) == frozenset().union(*used.values())
    built = few & set(with_tensors())
    assert frozenset().union(*(used[name] for name in built)) == frozenset().union(
        *(used[name] for name in with_tensors())
    )
    assert len(built) <= 25 < len(with_tensors()) / 3
    assert len(few) <= 27


@pytest.mark.parametrize("matters", [in_folders, in_gguf, in_networks, in_orders])
def test_few_families_use_all_that_matters_to_a_test(matters: Callable[[str], bool]) -> None:
    few, used = covering_of(with_tensors(), (), matters), used_features()
    seen, wanted = (
        set(filter(matters, set().union(*(used[name] for name in names)))) for names in (few, with_tensors())
    )
    assert seen == wanted
    assert wanted
    assert len(few) < len(covering.covering())


def test_a_list_without_any_of_the_few_is_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering.ASKED, "all", False)
    monkeypatch.setattr(covering, "changed", lambda: frozenset())
    assert chosen(["granite", "llama", "mistral"]) == ["llama"]
    assert chosen(["granite", "mistral"]) == ["granite", "mistral"]
    monkeypatch.setattr(covering.ASKED, "all", True)
    assert chosen(families()) == list(families())


def test_changed_families_are_tested_and_their_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since the previous commit, in files that are committed, edited, or new."""

    def git(*words: str) -> None:
        named = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(name: str, text: str = "{}") -> None:
        (tmp_path / f"{name}.json").write_text(text)
        covering.changed.cache_clear()

    monkeypatch.setattr(covering, "FOLDER", tmp_path)
    for name in ("old", "committed", "edited"):
        write(name)
    write("heir", '{"like": "edited"}')
    write("its_heir", '{"like": "heir"}')
    assert covering.changed() == frozenset()  # there is no git, and no history
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    write("committed", '{"norm": "pre"}')
    git("commit", "-am", "two")
    assert covering.changed() == {"committed"}
    write("edited", '{"task": "next"}')
    write("new")
    assert covering.changed() == {"committed", "edited", "new", "heir", "its_heir"}
    covering.changed.cache_clear()
