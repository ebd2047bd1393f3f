"""Label files, and calibrations as JSON: what is read back, and what is refused in one line."""

import copy
import csv
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalogue import SETTINGS, catalogue
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import METHODS, labelled, pool_of
from portion import portion

from zerolm.calibration import Labels, calibrate, judge
from zerolm.groundtruth.labels import as_labelled, from_document, load, read_labels, to_document
from zerolm.spaces import make_space

SPACES = st.sampled_from(list(SETTINGS))


def as_csv(labels: Labels, *, fixed: bool = True) -> str:
    """A label file as a user would write it, with (``fixed``) or without the settings of the space."""
    text = io.StringIO()
    rows = csv.writer(text)
    settings_ = {"settings": json.dumps(labels.settings)} if fixed else {}
    rows.writerow(["space", *settings_, "architecture", "loss"])
    for architecture, value in zip(labels.pool.architectures, labels.result, strict=True):
        choices = json.dumps(architecture.choices)
        rows.writerow([labels.space, *settings_.values(), choices, repr(float(abs(value)))])
    return text.getvalue()


def llama(file: Path, *rows: str, heading: str = "space,architecture,loss") -> Path:
    file.write_text("\n".join([heading, *rows]) + "\n")
    return file


def row(loss: Any, **choices: Any) -> str:
    usual = {"depth": 2, "hidden": 128, "head_size": 64, "heads": 2, "ffn": 384}
    architecture = json.dumps({**usual, **choices}).replace('"', '""')
    return f'llama,"{architecture}",{loss}'


@pytest.mark.parametrize("name", SETTINGS)
def test_a_csv_file_gives_the_labels_that_it_was_written_from(name: str, tmp_path: Path) -> None:
    labels = labelled(name, 12)
    file = tmp_path / "labels.csv"
    file.write_text(as_csv(labels))
    for found in (read_labels(file), read_labels(file, space=catalogue(name).space)):
        assert found.space == labels.space
        assert (found.metric, found.higher_is_better) == ("loss", False)
        assert found.pool.architectures == labels.pool.architectures
        assert found.result.tolist() == labels.result.tolist()


def test_the_metric_and_its_direction(tmp_path: Path) -> None:
    rows = [row(f"{4 - i},{i}", depth=i) for i in (1, 2, 3)]
    file = llama(tmp_path / "labels.csv", *rows, heading="space,architecture,loss,bleu")
    assert read_labels(file, metric="loss").result.tolist() == [-3, -2, -1]
    assert read_labels(file, metric="bleu").result.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="2 results and none is named: give --metric, one of loss, bleu"):
        read_labels(file)
    with pytest.raises(ValueError, match=r"no metric 'rouge'.*bleu, loss"):
        read_labels(file, metric="rouge")


SAME = [{}, {"ffn": [384, 384]}, {"kv_heads": 2}, {"kv_heads": [2, 2]}]
"""One architecture, written in four ways."""


