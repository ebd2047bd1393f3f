"""Embeddings beside the parent's, against loops and scipy; passages of a text as logits leave memory for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sentence_folders import LINES, lines_file, sentence_folder

from zerolm.checkpoints import Checkpoint
from zerolm.evaluation import neighbours
from zerolm.evaluation.evaluate import evaluate
from zerolm.evaluation.neighbours import embedding_measures, first_of_each, neighbourhood, numbered, spearmans
from zerolm.networks.opener import load_model, stock_tokenizer
from zerolm.networks.pooling import TokenPooling
from zerolm.passes.outputs import BATCH, LOGITS, sequences_at_once
from zerolm.text.pairs import read_pairs
from zerolm.text.tokens import Tokens


def units(seed: int, count: int, width: int = 4) -> Any:
    values = np.random.default_rng(seed).normal(size=(count, width))
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def rho(a: Any, b: Any) -> float:
    """Spearman by scipy, 0 where a side is constant."""
    return 0.0 if min(np.ptp(a), np.ptp(b)) == 0 else float(spearmanr(a, b).statistic)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_spearman_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs, np.float64).T
    found = spearmans(np.stack([a, b, a]), np.stack([b, b, -a]))
    assert found == pytest.approx([rho(a, b), rho(b, b), rho(a, -a)], abs=1e-12)


@pytest.mark.parametrize("rows", [1, 4, 512])
def test_neighbours_are_those_of_loops(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "ROWS", rows)
    ours, theirs = units(1, 9), units(2, 9)
    rhos, nearest = [], 0
    for i in range(9):
        others = [j for j in range(9) if j != i]
        a, b = ([float(e[i] @ e[j]) for j in others] for e in (ours, theirs))
        rhos.append(rho(np.array(a), np.array(b)))
        nearest += others[int(np.argmax(a))] == others[int(np.argmax(b))]
    assert neighbourhood(ours, theirs) == pytest.approx((np.mean(rhos), nearest / 9))
    assert neighbourhood(theirs, theirs) == (pytest.approx(1.0), 1.0)


def test_of_many_sentences_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "MOST", 5)
    ours, theirs = units(1, 10), units(2, 10)
    assert neighbourhood(ours, theirs) == neighbourhood(ours[::2], theirs[::2])


def test_the_distance_is_one_less_the_cosine() -> None:
    ours, theirs = units(1, 7), units(2, 7)
    cosine = np.mean([a @ b for a, b in zip(ours, theirs, strict=True)])
    nothing = np.arange(0)
    wanted = {"cosine": cosine, "distance": 1 - cosine}
    assert embedding_measures(ours, theirs, nothing) == pytest.approx(wanted)
    assert embedding_measures(theirs, theirs, nothing) == {"cosine": 1.0, "distance": 0.0}


def test_a_sentence_that_comes_again_counts_once() -> None:
    ids = torch.tensor([[1, 2, 9], [1, 2, 8], [3, 4, 5], [1, 2, 9], [1, 9, 9]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 0, 0]])
    assert first_of_each(numbered(Tokens(ids, mask))).tolist() == [0, 2, 3, 4]
    assert first_of_each(numbered(Tokens(ids))).tolist() == [0, 1, 2, 4]


def pairs_in(folder: Path) -> Path:
    rows = [f"{a},{b},{(i * 7) % 5 / 5}" for i, (a, b) in enumerate(zip(LINES, LINES[3:], strict=False))]
    (folder / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]), encoding="utf-8")
    return folder / "pairs.csv"


def one_by_one(folder: Path, lines: list[str]) -> Any:
    """Embeddings (n, d) of a folder's own pooling, a sentence at a time, of length 1."""
    checkpoint = Checkpoint.open(folder)
    model, tokenizer = load_model(checkpoint.folder, False), stock_tokenizer(checkpoint.folder)
    rows = []
    for line in lines:
        ids = torch.tensor([tokenizer(line, truncation=True, max_length=12)["input_ids"]])
        with torch.no_grad():
            states = model(input_ids=ids).last_hidden_state
        rows.append(TokenPooling.of(checkpoint)(states, torch.ones_like(ids))[0].double().numpy())
    return np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_child_is_judged_as_its_sentences_are_alone(tmp_path: Path) -> None:
    kinds = ("Dense", "Normalize")
    parent = sentence_folder(tmp_path / "parent", inside="0_Transformer", mode="max", kinds=kinds)
    carve(parent, tmp_path / "child", keep_ffn=0.25)
    text = lines_file(tmp_path, [*LINES, LINES[0]])
    judged = evaluate(tmp_path / "child", parent, text, data=pairs_in(tmp_path))
    ours, theirs = one_by_one(tmp_path / "child", LINES), one_by_one(parent, LINES)
    child, reference, *others = (row.values for row in judged.networks)
    order, nearest = neighbourhood(ours, theirs)
    pairs = read_pairs(tmp_path / "pairs.csv")
    similarities = [[float(e[i] @ e[i + 3]) for i in range(len(LINES) - 3)] for e in (ours, theirs)]
    wanted = [float(spearmanr(one, pairs.scores).statistic) for one in similarities]
    assert child["order"] == pytest.approx(order, abs=5e-3)  # padding rounds, and near ties change places
    assert child["nearest"] == pytest.approx(nearest, abs=1e-9)
    assert [child["pairs"], reference["pairs"]] == pytest.approx(wanted, abs=5e-3)
    cosines = (ours * theirs).sum(1)
    assert child["cosine"] == pytest.approx(np.mean([*cosines, cosines[0]]), abs=1e-6)
    assert child["distance"] == pytest.approx(1 - child["cosine"], abs=1e-12)
    assert {name: reference[name] for name in ("distance", "nearest")} == {"distance": 0.0, "nearest": 1.0}
    assert reference["order"] == pytest.approx(1.0)
    assert child["distance"] > 0
    assert child["order"] < 1
    assert [set(row) for row in others] == [set(child)] * 3


