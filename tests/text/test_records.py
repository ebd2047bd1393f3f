"""Texts as people have them: records of JSON, Parquet, data sets, gzip files, chats, several domains."""

import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from zerolm.carving.request import MethodRequest
from zerolm.settings.domains import domains_of
from zerolm.settings.request import settings_of
from zerolm.settings.setting import KINDS
from zerolm.text import documents as documents_module
from zerolm.text.corpus import token_file
from zerolm.text.documents import documents, read_text, whole_text
from zerolm.text.encoding import chat_renderer, encoded
from zerolm.text.line_corpus import LineCorpus
from zerolm.text.record_texts import reading_field
from zerolm.text.tokens import running_tokens

Rows = list[dict[str, Any]]
WORDS = st.text("ab \n{}[]\"'\\é☃", min_size=1).filter(str.strip)


def write_lines(place: Path, rows: Rows) -> None:
    place.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))


def write_packed(place: Path, rows: Rows) -> None:
    place.write_bytes(gzip.compress("\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()))


def write_array(place: Path, rows: Rows) -> None:
    place.write_text(json.dumps(rows, indent=2), encoding="utf-8-sig")


def write_parquet(place: Path, rows: Rows) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), place)


def write_saved(place: Path, rows: Rows) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(rows).save_to_disk(place, num_shards=min(2, len(rows)))


FORMATS: dict[str, Callable[[Path, Rows], None]] = {
    "rows.jsonl": write_lines, "rows.ndjson": write_lines, "lines.json": write_lines,
    "rows.jsonl.gz": write_packed, "rows.json": write_array, "rows.parquet": write_parquet,
    "saved": write_saved,
}  # fmt: skip


def made(folder: Path, name: str, rows: Rows) -> Path:
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    FORMATS[name](place, rows)
    return place


@pytest.mark.parametrize("name", FORMATS)
@given(texts=st.lists(WORDS, min_size=1, max_size=5))
def test_each_record_is_a_document_whatever_the_format(
    name: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = made(tmp_path_factory.mktemp("rows"), name, [{"id": 3, "text": text} for text in texts])
    assert [one.content for one in documents(str(place))] == texts
    assert len({one.name for one in documents(str(place))}) == len(texts)
    text = read_text(place)
    assert [one.content for one in text.documents] == texts
    assert text.content == "\n".join(texts)


@given(texts=st.lists(WORDS, min_size=1, max_size=4, unique=True))
def test_the_hash_is_of_the_texts_alone(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("hash")
    rows = [{"text": text} for text in texts]
    hashes = {read_text(made(folder, name, rows)).sha256 for name in ("rows.jsonl", "rows.json")}
    renamed = [{"body": text, "id": 1} for text in texts]
    with reading_field("body"):
        hashes.add(read_text(made(folder, "rows.jsonl.gz", renamed)).sha256)
    assert len(hashes) == 1
    longer = [*rows, {"text": "more"}]
    joined = [{"text": "\n".join(texts)}, {"text": "more"}]
    others = {read_text(made(folder, "rows.jsonl", other)).sha256 for other in (longer, joined)}
    assert not others & hashes
    assert len(others) == (1 if len(texts) == 1 else 2)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"content": "a", "id": 1}, "a"),
        ({"prompt": "a ", "completion": "b"}, "a b"),
        ({"prompt": "a", "text": "b"}, "b"),
        ({"sentence1": "a", "sentence2": "b", "score": 1.0}, "a\nb"),
    ],
)
def test_fields_that_are_known(row: dict[str, Any], text: str, tmp_path: Path) -> None:
    assert read_text(made(tmp_path, "rows.jsonl", [row, row])).content == f"{text}\n{text}"


