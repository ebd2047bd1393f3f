"""What cannot be asked of experts: one line, status 2, and nothing is written."""

from pathlib import Path

import pytest
from refusals import Zerolm, refused
from saved_mixtures import mixture
from tiny_families import saved

BY_PAIRS = "--criterion hope_moments"
ON_TOKENS = f"--text random {BY_PAIRS} --sequences 4 --length 12"
TO_HALF = "--max-params .5x --text a.txt"
WRONG: dict[str, tuple[str, str]] = {
    "fewer than a token meets": ("--keep-experts 1", "the nearest that can be is 2"),
    "more than there are": ("--keep-experts 9", "a layer has 8 experts; the nearest that can be is 8"),
    "a share that is no number": ("--keep-experts 0.3", "is no whole number; the nearest that can be is 2"),
    "not divisible": ("--keep-experts 6 --expert-parallel 4", "no multiple of 4"),
    "devices that do not divide": ("--keep-experts 6 --expert-parallel 3", "does not divide the 8"),
    "tokens without a text": ("--keep-experts 4 --keep-vocab .5", "--keep-vocab needs --text FILE"),
    "a budget that is too small beside a number": (
        f"--keep-experts 4 --max-params .02x --keep-vocab all {ON_TOKENS}",
        "--max-params 2930 would have to be at least",
    ),
    "a plan by weights of experts and tokens": (
        f"--keep-experts auto --keep-vocab auto --plan weights {TO_HALF}",
        "share budgets with tokens or types by losses on one --text FILE (--plan weights): give numbers",
    ),
    "types for the same bytes": (
        "--keep-experts auto --max-weight-bytes .5x --format gguf --types Q4_K",
        "by losses on one --text FILE (no text is given): give numbers instead of auto",
    ),
    "auto without budgets": ("--keep-experts auto", "give one such as --max-params 0.7x"),
    "no tokens": ("--keep-experts 4 --criterion reap", "criterion reap needs tokens"),
    "another criterion": ("--keep-experts 4 --criterion surgeon", "'surgeon' is not known"),
    "another repair": ("--keep-experts 4 --text random --repair bias", "repair 'bias' is not known"),
    "a repair without tokens": ("--keep-experts 4 --repair least-squares", "needs tokens"),
    "the worst of one text": ("--keep-experts 4 --text random --domains worst", "needs texts of several"),
    "the worst by pairs": (
        f"--keep-experts 4 --text a=random,b=random --domains worst {BY_PAIRS}",
        "not of pairs as hope_moments",
    ),
    "domains alone": ("--domains worst", "--domains is of experts"),
    "domains of other cuts": ("--keep-ffn .5 --text a=random,b=random", "give --keep-experts N"),
    "two texts of a name": ("--keep-experts 4 --text a=random --text a=random", "'a' has two texts"),
    "neurons that are no multiple": ("--keep-expert-ffn 12", "keeps a multiple of 8 that leaves shared"),
    "a share of neurons above one": ("--keep-expert-ffn 1.5", "must lie in 0 to 1"),
    "no number of neurons": ("--keep-expert-ffn half", "a number of neurons, a share such as 0.75, or auto"),
    "neurons that no steps leave": ("--keep-expert-ffn 16 --multiple-of 5", "keeps a multiple of 40"),
    "neurons without budgets": ("--keep-expert-ffn auto", "--keep-expert-ffn auto chooses within budgets"),
    "both planned without a text": (
        "--keep-experts auto --keep-expert-ffn auto --max-params .8x",
        "which aimer does not give: use --criterion hope_moments",
    ),
    "both planned by means": (
        "--keep-experts auto --keep-expert-ffn auto --max-params .8x --text random",
        "which reap does not give",
    ),
    "both within too little": (
        f"--keep-experts auto --keep-expert-ffn auto --max-params .1x {ON_TOKENS}",
        "--max-params 14654 would have to be at least 69648, with 2 experts a layer",
    ),
    "neurons within too little": ("--keep-expert-ffn auto --max-params .1x", "would have to be at least"),
    "one token": ("--keep-experts 4 --text random --sequences 3 --length 1", "length"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_it_is_refused(fault: str, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags, words = WRONG[fault]
    mixture(tmp_path / "parent", "qwen3_moe")
    monkeypatch.chdir(tmp_path)
    refused(zerolm, "carve", "parent", *flags.split(), "--out", "child", words=words)


def test_networks_without_experts(zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "parent", "llama")
    monkeypatch.chdir(tmp_path)
    words = "has no experts to take out"
    refused(zerolm, "carve", "parent", "--keep-experts", "4", "--out", "child", words=words)