@given(st.lists(st.tuples(st.sampled_from(SAME), st.integers(1, 9)), min_size=1, max_size=4))
def test_an_architecture_is_one_label_however_it_is_written(runs: list[tuple[dict[str, Any], int]]) -> None:
    """Its result is the mean of those that the file has."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(float(loss), **way) for way, loss in runs]
        labels = read_labels(llama(Path(folder) / "labels.csv", rows[0], row(2.5, depth=3), *rows[1:]))
    mean = sum(loss for _, loss in runs) / len(runs)
    assert labels.result.tolist() == pytest.approx([-mean, -2.5])
    assert labels.repeated == len(runs) - 1
    assert any("given before" in warning for warning in labels.warnings) == (len(runs) > 1)


def test_a_doubtful_direction_is_named(tmp_path: Path) -> None:
    rows = [row(f"{4 + depth},{depth}", depth=depth) for depth in range(1, 9)]
    file = llama(tmp_path / "labels.csv", *rows, heading="space,architecture,loss,bleu")
    (warning,) = read_labels(file, metric="loss").warnings
    assert warning.startswith("larger networks have the worse loss; if higher is better, name the column")
    assert [*read_labels(file, metric="bleu").warnings] == []


def test_labels_are_read_as_the_searched_space_reads(tmp_path: Path) -> None:
    """With its vocabulary, and tied or untied: parameters of labels and candidates mean the same."""
    file = llama(tmp_path / "labels.csv", row(3.0), row(2.5, depth=3))
    small = make_space("llama", vocab=1000, tied=False, depth=[2, 3])
    for found in (read_labels(file, space=small), from_document(document_of("llama"), space=small).labels):
        for one in found.pool.architectures:
            assert one == small.read(one.choices)
            assert one.ends.embedding == 1000 * one.choices["hidden"]
    assert read_labels(file).pool.architectures[0].ends.embedding > 1000 * 128


@pytest.mark.parametrize(
    ("settings_", "other", "words"),
    [
        ({"view": "trained"}, ("flexibert", {}), "view 'trained', but the search is of 'declared'"),
        ({}, ("bert", {}), "space 'flexibert', but the search is of 'bert'"),
    ],
)
def test_another_reading_or_space(settings_: dict[str, Any], other: Any, words: str, tmp_path: Path) -> None:
    labels = labelled("flexibert", 6)
    text = as_csv(labels).replace('{""view"": ""declared""}', json.dumps(settings_).replace('"', '""'))
    file, kept = tmp_path / "labels.csv", tmp_path / "calibration.json"
    file.write_text(text)
    space = make_space(other[0], **other[1])
    kept.write_text(json.dumps({**to_document(calibrate(labels)), "settings": settings_}))
    for use in (lambda: read_labels(file, space=space), lambda: load(kept, space=space)):
        with pytest.raises(ValueError, match=words):
            use()


def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(to_document(calibrate(labelled(name, 9), "gp"))))
    return document


@settings(max_examples=portion(25))
@given(SPACES, st.sampled_from(METHODS), st.integers(0, 10**6), st.booleans())
def test_a_calibration_is_what_its_document_says(name: str, method: str, seed: int, higher: bool) -> None:
    labels, others = labelled(name, 13, seed, higher=higher), pool_of(name, 20, seed + 1)
    try:
        one = calibrate(labels, method, seed=seed)
    except ValueError:
        return
    text = json.dumps(to_document(one), allow_nan=False)
    other = from_document(json.loads(text))
    assert other.method == one.method
    assert other.rank(others).tolist() == one.rank(others).tolist()
    before, after = one.predict(others), other.predict(others)
    assert before is not None and after is not None  # noqa: PT018
    for field in ("mean", "low", "high"):
        assert getattr(after, field).tolist() == getattr(before, field).tolist()
    assert json.dumps(to_document(other), allow_nan=False) == text


def test_a_judgement_travels_along() -> None:
    labels = labelled("gpt2", 12)
    document = to_document(calibrate(labels, "dictionary"), judge(labels, "dictionary"))
    assert document["judged"]["folds"] == 20
    assert from_document(json.loads(json.dumps(document))).method == "dictionary"


FIELDS = ("format", "version", "space", "settings", "metric", "method", "labels")


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document that decides something."""
    yield path
    items = document.items() if isinstance(document, dict) else ()
    for key, value in enumerate(document) if isinstance(document, list) else items:
        if path or key in (*FIELDS, "higher_is_better"):
            yield from places(value, (*path, key))


JUNK = st.sampled_from(
    (None, True, False, 0, -1, 2**70, 10**400, float("nan"), float("inf"), 1e308, -1e308, "", "x",
     "__class__", [], [[]], {}, [None], {"self": 1}, "auto", ["a"] * 5, 1.5, [1e308] * 3, [2] * 2000,
     {"vocab": 10**30})
)  # fmt: skip
DOCUMENTS = {name: document_of(name) for name in ("gpt2", "llama", "flexibert", "autoformer", "pit")}


