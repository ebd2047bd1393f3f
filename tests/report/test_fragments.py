"""Fragments for notebooks, and texts of pages, of every kind."""

from __future__ import annotations

import re

import pytest
from made_pages import KINDS, Made


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "score"])
def test_a_fragment_is_small_and_needs_no_script_or_style(made: Made, kind: str) -> None:
    fragment = made.fragments[kind]
    assert len(fragment) < 30_000
    assert not re.search(r"<(script|style|link|img)\b|var\(--", fragment)
    assert (fragment[:4], fragment[-6:]) == ("<div", "</div>")
    assert "<svg" in fragment or kind in (
        "doctor",
        "ledger",
        "comparison",
        "proxies-model",
        "path",
    )
    assert not re.search(r'(fill|stroke)="(black|white|#fff|#000)"', fragment)


@pytest.mark.parametrize("kind", ["search", "comparison", "carving", "doctor"])
def test_a_page_holds_no_undefined_number(made: Made, kind: str) -> None:
    text = re.sub(r"<(script|style)\b.*?</\1>", "", made.pages[kind], flags=re.DOTALL)
    assert not re.search(r">[^<]*\b(nan|inf)\b|\bNone<", text)
