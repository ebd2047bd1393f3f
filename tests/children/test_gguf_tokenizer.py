"""A GGUF file reads a page of text as the parent's tokenizer does, or the tokenizer is refused."""

import json
import random
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import made_tokenizers
import pytest
from bert_tokenizers import bert_tokenizer
from made_tokenizers import BYTES
from tiny import DECODER, logits_of
from tokenizers import AddedToken, Tokenizer, models, normalizers, processors, trainers
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from zerolm.checkpoints import Checkpoint
from zerolm.children.child_tensors import Child
from zerolm.networks.opener import open_model
from zerolm.units.kept_units import Cut, dimensions

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.checkpoints.gguf.words import WORDS  # noqa: E402
from zerolm.checkpoints.many_scripts import PAGE, without_marks  # noqa: E402
from zerolm.children.gguf.check import check  # noqa: E402
from zerolm.children.gguf.tokenizer import opened  # noqa: E402
from zerolm.children.gguf.write import expressible, write  # noqa: E402

VOCAB = 640
SPECIAL = ["<unk>", "<s>", "</s>"]
CORPUS = [PAGE, Path(__file__).read_text(encoding="utf-8")]


def byte_level(kind: str, whole: bool | None = None, size: int = VOCAB - 20) -> Tokenizer:
    return Tokenizer.from_str(made_tokenizers.byte_level(kind, size, whole))


@cache
def trained() -> str:
    """The tokenizer.json of a BPE with bytes for what is not known, trained word by word."""
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 20, limit_alphabet=100, special_tokens=[*SPECIAL, *BYTES], show_progress=False
    )
    words = [word for text in CORPUS for word in text.replace(" ", "\n ").split("\n")]
    made.train_from_iterator(words, trainer)
    return made.to_str()


def trained_pieces() -> dict[str, Any]:
    """The same, with only the special tokens among the added ones."""
    document: dict[str, Any] = json.loads(trained())
    document["added_tokens"] = document["added_tokens"][: len(SPECIAL)]
    return document


def scores(document: dict[str, Any]) -> dict[str, int]:
    order: dict[str, int] = {}
    for left, right in document["model"]["merges"]:
        order.setdefault(left + right, len(order))
    return order


def sentence_piece(scheme: str = "prepend") -> Tokenizer:
    """The same as Llama 2 has it: every pair that makes a token is a merge."""
    document = trained_pieces()
    known, order = document["model"]["vocab"], scores(document)
    document["model"]["merges"] = [p for t in sorted(order, key=order.__getitem__) for p in halves(t, known)]
    if scheme == "prepend":
        steps: list[Any] = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        document["normalizer"] = json.loads(normalizers.Sequence(steps).__getstate__())
    else:
        document["normalizer"] = None
        step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        document["pre_tokenizer"] = step
    return Tokenizer.from_str(json.dumps(document))


def halves(token: str, known: dict[str, int]) -> Iterator[list[str]]:
    for cut in range(1, len(token)):
        if token[:cut] in known and token[cut:] in known:
            yield [token[:cut], token[cut:]]


def parent(folder: Path, tokenizer: Tokenizer | None = None, **settings: Any) -> Checkpoint:
    LlamaForCausalLM(LlamaConfig(**DECODER | {"vocab_size": VOCAB})).save_pretrained(folder)
    if tokenizer is not None:
        named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | settings
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    return Checkpoint.open(folder)


def written(checkpoint: Checkpoint, file: Path) -> Any:
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), file)
    tokenizer = opened(checkpoint)
    check(file, logits_of(open_model(checkpoint)), tokenizer)
    reader = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    assert reader.tokenize(PAGE.encode(), special=True) == tokenizer(PAGE)["input_ids"]
    return reader


@pytest.mark.parametrize("kind", [words.name for words in WORDS if words.name != "glm4"])
def test_byte_level_tokens_are_the_same(kind: str, tmp_path: Path) -> None:
    reader = written(parent(tmp_path / "parent", byte_level(kind)), tmp_path / "child.gguf")
    assert reader.metadata["tokenizer.ggml.model"] == "gpt2"
    assert reader.metadata["tokenizer.ggml.pre"] == kind


@pytest.mark.parametrize(
    ("kind", "whole", "name"),
    [("gpt-2", True, "gpt-2"), ("llama-bpe", False, "dbrx"), ("tekken", False, "tekken"),
     ("gpt-4o", True, "gpt-4o")],
)  # fmt: skip
def test_words_that_are_tokens_by_their_merges(kind: str, whole: bool, name: str, tmp_path: Path) -> None:
    """Where merges make every token it is the same whether words are taken whole."""
    reader = written(parent(tmp_path / "parent", byte_level(kind, whole)), tmp_path / "child.gguf")
    assert reader.metadata["tokenizer.ggml.pre"] == name


