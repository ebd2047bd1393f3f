"""``zerolm calibrate``, and calibrations in ``search`` and ``score``, as a user types them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labelled import labelled, losses, pool_of
from refusals import Zerolm

from zerolm import load as load_result
from zerolm.calibration import METHODS as FITTED_METHODS
from zerolm.calibration import calibrate
from zerolm.costs import CostModel
from zerolm.groundtruth.labels import load, read_labels
from zerolm.spaces import make_space, shape_text
from zerolm.spaces.document import to_document
from zerolm.verbs.calibrate import METHODS

HEADING = "space,architecture,loss"
SEARCH = ("search", "gpt2", "--depth", "2,3", "--hidden", "128,192", "--ffn", "320,384,512", "--heads", "2,4",
          "--d-embed", "128,256", "--div-val", "1,2", "--max-params", "8M", "--top", "3")  # fmt: skip


def rows_of(name: str, count: int) -> list[str]:
    labels = labelled(name, count)
    return [
        f'{labels.space},"{json.dumps(one.choices).replace(chr(34), chr(34) * 2)}",{float(-value)!r}'
        for one, value in zip(labels.pool.architectures, labels.result, strict=True)
    ]


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    file = tmp_path / "labels.csv"
    file.write_text("\n".join([HEADING, *rows_of("gpt2", 14)]) + "\n")
    return file


@pytest.fixture
def saved(labels: Path, tmp_path: Path, zerolm: Zerolm) -> Callable[[str], Path]:
    def save(method: str) -> Path:
        out = tmp_path / method
        assert zerolm("calibrate", "--labels", str(labels), "--method", method, "--out", str(out)).status == 0
        return out / "calibration.json"

    return save


def test_bars_of_a_rank_correlation_end_at_one(saved: Callable[[str], Path]) -> None:
    report = load_result(saved("dictionary").parent)
    for tau in (0.95, -0.95):
        judged = replace(report.judgement, tau=tau, deviation=0.3)
        (bars,) = replace(report, judgement=judged)._taus()
        assert (bars.axis.low >= -1, bars.axis.high) == (True, 1)


def test_a_calibration_is_printed_and_saved_alike(labels: Path, tmp_path: Path, zerolm: Zerolm) -> None:
    out = tmp_path / "fitted"
    asked = ("calibrate", "--labels", str(labels), "--method", "dictionary")
    ran = zerolm(*asked, "--out", str(out), "--json")
    files = ["calibration.json", "report.html", "result.json", "run.yaml"]
    assert (ran.status, ran.err) == (0, f"wrote {out}: {', '.join(files)}\n")
    assert sorted(file.name for file in out.iterdir()) == files
    printed = json.loads(ran.out)
    assert printed == json.loads((out / "calibration.json").read_text())
    assert printed["judged"]["folds"] == 20
    assert len(printed["labels"]) == 14
    assert zerolm(*asked, "--json").out == ran.out  # the same again, seed and all
    own, others = calibrate(read_labels(labels), "dictionary"), pool_of("gpt2", 9, 3)
    assert load(out / "calibration.json").rank(others).tolist() == own.rank(others).tolist()
    shown = zerolm(*asked)
    assert (shown.status, shown.err) == (0, "")
    for words in (
        "14 labels of gpt2: loss (lower is better)",
        "method dictionary",
        "tau-b on hidden labels",
        "90 %",
    ):
        assert words in shown.out


@pytest.mark.parametrize("method", ["dictionary", "algorithm1"])
def test_additive_calibrations_are_proven(method: str, saved: Callable[[str], Path], zerolm: Zerolm) -> None:
    found = zerolm(*SEARCH, "--calibration", str(saved(method)), "--json").document
    assert found["certificate"]["optimal"] is True
    about = {name: found["calibration"][name] for name in ("method", "metric", "higher_is_better", "labels")}
    assert about == {"method": method, "metric": "loss", "higher_is_better": False, "labels": 14}
    for choice in (found["pick"], *found["best"]):
        assert choice["costs"]["params"] <= 8_000_000
        assert 0 < choice["expected"]["low"] <= choice["expected"]["mean"] <= choice["expected"]["high"]


@pytest.mark.parametrize("method", ["stack", "gp", "blend"])
def test_others_are_evaluated_or_re_ranked(method: str, saved: Callable[[str], Path], zerolm: Zerolm) -> None:
    kept = str(saved(method))
    whole = zerolm(*SEARCH, "--calibration", kept, "--json").document
    asked = zerolm(*SEARCH, "--calibration", kept, "--method", "rerank", "--json").document
    assert whole["certificate"]["method"] == "exhaustive"
    assert (asked["certificate"]["method"], asked["certificate"]["optimal"]) == ("rerank", False)
    assert whole["best"][0]["score"] >= asked["best"][0]["score"] - 1e-9
    assert whole["question"]["score"] == method
    zerolm(*SEARCH, "--calibration", kept, "--method", "exact").refused()


def test_the_best_label_within_budgets_is_told(labels: Path, tmp_path: Path, zerolm: Zerolm) -> None:
    read = read_labels(labels)
    order = np.argsort(-read.result)
    costs = [CostModel().of(a)["params"] for a in read.pool.architectures]
    for limit in (max(costs), sorted(costs)[3]):
        asked = (
            *SEARCH, "--max-params", str(limit), "--labels", str(labels), "--out", str(tmp_path / str(limit)),
        )  # fmt: skip
        ran = zerolm(*asked)
        expected = next(i for i in order if costs[i] <= limit)
        found = json.loads((tmp_path / str(limit) / "result.json").read_text())["best_label"]
        assert found["choice"]["architecture"] == read.pool.architectures[expected].choices
        assert found["choice"]["costs"]["params"] == costs[expected] <= limit
        assert found["result"] == -read.result[expected]
        shape = shape_text(read.pool.architectures[expected])
        page = (tmp_path / str(limit) / "report.html").read_text()
        told = f"{shape} (loss {found['result']:.4g}"
        assert f"best of the labels within the budgets: {told}" in ran.out
        assert f"<dt>best of the labels within the budgets</dt><dd>{told}" in page
    few = zerolm(*SEARCH, "--max-params", str(min(costs) - 1), "--labels", str(labels))
    assert (few.status, "best of the labels within the budgets: none" in few.out) == (0, True)


def test_a_search_beyond_the_labels_is_told(tmp_path: Path, zerolm: Zerolm) -> None:
    """Small labels, a large budget: the warning stands on stderr, in the JSON and in the page."""
    rows = [row for row in rows_of("gpt2", 60) if '""n_layer"": 2' in row and '""d_model"": 128' in row][:12]
    file, out = tmp_path / "labels.csv", tmp_path / "out"
    file.write_text("\n".join([HEADING, *rows]))
    ran = zerolm(*SEARCH, "--labels", str(file), "--out", str(out), "--json")
    (warning,) = json.loads(ran.out)["calibration"]["warnings"]
    assert warning.startswith("the pick lies beyond all labels in depth, width, body_params")
    assert f"zerolm: warning: {warning}\n" in ran.err
    assert warning in (out / "report.html").read_text()
    assert json.loads(ran.out)["pick"]["expected"]["extrapolated"] is True


def test_one_of_several_results_of_the_labels(labels: Path, zerolm: Zerolm, tmp_path: Path) -> None:
    heading, *rows = labels.read_text().splitlines()
    labels.write_text("\n".join([f"{heading},acc", *(f"{row},{i}" for i, row in enumerate(rows))]))
    for command in (("calibrate", "--labels", str(labels)), (*SEARCH, "--labels", str(labels))):
        zerolm(*command).refused("2 results", "--metric", "loss, acc")
        assert zerolm(*command, "--metric", "acc").status == 0
    zerolm(*SEARCH, "--metric", "acc").refused("metric", "labels")
    labels.write_text("\n".join([heading.replace("loss", "quality"), *rows]))
    zerolm(*SEARCH, "--labels", str(labels)).refused("'quality'", "quality:higher or quality:lower")


@pytest.mark.parametrize("method", ["dictionary", "gp"])
def test_what_is_expected(method: str, saved: Callable[[str], Path], tmp_path: Path, zerolm: Zerolm) -> None:
    kept, pool = saved(method), pool_of("gpt2", 1, 8)
    file = tmp_path / "architecture.json"
    file.write_text(json.dumps(to_document(make_space("gpt2"), pool.architectures[0])))
    found = zerolm("score", str(file), "--calibration", str(kept), "--json").document
    calibrated = [row for row in found["scores"] if row["score"] == f"calibrated ({method})"]
    assert [row["value"] for row in calibrated] == pytest.approx(load(kept).rank(pool).tolist())
    assert found["expected"]["low"] < losses(pool, 0.0)[0] < found["expected"]["high"]
    assert "expected loss" in zerolm("score", str(file), "--calibration", str(kept)).out
    assert "expected" not in zerolm("score", str(file), "--json").document


def test_the_declaration_names_what_can_be_fitted() -> None:
    """The declaration is read without numpy."""
    assert FITTED_METHODS == METHODS


@pytest.mark.parametrize(
    ("first", "count", "words"),
    [
        ("nan", 10, ("line 2", "'nan'", "finite")),
        ("1.0", 4, ("at least 5", "there are 4; enough for algorithm1")),
    ],
)
def test_label_files_that_cannot_be(
    first: str, count: int, words: tuple[str, ...], tmp_path: Path, zerolm: Zerolm
) -> None:
    """By either command; an earlier output stays as it was, even with --force."""
    row, *rows = rows_of("gpt2", count)
    lines = [f"{row.rsplit(',', 1)[0]},{first}", *rows]
    file, old, out = tmp_path / "labels.csv", tmp_path / "old", tmp_path / "out"
    file.write_text("\n".join([HEADING, *lines]) + "\n")
    old.mkdir()
    (old / "result.json").write_text("dear")
    zerolm("calibrate", "--labels", str(file), "--out", str(old), "--force").refused(*words)
    zerolm(*SEARCH, "--labels", str(file), "--out", str(out)).refused(*words)
    assert (old / "result.json").read_text() == "dear"
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["labels.csv", "old", "result.json"]


@pytest.mark.parametrize("option", ["--labels", "--calibration"])
def test_what_a_search_cannot_be_told(
    option: str, labels: Path, saved: Callable[[str], Path], tmp_path: Path, zerolm: Zerolm
) -> None:
    file = str(labels if option == "--labels" else saved("dictionary"))
    both = "labels" if option == "--calibration" else "calibration"
    for extra, words in {
        ("--score", "geo"): ("--score", "give one of them"),
        ("--alpha", "1"): ("alpha", "option of a score"),
        ("--init", "xavier"): ("init", "option of a score"),
        (f"--{both}", file): ("--labels and --calibration", "give one of them"),
    }.items():
        zerolm(*SEARCH, option, file, *extra).refused(*words)
    if option == "--calibration":  # it knows what it was read as; this label file leaves that open
        zerolm(*SEARCH, option, file, "--corpus", "lm1b").refused("corpus 'wt103'", "'lm1b'")
    zerolm("search", "llama", option, file).refused("space 'gpt2'", "'llama'")
    zerolm(*SEARCH, option, "").refused(f"{option[2:]} names no file")
    nothing = "it is a folder" if option == "--labels" else "does not exist"
    zerolm(*SEARCH, option, str(tmp_path)).refused(nothing)
    zerolm(*SEARCH, option, str(tmp_path / "none.csv")).refused("none.csv")
    zerolm(*SEARCH, option, file, "--max-params", "10").refused("at least")


def test_labels_of_another_view_are_refused(tmp_path: Path, zerolm: Zerolm) -> None:
    file = tmp_path / "labels.csv"
    rows = [
        row.replace("flexibert,", 'flexibert,"{""view"": ""trained""}",', 1)
        for row in rows_of("flexibert", 8)
    ]
    file.write_text("\n".join(["space,settings,architecture,loss", *rows]))
    zerolm("search", "flexibert", "--labels", str(file)).refused(
        "view 'trained'", "'declared'", "--view trained"
    )
    assert zerolm("search", "flexibert", "--view", "trained", "--labels", str(file), "--json").status == 0


def test_score_of_another_space(saved: Callable[[str], Path], tmp_path: Path, zerolm: Zerolm) -> None:
    file = tmp_path / "architecture.json"
    file.write_text(
        json.dumps(to_document(make_space("autoformer"), pool_of("autoformer", 1).architectures[0]))
    )
    kept = str(saved("dictionary"))
    zerolm("score", str(file), "--calibration", kept).refused("'gpt2'", "'autoformer'")
    for content in ("", "{}", "[]", '{"format": "zerolm-calibration", "version": 2}'):
        Path(kept).write_text(content)
        zerolm("score", str(file), "--calibration", kept).refused("calibration.json", "cannot be used")
    zerolm("score", str(file), "--calibration", str(tmp_path)).refused("cannot be used")
