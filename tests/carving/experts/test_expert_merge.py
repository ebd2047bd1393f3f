"""Experts that are merged into those that stay, against loops over the formulas, and what must hold."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from hypothesis import given
from hypothesis import strategies as st
from packed_mixtures import packed_mixture
from safetensors.torch import load_file, save_file
from saved_mixtures import mixture
from scipy.optimize import linprog
from stopped import Stopped, stopping_at
from tiny import word_tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

import zerolm
from zerolm.carving.experts.expert_merge import merged_experts
from zerolm.carving.experts.expert_neurons import Neurons
from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.experts.masked_parent import compare_with_masked
from zerolm.carving.experts.ream import COMPONENTS, grouped, main_components, matched, shares, similarity
from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.networks.opener import mapped_model
from zerolm.planning.size_request import ExpertsRequest
from zerolm.text.tokens import Tokens

FILE = "model.safetensors"
EXPERTS = 8
KEPT = np.array([0, 2, 5])
KINDS = ["qwen3_moe", "qwen2_moe", "gpt_oss", "deepseek_v3", "gemma4_text", "granitemoe", "nemotron_h"]
FLAGS: dict[str, Any] = {"keep_experts": "4", "sequences": 10, "length": 12, "merge": "ream"}


def ids() -> Tensor:
    return torch.randint(64, (6, 12), generator=torch.Generator().manual_seed(0))


def spoken(folder: Path, kind: str, dtype: str = "float32", **changes: Any) -> Path:
    """Return the folder of a mixture with a tokenizer, and a text beside it."""
    word_tokenizer(mixture(folder, kind, dtype, **changes))
    words = np.random.default_rng(0).integers(20, size=600)
    (folder.parent / "text.txt").write_text(" ".join(f"w{word}" for word in words))
    return folder


def cosine(one: Tensor, other: Tensor) -> float:
    return float(functional.cosine_similarity(one, other, dim=0))


@torch.no_grad()
def twin(folder: Path, kept: list[int]) -> tuple[dict[int, list[int]], dict[int, dict[str, Tensor]]]:
    """Return the groups and merged experts of the first layer of a qwen3_moe, by loops over the formulas."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    block, calls = model.model.layers[0].mlp, []
    block.register_forward_pre_hook(lambda module, inputs: calls.append(inputs[0].flatten(0, 1)))
    model(input_ids=ids(), use_cache=False)
    x, block = calls[0].double(), block.double()  # (t, d)
    logits = x @ block.gate.weight.T
    gates, chosen = logits.softmax(-1).topk(2)
    gates = gates / gates.sum(-1, keepdim=True)
    experts, size = block.experts, block.experts.down_proj.shape[2]

    def neurons(expert: int, token: Tensor) -> Tensor:
        both = experts.gate_up_proj[expert] @ token
        return functional.silu(both[:size]) * both[size:]

    outputs = [[experts.down_proj[e] @ neurons(e, token) for token in x] for e in range(EXPERTS)]
    g = torch.zeros_like(logits).scatter(1, chosen, gates)
    salience = []
    for e in range(EXPERTS):
        theirs = [float(g[t, e] * outputs[e][t].norm()) for t in range(len(x)) if g[t, e] > 0]
        salience.append(sum(theirs) / max(len(theirs), 1))

    def like(i: int, j: int) -> float:
        met = [t for t in range(len(x)) if g[t, i] > 0 and g[t, j] > 0]
        sent = [(cosine(g[t, i] * outputs[i][t], g[t, j] * outputs[j][t]) + 1) / 2 for t in met]
        half = sum(sent) / len(sent) if sent else 0.5
        return (half + (cosine(logits[:, i], logits[:, j]) + 1) / 2) / 2

    left, groups = [e for e in range(EXPERTS) if e not in kept], {}
    for centre in sorted(kept, key=lambda e: -salience[e]):
        groups[centre] = sorted(sorted(left, key=lambda e: -like(centre, e))[:15])
        left = [e for e in left if e not in groups[centre]]
    groups = {centre: members for centre, members in groups.items() if members}

    def row(expert: int, n: int) -> Tensor:
        both = experts.gate_up_proj[expert]
        return torch.cat([both[n], both[size + n], experts.down_proj[expert][:, n]])

    merged = {}
    for centre, members in groups.items():
        total = sum(salience[e] for e in [centre, *members])
        both = salience[centre] / total * experts.gate_up_proj[centre]
        down = salience[centre] / total * experts.down_proj[centre]
        for member in members:
            met = [x[t] for t in range(len(x)) if g[t, centre] > 0 or g[t, member] > 0]
            ours, theirs = (torch.stack([neurons(e, token) for token in met]) for e in (centre, member))
            act, far = torch.zeros(size, size), torch.zeros(size, size)
            for n in range(size):
                for o in range(size):
                    act[n, o] = (
                        functional.normalize(ours[:, n], dim=0) - functional.normalize(theirs[:, o], dim=0)
                    ).norm()
                    far[n, o] = (row(centre, n) - row(member, o)).norm()  # 48 rows have all their components
            order = best_order((act / act.mean() + far / far.mean()).numpy())
            for n in range(size):
                o, part = int(order[n]), salience[member] / total
                both[n] += part * experts.gate_up_proj[member][o]
                both[size + n] += part * experts.gate_up_proj[member][size + o]
                down[:, n] += part * experts.down_proj[member][:, o]
        merged[centre] = {"gate_up_proj": both, "down_proj": down}
    return groups, merged


