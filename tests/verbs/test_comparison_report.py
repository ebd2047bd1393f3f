"""A comparison as a page and as files: complete, equal to the rows, safe against hostile names."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from small_comparison import decoder_file, encoder_file, results, written

from zerolm.comparison.bench import bench
from zerolm.comparison.document import from_document
from zerolm.comparison.results import Comparison, key_of, name_of
from zerolm.show.charts import Line
from zerolm.show.page import table_html
from zerolm.show.terminal import sheet_lines
from zerolm.verbs.bench_report import BenchReport
from zerolm.verbs.comparison_charts import alpha_curve
from zerolm.verbs.comparison_sheets import (
    FILES,
    against_sheet,
    section_sheet,
    write_tables,
)

EVIL = '<script>alert("1 & 2")</script>'


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    """Two benchmarks in four views, one of them in three."""
    return bench([encoder_file(tmp_path, 12), decoder_file(tmp_path, 10)], draws=50)


def page_of(found: Comparison) -> str:
    page = BenchReport(found).page()
    page.encode("utf-8")
    return page


class Page(HTMLParser):
    """The elements of a page, the classes of its cells, and the text of each agreement table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.sections: list[str] = []
        self.tables: list[list[list[tuple[str, str]]]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.addresses += [given[name] or "" for name in ("href", "src") if name in given]
        if tag == "section":
            self.sections.append(given.get("id") or "")
        if tag == "table":
            self._open = given.get("class") == "agreement"
            if self._open:
                self.tables.append([])
        if self._open and tag == "tr":
            self.tables[-1].append([])
        if self._open and tag in ("td", "th"):
            self.tables[-1][-1].append((given.get("class") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "table"

    def handle_data(self, data: str) -> None:
        if self._open and self.tables[-1] and self.tables[-1][-1]:
            mark, text = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (mark, text + data)


def test_one_section_a_view(found: Comparison) -> None:
    text = page_of(found)
    page = Page(text)
    assert [mark for mark in page.sections if mark] == ["s1", "s2", "s3", "s4"]
    assert len(page.tables) == len(found.sections) == 4
    for view in ("declared", "published", "trained"):
        assert text.count(f"<h2>encoders, view {view} <") == 1
        assert text.count(f"View {view}: The networks as") == 1
    assert "<h2>decoders <" in text


def test_views_and_benchmarks_are_counted(found: Comparison) -> None:
    assert "4 views of 2 benchmarks" in BenchReport(found).heading().lead
    alone = BenchReport(replace(found, sections=found.sections[-1:]))
    assert "1 view of 1 benchmark." in alone.heading().lead


def test_every_table_has_the_parameters_and_marks_what_does_not_beat_them(found: Comparison) -> None:
    page, verdicts = Page(page_of(found)), set()
    for section, shown in zip(found.sections, page.tables, strict=True):
        lines = {line[0][1]: line for line in shown[1:]}
        assert len(lines) == len(section.rows)
        for name in ("params", "body_params"):
            assert lines[name][0][0] == "base"
            assert "baseline" in lines[name][-1][1]
        for row in section.rows:
            verdicts.add(row.verdict)
            mark, remark = lines[row.label][0][0], lines[row.label][-1][1]
            assert (mark == "worse") == (row.verdict == "not better")
            assert ("does not beat parameters" in remark) == (row.verdict == "not better")
            assert ("not shown to beat parameters" in remark) == (row.verdict == "unclear")
            assert ("saw the labels" in remark) == row.saw_labels
    assert "not better" in verdicts


def test_hostile_names_are_text(tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    file = written(
        evil, EVIL, "gpt2", results(8), metric=EVIL, task=EVIL, prefix=EVIL,
        source={EVIL: EVIL, "licence": EVIL},
    )  # fmt: skip
    text = page_of(bench([file], draws=20))
    plain = page_of(bench([written(tmp_path, "few", "gpt2", results(8))], draws=20))
    assert text.count("<script") == plain.count("<script") == text.count("</script")
    assert Page(text).tags.count("script") == plain.count("<script")
    assert "&lt;script&gt;alert(&quot;1 &amp; 2&quot;)" in text


@pytest.mark.parametrize("values", [[5.0] * 7 + [6.0], [1.0, 2.0], [1.0, 1e9, 3.0], [0.0, -1.0, 2.0]])
def test_results_that_say_little_still_make_a_page(values: list[float], tmp_path: Path) -> None:
    written_page = page_of(bench([written(tmp_path, "few", "gpt2", values)], draws=20))
    assert len(Page(written_page).tables) == 1
    assert not re.search(r"\b(nan|inf|None)\b", written_page.split("</style>")[1])


def test_terminal_and_page_show_the_same_table(found: Comparison) -> None:
    for number, section in enumerate(found.sections, 1):
        sheet = section_sheet(section, number)
        lines = list(sheet_lines(sheet, None))
        assert lines[1].startswith(f"{section.title}: quality (lower is better), ")
        for line, cells in zip(lines[2:], Page(table_html(sheet)).tables[0], strict=False):
            assert line.split() == " ".join(text for _, text in cells).split()


def test_a_line_goes_through_alphas_that_mix_both_kinds(found: Comparison) -> None:
    """At 0 and 1 one kind counts alone: other ties, another tau-b, no spike."""
    for section in found.sections:
        (chart,) = alpha_curve(section)
        (line,) = (mark for mark in chart.plots[0].marks if isinstance(mark, Line))
        alphas = {point.alpha for point in section.curve if point.tau is not None}
        assert {x for x, _ in line.points} == alphas - {0.0, 1.0}
        assert {x for x, _ in chart.plots[0].points} == alphas


def test_verdicts_follow_the_rows(found: Comparison) -> None:
    verdicts = [row.verdict for row in found.rows if row.score == "geo"]
    (geo,) = (row for row in against_sheet(found).rows if row[0] == "geo")
    assert geo[1:4] == [str(verdicts.count(verdict)) for verdict in ("better", "unclear", "not better")]
    raised = []
    for section in found.sections:
        rows = [replace(row, gain=0.5, gain_high=0.6, verdict="better") for row in section.rows]
        raised.append(replace(section, rows=rows))
    better = Comparison(raised)
    assert {tuple(row[1:5]) for row in against_sheet(better).rows} == {("4", "0", "0", "+0.500")}


def test_rows_as_csv(found: Comparison, tmp_path: Path) -> None:
    write_tables(found, tmp_path)
    with (tmp_path / "rows.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(found.rows)
    for line, row in zip(read, found.rows, strict=True):
        given = row.to_json()
        assert list(line) == list(given)
        for name, value in given.items():
            assert line[name] == ("" if value is None else str(value))
            if isinstance(value, float):
                assert float(line[name]) == value


def test_scores_as_csv(found: Comparison, tmp_path: Path) -> None:
    write_tables(found, tmp_path)
    with (tmp_path / "scores.csv").open(newline="") as file:
        read = iter(list(csv.DictReader(file)))
    for section in found.sections:
        for place, entry in enumerate(section.truth.architectures):
            line = next(read)
            assert (line["benchmark"], line["view"]) == (section.truth.name, section.view or "")
            assert (line["id"], float(line["result"])) == (entry.id, entry.results["quality"])
            for row in section.rows:
                assert float(line[name_of(key_of(row))]) == section.scores[row.label][place]
    assert next(read, None) is None


def test_hostile_ids_are_fields(tmp_path: Path) -> None:
    file = written(tmp_path, EVIL, "gpt2", results(8), metric=EVIL, prefix=EVIL)
    write_tables(bench([file], draws=20), tmp_path)
    with (tmp_path / "scores.csv").open(newline="") as lines:
        assert next(csv.DictReader(lines))["id"] == f"{EVIL}0"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[BenchReport, Path]:
    """A result, and the folder that it was written into."""
    folder = tmp_path_factory.mktemp("saved")
    report = BenchReport(bench([encoder_file(folder, 12), decoder_file(folder, 10)], draws=50))
    report.save(folder / "out")
    return report, folder / "out"


@pytest.fixture
def report(saved: tuple[BenchReport, Path], tmp_path: Path) -> BenchReport:
    report, folder = saved
    shutil.copytree(folder, tmp_path / "out")
    return report


def test_one_file_holds_all(report: BenchReport, tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / "out" / name).unlink()
    loaded = BenchReport.load(tmp_path / "out")
    loaded.save(tmp_path / "again")
    names = {"report.html", "result.json", "run.yaml", *FILES}
    assert {file.name for file in (tmp_path / "again").iterdir()} == names
    write_tables(report.comparison, tmp_path)
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert (loaded, loaded.page()) == (report, (tmp_path / "out" / "report.html").read_text())


def first(document: Any, name: str) -> Any:
    """The numbers of the first score of the first section."""
    return next(iter(document["sections"][0][name].values()))


EDITS: dict[str, Callable[[Any], Any]] = {
    "a score less": lambda it: first(it, "scores").pop(),
    "scores of another": lambda it: it["sections"][0]["scores"].popitem(),
    "an infinite score": lambda it: first(it, "scores").__setitem__(0, float("inf")),
    "a budget less": lambda it: first(it, "regret_by_budget").pop(),
    "an alpha less": lambda it: it["sections"][0]["alpha_curve"].pop(),
    "another benchmark": lambda it: it["rows"][0].update(benchmark="other"),
    "a row more": lambda it: it["rows"].append(it["rows"][-1]),
    "many sections": lambda it: it["benchmarks"][0].update(sections=10**9),
    "a hidden metric": lambda it: it["benchmarks"][0]["benchmark"]["architectures"][0].update(results={}),
    "two lines": lambda it: it["sections"][0]["left_out"].update({"a\nb": "c"}),
    "a note of lines": lambda it: it.update(note="a\nb"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_comparison_is_refused(edit: Callable[[Any], Any], found: Comparison) -> None:
    document = json.loads(json.dumps(found.to_json()))
    assert from_document(document).to_json() == document
    edit(document)
    with pytest.raises(ValueError, match=r".") as caught:
        from_document(document)
    assert "\n" not in str(caught.value)
