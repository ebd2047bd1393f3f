"""A ``tokenizer.model`` is cut with its ``tokenizer.json``: SentencePiece itself reads strings as before."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sentencepiece = pytest.importorskip("sentencepiece")
pytest.importorskip("google.protobuf")

import torch  # noqa: E402
import transformers  # noqa: E402
from made_tokenizers import CORPUS  # noqa: E402
from tiny import DECODER, MODELS  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from zerolm.carving.carve import carve  # noqa: E402
from zerolm.carving.request import Destination, Methods  # noqa: E402
from zerolm.carving.vocabulary.tokenizer_files import write_cut  # noqa: E402
from zerolm.planning.size_request import SizeRequest, VocabularyRequest  # noqa: E402

ROWS = 820
STRINGS = [line for text in CORPUS for line in text.splitlines() if line.strip()]


@cache
def trained(kind: str) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(STRINGS), model_writer=written, model_type=kind, vocab_size=800,
        byte_fallback=kind == "bpe", character_coverage=0.985 if kind == "bpe" else 1.0,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def llama(folder: Path) -> str:
    torch.manual_seed(0)
    config = DECODER | {"vocab_size": ROWS, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 8}
    LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(folder)
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.model").write_bytes(trained("bpe"))
    return "tokenizer.model"


def xlm_roberta(folder: Path) -> str:
    sizes = MODELS["bert"][1] | {"vocab_size": ROWS, "max_position_embeddings": 80, "pad_token_id": 1}
    transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**sizes)).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    (folder / "sentencepiece.bpe.model").write_bytes(trained("unigram"))
    return "sentencepiece.bpe.model"


@pytest.mark.parametrize("kind", [llama, xlm_roberta])
def test_sentence_piece_reads_as_before(kind: Any, tmp_path: Path) -> None:
    parent, text = tmp_path / "parent", tmp_path / "text.txt"
    name = kind(parent)
    text.write_text(CORPUS[0], "utf-8")
    request = SizeRequest.of(vocabulary=VocabularyRequest("used"))
    carved = carve(parent, request, Methods(text=str(text)), Destination(tmp_path / "child"))
    theirs, ours = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
        for folder in (parent, tmp_path / "child")
    )
    assert carved.vocabulary is not None
    assert len(ours) < len(theirs)
    same = 0
    stays = {ours.id_to_piece(number) for number in range(len(ours))}
    for string in STRINGS:
        before, after = (one.encode(string, out_type=str) for one in (theirs, ours))
        assert theirs.decode(before) == ours.decode(after)
        if stays.issuperset(before):
            assert after == before
            same += 1
    assert same > 10
    vocab = json.loads((tmp_path / "child" / "tokenizer.json").read_text())["model"]["vocab"]
    ids = vocab if isinstance(vocab, dict) else {row[0]: number for number, row in enumerate(vocab)}
    shift = 1 if kind is xlm_roberta else 0
    usual = [piece for piece in stays if not piece.startswith("<")]
    assert all(ids[piece] == ours.piece_to_id(piece) + shift for piece in usual)


def test_pieces_that_would_be_numbered_otherwise_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(trained("bpe"))
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    before = {model.id_to_piece(number): number for number in range(len(model))}
    after = {piece: number for number, piece in enumerate(list(before)[3:])}  # without special ones
    with pytest.raises(ValueError, match="another place than its id"):
        write_cut(tmp_path / "tokenizer.model", tmp_path / "cut.model", before, after)
    (tmp_path / "none.model").write_bytes(b"\xff" * 9)
    with pytest.raises(ValueError, match="is no SentencePiece model"):
        write_cut(tmp_path / "none.model", tmp_path / "cut.model", before, after)
    assert not (tmp_path / "cut.model").exists()