def test_strings_and_one_object_are_records_too(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    for document, texts in ((["a", "b"], ["a", "b"]), ({"text": "a\nb"}, ["a\nb"])):
        file.write_text(json.dumps(document, indent=1))
        assert [one.content for one in documents(str(file))] == texts


@pytest.mark.parametrize(
    ("rows", "field", "message"),
    [
        ([{"body": "a", "id": 1}], None, "it has body, id: name the field of the text, --text-field body"),
        ([{"text": "a", "content": "b"}], None, "has the fields text and content: name one"),
        ([{"prompt": "a", "completion": "b", "text": "c"}], None, "text and prompt[+]completion: name one"),
        ([{"text": "a"}], "body", "has no field 'body'; it has text"),
        ([{"text": "a"}, {"body": "b"}], None, "line 3 has no field 'text'; the first record has"),
        ([{"text": "a"}, {"text": 5}], None, "line 3 has text 5; a text, or a list of messages, is needed"),
        ([{"text": None}, {"text": " "}], None, "is empty"),
        ([{"text": "a\0b"}], None, "line 1 is not text: it holds zero bytes"),
        ([{"messages": [{"role": "user", "content": "a"}]}], None, "no model reads this text"),
        ([{"messages": ["a"]}], None, "has the message 'a'; one has a role and content"),
        (["a"], "body", "are strings without fields: leave --text-field out"),
        ([7], None, "line 1 is 7; an object with a field text, or a string, is needed"),
    ],
)
def test_what_is_no_text_says_where(rows: Any, field: str | None, message: str, tmp_path: Path) -> None:
    place = made(tmp_path, "rows.jsonl", rows)
    with reading_field(field), pytest.raises(ValueError, match=message) as refused:
        read_text(place)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", FORMATS)
def test_a_field_is_named(name: str, tmp_path: Path) -> None:
    rows: Rows = [{"text": "a", "content": "b", "question": "q?", "answer": "yes"}]
    place = made(tmp_path, name, rows)
    for field, text in (("content", "b"), ("question+answer", "q?yes")):
        with reading_field(field):
            assert read_text(place).content == text


@pytest.mark.parametrize(
    ("content", "renamed"),
    [
        ('{"text": "a"}\n{"text": "b"}\n', "data.jsonl"),
        ('{"text": "a"}', "data.jsonl"),
        ('[\n {"text": "a"},\n {"text": "b"}\n]', "data.json"),
        ('["a", "b"]', "data.json"),
    ],
)
def test_json_in_a_plain_text_is_refused(content: str, renamed: str, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text(content)
    with pytest.raises(ValueError, match=f"not plain text: rename it to '{renamed}'"):
        list(documents(str(tmp_path / "data.txt")))
    (tmp_path / "data.txt").rename(tmp_path / renamed)
    assert list(documents(str(tmp_path / renamed)))


@pytest.mark.parametrize(
    "content", ['{"a": 1} is an object\nof JSON', "[1] is a reference", "{}\nx = {}", "[\n"]
)
def test_other_texts_that_begin_like_json_are_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text(content)
    assert read_text(tmp_path / "data.txt").content == content


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": ', "line 2 is not JSON"),
        ("a.jsonl", b'{"text": "\xff"}', "line 1 is not UTF-8: byte 10 is wrong"),
        ("a.jsonl", b'{"a": 1, "a": 2}', "field 'a' is given twice"),
        ("a.json", b"[" * 100_000, "a.json"),
        ("a.json", b'[{"text": "a"}', "is not JSON"),
        ("a.jsonl.gz", b"plain", "no sound gzip file"),
        ("a.txt.gz", gzip.compress(b"abc" * 1000, mtime=0)[:-20], "no sound gzip file"),
        ("a.parquet", b"PAR1 nothing PAR1", "cannot be read"),
    ],
)
def test_damaged_files_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as refused:
        read_text(tmp_path / name)
    assert "\n" not in str(refused.value)
    assert name in str(refused.value)