def best_order(costs: np.ndarray[Any, Any]) -> list[int]:
    """Return the assignment of least cost, by linear programming."""
    size = len(costs)
    rows = np.kron(np.eye(size), np.ones(size))
    columns = np.kron(np.ones(size), np.eye(size))
    solved = linprog(costs.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.ones(2 * size))
    return list(solved.x.reshape(size, size).argmax(1))


def test_it_is_what_loops_over_the_formulas_give(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "qwen3_moe")
    checkpoint = Checkpoint.open(folder)
    fewer = FewerExperts(checkpoint, {layer: KEPT for layer in (0, 2, 3)})
    changed, groups = merged_experts(fewer, mapped_model(checkpoint), Tokens(ids()), batch=4)
    wanted, values = twin(folder, KEPT.tolist())
    assert groups[0] == wanted
    assert sorted(member for members in groups[0].values() for member in members) == [1, 3, 4, 6, 7]
    for centre, parameters in values.items():
        for name, value in parameters.items():
            np.testing.assert_allclose(changed[0][name][centre], value.numpy(), rtol=1e-4, atol=1e-5)


@given(st.data())
def test_groups_take_all_that_leave_each_once(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 40))
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1))))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    salience, likeness = rng.random(size), rng.random((size, size))
    groups = grouped(salience, likeness, kept)
    members = sorted(member for group in groups.values() for member in group)
    assert members == sorted(set(range(size)) - set(kept.tolist()))
    assert set(groups) <= set(kept.tolist())
    assert all(len(group) < max(16, -(-size // len(kept))) for group in groups.values())
    served = sorted(kept.tolist(), key=lambda expert: -salience[expert])
    assert list(groups) == served[: len(groups)]
    for place, centre in enumerate(groups):
        later = [member for other in list(groups)[place + 1 :] for member in groups[other]]
        nearest = min(likeness[centre, member] for member in groups[centre])
        assert all(likeness[centre, member] <= nearest for member in later)


def test_similarity_is_one_of_an_expert_with_itself_and_half_where_nothing_is_seen() -> None:
    rng = np.random.default_rng(0)
    sent, logits = rng.normal(size=(9, 4, 6)), rng.normal(size=(9, 4))
    unit = sent / np.linalg.norm(sent, axis=-1, keepdims=True)
    cosines = np.einsum("tid,tjd->ij", unit, unit)
    likeness = similarity(cosines, np.full((4, 4), 9.0), logits.T @ logits)
    np.testing.assert_allclose(np.diagonal(likeness), 1)
    assert np.all((likeness >= 0) & (likeness <= 1 + 1e-12))
    np.testing.assert_array_equal(similarity(*np.zeros((3, 2, 2))), 0.5)


@given(st.integers(0, 999))
def test_neurons_are_matched_at_least_distance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = rng.normal(size=(2, 5, 7))
    rows, others = rng.normal(size=(2, 5, 6))
    costs = []
    for a, b in (
        (ours / np.linalg.norm(ours, axis=1)[:, None], theirs / np.linalg.norm(theirs, axis=1)[:, None]),
        (rows, others),
    ):
        far = np.array([[np.linalg.norm(x - y) for y in b] for x in a])
        costs.append(far / far.mean())
    total = costs[0] + costs[1]
    least = min(sum(total[n, order[n]] for n in range(5)) for order in permutations(range(5)))
    order = matched(ours, theirs, rows, others)
    assert sorted(order) == list(range(5))
    assert sum(total[n, order[n]] for n in range(5)) == pytest.approx(least)


@pytest.mark.parametrize("shape", [(80, 200), (200, 80), (10, 300)])
def test_main_components_are_those_of_singular_values(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=shape) * np.linspace(1, 5, shape[1])
    parts = main_components(rows)
    left, sizes, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    wanted = (left * sizes)[:, :COMPONENTS]
    np.testing.assert_allclose(parts @ parts.T, wanted @ wanted.T, atol=1e-6)


def test_shares_add_up_and_leave_what_no_token_meets_as_it_was() -> None:
    np.testing.assert_allclose(shares(np.array([3.0, 0.0, 1.0]), 0, [1, 2]), [0.75, 0, 0.25])
    np.testing.assert_array_equal(shares(np.zeros(3), 2, [0]), [1, 0])


def copies(folder: Path) -> dict[str, Tensor]:
    """Make all experts of each layer of a mixture copies of the first, their neurons in other orders."""
    tensors, generator = load_file(folder / FILE), torch.Generator().manual_seed(0)
    for name in [name for name in tensors if ".experts." in name and name.endswith("gate_proj.weight")]:
        before, expert = name.split(".experts.")[0], int(name.split(".experts.")[1].split(".")[0])
        order = torch.randperm(len(tensors[name]), generator=generator)
        for part in ("gate", "up", "down") if expert else ():
            first = tensors[f"{before}.experts.0.{part}_proj.weight"]
            new = first[:, order] if part == "down" else first[order]
            tensors[f"{before}.experts.{expert}.{part}_proj.weight"] = new.contiguous()
    save_file(tensors, folder / FILE, {"format": "pt"})
    return tensors


@torch.no_grad()
def test_permuted_copies_of_one_another_are_merged_into_the_parent(tmp_path: Path) -> None:
    """Gates of a token add up to one, so that the parent sends the same wherever its tokens go."""
    folder = spoken(tmp_path / "parent", "qwen3_moe", norm_topk_prob=True)
    parents = copies(folder)
    carved = carve(folder, tmp_path / "child", text=f"{tmp_path}/text.txt", repair="none", **FLAGS)
    assert carved.experts is not None
    merged = load_file(tmp_path / "child" / FILE)
    for row in carved.experts["layers"]:
        (members,) = row["merged"].values()  # the most salient takes up to 15, and there are four
        assert sorted([*members, *row["kept"]]) == list(range(EXPERTS))
        (centre,) = (int(name) for name in row["merged"])
        for part in ("gate", "up", "down"):
            before = f"model.layers.{row['layer']}.mlp.experts."
            value = merged[f"{before}{row['kept'].index(centre)}.{part}_proj.weight"]
            torch.testing.assert_close(value, parents[f"{before}{centre}.{part}_proj.weight"])
            other = parents[f"{before}{members[0]}.{part}_proj.weight"]
            assert not torch.allclose(value, other, atol=1e-2)
    ours, theirs = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).eval()(input_ids=ids()).logits.double()
        for name in ("child", "parent")
    )
    apart = functional.kl_div(ours.log_softmax(-1), theirs.log_softmax(-1), log_target=True, reduction="sum")
    assert float(apart) < 1e-6


@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss", "granitemoe", "nemotron_h"])
def test_the_order_of_neurons_does_not_change_what_an_expert_sends(kind: str, tmp_path: Path) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(mixture(tmp_path / "parent", kind)).eval()
    experts: Any = next(
        module for module in model.modules() if hasattr(module, "down_proj") and hasattr(module, "has_gate")
    )
    inner, order = (
        Neurons(experts, kind),
        np.random.default_rng(0).permutation(experts.down_proj.shape[1 if experts.is_transposed else 2]),
    )
    x = torch.randn(5, experts.down_proj.shape[2 if experts.is_transposed else 1])
    call = x, torch.full((5, 1), 3), torch.ones(5, 1)
    with torch.no_grad():
        before, active = experts(*call), inner.active(3, x)
        weights = inner.weights(3)
        for name in inner.names:
            experts.get_parameter(name)[3] = torch.from_numpy(inner.ordered(name, 3, order))
        torch.testing.assert_close(experts(*call), before)
        np.testing.assert_allclose(inner.active(3, x), active[order], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(inner.weights(3), weights[order])


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_child_is_proven_and_built_again(kind: str, tmp_path: Path) -> None:
    folder, text = spoken(tmp_path / "parent", kind, "bfloat16"), f"{tmp_path}/text.txt"
    flags = FLAGS | {"criterion": "aimer", "repair": "none", "text": text}  # what leaves is met by tokens
    carved = carve(folder, tmp_path / "child", **flags)
    assert carved.verified is not None
    assert carved.verified["by"] == "outputs"
    AutoModelForCausalLM.from_pretrained(tmp_path / "child")(input_ids=ids())
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    assert recipe["merge"] == "ream"
    again = rebuild(tmp_path / "child" / "recipe.json", folder, tmp_path / "again", text=text)
    assert again.note == ""
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "child" / FILE).read_bytes()
    carve(folder, tmp_path / "plain", **flags | {"merge": "none"})
    before, after = (load_file(tmp_path / name / FILE) for name in ("plain", "child"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("router" not in name and "shared" not in name for name in changed)
    kept = {row["layer"]: np.array(row["kept"]) for row in recipe["experts"]}
    child, unmerged = Checkpoint.open(tmp_path / "child"), FewerExperts(Checkpoint.open(folder), kept)
    with pytest.raises(ValueError, match="differs from the carved parent"):
        compare_with_masked(child, unmerged)


def test_what_was_merged_is_repaired_like_what_was_not(tmp_path: Path) -> None:
    folder, text = spoken(tmp_path / "parent", "qwen3_moe"), f"{tmp_path}/text.txt"
    for name, repair in (("merged", "none"), ("both", "least-squares")):
        carve(folder, tmp_path / name, text=text, repair=repair, **FLAGS | {"sequences": 40})
    merged, both = (load_file(tmp_path / name / FILE) for name in ("merged", "both"))
    changed = {name for name in merged if not torch.equal(merged[name], both[name])}
    assert changed
    assert all("down_proj" in name for name in changed)
    recipe = tmp_path / "both" / "recipe.json"
    assert rebuild(recipe, folder, tmp_path / "again", text=text).note == ""
    recipe.write_text(json.dumps(json.loads(recipe.read_text()) | {"merge": "mean"}))
    with pytest.raises(ValueError, match="its merge is 'mean', not none or ream"):
        rebuild(recipe, folder, tmp_path / "other", text=text)
    recipe.write_text(json.dumps(json.loads(recipe.read_text()) | {"merge": "ream"}))
    with pytest.raises(ValueError, match="the recipe was made with a text"):
        rebuild(recipe, folder, tmp_path / "other")


def test_the_report_says_what_went_into_what(tmp_path: Path) -> None:
    folder, text = spoken(tmp_path / "parent", "mixtral"), f"{tmp_path}/text.txt"
    report = zerolm.carve(folder, tmp_path / "child", text=text, repair="none", **FLAGS)
    assert report.experts is not None
    assert f"; {4 * 4} others merged into them by ream" in repr(report)
    row = report.experts.layers[0]
    ((centre, members),) = row.merged.items()
    assert sorted(row.kept + members) == list(range(EXPERTS))
    assert f"{centre}: {' '.join(map(str, members))}" in report.page()
    assert f"--recipe recipe.json --out child --text {text}" in report.page()
    assert "the others are merged into them (ream)" in (tmp_path / "child" / "README.md").read_text()


def test_nothing_is_merged_where_all_stay(tmp_path: Path) -> None:
    folder, text = spoken(tmp_path / "parent", "mixtral"), f"{tmp_path}/text.txt"
    for merge in ("none", "ream"):
        flags = FLAGS | {"merge": merge, "keep_experts": "8"}
        carve(folder, tmp_path / merge, text=text, repair="none", **flags)
    assert (tmp_path / "none" / FILE).read_bytes() == (tmp_path / "ream" / FILE).read_bytes()


def test_a_run_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    folder, cache = mixture(tmp_path / "parent", "mixtral"), ArrayCache(tmp_path / "cache")
    checkpoint = Checkpoint.open(folder)
    fewer = FewerExperts(checkpoint, {layer: np.arange(4) for layer in range(4)})
    model, tokens = mapped_model(checkpoint), Tokens(ids())
    whole, groups = merged_experts(fewer, model, tokens)
    with pytest.raises(Stopped):
        merged_experts(fewer, model, tokens, cache=cache, progress=stopping_at(2))
    again, others = merged_experts(fewer, model, tokens, cache=cache)
    assert others == groups
    for layer, changes in whole.items():
        assert changes.keys() == again[layer].keys()
        for name, values in changes.items():
            for expert, value in values.items():
                np.testing.assert_allclose(again[layer][name][expert], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"), [(None, "without one"), ("random", "on random"), ("a=random,b=random", "on random")]
)
def test_a_text_is_needed(text: str | None, words: str, tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "qwen3_moe")
    with pytest.raises(ValueError, match=f"on a text, not {words}"):
        carve(folder, tmp_path / "child", text=text, **FLAGS)
    assert not (tmp_path / "child").exists()


def test_experts_that_are_stored_quantised_are_not_merged(tmp_path: Path) -> None:
    folder = packed_mixture(tmp_path / "parent", "qwen3_moe fp8")
    with pytest.raises(ValueError, match="stored quantised, so that experts are copied"):
        carve(folder, tmp_path / "child", text="text.txt", **FLAGS)


def test_it_is_of_experts_that_leave() -> None:
    with pytest.raises(ValueError, match="give --keep-experts N too"):
        ExpertsRequest(merge="ream").check()
