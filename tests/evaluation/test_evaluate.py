"""A child beside its parent, and beside random and uniform carvings of its size, on one text or several."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from divergences import fidelity, perplexity_and_kl
from hypothesis import given
from hypothesis import strategies as st
from tiny import saved, word_tokenizer

from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import CostModel
from zerolm.evaluation.comparable import names_of
from zerolm.evaluation.evaluate import Evaluated, evaluate
from zerolm.evaluation.same_size import DRAW_SEEDS, NOT_COMPARED, chosen, uniform
from zerolm.networks.opener import open_model
from zerolm.planning.sizes import costs_of
from zerolm.settings.compute import RunningRequest
from zerolm.text.calibration import tokens_of
from zerolm.units.importance.criteria import criterion_of
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import apply_in_memory

FEW: dict[str, Any] = {"sequences": 6, "length": 12}
HALF: dict[str, Any] = {"keep_ffn": 0.5, "keep_heads": 0.5}


def parent_of(folder: Path, name: str = "llama", **settings: Any) -> Path:
    word_tokenizer(saved(folder / "parent", name, **settings))
    lines = [" ".join(f"w{(i * i + 7 * i + j) % 64}" for i in range(40)) for j in range(12)]
    (folder / "text.txt").write_text("\n".join(lines))
    return folder / "parent"


def judged(folder: Path, text: str | Path) -> Evaluated:
    return evaluate(folder / "child", folder / "parent", text, **FEW)


def found(folder: Path) -> Evaluated:
    return judged(folder, folder / "text.txt")


def values(result: Evaluated, name: str) -> dict[str, float]:
    return next(row.values for row in result.networks if row.name == name)


def perplexities(folder: Path, cut: Cut) -> dict[str, float]:
    """What the library's single-model judge says of a cut, in memory."""
    checkpoint = Checkpoint.open(folder / "parent")
    reference, tokens = open_model(checkpoint), tokens_of(checkpoint, str(folder / "text.txt"), **FEW)
    return vars(perplexity_and_kl(apply_in_memory(reference, cut), reference, tokens))


def test_rows_are_what_each_network_is_judged_alone(tmp_path: Path) -> None:
    carved = carve(parent_of(tmp_path), tmp_path / "child", text=tmp_path / "text.txt", **FEW, **HALF)
    result = found(tmp_path)
    assert [row.name for row in result.networks] == [
        "child", "parent", "random", "uniform", "quantised parent",
    ]  # fmt: skip
    opened = [Checkpoint.open(tmp_path / name) for name in ("child", "parent")]
    child, reference = map(open_model, opened)
    tokens = tokens_of(opened[1], str(tmp_path / "text.txt"), **FEW)
    assert values(result, "child") == vars(perplexity_and_kl(child, reference, tokens))
    assert values(result, "parent") == vars(perplexity_and_kl(reference, reference, tokens))
    assert values(result, "parent")["kl"] == 0.0
    assert (result.sequences, result.tokens) == (len(tokens), tokens.count)
    ledger = ledger_of(opened[1])
    draws = [
        perplexities(tmp_path, chosen(criterion_of("random", opened[1], ledger, seed=seed), carved.cut))
        for seed in range(3)
    ]
    random = result.networks[2]
    for key in ("perplexity", "kl"):
        several = [draw[key] for draw in draws]
        assert random.values[key] == pytest.approx(np.mean(several), rel=1e-9)
        assert random.spread[key] == (min(several), max(several))
        assert min(several) < max(several)
    params = {row.name: row.params for row in result.networks}
    assert params["child"] == params["random"] == params["uniform"] == carved.costs["child"]["params"]
    assert params["parent"] == carved.costs["parent"]["params"]
    said = result.to_json()
    assert {key: said[key] for key in ("perplexity", "kl")} == values(result, "child")
    assert said["parent_perplexity"] == values(result, "parent")["perplexity"]
    assert found(tmp_path).to_json() == said  # random is drawn from fixed seeds


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_a_uniform_child_by_capacity_is_the_uniform_row(name: str, tmp_path: Path) -> None:
    heads = {} if name == "gpt2" else {"keep_heads": 0.5}
    carve(parent_of(tmp_path, name), tmp_path / "child", keep_ffn=0.4, criterion="capacity", **heads)
    result = found(tmp_path)
    assert values(result, "uniform") == pytest.approx(values(result, "child"), rel=1e-5)
    assert values(result, "random") != pytest.approx(values(result, "child"), rel=1e-2)


