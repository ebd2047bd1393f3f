"""GGUF of a child with fewer tokens: llama.cpp reads 500 strings as transformers does."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("gguf")
llama_cpp = pytest.importorskip("llama_cpp")

import torch  # noqa: E402
from made_tokenizers import CORPUS, SPECIAL, byte_level, sentence_piece  # noqa: E402
from tiny import DECODER  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from zerolm.carving.carve import carve  # noqa: E402
from zerolm.carving.request import Destination, Methods  # noqa: E402
from zerolm.planning.size_request import SizeRequest, VocabularyRequest  # noqa: E402

ROWS = 960
STRINGS = 500
KINDS = {
    **{words: partial(byte_level, words) for words in ("gpt-2", "smollm", "qwen2", "llama-bpe")},
    "SentencePiece": sentence_piece,
    "SentencePiece without a space in front": partial(sentence_piece, in_front=False),
}


def strings() -> list[str]:
    """Strings of lines, words, special tokens and drawn characters of many scripts."""
    drawn = random.Random(0)
    lines = [line for text in CORPUS for line in text.splitlines() if line.strip()]
    alphabet = [*"".join(CORPUS), *SPECIAL, "ж", "名", "\u0301", "🙂"]
    texts = [drawn.choice(lines) for _ in range(STRINGS // 2)]
    texts += ["".join(drawn.choices(alphabet, k=drawn.randint(1, 30))) for _ in range(STRINGS // 2)]
    return [f"a{text}" for text in texts]  # what a text gets in front is not what leaves


@pytest.mark.parametrize("kind", KINDS)
def test_strings_are_read_alike(kind: str, tmp_path: Path) -> None:
    parent, text = tmp_path / "parent", tmp_path / "text.txt"
    torch.manual_seed(0)
    config = DECODER | {"vocab_size": ROWS, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 8}
    LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(parent)
    stock = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(KINDS[kind]()),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    stock.save_pretrained(parent)
    text.write_text(CORPUS[0], "utf-8")
    size = SizeRequest.of(vocabulary=VocabularyRequest("used"))
    carved = carve(parent, size, Methods(text=str(text)), Destination(tmp_path / "child", "gguf"))
    assert carved.vocabulary is not None
    assert carved.vocabulary.child < carved.vocabulary.parent
    carve(parent, size, Methods(text=str(text)), Destination(tmp_path / "hf"))
    ours = PreTrainedTokenizerFast.from_pretrained(tmp_path / "hf")
    file = next((tmp_path / "child").glob("*.gguf"))
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    assert reader.n_vocab() == carved.vocabulary.child
    for string in strings():
        theirs = reader.tokenize(string.encode(), add_bos=False, special=True)
        assert theirs == ours(string, add_special_tokens=False)["input_ids"], string
