"""Scores of models by name, and searches that are to better one."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from refusals import Zerolm

import zerolm
from zerolm.checkpoints.named_model import DOCUMENTS, named_model
from zerolm.costs import COSTS, CostModel
from zerolm.scores import make_score
from zerolm.solvers import search
from zerolm.solvers.baseline import BaselineModel, baseline_of
from zerolm.spaces.decoders import SPACE_OF, decoders
from zerolm.verbs.run_file import configured

EIGHT = (
    *("SmolLM2-135M", "SmolLM2-360M", "SmolLM2-1.7B", "MobileLLM-125M"),
    *("Qwen2.5-0.5B", "Qwen3-0.6B", "Llama-3.2-1B", "TinyLlama-1.1B"),
)
CONTEXT = CostModel(context=2048)
SMALL: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 768,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": False, "max_position_embeddings": 512,
}  # fmt: skip
THIN: dict[str, Any] = {
    "depth": "4:9", "hidden": "192,256,320", "ffn": "384:1024:128", "head_size": 64,
    "hidden_per_depth": "8:128", "ffn_per_hidden": "1:5",
}  # fmt: skip
BERT = {"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}


def written(folder: Path, document: Any, name: str = "config.json") -> str:
    (folder / name).write_text(json.dumps(document))
    return str(folder / name)


def read(name: str, space: str | None = None) -> BaselineModel:
    return baseline_of(*named_model(name), space, CONTEXT)


@pytest.mark.parametrize("name", EIGHT)
def test_the_pick_is_as_good_as_the_known_model_at_its_own_costs(name: str) -> None:
    model = read(name)
    space = model.space_with({}, None, CONTEXT)
    reference = model.reference(space, make_score("geo"))
    assert reference.exclusions == []
    budgets = model.budgets({})
    assert budgets == {f"max_{cost}": model.costs[cost] for cost in ("params", "macs", "kv_bytes")}
    result = search(
        space, "geo", budgets=budgets, costs=CONTEXT, floor=reference.choice.score, top=1, compare=False
    )
    assert result.certificate.optimal
    assert result.pick.score >= reference.choice.score * (1 - 1e-9)
    assert all(result.pick.costs[limit[4:]] <= most for limit, most in budgets.items())


def test_a_floor_raises_the_pick_and_nothing_else() -> None:
    ranges = {"depth": range(4, 10), "hidden": (192, 256, 320), "ffn": range(384, 1025, 8)}
    space = zerolm.make_space("llama", **{name: list(values) for name, values in ranges.items()})
    budgets = {"max_params": 13_000_000}
    free = search(space, "geo", budgets=budgets, compare=False, top=200)
    near = [choice for choice in free.best if choice.score > free.pick.score]
    assert near  # cheaper ones within 1 % are picked
    assert free.pick.score < near[-1].score < near[0].score
    floored = search(space, "geo", budgets=budgets, compare=False, top=200, floor=near[-1].score)
    assert floored.best == free.best
    assert floored.pick.score >= near[-1].score
    cheap = [choice.costs["kv_bytes"] for choice in free.best if choice.score >= near[-1].score]
    assert floored.pick.costs["kv_bytes"] == min(cheap)
    for floor in (0.0, free.pick.score, 2 * free.best[0].score):
        assert search(space, "geo", budgets=budgets, compare=False, floor=floor).pick == free.pick
    top = search(space, "geo", budgets=budgets, compare=False, floor=free.best[0].score)
    assert top.pick.score == free.best[0].score


def test_what_a_search_takes_over_and_tells(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    file = written(folder, SMALL)
    result = zerolm.search(baseline=file, context=512, **THIN)
    baseline = result.baseline
    assert result.space.name == "llama"
    assert {name: result.space.settings[name] for name in ("vocab", "tied", "positions", "qkv_bias")} == {
        "vocab": 1000, "tied": False, "positions": 512, "qkv_bias": False,
    }  # fmt: skip
    costs = CostModel(context=512).of(baseline.choice.architecture)
    assert baseline.choice.costs == costs == zerolm.score(file, context=512).costs
    assert result.question.budgets == {f"max_{cost}": costs[cost] for cost in ("params", "macs", "kv_bytes")}
    assert baseline.choice.score == make_score("geo").of(baseline.choice.architecture)
    assert baseline.exclusions == []
    assert result.pick.score >= baseline.choice.score
    document = result.to_json()["question"]["baseline"]
    assert document["name"] == "mine"
    assert document["choice"]["costs"].keys() == set(COSTS)
    result.save(tmp_path / "out")
    assert zerolm.load(tmp_path / "out").to_json() == result.to_json()
    again = zerolm.search(**_arguments(tmp_path / "out" / "run.yaml"))
    assert (again.pick, again.baseline) == (result.pick, baseline)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Compared with mine" in page
    assert "6 x 256, heads 4, kv 2, ffn 768" in page
    assert "baseline mine" in page  # can be picked
    assert "mine" in result._repr_html_()
    assert any(line.strip() == "score against mine: +0.00 %" for line in result.lines())
    wider = zerolm.search(baseline=file, max_macs=2 * costs["macs"], context=512, **THIN)
    assert any(line.strip().startswith("score against mine: +") for line in wider.lines())


def _arguments(file: Path) -> dict[str, Any]:
    return configured("search", str(file), {})


@pytest.mark.parametrize("share", ["0.8x", "1x", "1.25x"])
def test_budgets_may_be_shares_of_the_baseline(share: str, tmp_path: Path) -> None:
    file = written(tmp_path, SMALL)
    need = read(file).costs
    result = zerolm.search(baseline=file, max_params=share, min_macs="0.1x", context=2048, **THIN)
    assert result.question.budgets == {
        "max_params": int(Decimal(share[:-1]) * need["params"]),
        "min_macs": need["macs"] // 10,
        "max_macs": need["macs"],
        "max_kv_bytes": need["kv_bytes"],
    }
    assert result.pick.costs["params"] <= result.question.budgets["max_params"]
    assert result.run.configuration["max_params"] == share


def test_a_share_needs_a_baseline(zerolm: Zerolm) -> None:
    zerolm("search", "llama", "--max-params", "0.8x").refused(
        "--max-params 0.8x is a share of a baseline's: give --baseline MODEL too"
    )


def test_a_baseline_outside_the_space_is_told(tmp_path: Path, zerolm: Zerolm) -> None:
    file = written(tmp_path, {**SMALL, "num_hidden_layers": 3, "intermediate_size": 777})
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in THIN.items()]
    ran = zerolm("search", "llama", "--baseline", file, *flags)
    assert (ran.status, ran.err) == (0, "")
    assert "outside the space: depth 3 (4:9), ffn 777 (384:1024:128)" in " ".join(ran.out.split())
    assert f"Compared with {tmp_path.name}\n" in ran.out
    told = zerolm("search", "--baseline", file, *flags, "--json").document["question"]["baseline"]
    assert told["exclusions"] == ["depth 3 (4:9)", "ffn 777 (384:1024:128)"]
    assert told["choice"]["architecture"]["ffn"] == 777


def test_within_searches_around_it(tmp_path: Path) -> None:
    result = zerolm.search(baseline=written(tmp_path, SMALL), within="20%", ffn_per_hidden="1:5")
    assert result.baseline.exclusions == []
    for choice in [result.pick, *result.best]:
        own, sizes = SMALL, choice.architecture.choices
        assert abs(sizes["depth"] - own["num_hidden_layers"]) <= 1.2
        assert abs(sizes["hidden"] - own["hidden_size"]) <= 51.2
        assert abs(sizes["ffn"] - own["intermediate_size"]) <= 153.6
        assert abs(sizes["heads"] * sizes["head_size"] - 256) <= 51.2
        assert abs(sizes["kv_heads"] * sizes["head_size"] - 128) <= 25.6


def test_what_may_be_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = written(tmp_path, SMALL)
    assert read(str(tmp_path)) == BaselineModel(tmp_path.name, *_parts(read(config)))
    pick = {"space": "bert", "settings": {"vocab": 500}, "architecture": {**_bert(), "ffn": 1024}}
    assert read(written(tmp_path, pick, "pick.json")).space == "bert"
    assert read(written(tmp_path, BERT, "bert.json")).space == "bert"
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 2}
    assert read(written(tmp_path, gpt2, "gpt2.json")).space == "gpt2-uniform"
    qwen3 = {**SMALL, "model_type": "qwen3", "head_dim": 128}
    assert read(written(tmp_path, qwen3, "qwen3.json")).space == "qwen3"
    qwen2 = read(written(tmp_path, {**SMALL, "model_type": "qwen2"}, "qwen2.json"))
    assert (qwen2.space, qwen2.settings["qkv_bias"]) == ("llama", True)
    windows = {**SMALL, "model_type": "mistral", "sliding_window": 2048}
    assert read(written(tmp_path, windows, "mistral.json")).space == "llama"
    monkeypatch.setattr("zerolm.checkpoints.named_model.fetched_config", lambda name: SMALL)
    assert read("someone/something").name == "someone/something"


def _bert() -> dict[str, int]:
    return {"depth": 4, "hidden": 256, "head_size": 64, "heads": 4}


def _parts(model: BaselineModel) -> list[Any]:
    return [model.space, model.settings, model.choices, model.costs]


REFUSED: list[tuple[Any, str]] = [
    ({"model_type": "phoney", "hidden_size": 64}, "'phoney' is not known, of a decoder's sizes it lacks num"),
    ({**SMALL, "model_type": "phoney"}, "'phoney' is not known, its sizes are all there; baselines"),
    ({**SMALL, "model_type": ["llama"]}, r"model_type \['llama'\] is not known, its sizes are all there"),
    ({"hidden_size": 64}, "has no model_type, of a decoder's sizes it lacks num_hidden_layers"),
    ({**SMALL, "num_local_experts": 8}, r"mixture of experts \(num_local_experts 8\); baselines are dense"),
    ({**SMALL, "model_type": "gemma2"}, "no space has layers of gemma2; baselines are dense models of bert"),
    ({**SMALL, "attention_bias": True}, r"llama has no such layers: \d+ params in place of \d+"),
    ({**SMALL, "model_type": "mistral", "sliding_window": 64}, "llama has no such layers: .* macs in place"),
    ({**SMALL, "hidden_size": "wide"}, "hidden_size 'wide'; 1 to"),
    ({**SMALL, "num_key_value_heads": 3}, "num_attention_heads 4 is not divisible by num_key_value_heads 3"),
    ([SMALL], "must be a JSON object"),
    ({"space": "lama", "architecture": {}}, "'lama' is not known"),
    ({"space": "flexibert", "architecture": {"stacks": []}}, "."),
]


@pytest.mark.parametrize(("document", "words"), REFUSED)
def test_documents_that_are_no_baseline(document: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        zerolm.search(baseline=written(tmp_path, document), context=2048)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"baseline": "Pythia-70M"}, r"no space has layers as Pythia-70M has \(gpt_neox\); baselines are"),
        ({"space": "bert", "baseline": "Qwen3-0.6B"}, "is an architecture of qwen3, not of bert"),
        ({"space": "bret", "baseline": "Qwen3-0.6B"}, "'bret' is not known; did you mean 'bert'"),
        ({"space": "llama", "within": "10%"}, "give --baseline MODEL too"),
        ({"baseline": "Qwen3-0.6B", "within": "1000%"}, "within must be a positive number up to 0.9"),
        ({"baseline": "Qwen3-0.6B", "within": "near"}, "within"),
        ({"baseline": "Qwen3-0.6B", "depth": 4, "within": "10%"}, "depth 4 holds nothing within 10% of"),
        (
            {"baseline": "SmolLM2-135M", "max_params": "100M"},
            "SmolLM2-135M needs 134515008 params, more than max_params 100000000: drop max_params, "
            "or give at least 134515008",
        ),
        ({"baseline": "SmolLM2-135M", "min_params": "1G"}, "less than min_params 1000000000: .* at most 134"),
        ({"baseline": "SmolLM2-135M", "vocab": 32000}, "vocab 32000 is not that of the baseline .*, 49152"),
        ({"baseline": "SmolLM2-135M", "tied": False}, "tied False is not that of the baseline"),
    ],
)  # fmt: skip
def test_baselines_that_contradict(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        zerolm.search(**arguments)
    assert "\n" not in str(raised.value)


def test_known_decoders_are_listed(zerolm: Zerolm) -> None:
    rows = {row["name"]: row for row in zerolm("spaces", "--known", "--json").document}
    assert rows.keys() == decoders().keys()
    smol = rows["SmolLM2-135M"]
    assert (smol["params"], smol["kv_bytes"], smol["space"]) == (134_515_008, 23_040, "llama")
    assert smol["ffn_per_hidden"] == pytest.approx(1536 / 576)
    assert smol["ffn_per_attention"] == pytest.approx(3 * 1536 / (2 * 576 + 2 * 192))
    assert smol["hidden_per_depth"] == 19.2
    assert rows["Qwen2.5-0.5B"]["exclusions"] == []
    assert rows["Pythia-70M"]["space"] is None
    text = zerolm("spaces", "--known").out
    assert all(name in text for name in rows)
    llamas = zerolm("spaces", "qwen3", "--known", "--json").document
    assert {row["name"] for row in llamas} == {"Qwen3-0.6B", "Qwen3-1.7B"}
    assert "0 published decoders" in zerolm("spaces", "bert", "--known").out


@pytest.mark.parametrize("name", sorted(decoders()))
def test_every_known_decoder_is_scored_by_name_and_hub_id(name: str) -> None:
    decoder = decoders()[name]
    report = zerolm.score(name.lower(), score="geo", context=2048)
    assert report.costs == CostModel(context=2048).of(decoder.architecture)
    assert report.scores[0].value == make_score("geo").of(decoder.architecture)
    assert report.architecture == decoder.choices
    assert (report.space in {space for space, _ in SPACE_OF.values()}) == (decoder.family in SPACE_OF)
    assert zerolm.score(decoder.hub, score="geo", context=2048) == report


def test_a_named_model_is_repeated_by_its_name(tmp_path: Path, zerolm: Zerolm) -> None:
    flags = ("score", "SmolLM2-135M", "--score", "zerolm", "--alpha", "0.5", "--alpha", "1.1")
    ran = zerolm(*flags, "--out", str(tmp_path / "out"), "--json")
    assert ran.status == 0, ran.err
    again = zerolm("score", "--config", str(tmp_path / "out" / "run.yaml"), "--json")
    assert json.loads(again.out) == json.loads(ran.out)
    assert [row["alpha"] for row in json.loads(ran.out)["scores"]] == [0.5, 1.1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SmolLM3", "is called 'SmolLM3'; did you mean 'SmolLM2-"),
        ("nowhere.json", "'nowhere.json' does not exist; give an architecture file"),
        ("nowhere/labels.csv", "'nowhere/labels.csv' does not exist"),
        (".", "folder '.' has neither config.json nor architecture.json"),
    ],
)
def test_an_unknown_model_is_one_line(name: str, words: str, here: Path, zerolm: Zerolm) -> None:
    for command in (["score", name], ["search", "--baseline", name]):
        zerolm(*command).refused(words)


def test_a_folder_is_looked_through_in_one_order(tmp_path: Path) -> None:
    choices = {"depth": 2, "hidden": 128, "head_size": 64, "heads": 2, "ffn": 512}
    documents = ({"space": "bert", "architecture": choices}, SMALL)
    for name, document in zip(DOCUMENTS, documents, strict=True):
        (tmp_path / name).write_text(json.dumps(document))
    assert zerolm.score(tmp_path, score="geo").space == "bert"


def test_costs_that_there_are_not_are_no_result(tmp_path: Path) -> None:
    report = zerolm.score(SMALL, score="geo")
    assert type(report).from_json(report.to_json()) == report
    with pytest.raises(ValueError, match="there is no cost 'wit'"):
        type(report).from_json({**report.to_json(), "costs": {"wit": 3}})
    with pytest.raises(ValueError, match=r"scores\.0\.value"):
        type(report).from_json(
            {**report.to_json(), "scores": [{"score": "geo", "alpha": None, "value": "x"}]}
        )


def test_the_folder_of_a_search_stands_for_its_pick(tmp_path: Path) -> None:
    budgets = {"depth": "4:8", "hidden": "256", "max_params": "20M"}
    result = zerolm.search("llama", **budgets, top=1)
    result.save(tmp_path / "first")
    assert zerolm.score(str(tmp_path / "first")).architecture == result.pick.architecture.choices
    again = zerolm.search("llama", **budgets, top=1, baseline=str(tmp_path / "first"))
    assert again.pick.architecture == result.pick.architecture
