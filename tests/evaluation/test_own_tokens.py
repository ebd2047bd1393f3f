"""Children of other tokens than their parent's: against evaluations alone, and loops over windows."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from made_tokenizers import CORPUS, byte_level, word_piece
from made_vocabularies import decoder
from sentence_folders import sentence_folder
from tiny import MODELS
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from zerolm.carving.carve import carve
from zerolm.carving.request import Destination, Methods
from zerolm.carving.vocabulary import byte_losses
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.evaluate import evaluate
from zerolm.evaluation.evaluated import Evaluated, JudgedNetwork
from zerolm.networks.opener import open_model, stock_tokenizer
from zerolm.planning.size_request import SizeRequest, VocabularyRequest
from zerolm.text.encoding import separator

LENGTH = 16


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 512)


def cut(folder: Path, out: str, tokens: str | None, form: str = "hf", **keep: float) -> Path:
    size = SizeRequest.of(keep or None, vocabulary=VocabularyRequest(tokens, None))
    methods = Methods(text=str(folder / "text.txt"), sequences=4, length=LENGTH)
    carve(folder / "parent", size, methods, Destination(folder / out, form))
    return folder / out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("own tokens")
    decoder(place / "parent", byte_level(), tie_word_embeddings=True)
    (place / "text.txt").write_text(CORPUS[0] * 3, "utf-8")
    cut(place, "used", "used", ffn=0.5)
    cut(place, "few", "300", ffn=0.75)
    cut(place, "whole", None, ffn=0.5)
    return place


def judged(folder: Path, child: str, *beside: str) -> Evaluated:
    others = [folder / name for name in beside]
    return evaluate(folder / child, folder / "parent", folder / "text.txt", length=LENGTH, beside=others)


def same(ours: JudgedNetwork, theirs: JudgedNetwork) -> None:
    assert (ours.params, ours.values) == (theirs.params, theirs.values)


def test_children_stand_beside_one_another_whatever_their_tokens(folder: Path) -> None:
    result = judged(folder, "used", "few", "whole")
    assert [row.name for row in result.networks] == ["child", "parent", "few/", "whole/"]
    assert all(set(row.values) == {"bits", "kl"} for row in result.networks)
    same(result.networks[0], judged(folder, "used").networks[0])
    same(result.networks[2], judged(folder, "few").networks[0])
    assert result.note.startswith("vocabularies of 386, 300, 960 and 960 tokens: bits a byte of ")
    shares = [float(part.split()[-1]) for part in result.note.split("%")[:3]]
    assert shares[0] == shares[2] == 100.0
    assert 50.0 < shares[1] < 100.0
    assert result.networks[1].values["kl"] == 0.0


def windows(folder: Path, name: str) -> tuple[float, list[torch.Tensor]]:
    """Nats of a network on all windows, and log p over the tokenizer's tokens that predict the first ones."""
    checkpoint = Checkpoint.open(folder / name)
    model, tokenizer = open_model(checkpoint), Tokenizer.from_file(str(folder / name / "tokenizer.json"))
    start = int(separator(stock_tokenizer(checkpoint.folder), checkpoint.layout.vocab)[0])
    columns, nats, first = torch.tensor(sorted(tokenizer.get_vocab().values())), 0.0, list[torch.Tensor]()
    for stretch in TokenLosses.on(checkpoint, model, str(folder / "text.txt"), LENGTH).stretches:
        read = tokenizer.encode(stretch, add_special_tokens=False).ids
        ids = torch.tensor([start, *read])
        for place in range(0, len(ids) - 1, LENGTH - 1):
            window = ids[place : place + LENGTH]
            with torch.no_grad():
                logits = model(input_ids=window[None]).logits[0].double()
            nats -= float(logits.log_softmax(-1)[:-1].gather(-1, window[1:, None]).sum())
            first += [logits[: len(read), columns].log_softmax(-1)] if place == 0 else []
    return nats, first


