"""Answers that loop: against loops over all stretches, and against passes without a cache."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import saved, word_tokenizer

from zerolm.checkpoints import Checkpoint
from zerolm.evaluation import loops
from zerolm.evaluation.evaluate import evaluate
from zerolm.evaluation.loops import LEAST, PERIOD, TIMES, Prompts, ends_in_loop, stops_of
from zerolm.networks.opener import open_model
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens

FEW: dict[str, Any] = {"sequences": 6, "length": 12}


def by_stretches(ids: list[int], period: int, times: int, least: int) -> bool:
    """Whether some stretch at the end is one piece again and again, with a part of it at its beginning."""
    for p in range(1, period + 1):
        for length in range(max(times * p, least), len(ids) + 1):
            stretch = ids[len(ids) - length :]
            again = (stretch[-p:] * (length // p + 1))[-length:]
            if stretch == again:
                return True
    return False


@st.composite
def answers(draw: st.DrawFn) -> list[int]:
    """A beginning, and a piece several times, of which some is missing or wrong."""
    words = st.integers(0, 2)
    begin, piece = draw(st.lists(words, max_size=8)), draw(st.lists(words, min_size=1, max_size=5))
    whole = begin + piece * draw(st.integers(0, 6)) + piece[: draw(st.integers(0, 5))]
    if whole and draw(st.booleans()):
        whole[draw(st.integers(0, len(whole) - 1))] = draw(words)
    return whole


@given(answers(), st.integers(1, 6), st.integers(2, 4), st.integers(1, 12))
def test_a_loop_is_one_by_stretches(ids: list[int], period: int, times: int, least: int) -> None:
    wanted = by_stretches(ids, period, times, least)
    assert ends_in_loop(ids, period, times, least) == wanted
    assert ends_in_loop([9, *ids], period, times, least) == wanted  # what came before does not matter


def test_the_limits_of_a_loop() -> None:
    rest = list(range(100, 150))
    assert ends_in_loop([*rest, *[7] * LEAST])
    assert not ends_in_loop([*rest, *[7] * (LEAST - 1)])
    piece = list(range(PERIOD))
    assert ends_in_loop(piece * TIMES)
    assert not ends_in_loop((piece * TIMES)[1:])
    assert not ends_in_loop(list(range(PERIOD + 1)) * TIMES)
    assert not ends_in_loop([*[7] * 200, 8])
    assert not ends_in_loop([])


def folder(place: Path, name: str = "llama") -> Path:
    word_tokenizer(saved(place / "parent", name))
    (place / "text.txt").write_text(" ".join(f"w{i * i % 61}" for i in range(300)))
    return place / "parent"


@pytest.mark.parametrize("stops", [(), (5, 40)])
def test_answers_take_the_likeliest_token_each_time(
    stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "BATCH", 2)
    model = open_model(Checkpoint.open(folder(tmp_path)))
    model.generation_config.update(do_sample=True, temperature=2.0, repetition_penalty=1.9, top_k=7)
    ids = torch.arange(15).reshape(3, 5) * 4
    found = Prompts(ids, stops, 12).answers(lambda: model)
    for prompt, answer in zip(ids.tolist(), found, strict=True):
        read, wanted = list(prompt), list[int]()
        while len(wanted) < 12:
            with torch.no_grad():
                token = int(model(input_ids=torch.tensor([read]), use_cache=False).logits[0, -1].argmax())
            if token in stops:
                break
            wanted.append(token)
            read.append(token)
        assert answer.tolist() == wanted


def test_prompts_are_first_halves_evenly_from_all(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(folder(tmp_path))
    model = open_model(checkpoint)
    tokens = Tokens(torch.arange(8 * 9).reshape(8, 9) % 64)
    assert Prompts.of(checkpoint, model, tokens, 4).ids.tolist() == tokens.ids[::2, :4].tolist()
    assert len(Prompts.of(checkpoint, model, tokens, 99).ids) == 8
    for said, stops in ((None, ()), (3, (3,)), ([3, 7, 64, -1], (3, 7))):
        model.generation_config.eos_token_id = said
        assert stops_of(model, 64) == stops


def test_shares_are_of_answers_of_each_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose head always says the same token loops; its parent is as it may be."""
    monkeypatch.setattr(loops, "ANSWER", 40)
    parent = folder(tmp_path)
    model = open_model(Checkpoint.open(parent))
    with torch.no_grad():
        model.model.embed_tokens.weight[:] = 1.0
        model.lm_head.weight[:] = 0.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[:] = 0.0
            layer.mlp.down_proj.weight[:] = 0.0
    model.save_pretrained(tmp_path / "child")
    result = evaluate(tmp_path / "child", parent, tmp_path / "text.txt", loops=4, **FEW)
    rows = {row.name: row.values["loops"] for row in result.networks}
    assert rows["child"] == 1.0
    checkpoint = Checkpoint.open(parent)
    reference = open_model(checkpoint)
    prompts = Prompts.of(checkpoint, reference, tokens_of(checkpoint, f"{tmp_path}/text.txt", **FEW), 4)
    share = np.mean([ends_in_loop(answer) for answer in prompts.answers(lambda: reference)])
    assert rows["parent"] == share
    assert (result.prompts, result.to_json()["prompts"], result.to_json()["loops"]) == (4, 4, 1.0)
    assert set(rows) == {"child", "parent", "random", "uniform"}
    assert evaluate(tmp_path / "child", parent, tmp_path / "text.txt", loops=99, **FEW).prompts == 6
