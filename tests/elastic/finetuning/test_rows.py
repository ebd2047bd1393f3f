"""Rows of CSV files and of data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolm.elastic.finetuning.rows import named, read_rows


def test_cells_are_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('text,label,more\n" a, b\nc ",yes,1\n\nd,no,2\n', encoding="utf-8")
    assert read_rows(str(file), ["text", "label"]) == [
        {"text": " a, b\nc ", "label": "yes"},
        {"text": "d", "label": "no"},
    ]
    assert "more" in read_rows(str(file), ["text"], ["more", "other"])[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,b\n", "it has no column 'pair'; there are text, label"),
        ("text,pair\n", "it has a heading, but no rows"),
        ("text,pair\na\n", "line 2 has 1 fields, but the heading has 2"),
        ("", "it is empty"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as refused:
        read_rows(str(file), ["text", "pair"])
    assert "\n" not in str(refused.value)


def test_a_source_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="it does not exist; a CSV file or owner/name"):
        read_rows("nothing.csv", ["text"])


def test_classes_of_a_data_set_come_by_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    loaded = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    assert list(named(loaded)) == [{"text": "a", "label": "yes"}, {"text": "b", "label": "no"}]
