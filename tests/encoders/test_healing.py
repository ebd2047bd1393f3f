"""A child of a sentence-transformers folder learns by the embeddings of sentences, read one by one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from portion import portion
from safetensors.torch import load_file, save_file
from sentence_folders import LINES, lines_file, sentence_folder
from tiny import model, saved, word_tokenizer
from torch.nn import functional
from transformers import AutoModel

import zerolm
from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import stock_tokenizer
from zerolm.networks.pooling import TokenPooling
from zerolm.text.corpus import Sequences, batch_of
from zerolm.text.documents import read_text
from zerolm.text.line_corpus import PADDING, LineCorpus, without_padding
from zerolm.text.pairs import sentences_of
from zerolm.training.learner import Objective, Student
from zerolm.training.teacher import LiveTeacher

pytest.importorskip("accelerate", reason="accelerate is not installed")
FAST: dict[str, Any] = {"tokens": 60 * 4 * 12, "batch": 4, "length": 12, "rate": 3e-4}


def test_a_healed_child_is_nearer_and_keeps_its_layout(tmp_path: Path) -> None:
    kinds = ("Dense", "Normalize")
    parent = sentence_folder(tmp_path / "parent", inside="0_Transformer", mode="cls", kinds=kinds)
    zerolm.carve(parent, tmp_path / "child", keep_ffn=0.25, criterion="capacity")
    report = zerolm.heal(
        tmp_path / "child", tmp_path / "healed", parent=parent, text=lines_file(tmp_path), **FAST
    )
    assert report.training.losses == ["mse"]
    assert report.losses["before"]["cosine"] < report.losses["after"]["cosine"] < 1
    (source,) = report.texts
    assert (source.tokens, source.held_out) == (
        sum(min(12, len(line.split())) for line in LINES),
        sum(min(12, len(line.split())) for line in LINES[-2:]),
    )
    names, healed_names = (
        {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "child", tmp_path / "healed")
    )
    assert names <= healed_names
    assert all(name.startswith("training/") for name in healed_names - names)
    ours, theirs = (TokenPooling.of(Checkpoint.open(folder)) for folder in (tmp_path / "healed", parent))
    assert repr(ours) == repr(theirs)
    if report.verified.embeddings is not None:
        assert report.verified.embeddings < 1e-5
    judged = zerolm.eval(
        tmp_path / "healed", parent=parent, beside=[tmp_path / "child"], text=lines_file(tmp_path)
    )
    healed, child = judged.networks[0], judged.networks[-1]
    assert healed.distance < child.distance


@pytest.mark.parametrize("losses", ["embedding,hidden", "hidden,mse"])
def test_a_channel_that_the_last_norm_all_but_removes(losses: str, tmp_path: Path) -> None:
    """As that of all-MiniLM-L6-v2 does with channel 223: its square underflows as soon as it is trained."""
    parent = sentence_folder(tmp_path / "parent")
    weights = load_file(parent / "model.safetensors")
    norm = max(name for name in weights if name.endswith(".output.LayerNorm.weight"))
    for name in (norm, norm.replace("weight", "bias")):
        weights[name][5] = 1e-22
    save_file(weights, parent / "model.safetensors", {"format": "pt"})
    zerolm.carve(parent, tmp_path / "child", keep_ffn=0.5)
    run: dict[str, Any] = {"parent": parent, "text": lines_file(tmp_path), **FAST, "losses": losses}
    run["tokens"] = 20 * 4 * 12
    report = zerolm.heal(tmp_path / "child", tmp_path / "healed", **run)
    assert report.losses["after"]["cosine"] > report.losses["before"]["cosine"] - 1e-3


def corpus_of(folder: Path, lines: list[str] = LINES, length: int = 9) -> LineCorpus:
    return LineCorpus.read([str(lines_file(folder, lines))], stock_tokenizer(folder), length, 1 << 20)


def test_a_sentence_is_a_sequence_and_the_last_are_held_out(tmp_path: Path) -> None:
    tokenizer = stock_tokenizer(sentence_folder(tmp_path))
    corpus = corpus_of(tmp_path)
    assert (corpus.length, corpus.counts) == (9, [(22, 2)])
    for number, line in enumerate(LINES):
        ids = tokenizer(line, truncation=True, max_length=9)["input_ids"]
        assert corpus.sequence(0, number).tolist() == ids + [PADDING] * (9 - len(ids))
    held = corpus.held_out()
    assert [row[kept.bool()].tolist() for row, kept in zip(held.ids, held.mask, strict=True)] == [
        tokenizer(line, truncation=True, max_length=9)["input_ids"] for line in LINES[-2:]
    ]
    lengths = [min(9, len(line.split())) for line in LINES]
    assert corpus.tokens_in(0, np.arange(22)) == sum(lengths[:22])
    assert corpus.tokens_in(0, np.array([23, 23])) == 2 * lengths[23]
    assert sorted(corpus.ordered(44, seed=1)[:, 1].tolist()) == sorted([*range(22)] * 2)
    some = LineCorpus.read([str(lines_file(tmp_path))], tokenizer, 9, sum(lengths[:12]))
    assert some.texts[0].documents == 12  # enough for these tokens, though --length allows longer ones
    assert corpus_of(tmp_path, ["w1 w2"] * 12, length=256).length == 2  # no longer than needed
    with pytest.raises(ValueError, match="has 9 sentences, one a line; 10 are the least"):
        corpus_of(tmp_path, LINES[:9])


@settings(max_examples=portion(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.integers(1, 5), count=st.integers(1, 120), seed=st.integers(0, 99))
def test_sentences_of_a_batch_are_about_as_long(batch: int, count: int, seed: int, tmp_path: Path) -> None:
    corpus = corpus_of(sentence_folder(tmp_path / "folder"))
    pairs = corpus.ordered(count, seed)
    grouped = corpus.grouped(pairs, batch, seed)
    size = 32 * batch
    for first in range(0, count, size):  # batches are made within groups, which hold the same sentences
        parts = (sorted(map(tuple, each[first : first + size].tolist())) for each in (pairs, grouped))
        assert next(parts) == next(parts)
    lengths = np.diff(corpus.ends[0], prepend=0)

    def padded(order: np.ndarray[Any, Any]) -> int:
        rows = lengths[order[: count // batch * batch, 1]].reshape(-1, batch)
        return int((rows.max(1) * batch).sum())

    assert padded(grouped[: count // batch * batch]) <= padded(pairs) + batch * lengths.max()
    if batch == 1:
        assert (grouped == pairs).all()
    assert (Sequences(corpus, count, seed, batch).pairs == grouped).all()
    assert corpus.usual_length == round(sum(lengths) / len(lengths))


def test_losses_are_those_of_sentences_alone(tmp_path: Path) -> None:
    """Padding is in no loss, whoever is longest in the batch."""
    folder = sentence_folder(tmp_path, mode="lasttoken", kinds=("Dense",))
    pooling, corpus = TokenPooling.of(Checkpoint.open(folder)), corpus_of(folder)
    parent, child = AutoModel.from_pretrained(folder), model("bert", seed=3)
    objective = Objective({"embedding": 1.0, "mse": 1.0}, layers=((1, 1), (3, 3)), pooling=pooling)
    ids, numbers = batch_of(Sequences(corpus, 5, 0))
    assert (ids == PADDING).any()
    signals = LiveTeacher(parent, objective).signals(ids, numbers)
    losses = {name: loss.detach() for name, loss in Student(child.eval(), objective)(ids, **signals).items()}
    apart, squares, sizes = [], [0.0, 0.0], [0.0, 0.0]
    for row in ids:
        alone = row[row != PADDING][None]
        mask = torch.ones_like(alone)
        with torch.no_grad():
            ours, theirs = (net(alone, output_hidden_states=True).hidden_states for net in (child, parent))
        pair = [pooling(states[-1], mask)[0] for states in (ours, theirs)]
        apart.append(1 - float(functional.cosine_similarity(*pair, dim=0)))
        for place, layer in enumerate((1, 3)):
            squares[place] += float((ours[layer] - theirs[layer]).square().sum())
            sizes[place] += float(theirs[layer].square().sum())
    assert float(losses["embedding"]) == pytest.approx(sum(apart) / 5, rel=1e-4)
    wanted = sum(square / size for square, size in zip(squares, sizes, strict=True)) / 2
    assert float(losses["mse"]) == pytest.approx(wanted, rel=1e-4)
    with torch.no_grad():
        same = Student(parent, objective)(ids, **signals)
    assert float(same["embedding"]) == pytest.approx(0, abs=1e-5)


def test_columns_of_padding_alone_go() -> None:
    inputs = without_padding(torch.tensor([[3, 4, PADDING, PADDING], [5, 6, 7, PADDING]]))
    assert inputs["input_ids"].tolist() == [[3, 4, 0], [5, 6, 7]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_what_has_no_embeddings_is_refused(tmp_path: Path) -> None:
    run: dict[str, Any] = {"text": lines_file(tmp_path), "losses": "embedding", **FAST}
    for name in ("llama", "bert"):
        word_tokenizer(saved(tmp_path / name, name))
        zerolm.carve(tmp_path / name, tmp_path / f"{name}-child", keep_ffn=0.5, criterion="capacity")
        with pytest.raises(ValueError, match=r"the child has no modules\.json of sentence-transformers"):
            zerolm.heal(tmp_path / f"{name}-child", tmp_path / "out", parent=tmp_path / name, **run)
    parent = sentence_folder(tmp_path / "parent")
    zerolm.carve(parent, tmp_path / "child", keep_ffn=0.5, criterion="capacity")
    with pytest.raises(ValueError, match="so kl cannot be; hidden and mse and embedding can"):
        zerolm.heal(tmp_path / "child", tmp_path / "out", parent=parent, **run | {"losses": "kl"})


def test_a_table_of_pairs_is_a_text_of_its_sentences(tmp_path: Path) -> None:
    table = "sentence1,sentence2,score\nw1 w2,w3,1\nw4,,2\n"
    assert sentences_of("a.csv", table) == ["w1 w2", "w3", "w4"]
    assert sentences_of("a.txt", table) == ["sentence1,sentence2,score", "w1 w2,w3,1", "w4,,2"]
    assert sentences_of("a.csv", "one, two\nthree\n") == ["one, two", "three"]  # no table of pairs
    file = tmp_path / "a.jsonl"  # its records are read first, each with its sentences
    file.write_text('{"sentence1": "w1", "sentence2": "w2 w3"}\n\n{"sentence1": "w4", "sentence2": "w5"}\n')
    assert sentences_of(str(file), read_text(file).content) == ["w1", "w2 w3", "w4", "w5"]
