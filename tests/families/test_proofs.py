"""Every family with tensors: counted, placed, cut, repaired, and equal to its parent without what was cut."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from covering import chosen, in_folders, in_networks, with_tensors
from tiny_families import AS_E2B, PLAIN_GEMMA4, SHARING, TINY, louder, random_model
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from zerolm.carving.loss import Loss
from zerolm.carving.result import Carved
from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.family import Family
from zerolm.families.known import families
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import body_of, layer_list
from zerolm.repairing.walk import repair
from zerolm.testing import stored_numbers
from zerolm.text.tokens import random_tokens
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of

DESCRIBED = with_tensors()
ROTATED = [name for name in DESCRIBED if families()[name].cut.hidden]
TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}
BY_WEIGHTS: dict[str, Any] = {"keep_heads": 0.5, "keep_ffn": 0.5}
CUTS: dict[str, Any] = {"keep_layers": 0.67, **BY_WEIGHTS, **TOKENS}
IDS = torch.randint(2, 64, (2, 24), generator=torch.Generator().manual_seed(1))
"""Longer than any window of the tiny models; without the tokens that stand for padding."""
EXACT = 1e-5
WRITERS = ("o_proj", "down_proj", "out_proj", "output_linear")
"""Parts of the names of what is added to the stream."""
DEAD = 24
"""Channels of the stream that hold nothing, of 48."""


def test_every_family_with_tensors_has_a_tiny_model() -> None:
    assert sorted(TINY) == DESCRIBED


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", chosen(DESCRIBED, in_folders))
def test_every_tensor_has_its_place(kind: str, tied: bool, tmp_path: Path) -> None:
    """In bfloat16, with the biases of ``TINY`` and without any that a flag takes away."""
    flags = dict.fromkeys(families()[kind].config.flags, False)
    for number, changes in enumerate(({}, flags) if flags else ({},)):
        network = random_model(kind, "bfloat16", tie_word_embeddings=tied, **changes)
        network.save_pretrained(tmp_path / str(number))
        checkpoint = Checkpoint.open(tmp_path / str(number))
        assert checkpoint.layout.slots.keys() == checkpoint.tensors.keys()
        assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {"BF16"}
        built = stored_numbers(network)
        assert CostModel().of(from_config(checkpoint.config))["params"] == built


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon of one KV head": ("falcon", {"new_decoder_architecture": False, "num_kv_heads": None}),
    "gemma4_text as E4B": (
        "gemma4_text",
        PLAIN_GEMMA4 | {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8},
    ),
    SHARING: ("gemma4_text", AS_E2B),
    "jamba of one expert": ("jamba", {"num_experts": 1, "num_experts_per_tok": 1}),
    "granitemoehybrid without experts": (
        "granitemoehybrid",
        {"num_local_experts": 0, "num_experts_per_tok": 0},
    ),
    "granitemoeshared without shared ones": ("granitemoeshared", {"shared_intermediate_size": 0}),
    "lfm2 as it is given": ("lfm2", {"block_auto_adjust_ff_dim": False}),
    "llama4_text by a step": ("llama4_text", {"moe_layers": None, "interleave_moe_layer_step": 2}),
}
"""Models whose configurations say otherwise than the tiny ones, or cannot be cut as these."""


@pytest.fixture(scope="module", params=[*chosen(DESCRIBED, in_folders), *VARIANTS])
def parent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    kind, changes = VARIANTS.get(request.param, (request.param, {}))
    folder = tmp_path_factory.mktemp("parent") / kind
    random_model(kind, tie_word_embeddings=False, **changes).save_pretrained(folder)
    checkpoint = Checkpoint.open(folder)
    built = stored_numbers(AutoModelForCausalLM.from_pretrained(folder)) if changes else None
    assert built in (None, CostModel().of(from_config(checkpoint.config))["params"])
    return checkpoint


def opened(folder: Path) -> Any:
    """Return what the stock class makes of a folder in float32, an encoder without its head."""
    kind = AutoModel if families()[stock_kind(folder)].task == "masked" else AutoModelForCausalLM
    network, report = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not [name for name in report["missing_keys"] if "pooler" not in name]
    network.config.use_cache = False
    return network.eval()


def stock_kind(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["model_type"])


@torch.no_grad()
def sent(network: Any) -> Tensor:
    out = network(input_ids=IDS)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state  # type: ignore[no-any-return]


def without(folder: Path, carved: Carved) -> Any:
    """Return the stock parent without the layers that a cut took, and with zeros for its other units."""
    network, cut = opened(folder), carved.kept
    layers = layer_list(network)
    for kept in cut.layers:
        for role, units, whole in (
            ("o", kept["groups"], cut.parent.kv_heads),
            ("down", kept["ffn"], cut.parent.ffn),
        ):
            module = writer(families()[stock_kind(folder)], layers[kept.layer], role)
            if module is not None:  # a mixture has no such matrix
                size = inputs(module) // whole
                only_read(module, [unit * size + place for unit in units for place in range(size)])
    wanted = [kept.layer for kept in cut.layers]
    for index in reversed(range(len(layers))):
        if index not in wanted:
            del layers[index]
    network.config.num_hidden_layers = len(wanted)
    attending = getattr(network.config, "attn_layer_indices", None)
    if attending:
        network.config.attn_layer_indices = [wanted.index(index) for index in attending if index in wanted]
    elif network.config.__dict__.get("layer_types"):
        network.config.layer_types = [network.config.layer_types[index] for index in wanted]
    return network


def writer(family: Family, layer: Any, role: str) -> Any:
    """Return the module of a role in a layer of any kind, None where it has none."""
    named = {
        name.partition(".{layer}.")[2].removesuffix(".weight")
        for p in family.tensors.body
        for name, _ in p.parameters
        if p.role == role
    }
    return next((module for name, module in layer.named_modules() if name in named), None)


def inputs(module: nn.Module) -> int:
    return int(module.get_parameter("weight").shape[0 if isinstance(module, Conv1D) else 1])


def only_read(module: nn.Module, places: list[int]) -> None:
    """Let a linear module read these of its inputs only."""
    weight = module.get_parameter("weight").data
    weight = weight.T if isinstance(module, Conv1D) else weight
    weight[:, [place for place in range(weight.shape[1]) if place not in set(map(int, places))]] = 0


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def test_a_child_is_its_parent_without_what_was_cut(parent: Checkpoint, tmp_path: Path) -> None:
    """Of a parent in float32, untied, with all flags, by tokens."""
    can, flags = parent.family.cut, dict(CUTS)
    for kind in ("layers", "heads", "ffn"):
        if not getattr(can, kind):
            with pytest.raises(ValueError, match=r"(heads|ffn|layers) cannot be cut here: ") as caught:
                carve(parent.folder, tmp_path / "child", repair="none", **flags)
            assert can.note in str(caught.value)
            assert not (tmp_path / "child").exists()
            del flags[f"keep_{kind}"]
    if flags.keys() > TOKENS.keys():
        check_child(parent.folder, tmp_path / "child", flags)


def check_child(parent: Path, folder: Path, flags: dict[str, Any]) -> None:
    carved = carve(parent, folder, repair="none", **flags)
    assert carved.verified.relative <= EXACT
    assert not carved.kept.is_whole
    child = sent(opened(folder))
    assert relative(child, sent(without(parent, carved))) <= EXACT
    assert relative(child, sent(opened(parent))) > 100 * EXACT


@pytest.mark.parametrize("kind", chosen(DESCRIBED, in_folders))
def test_it_does_not_matter_how_a_parent_is_stored(kind: str, tmp_path: Path) -> None:
    """Tied, in bfloat16, without flags, and by weights: the numbers that stay are copied, in any type."""
    off = dict.fromkeys(families()[kind].config.flags, False)
    random_model(kind, "bfloat16", tie_word_embeddings=True, **off).save_pretrained(tmp_path / "parent")
    parent, child = Checkpoint.open(tmp_path / "parent"), tmp_path / "child"
    cuts = {cut: share for cut, share in BY_WEIGHTS.items() if getattr(parent.family.cut, cut[5:])}
    check_child(parent.folder, child, cuts or {"keep_layers": 0.67, **TOKENS})
    written = Checkpoint.open(child)
    assert parent.layout.tied is (kind != "nemotron_h")  # whose stock class ties nothing
    assert {tensor.dtype for tensor in written.tensors.values()} == {"BF16"}
    assert written.layout.tied is parent.layout.tied


def test_what_a_rule_says_of_layers_is_spelt_out_where_they_move(tmp_path: Path) -> None:
    """Every other layer of this smollm3 has no rotation, and its configuration does not list which."""
    random_model("smollm3").save_pretrained(tmp_path / "parent")
    file = tmp_path / "parent" / "config.json"
    config = json.loads(file.read_text())
    assert config.pop("no_rope_layers") == [1, 0, 1]
    del config["layer_types"]
    file.write_text(json.dumps(config))
    carved = carve(tmp_path / "parent", tmp_path / "child", repair="none", keep_layers=0.34, **TOKENS)
    (left,) = (kept.layer for kept in carved.kept.layers)
    assert opened(tmp_path / "child").config.no_rope_layers == [[1, 0, 1][left]]
    assert relative(sent(opened(tmp_path / "child")), sent(without(tmp_path / "parent", carved))) <= EXACT


@pytest.mark.parametrize(
    ("kind", "tied"), [*((kind, False) for kind in chosen(ROTATED)), ("llama", True), ("gpt_oss", True)]
)
def test_a_stream_is_narrowed_exactly_where_it_holds_nothing(kind: str, tied: bool, tmp_path: Path) -> None:
    """Nothing is written to some channels of the parent's stream: a child of as many fewer is the parent."""
    network = random_model(kind, tie_word_embeddings=tied)
    network.config.use_cache = False
    embedding = network.get_input_embeddings().weight.data
    embedding *= 5  # so that what norms add to the mean square is nothing beside it
    embedding[:, torch.arange(DEAD) * 2] = 0
    for name, parameter in body_of(network).named_parameters():
        if any(writer in name for writer in WRITERS):
            of_experts = [number for number, size in enumerate(parameter.shape) if size == 48]
            axis = of_experts[0] if parameter.dim() == 3 or name.endswith("bias") else 0
            parameter.data.transpose(0, axis)[torch.arange(DEAD) * 2] = 0
    network.save_pretrained(tmp_path / "parent")
    carved = carve(tmp_path / "parent", tmp_path / "child", repair="none", keep_hidden=1 - DEAD / 48)
    child = opened(tmp_path / "child")
    assert child.config.hidden_size == 48 - DEAD
    assert carved.verified is not None
    assert relative(sent(child), sent(network)) <= 10 * EXACT