@pytest.mark.parametrize("name", ["text.txt.gz", "rows.jsonl.gz", "rows.json.gz"])
def test_what_unpacks_beyond_limits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "MAX_TEXT", 4 << 20)
    monkeypatch.setattr("zerolm.text.records.MAX_JSON", 4 << 20)
    record = json.dumps({"text": "a" * (1 << 19)})
    content = {"text.txt.gz": "a" * (8 << 20), "rows.jsonl.gz": f"{record}\n" * 16}
    (tmp_path / name).write_bytes(gzip.compress(content.get(name, f"[{record}]" * 16).encode()))
    with pytest.raises(ValueError, match="has more than 4 MiB"):
        read_text(tmp_path / name)


def test_a_saved_data_set_reads_files_of_its_folder_alone(tmp_path: Path) -> None:
    place = made(tmp_path, "saved", [{"text": "a"}])
    state = json.loads((place / "state.json").read_text())
    (place / state["_data_files"][0]["filename"]).rename(tmp_path / "other.arrow")
    for name in ("../other.arrow", str(tmp_path / "other.arrow"), "none.arrow", 3):
        (place / "state.json").write_text(json.dumps(state | {"_data_files": [{"filename": name}]}))
        with pytest.raises(ValueError, match="lacks its file"):
            read_text(place)


def test_splits_are_named(tmp_path: Path) -> None:
    write_saved(tmp_path / "all" / "train", [{"text": "a"}])
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ValueError, match=r"holds the splits train, test: name one, .*train"):
        list(documents(str(tmp_path / "all")))
    assert read_text(tmp_path / "all" / "train").content == "a"


@pytest.mark.parametrize("name", ["rows.parquet", "saved"])
def test_without_pyarrow_the_extra_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = made(tmp_path, name, [{"text": "a"}])
    for module in [one for one in sys.modules if one.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'zerolm\[train\]', or save it as .jsonl"):
        read_text(place)


def test_a_folder_reads_its_records_and_keeps_other_json(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"text": "first"}, {"text": "second"}])
    write_array(tmp_path / "b.json", [{"text": "third"}])
    write_packed(tmp_path / "c.jsonl.gz", [{"content": "fourth"}])
    write_lines(tmp_path / "fixture.jsonl", [{"unknown": 1}])
    (tmp_path / "package.json").write_text('{"name": "x", "text": "y"}')
    contents = {one.content for one in documents(str(tmp_path))}
    assert contents == {"first", "second", "third", "fourth", '{"name": "x", "text": "y"}'}
    assert whole_text(tmp_path).content.count("\n") == 4


CHAT: Rows = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]
BEGUN = "{{ bos_token }}"
TURNS = "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} </s>{% endfor %}"
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>")


