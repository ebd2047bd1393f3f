"""Repair that knows types: with full width it is plain repair; else what rounding loses is paid back."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from first_tokens import with_first
from tiny import DECODER
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from zerolm.carving.bits.typed_child import TypedChild
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import open_model
from zerolm.progress import silent
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.pruning import Repaired
from zerolm.units.ridges import Ridges

pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

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