def test_an_encoder_is_judged_by_its_embeddings(tmp_path: Path) -> None:
    carve(parent_of(tmp_path, "bert"), tmp_path / "child", keep_ffn=0.25, criterion="capacity")
    result = found(tmp_path)
    opened = [Checkpoint.open(tmp_path / name) for name in ("child", "parent")]
    tokens = tokens_of(opened[1], str(tmp_path / "text.txt"), **FEW)
    cosine = fidelity(*map(open_model, opened), tokens)
    assert values(result, "child")["cosine"] == pytest.approx(cosine, abs=1e-6)
    assert values(result, "parent")["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert values(result, "uniform")["cosine"] == pytest.approx(cosine, abs=1e-6)
    low, high = result.networks[2].spread["cosine"]
    assert low < result.networks[2].values["cosine"] < high < 1.0
    measures = {"cosine", "distance", "order", "nearest"}
    assert set(result.to_json()) == {"sequences", "tokens", *measures, "rows", "note"}


def test_a_padded_child_is_counted_and_matched_without_its_zeros(tmp_path: Path) -> None:
    parent = parent_of(tmp_path)
    carved = carve(
        parent, tmp_path / "child", budgets={"max_body_params": "0.6x"}, shape="per-layer",
        criterion="capacity", form="padded",
    )  # fmt: skip
    assert not carved.cut.uniform
    result = found(tmp_path)
    params = {row.name: row.params for row in result.networks}
    assert params["child"] == params["random"] == carved.costs["child"]["params"]
    neuron = 3 * 3 * 48  # three layers' rows of gate and up, and columns of down
    assert abs(params["uniform"] - params["child"]) <= neuron
    assert carved.costs["stored"]["params"] > params["child"] + neuron
    # A KL is a difference of logarithms in float32, each some 1e-7 off, whatever it comes to itself.
    expected = perplexities(tmp_path, carved.cut)
    assert values(result, "child") == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_carvings_keep_the_layers_of_a_child_that_lacks_some(tmp_path: Path) -> None:
    parent = parent_of(tmp_path)
    carved = carve(
        parent, tmp_path / "child", keep_layers=0.67, keep_ffn=0.5, text=tmp_path / "text.txt", **FEW
    )
    assert len(carved.cut.layers) == 2
    result = found(tmp_path)
    checkpoint = Checkpoint.open(parent)
    wanted = chosen(criterion_of("capacity", checkpoint, ledger_of(checkpoint)), carved.cut)
    assert values(result, "uniform") == pytest.approx(perplexities(tmp_path, wanted), rel=1e-6)
    (tmp_path / "child" / "recipe.json").unlink()
    alone = found(tmp_path)
    assert [row.name for row in alone.networks] == ["child", "parent", "quantised parent"]
    assert alone.note.startswith(NOT_COMPARED)
    assert alone.networks == [*result.networks[:2], result.networks[-1]]


def test_without_a_recipe_of_this_parent_the_configuration_tells(tmp_path: Path) -> None:
    carve(parent_of(tmp_path), tmp_path / "child", **HALF)
    wanted, recipe = found(tmp_path).to_json(), tmp_path / "child" / "recipe.json"
    recipe.write_text(json.dumps(json.loads(recipe.read_text()) | {"parent_weights": "of another"}))
    assert found(tmp_path).to_json() == wanted
    recipe.unlink()
    assert found(tmp_path).to_json() == wanted


def test_the_recipe_of_another_child_is_refused(tmp_path: Path) -> None:
    parent = parent_of(tmp_path)
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    carve(parent, tmp_path / "other", keep_ffn=0.25)
    shutil.copy(tmp_path / "other" / "recipe.json", tmp_path / "child")
    with pytest.raises(ValueError, match="is of another child"):
        found(tmp_path)
    (tmp_path / "child" / "recipe.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"recipe.json' cannot be used"):
        found(tmp_path)


@given(sizes=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 40)), min_size=1, max_size=3))
def test_uniform_is_as_large(sizes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """And no uniform cut with as many groups is nearer."""
    folder = tmp_path_factory.getbasetemp() / "uniform"
    checkpoint = Checkpoint.open(folder if folder.exists() else saved(folder, "llama"))
    whole, costs = dimensions(checkpoint), CostModel()
    layers = (LayerCut.of(at, np.arange(g), np.arange(f)) for at, (g, f) in enumerate(sizes))
    cut = Cut(whole, tuple(layers))
    same = uniform(checkpoint, cut)
    assert same.uniform
    assert [kept.layer for kept in same.layers] == [kept.layer for kept in cut.layers]

    def params(each: Cut) -> int:
        return costs_of(checkpoint, costs, each)["params"]

    def wider(neurons: int) -> Cut:
        return Cut(
            whole,
            tuple(LayerCut.of(k.layer, k["groups"], np.arange(len(k["ffn"]) + neurons)) for k in same.layers),
        )

    apart, neuron = abs(params(same) - params(cut)), len(sizes) * 3 * whole.hidden
    assert apart <= neuron
    if cut.uniform:
        assert apart == 0
    width = len(same.layers[0]["ffn"])
    near = [params(wider(step)) for step in (-1, 1) if 1 <= width + step <= whole.ffn]
    assert all(apart <= abs(size - params(cut)) for size in near)


def channels_alone(folder: Path, channels: list[int], share: float) -> Any:
    """The parent with these channels of its stream and no others, by indexing its matrices.

    The norm is a mean over fewer channels, of which these hold a ``share`` of the energy.
    """
    network = open_model(Checkpoint.open(folder))
    scale = np.sqrt(share * network.config.hidden_size / len(channels))
    index = torch.tensor(channels)
    for name, parameter in network.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):  # they stand within heads
            continue
        if "norm" in name:
            parameter.data = parameter.data[index] * scale
        else:
            along = 0 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
            parameter.data = parameter.data.index_select(along, index)
    network.config.hidden_size = len(channels)
    return network