def test_pairs_alone_are_the_text(tmp_path: Path) -> None:
    parent = sentence_folder(tmp_path / "parent")
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    judged = evaluate(tmp_path / "child", parent, None, data=pairs_in(tmp_path))
    assert judged.sequences == len(set(LINES))
    assert set(judged.networks[0].values) == {"cosine", "distance", "order", "nearest", "pairs"}


def test_two_sentences_have_no_order_of_neighbours(tmp_path: Path) -> None:
    parent = sentence_folder(tmp_path / "parent")
    (tmp_path / "text.txt").write_text("w1 w2\nw3 w4\nw1 w2\n")
    judged = evaluate(parent, parent, tmp_path / "text.txt")
    assert set(judged.networks[0].values) == {"cosine", "distance"}


def table(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def test_the_kinds_of_tables_say_the_same(tmp_path: Path) -> None:
    rows = [("a, b", 'c "d"', 1.5), ("e", "f", 0), ("g", "h", 5)]
    csv = 'genre,sentence1,sentence2,score\nx,"a, b","c ""d""",1.5\nx,e,f,0\n\nx,g,h,5\n'
    tsv = 'score\tsentence1\tsentence2\n1.5\ta, b\tc "d"\n0\te\tf\n5\tg\th\n'
    lines = "\n".join(json.dumps({"sentence1": a, "sentence2": b, "score": s}) for a, b, s in rows)
    tables = (("a.csv", csv), ("b.tsv", tsv), ("c.jsonl", lines))
    found = [read_pairs(table(tmp_path, *each)) for each in tables]
    first, second, scores = zip(*rows, strict=True)
    for pairs in found:
        assert (pairs.first, pairs.second, pairs.scores) == (first, second, scores)
    assert found[0].sentences == ["a, b", 'c "d"', "e", "f", "g", "h"]


HEAD = "sentence1,sentence2,score\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", HEAD, r"is no table: \.csv, \.tsv, \.jsonl can be"),
        ("a.csv", HEAD, "are 0; 3 are the least"),
        ("a.csv", HEAD + "a,b,1\nc,d,2\n", "are 2; 3 are the least"),
        ("a.csv", HEAD + "a,b,1\nc,d,1\ne,f,1\n", "all have the score 1: nothing orders them"),
        ("a.csv", HEAD + "a,b,x\n", r"a\.csv', line 2 has score 'x'; a number can be"),
        ("a.csv", HEAD + "a,b,nan\n", "has score 'nan'"),
        ("a.csv", HEAD + "a,b\n", "line 2 has score None"),
        ("a.csv", HEAD + "a,,1\n", r"line 2 has sentence2 ''; columns are sentence1, sentence2, score"),
        ("a.csv", "text,score\na,1\n", "line 2 has no sentence1; its columns are text, score"),
        ("a.csv", HEAD + 'a,"b,1\n', "cannot be read: unexpected end of data"),
        ("a.csv", HEAD + "a," + "b" * 200_000 + ",1\n", "cannot be read: field larger than"),
        ("a.jsonl", "{", "cannot be read"),
        ("a.jsonl", "[" * 100_000, "cannot be read"),
        ("a.jsonl", "7\n", "line 1 has no sentence1; its columns are none"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b", "score": true}', "has score True"),
        ("a.jsonl", '{"sentence1": ["a"], "sentence2": "b", "score": 1}', "has sentence1"),
    ],
)
def test_tables_that_are_refused(name: str, content: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as failed:
        read_pairs(table(tmp_path, name, content))
    assert "\n" not in str(failed.value)


@given(st.integers(1, 1 << 19), st.integers(1, 1 << 14))
def test_logits_of_a_passage_are_bounded(vocab: int, length: int) -> None:
    count = sequences_at_once(vocab, length)
    assert 1 <= count <= BATCH
    assert count == 1 or count * vocab * length <= LOGITS
    assert count == BATCH or (count + 1) * vocab * length > LOGITS
