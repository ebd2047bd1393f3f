"""Benchmarks of one's own, JSON and CSV: what is read, in which direction, under which settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerolm.groundtruth.reader import (
    SHIPPED,
    GroundTruth,
    known_names,
    locate,
    named_corpus,
    quality,
    read,
    read_csv,
    views,
)
from zerolm.groundtruth.truth import HIGHER, LOWER, TURNING, check, known_direction

GOOD = """\
id,space,architecture.n_layer,architecture.d_model,architecture.d_inner,architecture.n_head,\
architecture.d_embed,architecture.div_val,ppl,bleu,bits:lower,speed loss:higher
a,gpt2,2,64,"[256, 301]","[2, 2]",128,1,49.5,20,1.5,3
b,gpt2,2,128,"[256, 302]","[2, 2]",128,1,48.0,21,1.4,4

c,gpt2,2,192,"[256, 303]","[2, 2]",128,1,47,2.2e1,1.3,5
"""


def written(tmp_path: Path, text: str | bytes, name: str = "mine.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_column_for_each_choice(tmp_path: Path) -> None:
    truth = read_csv(written(tmp_path, GOOD))
    assert (truth.name, truth.space, truth.metric) == ("mine", "gpt2", None)
    assert [entry.id for entry in truth.architectures] == ["a", "b", "c"]
    assert truth.architectures[1].architecture == {
        "n_layer": 2, "d_model": 128, "d_inner": [256, 302], "n_head": [2, 2], "d_embed": 128, "div_val": 1,
    }  # fmt: skip
    assert truth.architectures[2].results == {"ppl": 47.0, "bleu": 22.0, "bits": 1.3, "speed loss": 5.0}
    assert len(views(truth)[0].architectures) == 3


def test_the_same_as_one_json_object(tmp_path: Path) -> None:
    truth = read_csv(written(tmp_path, GOOD))
    lines = ["space,ppl,architecture"] + [
        f'gpt2,{entry.results["ppl"]},"{json.dumps(entry.architecture).replace(chr(34), chr(34) * 2)}"'
        for entry in truth.architectures
    ]
    other = read_csv(written(tmp_path, "\ufeff" + "\r\n".join(lines)))
    assert [e.architecture for e in other.architectures] == [e.architecture for e in truth.architectures]
    assert [entry.id for entry in other.architectures] == ["line 2", "line 3", "line 4"]


@pytest.mark.parametrize(
    ("metric", "best"), [("ppl", 47.0), ("bleu", 22.0), ("bits", 1.3), ("speed loss", 5.0)]
)
def test_every_metric_has_its_direction(metric: str, best: float, tmp_path: Path) -> None:
    found = quality(read(written(tmp_path, GOOD)), metric)
    assert abs(found.max()) == best
    assert np.all(np.diff(found) > 0)


def test_a_file_may_fix_the_settings_of_its_space(data_folder: Path, tmp_path: Path) -> None:
    document = json.loads((data_folder / "flexibert_glue.json").read_text())
    document["count"], document["architectures"] = 3, document["architectures"][:3]
    everything = {view.name: view.architectures for view in views(check(document))}
    assert len(everything) == 3
    truth = check(document | {"settings": {"view": "declared"}})
    (view,) = views(truth)
    assert view.name == "declared"
    assert [a.layers for a in view.architectures] == [a.layers for a in everything["declared"]]
    quoted = [json.dumps(entry.architecture).replace('"', '""') for entry in truth.architectures]
    rows = "".join(f'flexibert,"{{""view"": ""declared""}}","{text}",{i}\n' for i, text in enumerate(quoted))
    (same,) = views(read(written(tmp_path, f"space,settings,architecture,glue\n{rows}")))
    assert (same.name, same.architectures) == ("declared", view.architectures)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vew": "trained"}, "'vew'"),
        ({"view": "mine"}, "'mine'"),
        ({"view": 3}, "3"),
        ({"view": None}, "None"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str, data_folder: Path) -> None:
    document = json.loads((data_folder / "flexibert_glue.json").read_text())
    with pytest.raises(ValueError, match=words):
        views(check(document | {"settings": settings}))


def change(old: str, new: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return changed


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change("48.0", ""), "line 3, column 'ppl': the value is missing"),
        (change("48.0", "low"), "line 3, column 'ppl': 'low' is not a number"),
        (change("48.0", "4_8"), "line 3, column 'ppl': '4_8' is not a number"),
        (change("48.0", "nan"), "line 3, column 'ppl': 'nan' is not a finite number"),
        (change("a,gpt2", "a,gtp2"), "line 2, column 'space': 'gtp2' is not known; did you mean 'gpt2'"),
        (lambda text: text.replace(",", ";"), "its columns are separated by ';'; separate them by commas"),
        (
            lambda text: text.replace(",", "\t"),
            r"its columns are separated by '\\t'; separate them by commas",
        ),
        (lambda text: "\n".join(text.splitlines()[:2]), "architectures must have at least 2 entries, not 1"),
        (change("c,gpt2", "c,bert"), "line 5, column 'space': one file holds one space, here 'gpt2'"),
        (change("c,gpt2", "a,gpt2"), "line 5, column 'id': 'a' is the id of line 2 too"),
        (change("[256, 303]", "256 303"), r"line 5, column 'architecture.d_inner': '256 303' is not JSON"),
        (change("[256, 303]", "[" * 99_999), r"line 5, column 'architecture.d_inner': '\[+' is not JSON"),
        (change("48.0,", ""), "line 3 has 11 fields, but the heading has 12"),
        (change("48.0,", "48.0,1,"), "line 3 has 13 fields, but the heading has 12"),
        (change('"[256, 301]"', '"[256, 301'), "line"),
        (change('"[256, 301]"', '"[256, 301]"x'), "line 2: "),
        (change("ppl,bleu", "ppl,ppl"), "column 'ppl' is named twice"),
        (change("ppl,bleu", "ppl,ppl:lower"), "result 'ppl' has two columns"),
        (change("ppl,bleu", "ppl,"), "a column has no name"),
        (change("bits:lower", "bits:down"), "column 'bits:down': a result is headed NAME, NAME:higher"),
        (change("id,space", "id,place"), "no column 'space'"),
        (change("ppl,bleu", "architecture,bleu"), "in a column 'architecture' or in columns"),
        (lambda text: text.replace("architecture.", ""), "in a column 'architecture' or in columns"),
        (lambda text: text.splitlines()[0], "no rows"),
        (lambda _: "", "empty"),
        (lambda _: "\n\n", "empty"),
        (lambda _: "id,space,ppl", "no rows|no column"),
        (lambda _: ",".join(map(str, range(2000))), "at most 1000"),
        (lambda _: 'space,architecture\ngpt2,"{}"\n', "no column with a result"),
        (lambda _: 'space,architecture,ppl\ngpt2,"[]",1\n', r"line 2, column 'architecture': '\[\]' is no"),
        (lambda _: 'space,architecture,ppl\ngpt2,"{""a"":1,""a"":2}",1\n', "line 2.*'a' is given twice"),
        (
            lambda _: "space,settings,architecture,ppl\ngpt2,{},{},1\ngpt2,2,{},1\n",
            "line 3, column 'settings'",
        ),
        (
            lambda _: 'space,settings,architecture,ppl\ngpt2,{},{},1\ngpt2,"{""a"": 1}",{},1\n',
            "line 3, column 'settings': the settings must be the same in every row",
        ),
    ],
)
def test_csv_files_that_cannot_be(spoil: Callable[[str], str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read(written(tmp_path, spoil(GOOD)))
    assert "mine.csv" in str(caught.value)


@pytest.mark.parametrize("junk", [b"\xff\xfe\x00\x01", b"\x00" * 100, bytes(range(256)) * 9])
def test_binary_junk(junk: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mine\.csv"):
        read(written(tmp_path, junk))


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.groundtruth.csv.MAX_CSV_BYTES", 100)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        read(written(tmp_path, GOOD))


def test_names_stand_for_files_of_either_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv = written(tmp_path, GOOD)
    assert locate("mine", str(tmp_path)) == csv
    truth = read(csv)
    text = json.dumps(truth.model_dump())
    path = written(tmp_path, text, "yours.json")
    assert GroundTruth.model_validate_json(text) == truth == read(path)
    assert locate("yours", str(tmp_path)) == path
    (tmp_path / "notes.txt").write_text("")
    for path, words in ((tmp_path, "a folder"), (tmp_path / "notes.txt", "a file without the ending")):
        monkeypatch.chdir(path.parent)
        with pytest.raises(ValueError, match=f"'{path.name}' is {words}"):
            locate(path.name, str(tmp_path))
    with pytest.raises(ValueError, match=r"theirs' is not in .*there are autoformer_vit,.*mine,.*yours"):
        locate("theirs", str(tmp_path))
    assert locate("gpt2_wt103", str(tmp_path)) == SHIPPED / "gpt2_wt103.json.gz"
    written(tmp_path, text, "gpt2_wt103.json")
    assert locate("gpt2_wt103", str(tmp_path)).parent == tmp_path, "a file of the user's comes first"


def test_forms_are_told_by_the_suffix_in_any_case(tmp_path: Path) -> None:
    csv = written(tmp_path, GOOD, "MINE.CSV")
    assert read(csv).architectures == read(written(tmp_path, GOOD)).architectures
    assert locate("MINE", str(tmp_path)) == csv
    assert known_names(tmp_path) == ["MINE", "mine"]
    for name in ("labels.txt", "labels", "labels.csv.gz"):
        with pytest.raises(ValueError, match=r"only \.json and \.csv files are read"):
            read(written(tmp_path, GOOD, name))
    for name in ("nowhere.csv", "nowhere.json", "nowhere.txt"):
        with pytest.raises(ValueError, match=f"{name}' cannot be read: it does not exist"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "task", "corpus"),
    [
        ("gpt2_lm1b", "", "lm1b"),
        ("mine", "perplexity after training on LM1B", "lm1b"),
        ("gpt2_wt103", "", "wt103"),
        ("mine", "perplexity after training on WikiText-103", "wt103"),
        ("mine", "perplexity of my own text", None),
    ],
)
def test_the_corpus_that_a_benchmark_names(name: str, task: str, corpus: str | None, tmp_path: Path) -> None:
    truth = read(written(tmp_path, GOOD)).model_copy(update={"name": name, "task": task})
    assert named_corpus(truth) == corpus
    assert views(truth)[0].settings == {"corpus": corpus or "wt103"}


CONTROLS = ("a\x1b[31mb", "a\nb", "\x9b", "a\u2028b", "a" * 201, "")


@pytest.mark.parametrize("text", CONTROLS)
@pytest.mark.parametrize("place", ["name", "space", "metric", "id", "result"])
def test_what_is_printed_is_one_line(place: str, text: str) -> None:
    entries = [{"id": str(i), "architecture": {}, "results": {"m": float(i)}} for i in range(2)]
    document: dict[str, Any] = {"name": "n", "space": "s", "metric": "m", "higher_is_better": True}
    if place == "id":
        entries[1]["id"] = text
    elif place == "result":
        entries[1]["results"] = {"m": 1.0, text: 2.0}
    else:
        document[place] = text
    with pytest.raises(ValueError, match=r": must be one line of at most 200 characters$") as caught:
        check({**document, "architectures": entries})
    assert str(caught.value).isprintable()


def test_messages_speak_of_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the file must be a JSON object, not"):
        read(written(tmp_path, "[]", "it.json"))
    entries = [{"id": "1", "architecture": [], "results": {}}, 3]
    document = {"name": "n", "space": "s", "metric": "m", "higher_is_better": True, "architectures": entries}
    with pytest.raises(ValueError, match=r"architectures\.0\.architecture must be a JSON object"):
        check(document)
    entries[0] = 3
    with pytest.raises(ValueError, match=r"architectures\.0 must be a JSON object"):
        check(document)
    with pytest.raises(ValueError, match=r"a number has 5000 digits; at most 1000 are read$"):
        read(written(tmp_path, "9" * 5000, "it.json"))


METRICS = {
    False: ["val_bpb", "bpc", "test_nll", "mse", "WER", "cer", "loss", "valid_ppl", "perplexity",
            "error_rate", "evalLoss", "ppl (avg)", "train-loss", "test_word_ppl", "loss2"],
    True: ["accuracy", "val_acc", "top1_acc", "testAcc", "f1", "macro-F1", "bleu4", "glue_avg", "c100_kd_acc",
           "AUC", "mnli"],
    None: ["quality", "score", "tokens", "bits", "accident", "flosses", "nppl", "acc_loss", "neg_loss",
           "-loss", "1-acc", "accuracy drop", "loss_std", "speed", ""],
}  # fmt: skip


@pytest.mark.parametrize("is_higher_better", METRICS)
def test_what_a_name_says(is_higher_better: bool | None) -> None:
    names = METRICS[is_higher_better]
    assert {name: known_direction(name) for name in names} == dict.fromkeys(names, is_higher_better)


def test_no_word_says_two_things() -> None:
    assert not LOWER & HIGHER
    assert not (LOWER | HIGHER) & TURNING