def energies_of_channels(folder: Path) -> np.ndarray[Any, Any]:
    """Those of embeddings of mean square 1, and in equal parts of what o_proj and down_proj write."""
    weights = {n: one.double().numpy() for n, one in open_model(Checkpoint.open(folder)).state_dict().items()}
    rows = weights["model.embed_tokens.weight"]
    embedded = (rows**2 / (rows**2).mean(axis=1, keepdims=True)).sum(axis=0)
    writers = (w for name, w in weights.items() if name.endswith(("o_proj.weight", "down_proj.weight")))
    written = sum((matrix**2).sum(axis=1) for matrix in writers)
    return np.asarray(embedded / embedded.sum() + written / written.sum())


@pytest.mark.parametrize("name", ["llama_tied", "qwen3"])
def test_beside_a_narrower_stream_stand_channels_without_a_rotation(name: str, tmp_path: Path) -> None:
    parent = parent_of(tmp_path, name)
    carved = carve(parent, tmp_path / "child", keep_hidden=0.75)
    result = found(tmp_path)
    assert "no rotation" in result.note
    params = {row.name: row.params for row in result.networks}
    assert params["child"] == params["random"] == params["uniform"] == carved.costs["child"]["params"]
    child = open_model(Checkpoint.open(tmp_path / "child"))
    assert params["child"] == sum(parameter.numel() for parameter in child.parameters())
    checkpoint = Checkpoint.open(parent)
    tokens = tokens_of(checkpoint, str(tmp_path / "text.txt"), **FEW)
    ref = open_model(checkpoint)
    assert values(result, "child") == pytest.approx(vars(perplexity_and_kl(child, ref, tokens)), rel=1e-6)
    energy = energies_of_channels(parent)
    by_energy = np.argsort(-energy)
    draws = [by_energy[np.random.default_rng(seed).permutation(48)] for seed in DRAW_SEEDS]
    by_channels = []
    for order in (by_energy, *draws):
        share = energy[order[:36]].sum() / energy.sum()
        alone = channels_alone(parent, order[:36].tolist(), share)
        assert sum(parameter.numel() for parameter in alone.parameters()) == params["child"]
        by_channels.append(vars(perplexity_and_kl(alone, ref, tokens)))
    assert values(result, "uniform") == pytest.approx(by_channels[0], rel=1e-4)
    for key, mean in values(result, "random").items():
        assert mean == pytest.approx(np.mean([draw[key] for draw in by_channels[1:]]), rel=1e-4)


PARTS = st.lists(st.sampled_from(["a", "b", "child", "parent"]), min_size=1, max_size=3)


