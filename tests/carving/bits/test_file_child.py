"""Types in the form of a file: moments by gradients of the whole stock model, plans, and children."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from tiny_families import AS_E2B, saved
from typed_models import VOCAB, some_words, words_of_bytes

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
gguf = pytest.importorskip("gguf", reason="gguf is not installed")

from gguf_parents import in_blocks  # noqa: E402

from zerolm.carving.bits.directions import Directions  # noqa: E402
from zerolm.carving.bits.estimates import PlainBytes, TypeEstimates  # noqa: E402
from zerolm.carving.bits.file_moments import file_moments, input_factor  # noqa: E402
from zerolm.carving.bits.weighed_child import WeighedChild  # noqa: E402
from zerolm.checkpoints import Checkpoint  # noqa: E402
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER  # noqa: E402
from zerolm.children.child_tensors import Child  # noqa: E402
from zerolm.children.gguf.file_tensors import matrices  # noqa: E402
from zerolm.io.plain import as_plain  # noqa: E402
from zerolm.networks.blocks import Blocks  # noqa: E402
from zerolm.networks.mapped import by_tensor  # noqa: E402
from zerolm.networks.opener import open_model  # noqa: E402
from zerolm.networks.roles import body_prefix  # noqa: E402
from zerolm.passes.loss_moments import loss_moments  # noqa: E402
from zerolm.planning.part_costs import Choices  # noqa: E402
from zerolm.text.calibration import tokens_of  # noqa: E402
from zerolm.units.importance.criterion import FirstUnits  # noqa: E402
from zerolm.units.kept_units import Cut, dimensions  # noqa: E402
from zerolm.units.stream.in_memory import loss_basis  # noqa: E402
from zerolm.units.stream.narrowing import Width  # noqa: E402

QUICK: dict[str, Any] = {"form": "gguf", "sequences": 8, "length": 16}
INPUTS_OF_LAYERS = "gemma4_text with inputs of layers"
KINDS = ("gpt2", "mixtral", "deepseek_v3", "nemotron_h", INPUTS_OF_LAYERS)
"""Transposed, experts one by one, latent keys, a hybrid, and layers that share keys and look tokens up."""


def parent_in(folder: Path, name: str, **changes: Any) -> Path:
    if name == INPUTS_OF_LAYERS:
        name, looked_up = "gemma4_text", {"vocab_size_per_layer_input": VOCAB}
        changes |= AS_E2B | looked_up | {"hidden_size_per_layer_input": 32}
    saved(folder, name, "float32", **in_blocks(name) | {"vocab_size": VOCAB} | changes)
    words_of_bytes().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(some_words(tmp_path_factory.mktemp("words") / "text.txt"))


@pytest.mark.parametrize("name", KINDS)
def test_moments_are_those_of_whole_gradients(name: str, text: str, tmp_path: Path) -> None:
    """Squares of the gradients of the whole network's parameters, for the same drawn tokens."""
    active = {"num_experts_per_tok": 2} if name in ("mixtral", "deepseek_v3", "nemotron_h") else {}
    checkpoint = Checkpoint.open(parent_in(tmp_path / "parent", name, **active))
    tokens = tokens_of(checkpoint, text, sequences=4, length=16)
    child, model = Child(checkpoint, Cut.whole(dimensions(checkpoint))), open_model(checkpoint)
    moments = file_moments(model, child, tokens)
    model = open_model(checkpoint)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    totals: dict[str, np.ndarray] = {}
    for index, batch in enumerate(tokens.filled(1)):
        model.zero_grad()
        log = model(**batch).logits.float().log_softmax(-1).flatten(0, 1)
        generator = torch.Generator().manual_seed(index)
        (-log.gather(1, torch.multinomial(log.detach().exp(), 1, generator=generator)).sum()).backward()
        gradients = {key: each.grad for key, each in model.named_parameters() if each.grad is not None}
        for stored, gradient in by_tensor(checkpoint, gradients, body_prefix(model)):
            totals[stored] = totals.get(stored, 0.0) + gradient.double().square().numpy()
    count, checked = tokens.count, 0
    for matrix in matrices(child):
        if matrix.stack.place[0] is None:
            continue
        (each,) = moments[matrix.name]
        by_hand = [
            matrix.of(totals[tensor.source][None] if tensor.slot.expert is not None else
                      totals[tensor.source])
            for tensor in matrix.stack.tensors
        ]  # fmt: skip
        squares = np.concatenate(by_hand) / count * np.square(matrix.slopes)
        scale = max(float(squares.sum((1, 2)).max()), 1e-30)
        np.testing.assert_allclose(each.inputs, squares.sum(1), rtol=2e-3, atol=1e-6 * scale)
        np.testing.assert_allclose(each.gradients, squares.sum(2), rtol=2e-3, atol=1e-6 * scale)
        whole = each.factor * each.gradients.sum(1) * each.inputs.sum(1)
        np.testing.assert_allclose(whole, squares.sum((1, 2)), rtol=2e-3, atol=1e-6 * scale)
        checked += matrix.count
    assert checked > 10
    head = moments.get("output.weight") or moments["token_embd.weight"]
    assert len(head) == (1 if "output.weight" in moments else 2)


