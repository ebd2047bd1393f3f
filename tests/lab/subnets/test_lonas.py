"""LoNAS spaces on checkpoints of their real sizes, whose files are holes: what is in them, what they cost."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import carve, rebuild
from tiny import saved

from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.lab.subnets.request import DrawRequest, Limits
from zerolm.lab.subnets.slicing import cuts_of, draws_of, space_of
from zerolm.planning.part_costs import Choices, StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.size_spaces import SIZE_SPACES, SizeSpace
from zerolm.planning.sizes import costs_of, heuristic_of, plan_of
from zerolm.registry import Entry
from zerolm.units.importance.criterion import Criterion, FirstUnits
from zerolm.units.kept_units import dimensions

COST = CostModel()
LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
BERT = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}


def holes(folder: Path, model_type: str, kind: str, settings: dict[str, int], vocab: int) -> Path:
    """A checkpoint in float16 whose weights take no room on the disk."""
    config = {"model_type": model_type, "architectures": [kind], "vocab_size": vocab, **settings}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with torch.device("meta"):
        made = getattr(transformers, kind)(transformers.AutoConfig.for_model(**config))
    header, at = {}, 0
    for name, tensor in made.state_dict().items():
        size = 2 * tensor.numel()
        header[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("lonas") / "llama"
    return Checkpoint.open(holes(folder, "llama", "LlamaForCausalLM", LLAMA, 32000))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("lonas") / "bert"
    return Checkpoint.open(holes(folder, "bert", "BertModel", BERT, 30522))


class Prefix(Criterion):
    """Keeps the first units; more is better, and one neuron of a later layer is worth more."""

    def choose(self, layer: int, kind: str, count: int) -> Any:
        return np.arange(count)

    def score(self, layer: int, kind: str, count: int) -> float:
        return count * (1.0 + 0.01 * layer)


def test_the_heuristic_subnet_of_llama_costs_what_the_paper_says(llama: Checkpoint) -> None:
    """1.4445 TMACs, 5.525 B: arXiv 2503.18646, table III prints 1.44 and 5.5."""
    cut = heuristic_of(llama, Prefix(), SizeRequest.of(space="lonas-llama-7b", shape="per-layer"))
    assert {len(layer["ffn"]) for layer in cut.layers} == {8256}
    costs = costs_of(llama, COST, cut, "lonas-llama-7b")
    assert costs["params"] == 32 * (4 * 4096**2 + 3 * 4096 * 8256) + 32000 * 4096
    assert costs["params"] / 1e9 == pytest.approx(5.525, abs=5e-4)
    assert costs["macs"] / 1e12 == pytest.approx(1.4445, abs=5e-5)
    whole = costs_of(llama, COST, space="lonas-llama-7b")
    assert whole["macs"] / 1e12 == pytest.approx(1.727, abs=0.005)


def test_bert_costs_what_lonas_says(bert: Checkpoint) -> None:
    """11.21 GMACs in full (printed 11.2); the heuristic subnet has 9.6 G in its linear layers."""
    assert costs_of(bert, COST, space="lonas-bert")["macs"] / 1e9 == pytest.approx(11.21, abs=0.005)
    cut = heuristic_of(bert, Prefix(), SizeRequest.of(space="lonas-bert", shape="per-layer"))
    assert [len(layer["groups"]) for layer in cut.layers] == [12] * 10 + [11, 12]
    assert [len(layer["ffn"]) for layer in cut.layers][:3] == [2634, 2634, 2627]
    costs = costs_of(bert, COST, cut, "lonas-bert")
    assert 128 * costs["params"] / 1e9 == pytest.approx(9.6, abs=0.05)
    assert costs["macs"] / 1e9 == pytest.approx(9.9, abs=0.1)


def test_the_spaces_are_as_large_as_published(llama: Checkpoint, bert: Checkpoint) -> None:
    """LLaMA 5^32 widths (x 2^64 ranks); BERT 3^13 2^11 widths (x 3^12 ranks)."""
    for name, checkpoint, size in (("lonas-llama-7b", llama, 5**32), ("lonas-bert", bert, 3**13 * 2**11)):
        layers = SIZE_SPACES[name].choices(checkpoint).by_layer
        assert math.prod(len(kind) for layer in layers for kind in layer) == size


def test_plans_within_the_space_are_exact(llama: Checkpoint) -> None:
    """Later layers are worth more and cost the same: an optimum never keeps more of an earlier one."""
    limit = costs_of(llama, COST, space="lonas-llama-7b")["macs"] * 4 // 5
    wish = SizeRequest.of(budgets={"max_macs": limit}, space="lonas-llama-7b", shape="per-layer")
    planned = plan_of(llama, Prefix(), wish, COST)
    widths = [len(layer["ffn"]) for layer in planned.cut.layers]
    assert planned.optimal
    assert widths == sorted(widths)
    assert set(widths) <= {11008, 9632, 8256, 6880, 5504}
    assert planned.costs["macs"] <= limit
    assert planned.costs == costs_of(llama, COST, planned.cut, "lonas-llama-7b")


@pytest.mark.parametrize("asked", ["lonas-llama", "lonas-bert"])
def test_sub_networks_are_drawn_within_macs(asked: str, llama: Checkpoint, bert: Checkpoint) -> None:
    """By LoNAS's own MACs; each layer of the sizes that its list allows, and no sub-network twice."""
    parent = llama if asked == "lonas-llama" else bert
    name, choices = space_of(parent, asked)
    draw = DrawRequest(asked, 40, Limits(min_macs="0.75x", max_macs="0.8x"))
    sizes = draws_of(parent, name, choices, draw)
    whole = costs_of(parent, COST, space=name)["macs"]
    assert len(set(sizes)) == 40
    for each in sizes:
        for number, layer in enumerate(each):
            assert all(size in options for size, options in zip(layer, choices.of(number), strict=True))
    for cut in cuts_of(parent, FirstUnits(None), sizes[:8]):
        assert 0.75 * whole <= costs_of(parent, COST, cut, name)["macs"] <= 0.8 * whole


