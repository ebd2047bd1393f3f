"""Tokenizers with published rules in llama.cpp, also with fewer tokens; chat templates go there and back.

A ``tokenizer.model`` is cut with its ``tokenizer.json``: SentencePiece itself reads strings as before.
"""

import io
import json
import os
import random
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("gguf", reason="gguf is not installed")
llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
sentencepiece = pytest.importorskip("sentencepiece")
pytest.importorskip("google.protobuf")

import torch  # noqa: E402
import transformers  # noqa: E402
from gguf import GGUFReader  # noqa: E402
from gguf_files import written  # noqa: E402
from made_tokenizers import CORPUS, byte_level  # noqa: E402
from made_vocabularies import TEMPLATE, decoder  # noqa: E402
from published_rules import PUBLISHED, SIZE, save_published  # noqa: E402
from tiny import DECODER, MODELS  # noqa: E402
from torch import nn  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from zerolm.carving.carve import carve  # noqa: E402
from zerolm.carving.request import Destination, Methods  # noqa: E402
from zerolm.carving.vocabulary import byte_losses  # noqa: E402
from zerolm.carving.vocabulary.tokenizer_files import write_cut  # noqa: E402
from zerolm.checkpoints import Checkpoint  # noqa: E402
from zerolm.children.gguf.check import check  # noqa: E402
from zerolm.children.gguf.tokenizer import check_reading, compare_with, opened, vocabulary  # noqa: E402
from zerolm.networks.opener import open_model, stock_tokenizer  # noqa: E402
from zerolm.planning.size_request import SizeRequest, VocabularyRequest  # noqa: E402

ROWS: Final = 960
WRITTEN_AS: Final = {
    "qwen3": "qwen2", "llama3_1": "llama-bpe", "gptoss": "gpt-4o", "deepseek_v3": "deepseek-v3",
    "mistral_nemo": "tekken", "command_r_plus": "smollm", "llama2": "default", "gemma": "default",
    "gemma2": "default", "gemma3": "default",
}  # fmt: skip
"""llama.cpp's names of the ways to cut words; all of SentencePiece have one."""
NOTED: Final = {
    "qwen3": "NFC", "command_r_plus": "NFC", "gptoss": "combining marks", "mistral_nemo": "combining marks",
    "llama2": "begins with one",
}  # fmt: skip
TAKEN_FOR_AN_END: Final = "</s>"
"""llama.cpp takes this for a special token wherever it is one, as in the vocabulary of Qwen."""
STRINGS: Final = 400
"""Of each; 4,000 of all ten."""
CHINESE: Final = "你好，世界。今天是三月十五日，我们一起去北京看看吧！天气很好，人也很多。"  # noqa: RUF001
EMOJI: Final = ("🙂", "👩‍👩‍👧", "🇪🇺", "👍🏽", "🦙", "🚀", "✅")