def test_bits_and_divergence_are_those_of_loops_over_windows(folder: Path) -> None:
    """Bits are those of ``TokenLosses``, too, whose windows run layer by layer in batches."""
    child, parent, used = judged(folder, "whole", "used").networks
    for row, name in ((child, "whole"), (parent, "parent"), (used, "used")):
        checkpoint = Checkpoint.open(folder / name)
        losses = TokenLosses.on(checkpoint, open_model(checkpoint), str(folder / "text.txt"), LENGTH)
        assert row.values["bits"] == pytest.approx(losses.bits(None), rel=1e-6)
    (ours_nats, ours), (theirs_nats, theirs) = windows(folder, "whole"), windows(folder, "parent")
    assert child.values["bits"] / parent.values["bits"] == pytest.approx(ours_nats / theirs_nats, rel=1e-6)
    nats = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in zip(theirs, ours, strict=True)])
    assert child.values["kl"] == pytest.approx(float(nats.mean()), rel=1e-3)


def test_a_file_stands_beside_a_folder(folder: Path) -> None:
    """Of fewer tokens, and of all: its row is that of the file alone."""
    pytest.importorskip("gguf", reason="gguf is not installed (zerolm[gguf])")
    for name, tokens in (("used file", "used"), ("whole file", None)):
        cut(folder, name, tokens, "gguf", ffn=0.5)
    beside = judged(folder, "whole", "whole file", "parent")
    assert [row.name.split("/")[-2] for row in beside.networks[-2:]] == ["whole file", "parent"]
    same(beside.networks[-2], judged(folder, "whole file").networks[0])
    assert beside.networks[-1].values["kl"] == 0.0
    same(judged(folder, "whole", "used file").networks[-1], judged(folder, "used file").networks[0])


def test_encoders_of_other_tokens_have_neighbours_and_pairs(folder: Path, tmp_path: Path) -> None:
    """With the tokens that the text uses all embeddings are the parent's, and so is their order."""
    parent = sentence_folder(tmp_path / "parent", inside="0_Transformer")
    place = parent / "0_Transformer"
    BertModel(BertConfig(**MODELS["bert"][1] | {"vocab_size": 960})).save_pretrained(place)
    stock = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(word_piece()), pad_token="[PAD]", unk_token="[UNK]"
    )
    stock.save_pretrained(place)
    text = tmp_path / "text.txt"
    text.write_text(CORPUS[0] * 3, "utf-8")
    lines = [line for line in CORPUS[0].splitlines() if line.strip()][:8]
    pairs = [{"sentence1": a, "sentence2": b, "score": n % 3} for n, (a, b) in enumerate(pairwise(lines))]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), "utf-8")
    cut(tmp_path, "child", "used")
    result = evaluate(tmp_path / "child", parent, text, data=tmp_path / "pairs.jsonl", length=12)
    child, whole = (row.values for row in result.networks)
    assert set(child) == {"cosine", "distance", "order", "nearest", "pairs"}
    assert child["distance"] == pytest.approx(0, abs=1e-6)
    assert (child["order"], child["nearest"]) == (pytest.approx(1.0, abs=1e-2), pytest.approx(1.0, abs=0.1))
    assert (whole["distance"], whole["nearest"]) == (0.0, 1.0)
    assert child["pairs"] == pytest.approx(whole["pairs"], abs=0.05)


def test_what_is_read_into_memory_is_refused_beside_what_is_not(folder: Path) -> None:
    values: Any = {"length": LENGTH, "beside": [folder / "used"]}
    with pytest.raises(ValueError, match="is judged on one text at a time"):
        evaluate(folder / "whole", folder / "parent", f"a={folder}/text.txt,b={folder}/text.txt", **values)
    with pytest.raises(ValueError, match="leave --loops out"):
        evaluate(folder / "whole", folder / "parent", folder / "text.txt", loops=2, **values)
