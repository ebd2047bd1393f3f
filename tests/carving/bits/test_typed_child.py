"""Children with types: written, read back by llama.cpp, repaired, built again, and judged at equal bytes."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from first_tokens import with_first
from tiny import DECODER, logits_of
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)
from typed_models import (
    SIZES,
    fused_parent,
    some_lines,
    some_words,
    typed_encoder,
    typed_parent,
    words_of_bytes,
)

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
gguf = pytest.importorskip("gguf", reason="gguf is not installed")

from zerolm.carving.bits.kernels import quantised  # noqa: E402
from zerolm.carving.bits.typed_child import LastLayer, ReadBack, TypedChild, WrittenChild  # noqa: E402
from zerolm.carving.bits.weighed_child import WeighedChild  # noqa: E402
from zerolm.carving.request import Methods  # noqa: E402
from zerolm.carving.result import Carved  # noqa: E402
from zerolm.carving.session import Session  # noqa: E402
from zerolm.checkpoints import Checkpoint  # noqa: E402
from zerolm.checkpoints.gguf.header import read_gguf_header  # noqa: E402
from zerolm.checkpoints.weight_types import BY_NUMBER  # noqa: E402
from zerolm.children.child_tensors import Child  # noqa: E402
from zerolm.children.gguf.check import check  # noqa: E402
from zerolm.children.gguf.network import network_in  # noqa: E402
from zerolm.children.gguf.write import write  # noqa: E402
from zerolm.evaluation.comparable import opened  # noqa: E402
from zerolm.evaluation.evaluate import evaluate  # noqa: E402
from zerolm.families.known import families  # noqa: E402
from zerolm.io.plain import as_plain  # noqa: E402
from zerolm.networks.blocks import Blocks  # noqa: E402
from zerolm.networks.opener import open_model  # noqa: E402
from zerolm.passes.matrix_moments import Place  # noqa: E402
from zerolm.progress import silent  # noqa: E402
from zerolm.repairing.walk import repair  # noqa: E402
from zerolm.units.kept_units import Cut, dimensions  # noqa: E402
from zerolm.units.pruning import Repaired  # noqa: E402
from zerolm.units.ridges import Ridges  # noqa: E402
from zerolm.verbs.carve import CarvingReport  # noqa: E402

QUICK = {"form": "gguf", "sequences": 8, "length": 16}
STAYING = {"keep_heads": 1, "keep_layers": 1, "keep_hidden": 1}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return typed_parent(tmp_path_factory.mktemp("typed") / "parent")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(some_words(tmp_path_factory.mktemp("words") / "text.txt"))


def stored(folder: Path) -> dict[str, tuple[str, int]]:
    reader = gguf.GGUFReader(next(folder.glob("*.gguf")))
    return {str(one.name): (BY_NUMBER[int(one.tensor_type)].name, int(one.n_bytes)) for one in reader.tensors}


def check_written(carved: Carved, folder: Path, budget: int) -> None:
    """The file has the types and the bytes that the result tells, within the budget."""
    tensors = stored(folder)
    assert sum(size for _, size in tensors.values()) == carved.costs["child"]["weight_bytes"] <= budget
    types = [kind for kind, _ in tensors.values() if kind != "F32"]
    assert sorted(types) == sorted(row.type for row in carved.types)
    assert carved.verified is not None
    assert json.loads((folder / "recipe.json").read_text())["types"] == as_plain(carved.types)


@pytest.mark.parametrize(("shape", "tied"), [("uniform", False), ("per-layer", True)])
def test_cuts_and_types_share_the_bytes(text: str, tmp_path: Path, shape: str, tied: bool) -> None:
    parent = typed_parent(tmp_path / "parent", torch.float32, tie_word_embeddings=tied)
    out, again = tmp_path / "child", tmp_path / "again"
    carved = carve(parent, out, max_weight_bytes="0.12x", shape=shape, text=text, **QUICK)
    check_written(carved, out, int(0.12 * carved.costs["parent"]["weight_bytes"]))
    assert rebuild(out / "recipe.json", parent, again, form="gguf", text=text).types == carved.types
    assert next(again.glob("*.gguf")).read_bytes() == next(out.glob("*.gguf")).read_bytes()
    report = CarvingReport(**vars(carved.child))
    assert CarvingReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_another_matrix_or_type_is_no_proof(parent: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(parent)
    weighed = WeighedChild(Child(checkpoint, Cut.whole(dimensions(checkpoint))))
    types = dict.fromkeys(weighed.matrices, "Q8_0")
    file = tmp_path / "child.gguf"
    write(weighed.child, file, TypedChild(weighed, types))
    WrittenChild(weighed, types, file).check()
    with pytest.raises(ValueError, match=r"'blk\.1\.attn_q\.weight' of .* is Q8_0, not Q4_0 as planned"):
        WrittenChild(weighed, {**types, (1, "q"): "Q4_0"}, file).check()
    other = Checkpoint.open(typed_parent(tmp_path / "other", seed=1))
    with pytest.raises(ValueError, match="has other numbers than the child"):
        WrittenChild(WeighedChild(Child(other, weighed.cut)), types, file).check()
    assert {BY_NUMBER[kind].name for kind in read_gguf_header(file).types.values()} == {"Q8_0", "F32"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"form": "hf", "types": "Q8_0"}, "--types is for quantisation types of gguf files: give --format"),
        ({"form": "hf", "max_bits": 4.5}, "--max-bits is for quantisation types of gguf files"),
        ({"form": "gguf", "types": "Q8_0", "keep_ffn": 0.5}, "--types is of types within bytes: give"),
        ({"form": "gguf", "max_bits": 9.5, "keep": 1, "imatrix": True}, "--imatrix needs the inputs"),
        ({"form": "gguf", "max_bits": 4.5}, "give --text FILE, or --keep 1 for types alone"),
        ({"form": "gguf", "max_bits": 2.0, "keep": 1}, "--max-weight-bytes .* would have to be at least"),
    ],
)
def test_what_cannot_be_is_told(parent: Path, tmp_path: Path, flags: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        carve(parent, tmp_path / "child", **flags)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_weights_alone_choose_types_and_a_recipe_with_a_wrong_one_is_refused(
    parent: Path, tmp_path: Path
) -> None:
    out = tmp_path / "child"
    carved = carve(parent, out, form="gguf", keep=1, max_bits=6.0, types="Q8_0,Q4_0")
    check_written(carved, out, 10**9)
    assert {row.type for row in carved.types} <= {"Q8_0", "Q4_0", "BF16"}
    assert carved.equal_bytes == []
    recipe = json.loads((out / "recipe.json").read_text())
    for wrong in ([{"layer": 0, "role": "q", "type": "Q9"}], [{"layer": 7, "role": "q", "type": "Q8_0"}], {}):
        (tmp_path / "recipe.json").write_text(json.dumps(recipe | {"types": wrong}))
        with pytest.raises(ValueError, match=r"recipe .* cannot be used: "):
            rebuild(tmp_path / "recipe.json", parent, tmp_path / "again")


@pytest.mark.parametrize("tied", [False, True])
def test_a_file_is_opened_as_the_network_that_it_holds(text: str, tmp_path: Path, tied: bool) -> None:
    parent = typed_parent(tmp_path / "parent", torch.float32, tie_word_embeddings=tied)
    out, checkpoint = tmp_path / "child", Checkpoint.open(parent)
    carve(parent, out, max_weight_bytes="0.1x", shape="per-layer", text=text, keep_vocab="all", **QUICK)
    file = next(out.glob("*.gguf"))
    network = network_in(file, checkpoint)
    check(file, logits_of(network), None, tolerance=0.0)  # what is left is the rounding of its reader
    header = json.loads((out / "recipe.json").read_text())
    assert len(network.model.layers) == len(header["layers"])
    with pytest.raises(ValueError, match="that no child of this parent has"):
        network_in(file, Checkpoint.open(typed_parent(tmp_path / "small", num_attention_heads=8)))


def test_a_file_is_evaluated_beside_its_parent_in_as_few_bytes(text: str, tmp_path: Path) -> None:
    parent, out = typed_parent(tmp_path / "parent", torch.float32), tmp_path / "child"
    carved = carve(parent, out, keep=1, max_bits=6.5, text=text, **QUICK)
    for child in (out, next(out.glob("*.gguf"))):
        result = evaluate(child, parent, text, sequences=8, length=16)
        rows = {row.name: row for row in result.networks}
        assert list(rows) == ["child", "parent", "quantised parent"]
        assert rows["parent"].values["kl"] == pytest.approx(0.0, abs=1e-6)
        assert 0.5 < rows["child"].values["kl"] / carved.losses["as_read_back"] < 2  # of other sequences
    twice = evaluate(out, parent, f"a={text},b={text}", sequences=8, length=16, loops=1)
    for row, alone in zip(twice.networks, result.networks, strict=True):
        assert row.domains["a"] == row.domains["b"] == pytest.approx(alone.values)
        assert row.values["loops"] in (0.0, 1.0)
    with pytest.raises(ValueError, match="is GGUF, which is compared with its parent alone"):
        opened(out, parent)
    (out / "another.gguf").write_bytes(next(out.glob("*.gguf")).read_bytes())
    with pytest.raises(ValueError, match="holds 2 GGUF files: name one"):
        evaluate(out, parent, text, sequences=8, length=16)


def test_importances_are_written_as_llama_cpp_reads_them(parent: Path, text: str, tmp_path: Path) -> None:
    out = tmp_path / "child"
    carve(parent, out, keep=1, max_bits=9.0, imatrix=True, text=text, **QUICK)
    reader = gguf.GGUFReader(out / "importances.imatrix")
    assert reader.fields["general.type"].contents() == "imatrix"
    tensors = {str(one.name): np.asarray(one.data) for one in reader.tensors}
    assert tensors["blk.1.ffn_down.weight.in_sum2"].shape == (1, 96)
    assert {name.rpartition(".")[0] for name in tensors} == {
        name for name, (kind, _) in stored(out).items() if kind != "F32"
    }
    assert all((values > 0).all() for values in tensors.values())
    recipe = json.loads((out / "recipe.json").read_text())
    assert "importances.imatrix" in recipe["files"]
    assert list(recipe["sha256"]) == ["parent-carved.gguf"]


SCALED: dict[str, dict[str, Any]] = {
    "gemma": {},
    "gemma2": {"query_pre_attn_scalar": 16, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 5.0},
    "gemma3_text": {"query_pre_attn_scalar": 16},
    "granite": {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0},
}
"""Families whose embeddings, norms, residuals or logits are multiplied by factors, or capped."""


def scaled_parent(folder: Path, kind: str) -> Path:
    """A decoder with factors on its stream in the folder, whose norms are not all alike."""
    torch.manual_seed(0)
    sizes = SIZES | {"head_dim": 16, "tie_word_embeddings": True} | SCALED[kind]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter) * (parameter.dim() == 1))
    model.save_pretrained(folder)
    words_of_bytes().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("flags", [{"keep": 1}, {"keep_hidden": 0.5}], ids=["all units", "half a stream"])
@pytest.mark.parametrize("kind", SCALED)
def test_stream_factors_go_with_types(kind: str, flags: dict[str, Any], text: str, tmp_path: Path) -> None:
    """The written child is the network that was measured, as llama.cpp opens it."""
    if "keep_hidden" in flags and not families()[kind].cut.hidden:
        pytest.skip("its stream cannot be narrowed")
    parent, out = scaled_parent(tmp_path / "parent", kind), tmp_path / "child"
    carved = carve(
        parent, out, max_bits=7.0, text=text, keep_vocab="all", **QUICK | {"sequences": 24}, **flags
    )
    assert {row.type for row in carved.types} - {"F32", "F16"}
    assert carved.verified is not None
    assert 0 <= carved.losses["as_read_back"] < 1.5 * carved.losses["predicted"] + 1e-4  # less by repair


@pytest.mark.parametrize(("bits", "flags"), [(5.6, {"keep_ffn": 2 / 3, **STAYING}), (3.9, STAYING)])
def test_a_fused_matrix_has_one_type(text: str, tmp_path: Path, bits: float, flags: dict[str, Any]) -> None:
    parent, out = fused_parent(tmp_path / "parent"), tmp_path / "child"
    carved = carve(parent, out, max_bits=bits, text=text, **QUICK, **flags)
    check_written(carved, out, int(bits / 8 * carved.costs["parent"]["params"]))
    assert {row.role for row in carved.types} == {"embedding", "q+k+v", "o", "gate+up", "down", "head"}
    assert 0 < carved.losses["as_read_back"] < 0.5


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(some_lines(tmp_path_factory.mktemp("lines") / "text.txt"))


@pytest.mark.parametrize(
    ("kind", "bits"), [("bert", 5.5), ("distilbert", 7.0), ("eurobert", 7.0), ("modernbert", 7.0)]
)
def test_types_of_an_encoder(lines: str, tmp_path: Path, kind: str, bits: float) -> None:
    """Its file has what is added to embeddings in float32, and no pooler; the loss is as it was foretold."""
    parent, out = typed_encoder(tmp_path / "parent", kind), tmp_path / "child"
    carved = carve(parent, out, keep=1, max_bits=bits, text=lines, **QUICK | {"sequences": 80})
    check_written(carved, out, int(bits * carved.costs["parent"]["params"] / 8))
    kinds = {name: kind for name, (kind, _) in stored(out).items()}
    added = {"position_embd.weight", "token_types.weight"} & kinds.keys()
    assert len(added) == {"bert": 2, "distilbert": 1}.get(kind, 0)
    assert {kinds[name] for name in added} <= {"F32"}
    assert kinds["token_embd.weight"] != "F32"
    assert not any("cls" in name or "pooler" in name for name in kinds)
    alone = carved.equal_bytes[0]
    assert alone.name == "types alone"
    assert "measured" not in carved.losses  # nothing is cut
    assert 0 < alone.measured < 1.6 * alone.predicted  # less by repair
    network = network_in(next(out.glob("*.gguf")), Checkpoint.open(parent))
    assert check(next(out.glob("*.gguf")), lambda ids: network(input_ids=ids).last_hidden_state, None)


def test_cuts_and_types_of_an_encoder(lines: str, tmp_path: Path) -> None:
    parent, out, again = typed_encoder(tmp_path / "parent"), tmp_path / "child", tmp_path / "again"
    flags = {**QUICK, "sequences": 40, "keep_vocab": "all"}
    carved = carve(parent, out, max_weight_bytes="0.115x", text=lines, **flags)
    check_written(carved, out, int(0.115 * carved.costs["parent"]["weight_bytes"]))
    assert not carved.cut.is_whole
    assert "- sizes: planned by the losses of single cuts" in (out / "README.md").read_text()
    rebuilt = rebuild(out / "recipe.json", parent, again, form="gguf", text=lines)
    assert next(again.glob("*.gguf")).read_bytes() == next(out.glob("*.gguf")).read_bytes()
    assert rebuilt.types == carved.types
    assert 0 < carved.losses["as_read_back"] < 0.5
    judged = {row.name: row for row in evaluate(out, parent, lines, sequences=40, length=16).networks}
    assert judged["parent"].values["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert 0.5 < judged["child"].values["cosine"] < 1.0
    assert set(judged) >= {"parent", "child"}


RIDGE = 1e-6


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A tiny llama with large weights, and random tokens."""
    folder = tmp_path_factory.mktemp("repaired")
    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "intermediate_size": 128, "head_dim": 16, "initializer_range": 0.3}
    LlamaForCausalLM(LlamaConfig(**DECODER | sizes)).save_pretrained(folder)
    methods = Methods("surgeon", "prices", "random", sequences=256, length=16, repair="least-squares")
    return Session(Checkpoint.open(folder), methods, silent, types=True)