@settings(max_examples=portion(400))
@given(st.sampled_from(list(DOCUMENTS)), st.data())
def test_spoilt_documents_are_refused_or_harmless(name: str, data: st.DataObject) -> None:
    """One line for whatever stands in whatever place; no other error, no warning, no code."""
    document = copy.deepcopy(DOCUMENTS[name])
    path, junk = data.draw(st.sampled_from(list(places(document)))), data.draw(JUNK)
    if path:
        target = document
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = junk
    message = None
    try:
        found = from_document(document if path else junk)
    except ValueError as error:
        message = str(error)
    if message is None:
        assert np.isfinite(found.rank(found.labels.pool)).all()
    else:
        assert message


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_needed(field: str) -> None:
    document = {key: value for key, value in DOCUMENTS["gpt2"].items() if key != field}
    with pytest.raises(ValueError, match=field):
        from_document(document)


def test_fields_of_a_label_are_known_and_few() -> None:
    document = copy.deepcopy(DOCUMENTS["gpt2"])
    document["labels"][2]["note"] = "run me"
    with pytest.raises(ValueError, match=r"labels\.2\.note"):
        from_document(document)
    document = {**DOCUMENTS["gpt2"], "labels": DOCUMENTS["gpt2"]["labels"] * 200}
    with pytest.raises(ValueError, match="1000"):
        from_document(document)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"format": NaN}', b"null", b'{"a": 1, "a": 2}']
)
def test_files_that_are_no_calibration(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "it.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"it\.json' cannot be used"):
        load(file)
    with pytest.raises(ValueError, match="cannot be used: it is a folder, not a file"):
        load(tmp_path)


def test_architectures_are_read_as_the_labels_were() -> None:
    """What stands in a file about vocabulary or view may differ from what the labels were trained with."""
    calibration = from_document({**DOCUMENTS["flexibert"], "settings": {"view": "trained"}})
    declared = calibration.labels.pool.architectures[0].choices
    given = make_space("flexibert", view="published").read(declared)
    assert as_labelled(calibration, given) == make_space("flexibert", view="trained").read(declared) != given
    with pytest.raises(ValueError, match="space 'flexibert', but the architecture is of 'gpt2'"):
        as_labelled(calibration, catalogue("gpt2").architectures[0])


@pytest.mark.parametrize(("corpus", "other"), [("wt103", "lm1b"), ("lm1b", "wt103")])
def test_the_corpus_of_a_file_must_be_the_searched_one(corpus: str, other: str, tmp_path: Path) -> None:
    plain = as_csv(labelled("gpt2", 6), fixed=False)
    for name, refused in ((f"gpt2_{corpus}.csv", True), ("mine.csv", False)):
        (tmp_path / name).write_text(plain)
        assert len(read_labels(tmp_path / name, space=make_space("gpt2", corpus=corpus))) == 6
        if refused:
            with pytest.raises(ValueError, match=f"of corpus '{corpus}'.*give --corpus {corpus}"):
                read_labels(tmp_path / name, space=make_space("gpt2", corpus=other))
        else:
            assert len(read_labels(tmp_path / name, space=make_space("gpt2", corpus=other))) == 6


@pytest.mark.parametrize("settings_", [{"corpse": "lm1b"}, {"corpus": 3}, {"hidden": "x"}, {"depth": 3}])
def test_settings_of_a_calibration_are_checked_whatever_reads_it(settings_: dict[str, Any]) -> None:
    document = {**DOCUMENTS["gpt2"], "settings": settings_}
    for space in (None, make_space("gpt2")):
        with pytest.raises(ValueError, match=r"corpse|3|'x'"):
            from_document(document, space=space)


def test_duplicates_of_a_calibration_count_as_their_mean() -> None:
    document = copy.deepcopy(DOCUMENTS["llama"])
    third = document["labels"][2]
    again = from_document({**document, "labels": [*document["labels"], {**third, "result": 77.0}]}).labels
    first = from_document(document).labels
    assert len(again) == len(first)
    mean = (third["result"] + 77.0) / 2
    assert abs(again.result[2]) == pytest.approx(mean)
    assert np.delete(again.result, 2).tolist() == np.delete(first.result, 2).tolist()


def test_the_metric_of_a_calibration_is_one_line() -> None:
    with pytest.raises(ValueError, match="metric: must be one line of at most 200 characters"):
        from_document({**DOCUMENTS["gpt2"], "metric": "loss\x1b[31m"})
    with pytest.raises(ValueError, match="it must be a JSON object, not"):
        from_document([])