def test_another_parent_is_refused(tmp_path: Path, llama: Checkpoint) -> None:
    tiny = Checkpoint.open(saved(tmp_path / "tiny", "llama"))
    with pytest.raises(ValueError, match=r"32 layers, attention 4096, FFN 11008; the parent has 3 layers"):
        SIZE_SPACES["lonas-llama-7b"].choices(tiny)
    with pytest.raises(
        ValueError, match=r"space 'lonas' is not known; .*there are heads-ffn, lonas-bert, lonas-llama"
    ):
        SIZE_SPACES["lonas"]
    wish = partial(SizeRequest.of, budgets={"max_macs": 1}, space="lonas-llama-7b")
    with pytest.raises(ValueError, match="without budgets"):
        heuristic_of(llama, Prefix(), wish(shape="per-layer"))
    with pytest.raises(ValueError, match="--space fixes the sizes"):
        plan_of(llama, Prefix(), wish(shape="uniform"), COST)


def test_the_command_writes_the_heuristic_subnet(bert: Checkpoint, zerolm: Callable[..., Any]) -> None:
    flags = ("--space", "lonas-bert", "--plan", "heuristic", "--criterion", "prefix", "--json")
    found = zerolm("carve", str(bert.folder), *flags).document
    assert found["plan"] == "heuristic"
    assert found["widths"][10] == {"layer": 10, "heads": 11, "kv_heads": 11, "ffn": 2198}
    assert found["costs"]["parent"]["macs"] / 1e9 == pytest.approx(11.21, abs=0.005)


class Halves(SizeSpace):
    """A plug-in's space: each layer keeps half of its neurons or all."""

    def choices(self, checkpoint: Checkpoint) -> Choices:
        parent = dimensions(checkpoint)
        sizes = ((parent.kv_heads,), (parent.ffn // 2, parent.ffn))
        return Choices(sizes, (parent.depth,), (sizes,) * parent.depth)

    def heuristic(self, choices: Choices) -> list[tuple[int, int]]:
        return [(groups[-1], ffn[0]) for groups, ffn in choices.by_layer]


@pytest.mark.parametrize("plan", ["heuristic", "weights"])
def test_a_space_of_a_plugin(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sizes are carved, its costs are those that everything else has, and its recipe is read again."""
    monkeypatch.setattr(SIZE_SPACES, "_entries", dict(SIZE_SPACES._entries))
    SIZE_SPACES.add(Entry("halves", Halves()))
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    budgets = {"max_params": "0.9x"} if plan == "weights" else {}
    carved = carve(parent, out, space="halves", plan=plan, budgets=budgets, form="padded")
    assert {size.ffn for size in carved.widths} <= {20, 40}
    assert carved.costs["child"] == costs_of(Checkpoint.open(parent), StoredCosts(), carved.cut)
    again = rebuild(out / "recipe.json", parent, tmp_path / "again")
    assert (again.space, again.costs) == ("halves", carved.costs)