@pytest.mark.parametrize("scheme", ["prepend", "first", "always", "never"])
def test_sentence_piece_tokens_are_the_same(scheme: str, tmp_path: Path) -> None:
    reader = written(parent(tmp_path / "parent", sentence_piece(scheme)), tmp_path / "child.gguf")
    assert reader.metadata["tokenizer.ggml.model"] == "llama"
    assert reader.metadata["tokenizer.ggml.add_space_prefix"] == ("false" if scheme == "never" else "true")


def test_a_tokenizer_that_knows_one_pair_a_token(tmp_path: Path) -> None:
    document = trained_pieces()
    assert len(document["model"]["merges"]) == len(scores(document))
    tokenizer = Tokenizer.from_str(json.dumps(document))
    reader = written(parent(tmp_path / "parent", tokenizer), tmp_path / "child.gguf")
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choices("etaoinshr mdlcu_.", k=30))
        assert reader.tokenize(text.encode(), add_bos=False) == tokenizer.encode(text).ids


@pytest.mark.parametrize("make", [lambda: byte_level("gpt-2"), sentence_piece])
@pytest.mark.parametrize("frame", ["$A", "<s> $A", "$A </s>", "<s> $A </s>"])
def test_what_is_put_around_a_text(frame: str, make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    tokenizer = make()
    tokenizer.post_processor = processors.TemplateProcessing(frame, special_tokens=[("<s>", 1), ("</s>", 2)])
    found = written(parent(tmp_path / "parent", tokenizer), tmp_path / "child.gguf").tokenize(b"mean")
    assert (found[0] == 1, found[-1] == 2) == (frame.startswith("<s>"), frame.endswith("</s>"))


@pytest.mark.parametrize("make", [lambda: byte_level("llama-bpe"), sentence_piece])
def test_added_tokens_templates_and_unused_rows(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    tokenizer = make()
    tokenizer.add_special_tokens([AddedToken("<|user|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    template = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
    checkpoint = parent(tmp_path / "parent", tokenizer, chat_template=template, pad_token="<|user|>")
    reader = written(checkpoint, tmp_path / "child.gguf")
    user, tool = (tokenizer.token_to_id(name) for name in ("<|user|>", "<tool>"))
    assert user in reader.tokenize(b"mean<|user|>values", special=True)
    assert user not in reader.tokenize(b"mean<|user|>values", special=False)
    assert tool in reader.tokenize(b"mean<tool>values", special=False)
    assert reader.metadata["tokenizer.chat_template"] == template
    assert int(reader.metadata["tokenizer.ggml.padding_token_id"]) == user
    fields = gguf.GGUFReader(tmp_path / "child.gguf").fields
    types = fields["tokenizer.ggml.token_type"].contents()
    used = tokenizer.get_vocab_size()
    assert [one for one, kind in enumerate(types) if kind == gguf.TokenType.UNUSED] == [*range(used, VOCAB)]
    assert len(fields["tokenizer.ggml.tokens"].contents()) == VOCAB > used


def test_a_file_with_another_tokenizer_fails_its_check(tmp_path: Path) -> None:
    checkpoint = parent(tmp_path / "parent", byte_level("qwen2"))
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), tmp_path / "child.gguf")
    other = opened(parent(tmp_path / "other", byte_level("gpt-2")))
    with pytest.raises(ValueError, match="other tokens than the tokenizer, from the token"):
        check(tmp_path / "child.gguf", logits_of(open_model(checkpoint)), other)


def test_a_sentence_piece_file_is_read(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    document = trained_pieces()
    known, order = document["model"]["vocab"], scores(document)
    pieces = []
    for token in sorted(known, key=known.__getitem__):
        kind = 6 if token in BYTES else {"<unk>": 2, "<s>": 3, "</s>": 3}.get(token, 1)
        text, score = token.encode(), float(-order.get(token, len(order)))
        piece = bytes([0x0A, len(text)]) + text + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])
        pieces.append(bytes([0x0A, len(piece)]) + piece)
    trainer = bytes([0x18, 2]) + b"\x98\x02\x01"  # model_type BPE, byte_fallback
    checkpoint = parent(tmp_path / "parent")
    model = b"".join(pieces) + bytes([0x12, len(trainer)]) + trainer
    (checkpoint.folder / "tokenizer.model").write_bytes(model)
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    (checkpoint.folder / "tokenizer_config.json").write_text(json.dumps(settings))
    reader = written(checkpoint, tmp_path / "child.gguf")
    wanted = sentence_piece().encode(PAGE, add_special_tokens=False).ids
    assert reader.tokenize(PAGE.encode()) == [1, *wanted]


def encoder(folder: Path, tokenizer: PreTrainedTokenizerFast) -> Checkpoint:
    sizes = {"vocab_size": 900, "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    BertModel(BertConfig(**sizes, intermediate_size=40)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint.open(folder)


@pytest.mark.parametrize(("lower", "accents"), [(True, None), (False, None), (True, False), (False, True)])
def test_word_pieces_are_the_same(lower: bool, accents: bool | None, tmp_path: Path) -> None:
    """Also where letters stay large, or keep their accents, which readers take away unless told."""
    checkpoint = encoder(tmp_path / "parent", bert_tokenizer(lower=lower, accents=accents))
    write(Child(checkpoint, Cut.whole(dimensions(checkpoint))), tmp_path / "child.gguf")
    tokenizer, model = opened(checkpoint), open_model(checkpoint)
    proof = check(tmp_path / "child.gguf", lambda ids: model(input_ids=ids).last_hidden_state, tokenizer)
    loses = lower if accents is None else accents
    assert bool(proof.notes) == loses
    reader = llama_cpp.Llama(str(tmp_path / "child.gguf"), vocab_only=True, verbose=False)
    for text in (without_marks(PAGE) if loses else PAGE, "", "[MASK] of [SEP]s", *CORPUS[1].splitlines()):
        assert reader.tokenize(text.encode(), special=True) == tokenizer(text)["input_ids"]
    small = tokenizer("Naïve CAFÉ")["input_ids"] == tokenizer("naive cafe")["input_ids"]
    assert small == (lower and accents is not False)


REFUSED_WORD_PIECES: list[tuple[str, dict[str, Any], str]] = [
    ("normalizer", {"type": "Lowercase"}, "with the words of BERT"),
    ("normalizer", {"handle_chinese_chars": False}, "with the words of BERT"),
    ("pre_tokenizer", {"type": "Whitespace"}, "with the words of BERT"),
    ("model", {"continuing_subword_prefix": ""}, "have a prefix"),
    ("post_processor", {"type": "RobertaProcessing", "add_prefix_space": True, "trim_offsets": True,
                        "sep": ["[MASK]", 4]}, "between the tokens CLS and SEP"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "settings", "message"), REFUSED_WORD_PIECES)
def test_refused_word_pieces(part: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    made = bert_tokenizer()
    checkpoint = encoder(tmp_path / "parent", made)
    (checkpoint.folder / "tokenizer.json").write_text(altered(made.backend_tokenizer, part, **settings))
    with pytest.raises(ValueError, match=message) as refused:
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))
    assert "\n" not in str(refused.value)


def test_word_pieces_that_would_be_one(tmp_path: Path) -> None:
    """A piece that goes on with ▁ and one that begins a word."""
    made = bert_tokenizer()
    document = json.loads(made.backend_tokenizer.to_str())
    tokens = sorted(document["model"]["vocab"], key=document["model"]["vocab"].__getitem__)
    begins = next(token for token in tokens[6:] if not token.startswith("##"))
    document["model"]["vocab"][f"##▁{begins}"] = document["model"]["vocab"].pop(tokens[-1])
    checkpoint = encoder(tmp_path / "parent", made)
    (checkpoint.folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="two of these are one then"):
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))


