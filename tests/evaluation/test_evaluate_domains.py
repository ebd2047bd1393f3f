"""Texts of several domains: each is what it is alone, and all together weigh their tokens alike."""

import math
from pathlib import Path
from typing import Any

import pytest
from carvings import carve
from tiny import saved, word_tokenizer

from zerolm.evaluation.evaluate import Evaluated, evaluate

FEW: dict[str, Any] = {"sequences": 5, "length": 12}


def texts(folder: Path) -> dict[str, str]:
    lines = [" ".join(f"w{(i * i + 7 * j) % 61}" for i in range(20)) for j in range(9)]
    (folder / "code.txt").write_text("\n".join(lines))
    (folder / "chat").mkdir()
    for part in range(2):
        lines = [" ".join(f"w{(3 * i + j + part) % 50}" for i in range(16)) for j in range(6)]
        (folder / "chat" / f"{part}.txt").write_text("\n".join(lines))
    (folder / "short.txt").write_text(
        "\n".join(" ".join(f"w{i * j % 47}" for i in range(15)) for j in (1, 2))
    )
    return {"code": f"{folder}/code.txt", "chat": f"{folder}/chat", "short": f"{folder}/short.txt"}


def judged(folder: Path, text: str) -> Evaluated:
    return evaluate(folder / "child", folder / "parent", text, **FEW)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_domain_is_what_it_is_alone(name: str, tmp_path: Path) -> None:
    word_tokenizer(saved(tmp_path / "parent", name))
    carve(tmp_path / "parent", tmp_path / "child", keep_ffn=0.5, criterion="capacity")
    sources = texts(tmp_path)
    result = judged(tmp_path, ",".join(f"{name}={path}" for name, path in sources.items()))
    alone = {domain: judged(tmp_path, f"{domain}={path}") for domain, path in sources.items()}
    sizes = {domain: each.sequences for domain, each in alone.items()}
    assert sizes["code"] == sizes["chat"] == 5
    assert sizes["short"] == 2
    assert (result.sequences, result.tokens) == (12, sum(each.tokens for each in alone.values()))
    for place, row in enumerate(result.networks):
        assert list(row.domains) == list(sources)
        for domain, values in row.domains.items():
            theirs = alone[domain].networks[place]
            assert values == pytest.approx(theirs.values, rel=1e-6, abs=1e-7)
            assert values == pytest.approx(theirs.domains[domain], rel=1e-6, abs=1e-7)
    code, chat = (result.networks[0].domains[domain] for domain in ("code", "chat"))
    measure = "kl" if name == "llama" else "distance"
    assert code[measure] != pytest.approx(chat[measure], rel=1e-4)
    assert ("order" in code, "order" in result.networks[0].domains["short"]) == (name == "bert", False)
    if name == "bert":
        return
    for row in result.networks:
        whole = {"kl": 0.0, "surprise": 0.0}
        for domain, values in row.domains.items():
            share = sizes[domain] / result.sequences
            whole["kl"] += share * values["kl"]
            whole["surprise"] += share * math.log(values["perplexity"])
        assert row.values["kl"] == pytest.approx(whole["kl"], rel=1e-9)
        if not row.spread:  # a mean of perplexities is not that of means of surprise
            assert row.values["perplexity"] == pytest.approx(math.exp(whole["surprise"]), rel=1e-9)


def test_one_text_has_no_domains(tmp_path: Path) -> None:
    word_tokenizer(saved(tmp_path / "parent", "llama"))
    carve(tmp_path / "parent", tmp_path / "child", keep_ffn=0.5)
    path = texts(tmp_path)["code"]
    plain, named = judged(tmp_path, path), judged(tmp_path, f"code={path}")
    assert not any(row.domains for row in plain.networks)
    assert "domains" not in plain.to_json()["rows"][0]
    assert [row.values for row in plain.networks] == [row.values for row in named.networks]