def chat_tokenizer(template: str | None, *, adds_bos: bool) -> Any:
    words = {word: place for place, word in enumerate([*SPECIAL, *(f"w{i}" for i in range(40))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", extra_special_tokens=list(SPECIAL[2:])
    )
    made.chat_template = template
    return made


@pytest.mark.parametrize("name", FORMATS)
def test_chats_are_rendered_by_the_template(name: str, tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(BEGUN + TURNS, adds_bos=True)
    place = made(tmp_path, name, [{"messages": CHAT}, {"messages": CHAT[:1]}])
    text = read_text(place, chat_renderer(tokenizer))
    wanted = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in (CHAT, CHAT[:1])]
    assert [one.content for one in text.documents] == wanted
    assert all(one.is_chat for one in text.documents)


def test_from_and_value_are_messages_too(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(TURNS, adds_bos=False)
    turns = [{"from": "human", "value": "w1 w2"}, {"from": "gpt", "value": "w3"}]
    both = [{"conversations": turns}], [{"prompt": CHAT[:1], "completion": CHAT[1:]}]
    texts = {read_text(made(tmp_path, "rows.jsonl", rows), chat_renderer(tokenizer)).content for rows in both}
    assert texts == {tokenizer.apply_chat_template(CHAT, tokenize=False)}


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("template", [BEGUN + TURNS, TURNS])
def test_no_special_token_comes_twice(template: str, adds_bos: bool, tmp_path: Path) -> None:
    """Calibration and healing read a chat as the model does: begun once, ended by its template alone."""
    tokenizer = chat_tokenizer(template, adds_bos=adds_bos)
    place = made(tmp_path, "rows.jsonl", [{"messages": CHAT}] * 4)
    (turns,) = encoded(tokenizer, [tokenizer.apply_chat_template(CHAT, tokenize=False).replace("<s>", "")])
    assert turns[-1] == 1
    wanted = [*([0] if adds_bos or template.startswith(BEGUN) else []), *turns] * 4
    assert token_file(str(place), tokenizer, 1 << 20).ids.tolist() == wanted
    text = read_text(place, chat_renderer(tokenizer))
    assert running_tokens(text, tokenizer, 1, len(wanted)).ids[0].tolist() == wanted


def test_documents_are_separated_and_one_text_is_not(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(None, adds_bos=True)
    place = made(tmp_path, "rows.jsonl", [{"text": "w1 w2"}, {"text": "w3"}])
    assert running_tokens(read_text(place), tokenizer, 1, 5).ids[0].tolist() == [0, 5, 6, 0, 7]
    (tmp_path / "text.txt").write_text("w1 w2 w3")
    assert running_tokens(read_text(tmp_path / "text.txt"), tokenizer, 1, 4).ids[0].tolist() == [0, 5, 6, 7]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "line 1: the messages need a chat template, and the tokenizer of the model has none"),
        ("{{ raise_exception('roles must alternate') }}", "refuses the messages: roles must alternate"),
        ("{% if %}", "line 1: the chat template refuses the messages"),
    ],
)
def test_chats_that_cannot_be_rendered(template: str | None, message: str, tmp_path: Path) -> None:
    place = made(tmp_path, "rows.jsonl", [{"messages": CHAT}])
    with pytest.raises(ValueError, match=message) as refused:
        read_text(place, chat_renderer(chat_tokenizer(template, adds_bos=True)))
    assert "\n" not in str(refused.value)


def test_sentences_of_records_train_encoders(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer(None, adds_bos=False)
    pairs = [{"sentence1": f"w{i}", "sentence2": f"w{i} w2", "score": i} for i in range(8)]
    both = [{"text": f"w{i}\nw{i} w2"} for i in range(8)]
    files = made(tmp_path, "rows.jsonl", pairs), made(tmp_path, "rows.json", both)
    lines, texts = (LineCorpus.read([str(file)], tokenizer, 8, 1 << 20).whole() for file in files)
    assert lines.ids.tolist() == texts.ids.tolist()
    assert len(lines) == 16


def test_names_stand_before_texts(here: Path) -> None:
    assert domains_of("code=a.txt,chat=b,c.txt,noise=random") == {
        "code": "a.txt",
        "chat": "b,c.txt",
        "noise": "random",
    }
    for one in (None, "random", "a.txt", "a,b.txt", "/data/x=1/text.txt", "a.txt,b=c"):
        assert domains_of(one) == {}
    (here / "a=b").write_text("a file of that name")
    assert domains_of("a=b") == {}
    with pytest.raises(ValueError, match="'code' has two texts"):
        domains_of("code=a,code=b")
    for empty in ("code=,chat=a", "chat=a,code=", "code="):
        with pytest.raises(ValueError, match="'code' has no text"):
            domains_of(empty)


def test_a_run_names_texts_wherever_it_is_repeated(here: Path) -> None:
    """Absolute paths, of files with a comma in their name, too; words stay."""
    (here / "b,c.txt").write_text("words")
    text = next(each for each in settings_of(MethodRequest) if each.name == "text")
    kind = KINDS["texts"]
    assert kind.repeatable(text, "chat=b,c.txt,noise=random") == f"chat={here / 'b,c.txt'},noise=random"
    assert kind.repeatable(text, "b,c.txt") == str(here / "b,c.txt")
    assert kind.repeatable(text, "random") == "random"
