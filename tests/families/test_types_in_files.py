"""Types, alone and with cuts, as llama.cpp reads them."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from covering import chosen, in_gguf, in_orders
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.families.known import families
from zerolm.networks.blocks import Blocks
from zerolm.networks.mapped import by_tensor
from zerolm.networks.opener import open_model
from zerolm.networks.roles import body_prefix, places_in
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import silent
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import Repaired
from zerolm.units.stream.maps import stored_gain
from zerolm.units.stream.narrowing import Basis, Narrowing, Width
from zerolm.units.within_layers import NAMES

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from gguf_parents import LAYERS, WRITTEN, in_blocks, parent_of

from zerolm.carving.bits.planner import TypePlanner
from zerolm.carving.bits.typed_child import ReadBack, TypedChild, WrittenChild
from zerolm.carving.bits.weighed_child import WeighedChild
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.weight_types import BY_NUMBER
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.check import COARSELY, NOISIEST, check
from zerolm.children.gguf.file_tensors import matrices
from zerolm.children.gguf.write import write
from zerolm.children.verify import outputs

KEPT: Final = SizeRequest.of({"all": 1}, {"max_weight_bytes": 1 << 22})
GATED_DELTA: Final = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
"""What is rounded in them is divided by lengths that are small in random models."""


def sent(model: PreTrainedModel, typed: TypedChild, ids: Tensor) -> Tensor:
    """Return the output of a child as read back for ids (1, t)."""
    network = ReadBack(Blocks(model, [{"input_ids": ids}]), typed, Repaired())
    return outputs(network.finish(0, network.states()[0]))


def part_of(checkpoint: Checkpoint) -> Cut:
    """Return a cut that keeps some layers, the last neurons, and the last KV group where it may."""
    whole, family = dimensions(checkpoint), checkpoint.family
    allowed, name, gguf = family.cut, family.name, family.gguf
    has_fewer_heads = allowed.heads and allowed.indivisible == "kept" and not (gguf and gguf.square)
    groups = 1 if has_fewer_heads and whole.kv_heads == 2 else whole.kv_heads
    sizes = groups, whole.ffn // 2 if allowed.ffn else whole.ffn
    last = {"groups": whole.kv_heads, "ffn": whole.ffn}
    layers = LAYERS.get(name, (0, 2)) if allowed.layers else range(whole.depth)
    return Cut.of(whole, layers, lambda _: sizes, lambda _, kind, count: np.arange(last[kind])[-count:])


def narrowing_of(checkpoint: Checkpoint) -> Narrowing:
    """Return the maps to fewer blocks of the stream, in directions that are drawn."""
    hidden = checkpoint.layout.hidden
    vectors, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(hidden, hidden)))
    gain = stored_gain(checkpoint, "final_norm", None).astype(np.float64)
    basis = Basis("drawn", vectors, np.full(hidden, 1 / hidden), np.eye(hidden), gain)
    blocks = hidden - 32
    width = (
        hidden // 2 if blocks % checkpoint.layout.heads else blocks
    )  # some stock classes divide it by heads
    return basis.narrowing(Width(width, tied=checkpoint.layout.tied))


MIXED_TYPES: Final = ("Q8_0", "Q4_0", "F16")


def is_narrowed(name: str) -> bool:
    """Return whether the stream of a family can be narrowed, alone."""
    family = families()[name]
    return family.cut.hidden and family.gguf is not None and not family.gguf.square


@pytest.mark.parametrize(
    ("name", "kinds", "cut"),
    [
        *((name, ("F16",), "whole") for name in chosen(WRITTEN, in_gguf)),
        *((name, MIXED_TYPES, "part") for name in chosen(WRITTEN, in_gguf)),
        *((name, MIXED_TYPES, "narrower") for name in chosen(filter(is_narrowed, WRITTEN), in_orders)),
    ],
)
def test_llama_cpp_reads_measured_types(name: str, kinds: tuple[str, ...], cut: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name, "float32", **in_blocks(name)))
    kept = Cut.whole(dimensions(checkpoint)) if cut == "whole" else part_of(checkpoint)
    if cut == "narrower":
        kept = replace(kept, narrowing=narrowing_of(checkpoint))
    child, file = Child(checkpoint, kept), tmp_path / "child.gguf"
    weighed = WeighedChild(child)
    types = {
        place: kinds[number % len(kinds)] if all(each.columns % 32 == 0 for each in every) else "F16"
        for number, (place, every) in enumerate(weighed.matrices.items())
    }
    write(child, file, typed=TypedChild(weighed, types))
    header = read_gguf_header(file)
    for place, every in weighed.matrices.items():
        assert {BY_NUMBER[header.types[each.name]].name for each in every} == {types[place]}
    written, model = WrittenChild(weighed, types, file), open_model(checkpoint)
    written.check()
    proof = check(file, lambda ids: sent(model, written, ids), None, tolerance=1e9)
    exact = 1e-2 if name in GATED_DELTA else 5e-3
    # readers round activations to 8 bits beside quantised weights; tiny outputs show it more than large ones
    assert proof.relative < (exact if kinds == ("F16",) else 2 * COARSELY)
    TypePlanner(checkpoint, KEPT, None, StoredCosts(), silent).check(by_loss=False)


@pytest.mark.parametrize("name", chosen(WRITTEN, in_gguf))
def test_units_are_where_the_file_has_them(name: str, tmp_path: Path) -> None:
    """A cut child's file has the rows and columns of the uncut file that its units' numbers name."""
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name, "float32", **in_blocks(name)))
    weighed, met = WeighedChild(Child(checkpoint, part_of(checkpoint))), set[int]()
    for place, every in weighed.matrices.items():
        for matrix, uncut in zip(every, weighed.whole.matrices[place], strict=True):
            along, layer = weighed.whole.along(uncut), matrix.stack.first.kept
            values, whole = (np.stack(list(each.values())) for each in (matrix, uncut))
            if layer is None or along.unit is None:
                np.testing.assert_array_equal(values, whole)
                continue
            units = layer[NAMES[along.unit]]
            np.testing.assert_array_equal(values, whole.take(along.kept(units), along.axis))
            assert along.shaped(len(units), checkpoint.layout.hidden) == values.shape
            met.add(along.unit)
    assert met


@pytest.mark.parametrize("name", ["qwen3_5_text", "mixtral"])
def test_a_wrong_order_is_refused_whatever_rounding_explains(name: str, tmp_path: Path) -> None:
    """Readers that round activations to 8 bits explain some of a difference, and never a wrong order."""
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name, "float32", **in_blocks(name)))
    family, file, cut = checkpoint.family, tmp_path / "child.gguf", Cut.whole(dimensions(checkpoint))
    order = {"tiled": {}} if family.gguf.tiled else {"halves": not family.gguf.halves}
    wrong = replace(checkpoint, family=replace(family, gguf=replace(family.gguf, **order)))
    right, other = (WeighedChild(Child(each, cut)) for each in (checkpoint, wrong))
    typed = TypedChild(right, dict.fromkeys(right.matrices, "Q8_0"))
    model = open_model(checkpoint)

    def output(ids: Tensor) -> Tensor:
        return sent(model, typed, ids)

    write(other.child, file, typed=TypedChild(other, typed.types))
    with pytest.raises(ValueError, match=r"llama\.cpp's logits differ from the carved parent's"):
        check(file, output, None)
    file.unlink()
    write(right.child, file, typed=typed)
    assert check(file, output, None).relative < NOISIEST


@pytest.mark.parametrize("name", chosen(WRITTEN, in_gguf))
def test_what_a_file_holds_becomes_what_is_stored(name: str, tmp_path: Path) -> None:
    """Every number of a tensor is in one piece of the file, and goes back to its place."""
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name, "float32", **in_blocks(name)))
    restored: dict[str, np.ndarray] = {}
    for matrix in matrices(Child(checkpoint, Cut.whole(dimensions(checkpoint)))):
        for number, tensor in enumerate(matrix.stack.tensors):
            missing = np.full(checkpoint.tensors[tensor.source].shape, np.nan, np.float32)
            stored = restored.setdefault(tensor.source, missing)
            if tensor.slot.expert is not None:
                matrix.put(stored[None], np.stack(list(matrix.values(number))))
            elif matrix.is_by_expert:
                for expert in range(matrix.count):
                    matrix.put(stored[expert : expert + 1], np.stack(list(matrix.values(expert))))
            else:
                matrix.put(stored, np.stack(list(matrix.values())))
    assert restored
    for source, stored in restored.items():
        np.testing.assert_allclose(stored, checkpoint.read(source), rtol=1e-6)


@pytest.mark.parametrize("name", chosen(WRITTEN, in_gguf))
def test_parameters_are_what_is_stored(name: str, tmp_path: Path) -> None:
    """The views of the parameters of a layer by tensor are its tensors."""
    checkpoint = Checkpoint.open(parent_of(tmp_path / "parent", name, "float32"))
    model, layer = open_model(checkpoint), f"{places_in(name).modules.layers}.1."
    values = {key: each.detach() for key, each in model.named_parameters() if layer in key}
    views = dict(by_tensor(checkpoint, values, body_prefix(model)))
    for stored, view in views.items():
        np.testing.assert_array_equal(view.numpy(), checkpoint.read(stored))
    inside = [stored for stored, slot in checkpoint.layout.slots.items() if slot.layer == 1]
    wanted = {stored for stored in inside if len(checkpoint.tensors[stored].shape) > 1}
    assert wanted
    assert wanted <= views.keys()