def altered(tokenizer: Tokenizer | str, part: str, **settings: Any) -> str:
    """The tokenizer.json with other settings in a part of it."""
    document = json.loads(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str())
    document[part] = (document[part] or {}) | settings
    return json.dumps(document)


def stray_merge() -> str:
    """A tokenizer whose merges of one token do not stand together."""
    document = json.loads(sentence_piece().to_str())
    merges = document["model"]["merges"]
    twice = next(i for i, (a, b) in enumerate(merges[1:]) if a + b == "".join(merges[i]))
    merges.append(merges.pop(twice))
    return json.dumps(document)


def unmerged(kind: str, *, whole: bool) -> str:
    """A tokenizer with a token that no merges make."""
    document = json.loads(byte_level(kind, whole).to_str())
    document["model"]["vocab"]["qqqqq"] = len(document["model"]["vocab"])
    return json.dumps(document)


def unmade_token() -> str:
    """A tokenizer whose last token is made of no pair."""
    document = trained_pieces()
    document["model"]["merges"].pop()
    return json.dumps(document)


def with_added(**settings: bool) -> Tokenizer:
    tokenizer = byte_level("gpt-2")
    tokenizer.add_tokens([AddedToken("<mask>", **settings)])
    return tokenizer


def framed(frame: str) -> Tokenizer:
    tokenizer = byte_level("gpt-2")
    tokenizer.post_processor = processors.TemplateProcessing(frame, special_tokens=[("<unk>", 0)])
    return tokenizer