@pytest.fixture(scope="module")
def transposed(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The same of a tiny gpt2, whose file has its matrices transposed and by part."""
    folder = tmp_path_factory.mktemp("transposed")
    torch.manual_seed(0)
    sizes = {"n_embd": 96, "n_inner": 128, "n_head": 6, "n_layer": 2, "vocab_size": 64, "n_positions": 32}
    GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.3)).save_pretrained(folder)
    methods = Methods("surgeon", "prices", "random", sequences=256, length=16, repair="least-squares")
    return Session(Checkpoint.open(folder), methods, silent)


@pytest.fixture(params=["session", "transposed"])
def either(request: pytest.FixtureRequest) -> Session:
    one: Session = request.getfixturevalue(request.param)
    return one


def cuts(session: Session) -> list[Cut]:
    """The whole parent, and three quarters of the neurons of each layer."""
    whole = dimensions(session.checkpoint)
    return [Cut.whole(whole), Cut.of(whole, range(whole.depth), lambda layer: (whole.kv_heads, 96))]


def typed(session: Session, cut: Cut, repaired: Repaired, kind: str) -> TypedChild:
    return session.typed(cut, repaired, dict.fromkeys(session.weighed(cut, repaired).matrices, kind))


def test_with_full_width_it_is_plain_repair(either: Session) -> None:
    whole, cut = cuts(either)
    assert not either.repaired(whole).arrays
    plain = either.repaired(cut)
    knowing = either.repaired(cut, None, typed(either, cut, plain, "F32").types)
    assert plain.arrays.keys() == knowing.arrays.keys()
    for place, values in plain.arrays.items():
        np.testing.assert_allclose(knowing.arrays[place], values, atol=1e-5)


def test_layers_that_are_rounded_once_repair_alike(either: Session) -> None:
    cut = cuts(either)[1]
    types = typed(either, cut, Repaired(), "Q4_0").types

    def every_time(blocks: Blocks, repaired: Repaired) -> ReadBack:
        return ReadBack(blocks, either.typed(cut, repaired, types), repaired)

    fitted, held = either.divided.fitted, either.divided.compared
    plain = repair(either.model, cut, fitted, held=held, fisher=either.fisher, reading_back=every_time)
    once = either.repaired(cut, None, types)
    assert once.ridges == plain.ridges
    for place, values in plain.arrays.items():
        np.testing.assert_array_equal(once.arrays[place], values)


def test_only_changed_matrices_of_a_layer_are_rounded_again(session: Session) -> None:
    weighed = session.weighed(cuts(session)[0], Repaired())
    last, rounded = LastLayer(), list[str]()
    child = TypedChild(weighed, dict.fromkeys(weighed.matrices, "Q4_0"), last=last)

    def rows(place: Place, factor: float) -> np.ndarray[Any, Any]:
        (matrix,) = weighed.matrices[place]
        values = factor * next(matrix.values())

        def encode() -> np.ndarray[Any, Any]:
            rounded.append(matrix.name)
            return quantised(values, child.kind(matrix), None)

        encoded = last.encoded(matrix, 0, values, encode)
        np.testing.assert_array_equal(encoded, quantised(values, child.kind(matrix), None))
        return encoded

    for place, factor in ((0, "q"), 1.0), ((0, "o"), 1.0), ((0, "q"), 1.0), ((0, "o"), 2.0), ((0, "q"), 1.0):
        rows(place, factor)
    assert rounded == ["blk.0.attn_q.weight", "blk.0.attn_output.weight", "blk.0.attn_output.weight"]
    rows((1, "q"), 1.0)
    rows((0, "q"), 1.0)
    assert rounded[3:] == ["blk.1.attn_q.weight", "blk.0.attn_q.weight"]


@pytest.mark.parametrize("number", [0, 1])
def test_less_is_lost_than_by_repair_that_does_not_know_them(number: int, either: Session) -> None:
    cut = cuts(either)[number]
    plain = either.repaired(cut)
    knowing = either.repaired(cut, None, typed(either, cut, plain, "Q4_0").types)
    losses = [either.typed_loss(typed(either, cut, r, "Q4_0"), r) for r in (plain, knowing)]
    # random weights and tokens: what is refitted beside rounding hardly carries over to others
    assert losses[1] < (0.98 if number == 0 else 1.02) * losses[0]


def test_the_first_matrices_are_least_squares_on_what_is_read_back(session: Session) -> None:
    """A slow twin: all activations of the rounded network in memory, solved at once."""
    cut = cuts(session)[0]
    types = typed(session, cut, Repaired(), "Q4_0").types
    places = [(layer, role) for layer in range(cut.parent.depth) for role in ("o", "down")]
    knowing = session.repaired(cut, dict.fromkeys(places, Ridges(RIDGE, RIDGE)), types)
    child, parent = typed(session, cut, knowing, "Q4_0"), open_model(session.checkpoint)
    ours = copy.deepcopy(parent)
    layout = session.checkpoint.layout

    def rounded(layer: int | None, role: str) -> Tensor:
        return torch.from_numpy(child.tensors(layer)[layout.name(role, layer) or ""]())

    ours.model.embed_tokens.weight.data = rounded(None, "embedding")
    layer = ours.model.layers[0]
    for role, module in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "o_proj")):
        layer.self_attn.get_submodule(module).weight.data = rounded(0, role)
    for role in ("gate", "up"):
        layer.mlp.get_submodule(f"{role}_proj").weight.data = rounded(0, role)
    ids = session.divided.fitted.ids
    theirs, mine = (seen(network, ids) for network in (parent, ours))
    stream = theirs["before"] + theirs["o"]
    for role, target, start in (
        ("o", stream - mine["before"], parent.model.layers[0].self_attn.o_proj.weight),
        (
            "down",
            stream + theirs["down"] - mine["before"] - mine["o"],
            parent.model.layers[0].mlp.down_proj.weight,
        ),
    ):
        x, first = mine[f"{role} in"].double(), start.detach().double()
        summed = stream if role == "o" else stream + theirs["down"]
        plain = 1 / summed.double().square().mean(1).numpy()
        number = session.fisher.first_token(0, role)
        weighed = x * torch.from_numpy(with_first(plain, session.divided.fitted, number))[:, None]
        squares = weighed.T @ x
        squares += RIDGE * squares.diagonal().mean() * torch.eye(len(squares))
        solved = first + torch.linalg.solve(squares, weighed.T @ (target.double() - x @ first.T)).T
        np.testing.assert_allclose(knowing.arrays[0, role], solved.numpy(), atol=2e-4)


def seen(network: Any, ids: Tensor) -> dict[str, Tensor]:
    """What the first layer gets, and what its output matrices get and send, (tokens, channels) each."""
    values: dict[str, Tensor] = {}
    layer = network.model.layers[0]
    hooks = [layer.register_forward_pre_hook(lambda _, args: values.update(before=args[0].flatten(0, 1)))]
    for name, module in (("o", layer.self_attn.o_proj), ("down", layer.mlp.down_proj)):

        def note(_: Any, args: Any, sent: Tensor, name: str = name) -> None:
            values.update({f"{name} in": args[0].flatten(0, 1), name: sent.flatten(0, 1)})

        hooks.append(module.register_forward_hook(note))
    with torch.no_grad():
        network(input_ids=ids)
    for hook in hooks:
        hook.remove()
    return values
