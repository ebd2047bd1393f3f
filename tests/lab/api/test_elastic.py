"""The verbs on supernets: what they return, write, load and refuse."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from elastic_verbs import export, search, train
from made_pages import golden

import zerolm
from zerolm.solvers import Infeasible


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("supernet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLM_CACHE", str(place / "cache"))
        train(place, "elastic-causal")
        export(place, heads="fuse", tokens=8 * 64, batch=4, length=16)
    return place


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(folder / "cache"))


@pytest.mark.parametrize(("name", "kind"), [("net", "supernet"), ("model", "path")])
def test_what_is_written_loads_and_shows_itself(folder: Path, name: str, kind: str) -> None:
    report = zerolm.load(folder / name)
    assert type(report) is type(golden(kind))
    assert report.to_json().keys() == golden(kind).to_json().keys()
    assert len(repr(report).splitlines()) <= 15
    assert len(report.to_pandas()) == len(report.rows()) > 0
    assert (folder / name / "report.html").read_text() == report.page()
    assert report._repr_html_()


def test_without_training_there_is_one_loss_and_no_before(folder: Path, tmp_path: Path) -> None:
    report = zerolm.lab.elastic.export(folder / "net", tmp_path / "untrained", path=folder / "path.json")
    assert ": as exported " in report.lines()[1]
    assert report.lines()[1].endswith(". Nothing was trained.")
    assert ">before<" in zerolm.load(folder / "model").page()
    assert ">before<" not in report.page()


def test_a_supernet_tells_of_every_epoch(folder: Path) -> None:
    report = zerolm.load(folder / "net")
    assert [row.epoch for row in report.history] == [1, 2, 3]
    means = [row.mean_params for row in report.history]
    assert means[0] < means[-1] == max(means)
    assert len(re.findall("<caption>epoch", report.page())) == 6  # widths and scores


@pytest.mark.parametrize("score", ["supernet", "w_pca", "geo"])
def test_every_score_searches_within_the_budgets(folder: Path, score: str, tmp_path: Path) -> None:
    largest = search(folder, score="params").to_json()["pick"]["costs"]["params"]
    report = search(folder, score=score, max_params=largest - 1)
    document = report.to_json()
    assert all(choice["costs"]["params"] < largest for choice in document["best"])
    assert document["certificate"]["optimal"] == (score != "supernet")
    assert document["pick"]["score"] <= document["best"][0]["score"]
    if score == "supernet":
        assert document["pick"]["score"] == document["best"][0]["score"] < 0
    report.save(tmp_path / "out")
    loaded = zerolm.load(tmp_path / "out")
    assert loaded.to_json() == document
    assert repr(loaded) == repr(report)
    model = zerolm.lab.elastic.export(folder / "net", tmp_path / "model", path=tmp_path / "out")
    assert model.to_json()["costs"]["params"] == document["pick"]["costs"]["params"]


def test_limits_of_latency_are_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerolm.lab.supernets.latency.ROUNDS", (1, 2))
    report = search(folder, score="w_pca", max_latency_us="1G", context=16)
    document, page = report.to_json(), report.page()
    pick, table = document["pick"], document["question"]["latency"]
    assert table["tokens"] == 16
    words = f"{pick['costs']['latency_us']:,} us by its parts, as a whole {table['whole']:,} us measured"
    assert words in " ".join(report.lines())
    assert "Latencies are taken as they were measured on this machine" in report.lines()[-1]
    for each in (words, "<h2>Latencies of the parts</h2>", f"{table['ends']:,} us"):
        assert each in page
    report.save(tmp_path / "out")
    loaded = zerolm.load(tmp_path / "out")
    assert (loaded.to_json(), loaded.page()) == (document, page)
    zerolm.lab.elastic.export(folder / "net", tmp_path / "model", path=tmp_path / "out")
    for value in (0, -5):
        with pytest.raises(ValueError, match="max_latency_us"):
            search(folder, max_latency_us=value)


def test_wrong_values_are_told_in_a_line(folder: Path, tmp_path: Path) -> None:
    for more, words in (
        ({"teacher_only": True}, "name one by --teacher"),
        ({"name": "llama"}, "llama"),
        ({"ffn": 3}, r"space 'elastic.*' has no setting 'ffn'"),
    ):
        with pytest.raises(ValueError, match=words):
            train(folder, out="other", **more)  # type: ignore[arg-type]
    with pytest.raises(Infeasible, match="max_params"):
        search(folder, max_params=10)
    with pytest.raises(ValueError, match="score 'loss' is not known"):
        search(folder, score="loss")
    path = tmp_path / "path.json"
    for content, words in (("[]", "holds no architecture"), ('{"layers": []}', "layers must list")):
        path.write_text(content)
        with pytest.raises(ValueError, match=words):
            zerolm.lab.elastic.export(folder / "net", tmp_path / "model", path=path)
    assert not (folder / "other").exists()
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("kind", "field", "value", "words"),
    [
        ("supernet", "history", [{"epoch": 1}], "history.0.widths"),
        ("supernet", "training", {"tokens": "many"}, "training.tokens"),
        ("path", "layers", [{"block": "bert"}], "layers.0.share"),
        ("path", "losses", {"before": None}, "losses.before"),
    ],
)
def test_an_edited_result_is_refused_by_its_field(kind: str, field: str, value: object, words: str) -> None:
    report = golden(kind)
    document = report.to_json()
    assert type(report).from_json(document).to_json() == document
    with pytest.raises(ValueError, match=words) as caught:
        type(report).from_json(document | {field: value})
    assert "\n" not in str(caught.value)


def test_a_loss_is_said_from_its_first_to_its_last_measure() -> None:
    report = replace(golden("supernet"), log=[])  # type: ignore[call-arg]
    assert report.heading().finding == "The run was too short to be measured on the way."
    log = [{"tokens": 64 * place, "held_out": loss} for place, loss in enumerate([4.5, 6.0, 5.0])]
    assert "went from 4.5000 to 5.0000" in replace(report, log=log).heading().finding  # type: ignore[call-arg]