REFUSED: list[tuple[Callable[[], Tokenizer | str], str]] = [
    (lambda: altered(byte_level("gpt-2"), "normalizer", type="NFKC"), "byte-level BPE with the normalizer"),
    (
        lambda: altered(byte_level("gpt-2"), "pre_tokenizer", add_prefix_space=True),
        r"otherwise \(ByteLevel\)",
    ),
    (lambda: altered(byte_level("gpt-2"), "pre_tokenizer", use_regex=False), r"otherwise \(ByteLevel\)"),
    (lambda: unmerged("gpt-2", whole=True), r"merges words .* gpt-2 .* its token 'qqqqq' is not merged"),
    (lambda: unmerged("tekken", whole=False), r"takes words whole .* tekken .* its token 'qqqqq'"),
    (lambda: altered(byte_level("qwen2"), "pre_tokenizer", pretokenizers=[]), "otherwise"),
    (lambda: altered(byte_level("gpt-2"), "model", end_of_word_suffix="</w>"), "BPE with end_of_word_suffix"),
    (lambda: byte_level("gpt-2", size=VOCAB + 1), f"ids up to {VOCAB}, and the embedding has {VOCAB} rows"),
    (lambda: with_added(lstrip=True), "'<mask>' with lstrip"),
    (lambda: with_added(single_word=True), "'<mask>' with single_word"),
    (lambda: framed("<unk> $A"), "before a text and"),
    (lambda: Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, "<s>")), "not with WordLevel"),
    (lambda: Tokenizer(models.Unigram([("<s>", 0.0), ("</s>", 0.0), ("a", -1.0)])), "not with Unigram"),
    (unmade_token, "the tokenizer does not merge"),
    (stray_merge, "as other tokens than the tokenizer"),
    (lambda: altered(sentence_piece(), "model", ignore_merges=True), "not one with ignore_merges"),
    (lambda: altered(sentence_piece("first"), "pre_tokenizer", split=True), "this one does more"),
    (lambda: altered(sentence_piece("first"), "normalizer", type="NFKC"), "this one does more"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_refusals(make: Callable[[], Tokenizer | str], message: str, tmp_path: Path) -> None:
    made = make()
    tokenizer = Tokenizer.from_str(made) if isinstance(made, str) else made
    checkpoint = parent(tmp_path / "parent", tokenizer)
    cut = Cut.whole(dimensions(checkpoint))
    with pytest.raises(ValueError, match=message) as refused:
        expressible(checkpoint, cut)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=message):
        write(Child(checkpoint, cut), tmp_path / "child.gguf")
    assert not (tmp_path / "child.gguf").exists()


def test_a_tokenizer_without_an_end(tmp_path: Path) -> None:
    checkpoint = parent(tmp_path / "parent", byte_level("gpt-2"), eos_token=None)
    with pytest.raises(ValueError, match="names no eos token"):
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))
    config = json.loads((checkpoint.folder / "config.json").read_text())
    (checkpoint.folder / "config.json").write_text(json.dumps(config | {"eos_token_id": [2, 1]}))
    reader = written(Checkpoint.open(checkpoint.folder), tmp_path / "child.gguf")
    assert int(reader.metadata["tokenizer.ggml.eos_token_id"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text.replace('"BPE"', '"Magic"'),
        lambda text: altered(text, "model", continuing_subword_prefix="##"),  # the library panics
    ],
)
def test_a_broken_tokenizer(change: Callable[[str], str], tmp_path: Path) -> None:
    checkpoint = parent(tmp_path / "parent", byte_level("gpt-2"))
    file = checkpoint.folder / "tokenizer.json"
    file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match=r"the tokenizer of .* cannot be read"):
        expressible(checkpoint, Cut.whole(dimensions(checkpoint)))


def test_a_tokenizer_that_lies_elsewhere(tmp_path: Path) -> None:
    checkpoint = parent(tmp_path / "parent", byte_level("gpt-2"))
    file = checkpoint.folder / "tokenizer.json"
    file.rename(tmp_path / "secret.json")
    file.symlink_to(tmp_path / "secret.json")
    with pytest.raises(ValueError, match="leads out of its folder"):
        opened(checkpoint)


def test_a_sentence_piece_file_takes_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = parent(tmp_path / "parent")
    (checkpoint.folder / "tokenizer.model").write_bytes(b"no model")
    (checkpoint.folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    monkeypatch.setattr("zerolm.children.gguf.tokenizer.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="takes protobuf and sentencepiece"):
        opened(checkpoint)