def parent_of(folder: Path, name: str) -> Path:
    """A tiny llama with such a tokenizer, whose configuration names no tokens."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**DECODER | {"vocab_size": ROWS, "head_dim": 8}))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return save_published(name, folder)


def strings(count: int, turns: list[str], seed: int = 0) -> Iterator[str]:
    """Yield English, code, Chinese, emoji, turns of a chat, and characters of all scripts, all in NFC."""
    drawn = random.Random(seed)
    lines = [line for text in CORPUS for line in text.splitlines() if line.strip()]
    english = [word for line in lines for word in line.split() if word.isalpha() and word.isascii()]
    for number in range(count):
        match number % 6:
            case 0:
                text = " ".join(drawn.choices(english, k=12)) + drawn.choice(".!?")
            case 1:
                text = "\n".join(drawn.choices(lines, k=3))
            case 2:
                text = "".join(drawn.choices(CHINESE, k=20))
            case 3:
                text = " ".join([*drawn.choices(EMOJI, k=4), *drawn.choices(english, k=2)])
            case 4:
                words = " ".join(drawn.choices(english, k=5))
                text = f"{drawn.choice(turns)}user\n{words}{drawn.choice(turns)}\n"
            case _:
                text = "".join(any_character(drawn) for _ in range(20))
        yield unicodedata.normalize("NFC", text)


def any_character(drawn: random.Random) -> str:
    """A character of any script that Unicode 13 knows, a half of them below 0x3000."""
    while True:
        start, end = drawn.choice([(0x20, 0x250), (0x250, 0x3000), (0x3000, 0xD800), (0x10000, 0x20000)])
        character = chr(drawn.randrange(start, end))
        if unicodedata.category(character)[0] != "C":
            return character


def compared(name: str, tokenizer: Any, reader: Any, count: int) -> None:
    compare_with(reader, tokenizer, list(strings(count, list(tokenizer.get_added_vocab()))))


@pytest.mark.parametrize("name", PUBLISHED)
def test_strings_are_read_alike(name: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name))
    file, tokenizer = written(checkpoint.folder, tmp_path / "child.gguf"), opened(checkpoint)
    model = open_model(checkpoint)
    proof = check(file, lambda ids: model(input_ids=ids).logits, tokenizer)
    assert NOTED.get(name, "") in " ".join(proof.notes)
    assert bool(proof.notes) == (name in NOTED)
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    assert reader.metadata["tokenizer.ggml.pre"] == WRITTEN_AS[name]
    compared(name, tokenizer, reader, STRINGS)
    for text in (
        "def f(x):\n    return  x\n\n\n\tdone",
        "naïve 🙂 世界",
    ):  # runs of white space are tokens of some
        ids = reader.tokenize(text.encode(), add_bos=False)
        assert reader.detokenize(ids).decode().removeprefix(" ") == text


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in ("gemma2", "gemma3")])
def test_fewer_tokens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child with the tokens of a text reads it as the parent does, and so does its file."""
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 128)
    parent, text = parent_of(tmp_path / "parent", name), tmp_path / "text.txt"
    text.write_text(unicodedata.normalize("NFC", CORPUS[0]), "utf-8")
    size = SizeRequest.of(vocabulary=VocabularyRequest("used"))
    for form in ("hf", "gguf"):
        carved = carve(parent, size, Methods(text=str(text)), Destination(tmp_path / form, form))
        assert carved.vocabulary.child < SIZE
    ours, theirs = stock_tokenizer(tmp_path / "hf"), stock_tokenizer(parent)
    wanted = theirs.convert_ids_to_tokens(theirs(text.read_text("utf-8"))["input_ids"])
    assert ours.convert_ids_to_tokens(ours(text.read_text("utf-8"))["input_ids"]) == wanted
    file = next((tmp_path / "gguf").glob("*.gguf"))
    compared(name, ours, llama_cpp.Llama(str(file), vocab_only=True, verbose=False), STRINGS // 10)


@pytest.mark.skipif("ZEROLM_REAL" not in os.environ, reason="ZEROLM_REAL names no folder of real models")
@pytest.mark.parametrize("name", PUBLISHED)
def test_whole_vocabularies_as_published(name: str, tmp_path: Path) -> None:
    """10,000 strings of each tokenizer that is there."""
    folder = Path(os.environ["ZEROLM_REAL"], "tokenizers", name)
    if not folder.is_dir():
        pytest.skip(f"{name} is not in ZEROLM_REAL")
    tokenizer = stock_tokenizer(folder)
    rows = max(tokenizer.get_vocab().values()) + 1

    class Folder:
        config: Final[dict[str, Any]] = {}

        class layout:  # noqa: N801
            vocab = rows

    texts = list(strings(10 * STRINGS, list(tokenizer.get_added_vocab())))
    texts = [text.replace(TAKEN_FOR_AN_END, "") for text in texts]
    check_reading(vocabulary(Folder, tokenizer), tokenizer, texts)  # type: ignore[arg-type]


TOOLS = f"{{{{ tools }}}} {TEMPLATE}"
RAG = f"{{{{ documents }}}} {TEMPLATE}"
KEY = "tokenizer.chat_template"


def in_config(folder: Path, value: object) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": value}))


def as_list(folder: Path) -> dict[str, str]:
    named = {"default": TEMPLATE, "tool_use": TOOLS, "rag": RAG}
    in_config(folder, [{"name": name, "template": text} for name, text in named.items()])
    return named


def as_object(folder: Path) -> dict[str, str]:
    named = {"default": TEMPLATE, "tool_use": TOOLS}
    in_config(folder, named)
    return named


def as_files(folder: Path) -> dict[str, str]:
    in_config(folder, None)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(TOOLS)
    return {"default": TEMPLATE, "tool_use": TOOLS}


def none(folder: Path) -> dict[str, str]:
    in_config(folder, None)
    return {}


@pytest.mark.parametrize("arrange", [as_list, as_object, as_files, none])
def test_templates_go_into_a_file_and_come_back(arrange, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    parent = decoder(tmp_path / "parent", byte_level("qwen2"))
    named = arrange(parent)
    carve(parent, SizeRequest.of(keep={"ffn": 0.5}), Methods(), Destination(tmp_path / "child", "gguf"))
    file = next((tmp_path / "child").glob("*.gguf"))
    fields = {name: field.contents() for name, field in GGUFReader(file).fields.items() if KEY in name}
    wanted: dict[str, object] = {KEY if n == "default" else f"{KEY}.{n}": text for n, text in named.items()}
    assert sorted(fields.pop(f"{KEY}s", [])) == sorted(named.keys() - {"default"})
    assert fields == wanted
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    assert reader.metadata.get(KEY) == named.get("default")
    read = stock_tokenizer(Checkpoint.open(file).folder).chat_template
    assert ({"default": read} if isinstance(read, str) else read or {}) == named


PIECE_ROWS = 820
LINES = [line for text in CORPUS for line in text.splitlines() if line.strip()]


@cache
def trained(kind: str) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=written, model_type=kind, vocab_size=800,
        byte_fallback=kind == "bpe", character_coverage=0.985 if kind == "bpe" else 1.0,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def llama(folder: Path) -> str:
    torch.manual_seed(0)
    config = DECODER | {"vocab_size": PIECE_ROWS, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 8}
    LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(folder)
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.model").write_bytes(trained("bpe"))
    return "tokenizer.model"


def xlm_roberta(folder: Path) -> str:
    sizes = MODELS["bert"][1] | {"vocab_size": PIECE_ROWS, "max_position_embeddings": 80, "pad_token_id": 1}
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
    for string in LINES:
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