def test_a_stream_that_cannot_be_narrowed_is_refused(parent: Checkpoint, tmp_path: Path) -> None:
    can = parent.family.cut
    if can.hidden:
        return
    with pytest.raises(ValueError, match="hidden cannot be cut here: ") as caught:
        carve(parent.folder, tmp_path / "child", keep_hidden=0.75)
    assert str(caught.value).endswith(can.hidden_note)
    assert not (tmp_path / "child").exists()


REPAIRED_ON = random_tokens(64, 48, 16, seed=5)
OF_NEURONS = [name for name in TINY if families()[name].cut.ffn]


@pytest.mark.parametrize("name", [*chosen(OF_NEURONS, in_networks), SHARING])
def test_a_repaired_network_loses_less(name: str) -> None:
    """Half of the neurons go. Falcon once lost more: it adds attention to the output of its FFN in place."""
    network = louder(name)
    parent = dimensions_of(network)
    ffn = np.arange(0, parent.ffn, 2)
    layers = [LayerCut.of(layer, np.arange(parent.kv_heads), ffn) for layer in range(parent.depth)]
    cut = Cut(parent, tuple(layers))
    loss = Loss(Blocks(network, REPAIRED_ON.batches(8)))
    assert loss.of_cut(cut, repair(network, cut, REPAIRED_ON)) < loss.of_cut(cut)