@given(st.lists(PARTS.map(lambda parts: Path("/", *parts)), unique=True, max_size=6))
def test_names_of_folders_are_distinct_ends_of_their_paths(folders: list[Path]) -> None:
    names = names_of(folders)
    assert len(set(names)) == len(names)
    for name, folder in zip(names, folders, strict=True):
        assert f"{folder}/".endswith(name)
        assert name.strip("/") not in ("child", "parent") or folder.parent == Path("/")


def test_products_in_bfloat16_say_nearly_the_same(tmp_path: Path) -> None:
    """Within one per cent in perplexity, and in the divergence of what is far from the parent."""
    parent = parent_of(tmp_path)
    carve(parent, tmp_path / "child", **HALF)
    wanted = found(tmp_path)
    place = tmp_path / "child", parent, tmp_path / "text.txt"
    half = evaluate(*place, **FEW, beside=[parent], request=RunningRequest("cpu", "bfloat16"))
    assert values(half, "parent")["kl"] == half.networks[-1].values["kl"] == 0.0
    for row in wanted.networks:
        ours = values(half, row.name)
        assert ours["perplexity"] == pytest.approx(row.values["perplexity"], rel=0.01)
        assert ours["kl"] == pytest.approx(row.values["kl"], rel=0.05, abs=1e-4)
        assert ours["perplexity"] != row.values["perplexity"]


def texts(folder: Path) -> dict[str, str]:
    lines = [" ".join(f"w{(i * i + 7 * j) % 61}" for i in range(20)) for j in range(9)]
    (folder / "code.txt").write_text("\n".join(lines))
    (folder / "chat").mkdir()
    for part in range(2):
        lines = [" ".join(f"w{(3 * i + j + part) % 50}" for i in range(16)) for j in range(6)]
        (folder / "chat" / f"{part}.txt").write_text("\n".join(lines))
    short = [" ".join(f"w{i * j % 47}" for i in range(15)) for j in (1, 2)]
    (folder / "short.txt").write_text("\n".join(short))
    return {"code": f"{folder}/code.txt", "chat": f"{folder}/chat", "short": f"{folder}/short.txt"}


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_domain_is_what_it_is_alone(name: str, tmp_path: Path) -> None:
    """And all together weigh their tokens alike."""
    carve(parent_of(tmp_path, name), tmp_path / "child", keep_ffn=0.5, criterion="capacity")
    sources = texts(tmp_path)
    result = judged(tmp_path, ",".join(f"{name}={path}" for name, path in sources.items()))
    alone = {domain: judged(tmp_path, f"{domain}={path}") for domain, path in sources.items()}
    sizes = {domain: each.sequences for domain, each in alone.items()}
    assert sizes["code"] == sizes["chat"] == 6
    assert sizes["short"] == 2
    assert (result.sequences, result.tokens) == (14, sum(each.tokens for each in alone.values()))
    for place, row in enumerate(result.networks):
        assert list(row.domains) == list(sources)
        for domain, values in row.domains.items():
            theirs = alone[domain].networks[place]
            assert values == pytest.approx(theirs.values, rel=1e-6, abs=1e-7)
            assert values == pytest.approx(theirs.domains[domain], rel=1e-6, abs=1e-7)
    code, chat = (result.networks[0].domains[domain] for domain in ("code", "chat"))
    measure = "kl" if name == "llama" else "distance"
    assert code[measure] != pytest.approx(chat[measure], rel=1e-4)
    assert ("order" in code, "order" in result.networks[0].domains["short"]) == (name == "bert", False)
    if name == "bert":
        return
    for row in result.networks:
        whole = {"kl": 0.0, "surprise": 0.0}
        for domain, values in row.domains.items():
            share = sizes[domain] / result.sequences
            whole["kl"] += share * values["kl"]
            whole["surprise"] += share * math.log(values["perplexity"])
        assert row.values["kl"] == pytest.approx(whole["kl"], rel=1e-9)
        if not row.spread:  # a mean of perplexities is not that of means of surprise
            assert row.values["perplexity"] == pytest.approx(math.exp(whole["surprise"]), rel=1e-9)


def test_one_text_has_no_domains(tmp_path: Path) -> None:
    carve(parent_of(tmp_path), tmp_path / "child", keep_ffn=0.5)
    path = texts(tmp_path)["code"]
    plain, named = judged(tmp_path, path), judged(tmp_path, f"code={path}")
    assert not any(row.domains for row in plain.networks)
    assert "domains" not in plain.to_json()["rows"][0]
    assert [row.values for row in plain.networks] == [row.values for row in named.networks]