def test_rows_that_layers_look_up_count_as_much_as_they_move_inputs(text: str, tmp_path: Path) -> None:
    """Moving a row of the table by one component moves an input of a layer by the root of its factor."""
    checkpoint = Checkpoint.open(parent_in(tmp_path / "parent", INPUTS_OF_LAYERS))
    model, batch = open_model(checkpoint), {"input_ids": torch.arange(8)[None]}
    inputs = []
    for step in (0.0, 0.25):
        table = model.get_submodule("model.embed_tokens_per_layer").get_parameter("weight")
        table.data[3, 32 + 5] += step
        blocks = Blocks(model, [batch])
        blocks.embed(0)
        inputs.append(blocks.inputs_of_layer(0, 1))
    moved = (inputs[1] - inputs[0])[0] / 0.25
    whole = next(each for each in matrices(Child(checkpoint, Cut.whole(dimensions(checkpoint))))
                 if each.name == "per_layer_token_embd.weight")  # fmt: skip
    assert float(moved[3, 5]) == pytest.approx(input_factor(whole), rel=1e-5)
    moved[3, 5] = 0.0
    assert float(moved.abs().max()) == 0.0


CUTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt2", {"keep": 1, "imatrix": True}), ("mixtral", {"keep": 1, "imatrix": True}),
    ("gpt2", {"keep_ffn": 0.5, "keep_layers": 0.7}), ("mixtral", {"keep_heads": 0.5, "keep_hidden": 0.5}),
    ("deepseek_v3", {"keep_heads": 0.5}), ("nemotron_h", {"keep_heads": 0.5}),
    (INPUTS_OF_LAYERS, {"keep_ffn": 0.5}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "cuts"), CUTS)
