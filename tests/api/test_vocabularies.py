"""The vocabulary as a choice: against all architectures with all vocabularies, one by one."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from catalogue import members
from drawn_words import words_in

import zerolm
from zerolm.costs import CostModel
from zerolm.scores import make_score
from zerolm.solvers import Infeasible
from zerolm.spaces import make_space
from zerolm.text.vocabularies import token_counts

SIZES = [300, 400, 700]
SPACE: dict[str, Any] = {
    "depth": [2, 3, 4], "hidden": [64, 128, 192], "head_size": [32], "ffn": list(range(128, 769, 64)),
    "heads_per_kv": [1, 2], "hidden_per_depth": (1.0, 200.0), "ffn_per_hidden": (1.0, 6.0),
}  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return words_in(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize(
    "budgets",
    [
        {"max_params": 500_000},
        {"max_params": 700_000, "max_macs": 400_000},
        {"max_macs": 300_000, "min_macs": 250_000},
        {"max_kv_bytes": 40_000, "max_params": 900_000},
    ],
)
def test_no_architecture_with_any_vocabulary_is_better(budgets: dict[str, int], text: str) -> None:
    """All are listed; MACs are compared as fractions of those of a token of the smallest vocabulary."""
    counts = token_counts(text, SIZES)
    base, score = counts.tokens[300], make_score("geo", CostModel())
    context, best = 100, -1.0
    for vocab in SIZES:
        tokens = counts.tokens[vocab]
        costs = CostModel(context=-(-context * tokens // base))
        space = make_space("llama", vocab=vocab, **SPACE)
        for choices in members(space):
            architecture = space.read(choices)
            own: dict[str, Any] = costs.of(architecture)
            own["macs"] = Fraction(own["macs"] * tokens, base)
            if all(own[n[4:]] <= v if n.startswith("max") else own[n[4:]] >= v for n, v in budgets.items()):
                best = max(best, score.of(architecture))
    result = zerolm.search("llama", vocabularies=SIZES, text=text, context=context, **SPACE, **budgets)
    assert result.best[0].score == pytest.approx(best, rel=1e-12)
    every = {one.vocab: one for one in result.vocabularies}
    assert every[result.space.settings["vocab"]].score == result.best[0].score
    assert (every[300].context, every[300].budgets) == (context, budgets)
    assert every[700].bytes_per_token == counts.size / counts.tokens[700] > every[300].bytes_per_token
    assert type(result).from_json(result.to_json()).to_json() == result.to_json()
    assert "By vocabulary" in result.page()


def test_a_vocabulary_that_nothing_fits_with_is_told(text: str) -> None:
    space = make_space("llama", vocab=400, **SPACE)
    least = min(CostModel().of(space.read(choices))["params"] for choices in members(space))
    result = zerolm.search("llama", vocabularies=SIZES, text=text, max_params=least, **SPACE)
    assert [one.score is None for one in result.vocabularies] == [False, False, True]
    assert "nothing within the budgets" in result.page()
    assert "holds the length of the text against" in result.page()
    with pytest.raises(Infeasible):
        zerolm.search("llama", vocabularies=SIZES, text=text, max_params=1000, **SPACE)


def test_what_is_held_out_is_not_trained_on(tmp_path: Path) -> None:
    """Words that only held out parts have are not among the tokens: as many as their bytes."""
    parts = ["ab " * 200 if part % 10 != 9 else "xyz" * 200 for part in range(200)]
    file = tmp_path / "text.txt"
    file.write_text("".join(parts))
    counts = token_counts(str(file), [257])
    assert (counts.size, counts.tokens[257]) == (20 * 600, 20 * 600)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocabularies": SIZES}, "give --vocabularies and --text, or neither"),
        ({"text": "TEXT"}, "give --vocabularies and --text, or neither"),
        ({"vocabularies": SIZES, "text": "TEXT", "vocab": 300}, "--vocab fixes the vocabulary"),
        ({"vocabularies": [300, 90_000], "text": "TEXT"}, "a tokenizer of .* ids at most, not of 90000"),
        ({"vocabularies": SIZES, "text": "no such text"}, "no such text"),
        ({"vocabularies": [100], "text": "TEXT"}, "vocabularies"),
        ({"space": "autoformer", "vocabularies": SIZES, "text": "TEXT"}, "has no vocabulary to choose"),
        (
            {"space": None, "baseline": "SmolLM2-135M", "vocabularies": SIZES, "text": "TEXT"},
            "--baseline fixes",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str, text: str) -> None:
    asked = {name: text if value == "TEXT" else value for name, value in {"space": "llama", **given}.items()}
    with pytest.raises(ValueError, match=message) as refused:
        zerolm.search(**asked)
    assert "\n" not in str(refused.value)


def test_a_short_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("too short")
    with pytest.raises(ValueError, match="9 characters; 20000 are the least"):
        zerolm.search("llama", vocabularies=SIZES, text=file)
