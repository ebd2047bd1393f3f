"""Tables of texts with classes, and of attacked ones as TextAttack writes them."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.lab.subnets.classified import read_attacked, read_classified

CLASSES = ("neg", "pos")
LOG = """\
"original_text","perturbed_text","original_score","perturbed_score","original_output","perturbed_output",\
"ground_truth_output","num_queries","result_type"
"a [[dull]] film<SPLIT>by [[none]]","a [[duIl]] film<SPLIT>by [[n0ne]]",0.01,0.73,0.0,1.0,0.0,37,"Successful"
"warm, ""human"" and [[true]]","warm, ""human"" and [[ture]]",0.02,0.21,1.0,1.0,1.0,25,"Failed"
"who knows","who knows",0.9,0.9,1.0,1.0,0,1,"Skipped"
"[[good]] fun","[[g ood]] fun",0.02,0.9,1,0,"pos",7,"Maximized"
"""
"""By the columns, quotes and marks of ``textattack.loggers.CSVLogger`` with its usual style, ``file``."""


def test_a_log_is_read_as_textattack_writes_it(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(LOG)
    rows = read_attacked(tmp_path / "log.csv", CLASSES)
    assert rows.texts == ("a dull film\nby none", 'warm, "human" and true', "who knows", "good fun")
    assert rows.perturbed[:2] == ("a duIl film\nby n0ne", 'warm, "human" and ture')
    assert (rows.perturbed[2], rows.labels) == (rows.texts[2], (0, 1, 0, 1))
    assert rows.attacked == (True, True, False, True)


TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="[]\r\0<\x85\u2028\u2029", exclude_categories=["C"]),
    min_size=1,
)


@given(st.lists(st.tuples(TEXT, st.integers(0, 1)), min_size=1, max_size=5))
def test_texts_come_back_as_they_were_written(rows: list[tuple[str, int]]) -> None:
    """Whatever quotes, commas and line ends they hold, by numbers or by names."""
    import tempfile

    sound = [(text, label) for text, label in rows if text.strip()] or [("x", 0)]
    for names in (False, True):
        table = io.StringIO(newline="")
        writer = csv.writer(table)
        writer.writerow(["more", "text", "label"])
        writer.writerows([0, text, CLASSES[label] if names else label] for text, label in sound)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rows.csv").write_text(table.getvalue(), newline="")
            read = read_classified(Path(folder) / "rows.csv", CLASSES)
        assert list(zip(read.texts, read.labels, strict=True)) == sound


HEAD = "original_text,perturbed_text,ground_truth_output,result_type\n"
WRONG = {
    "text,label\n": "has no rows",
    "words,class\nx,1\n": "line 2 has no text; it has words, class$",
    "text\nx\n": "line 2 has no label; it has text$",
    "text,label\nx,2\n": "line 2 has label '2'; the head has 2 classes, 0 to 1: neg, pos",
    "text,label\nx,-1\n": "the head has 2 classes",
    "text,label\nx,0.5\n": "the head has 2 classes",
    "text,label\nx,nan\n": "the head has 2 classes",
    'text,label\n"x,1\n': "cannot be read",
    "text,label\n ,1\n": "line 2 has text ' '",
}
WRONG_LOG = {
    "original_text,perturbed_text,result_type\na,b,Failed\n": "line 2 has no ground_truth_output; it has ",
    HEAD: "skipped all 0 rows",
    HEAD + "a,b,7,Failed\n": "ground_truth_output '7'; the head has 2 classes",
    HEAD + "a,b,1,Won\n": "result_type 'Won'; Successful, Failed, Skipped, Maximized can be",
    HEAD + "a,a,1,Skipped\nb,b,0,Skipped\n": "skipped all 2 rows of .*: no text was attacked",
    HEAD + "a,b,1,Skipped\n": "line 2 has perturbed_text 'b'; a skipped one is the original",
    HEAD + "a,,1,Failed\n": "perturbed_text ''",
}


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((read_classified, text, message) for text, message in WRONG.items()),
        *((read_attacked, text, message) for text, message in WRONG_LOG.items()),
    ],
)
def test_a_wrong_table(read: Callable[..., object], text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        read(tmp_path / "rows.csv", CLASSES)
    assert "\n" not in str(refused.value)