def test_types_keep_bytes_beside_any_cut(name: str, cuts: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Bytes are those of the file, losses are those of the file as read back; the recipe builds it again."""
    parent, out, again = parent_in(tmp_path / "parent", name), tmp_path / "child", tmp_path / "again"
    whole, staying = Checkpoint.open(parent), {} if "keep" in cuts else {"keep_vocab": "all"}
    staying |= {"keep_experts": "all"} if whole.layout.sizes.get("experts") and staying else {}
    share = 1.0 if "keep" in cuts else 0.7
    budget = int(share * sum(tensor.count for tensor in whole.tensors.values()))
    carved = carve(parent, out, max_weight_bytes=budget, text=text, **cuts, **staying, **QUICK)
    assert carved.verified is not None
    reader = gguf.GGUFReader(next(out.glob("*.gguf")))
    stored = sum(int(each.n_bytes) for each in reader.tensors if str(each.name) != "rope_freqs.weight")
    assert stored == carved.costs["child"]["weight_bytes"] <= budget
    assert {row.type for row in carved.types} <= {BY_NUMBER[int(e.tensor_type)].name for e in reader.tensors}
    assert carved.cut.is_whole is ("keep" in cuts)
    typed = carved.losses["as_read_back"]
    if carved.cut.is_whole:
        assert 0 <= typed < 3 * carved.losses["predicted"] + 1e-4
        alone, *others = carved.equal_bytes
        assert alone.name == "types alone"
        assert all(alone.measured <= other.measured for other in others if other.measured is not None)
        assert {other.name for other in others if other.measured is None} <= {"tokens alone"}
        assert ("not refitted" in " ".join(carved.notes)) is bool(whole.layout.sizes.get("experts"))
    else:
        assert 0 < typed < 2 * carved.losses["measured"]  # repaired after the cut, then rounded
    assert json.loads((out / "recipe.json").read_text())["types"] == as_plain(carved.types)
    assert rebuild(out / "recipe.json", parent, again, form="gguf", text=text).types == carved.types
    assert next(again.glob("*.gguf")).read_bytes() == next(out.glob("*.gguf")).read_bytes()
    if name == "mixtral" and carved.cut.is_whole:
        importances = {
            str(t.name): t.data.shape for t in gguf.GGUFReader(out / "importances.imatrix").tensors
        }
        assert importances["blk.0.ffn_down_exps.weight.in_sum2"] == (8, 64)


def estimates_of(folder: Path, name: str, text: str) -> TypeEstimates:
    checkpoint = Checkpoint.open(parent_in(folder, name))
    child = Child(checkpoint, Cut.whole(dimensions(checkpoint)))
    tokens = tokens_of(checkpoint, text, sequences=4, length=16)
    weighed = WeighedChild(child, file_moments(open_model(checkpoint), child, tokens))
    return TypeEstimates(weighed, tuple(map(BY_NAME.__getitem__, ("Q8_0", "Q4_0"))))


def bytes_of(plain: PlainBytes, cut: Cut, choices: Choices) -> int:
    """Return the bytes of tensors without a type in a cut whose sizes are among the choices."""
    total = plain.ends + int(plain.layer[list(cut.sizes)].sum())
    for layer, sizes in cut.sizes.items():
        rows = zip(plain.units, choices.units, sizes, strict=True)
        total += sum(int(part[layer, counts.index(count)]) for part, counts, count in rows)
    return total


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "deepseek_v3"])
def test_estimates_are_those_of_the_cut_child(name: str, text: str, tmp_path: Path) -> None:
    """Bytes to the byte; losses as rounding the child's own numbers gives them, but for its share."""
    estimates = estimates_of(tmp_path / "parent", name, text)
    parent, by = estimates.parent, FirstUnits(None)
    allowed = estimates.checkpoint.family.cut
    groups = parent.kv_heads // 2 if allowed.heads else parent.kv_heads
    sizes = ((groups, parent.kv_heads), (parent.ffn // 2 if allowed.ffn else parent.ffn, parent.ffn))
    choices = Choices(tuple(tuple(sorted(set(each))) for each in sizes), (parent.depth,))
    roles, plain = estimates.in_layers(choices, by), estimates.plain(choices)
    for at in np.ndindex(choices.shape):
        counts = tuple(each[place] for each, place in zip(choices.units, at, strict=True))
        cut = Cut.of(parent, range(parent.depth), dict.fromkeys(range(parent.depth), counts).__getitem__)
        child = WeighedChild(Child(estimates.checkpoint, cut), estimates.weighed.moments)
        assert bytes_of(plain, cut, choices) == child.plain_bytes
        for layer, role in child.matrices:
            if layer is None:
                continue
            one = roles[role]
            size, loss = one.of(layer, 0 if one.unit is None else at[one.unit])
            kinds = tuple(kind for kind, able in zip(one.types, np.isfinite(loss), strict=True) if able)
            measured = child.losses((layer, role), kinds).sum((0, 1))
            np.testing.assert_array_equal(size[np.isfinite(loss)], child.sizes((layer, role), kinds))
            close = 1e-6 if child.is_as_stored((layer, role)) else 0.5
            np.testing.assert_allclose(loss[np.isfinite(loss)], measured, rtol=close, atol=1e-12)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_estimates_of_a_narrower_stream_are_right(name: str, tied: bool, text: str, tmp_path: Path) -> None:
    """Bytes to the byte; losses within a factor of those of rounding the child's own numbers."""
    checkpoint = Checkpoint.open(parent_in(tmp_path / "parent", name, tie_word_embeddings=tied))
    model, hidden = open_model(checkpoint), checkpoint.layout.hidden
    tokens = tokens_of(checkpoint, text, sequences=4, length=16)
    fisher = loss_moments(model, tokens, with_stream=True).fisher
    basis, child = loss_basis(model, fisher), Child(checkpoint, Cut.whole(dimensions(checkpoint)))
    weighed = WeighedChild(child, file_moments(model, child, tokens), fisher)
    estimates = TypeEstimates(
        weighed,
        (BY_NAME["Q8_0"], BY_NAME["Q4_0"]),
        (hidden - 32, hidden),
        Directions.of(basis.vectors, fisher),
    )
    for width in {Width(hidden - 32, tied), Width(hidden - 32, False)}:
        choices = replace(Choices.of_cut(weighed.cut), width=width)
        cut = replace(weighed.cut, narrowing=basis.narrowing(width))
        narrower = WeighedChild(Child(checkpoint, cut), weighed.moments, fisher)
        assert bytes_of(estimates.plain(choices), cut, choices) == narrower.plain_bytes
        roles = estimates.in_layers(choices, FirstUnits(None))
        ends = estimates.outside(width)
        assert {(None, role) for role in ends} == {place for place in narrower.matrices if place[0] is None}
        for layer, role in narrower.matrices:
            one = ends[role] if layer is None else roles[role]
            size, loss = one.of(layer or 0, 0)
            kinds = [kind for kind, able in zip(one.types, np.isfinite(loss), strict=True) if able]
            np.testing.assert_array_equal(size[np.isfinite(loss)], narrower.sizes((layer, role), kinds))
            measured = narrower.losses((layer, role), kinds).sum((0, 1))
            if width.tied and layer is None:  # divided by gains that are drawn, some of them near 0
                continue
            close = (measured > 0) & (measured > 1e-3 * measured.max())
            ratios = loss[np.isfinite(loss)][close] / measured[close]
            most = 2.5 if width.tied else 1.6  # a tied head's directions are known on average alone
            assert ((ratios > 1 / most) & (ratios < most)).all(), (layer, role, ratios)


def test_types_that_fit_nothing_are_refused_in_one_line(text: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"keep": 1, "max_weight_bytes": 400_000, "types": "Q2_K"}
    parent = parent_in(tmp_path / "parent", "mixtral")
    with pytest.raises(ValueError, match="--types Q2_K fits no matrix") as caught:
        carve(parent, tmp_path / "child", text=text, **flags, **QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize("types", ["all", "stored"])
def test_a_hybrid_keeps_a_layer_of_each_kind(types: str, text: str, tmp_path: Path) -> None:
    """Readers need both: with fewer layers than that the budget is refused before any work."""
    parent = parent_in(tmp_path / "parent", "lfm2")
    whole = Checkpoint.open(parent)
    stored = sum(tensor.end - tensor.start for tensor in whole.tensors.values())
    share = 0.11 if types == "all" else 0.75
    carved = carve(
        parent, tmp_path / "child", max_weight_bytes=int(share * stored), types=types, text=text, **QUICK
    )
    assert len(carved.cut.layers) == 2 < whole.layout.depth
    assert len({whole.layout.kinds[kept.layer] for kept in carved.cut.layers}) == 2
    with pytest.raises(ValueError, match=r"2 layers|max_weight_bytes \d+ would have to be at least"):
        carve(parent, max_weight_bytes=int(0.5 * share * stored), types=types, text=text, **QUICK)
