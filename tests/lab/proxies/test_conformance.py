"""Each rule of the conformance suite catches the proxy that breaks it; proxies of zerolm keep them all."""

import math
import random
from collections.abc import Callable, Iterator
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
)

from zerolm.lab.testing import RULES, check_proxy, declares_its_needs, small_networks, state
from zerolm.lab.zero_cost import proxy_names
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.registry import Finish, LeftOut, Proxy, Value
from zerolm.networks.network import Network


def made(
    compute: Callable[[Passes], Value], needs: tuple[str, ...] = (), finish: Finish | None = None
) -> Proxy:
    return Proxy("mine", compute, "a test", needs, finish=finish)


def broken(proxy: Proxy) -> list[str]:
    """The rules that a proxy breaks, each on networks of its own."""
    broken = []
    for rule in RULES:
        try:
            rule(proxy, deepcopy(small_networks()))
        except AssertionError:
            broken.append(rule.__name__)
    return broken


def first(passes: Passes) -> torch.nn.Parameter:
    return passes.linears[0].parameter


def spoiling(act: Callable[[Passes], object]) -> Proxy:
    def compute(passes: Passes) -> float:
        act(passes)
        return float(len(passes.linears))

    return made(compute)


def stood_in(passes: Passes) -> None:
    module = passes.linears[0].module
    module.__dict__["forward"] = module.forward


def hooked(passes: Passes, method: str) -> None:
    weight = first(passes)
    flag = weight.requires_grad
    getattr(weight.requires_grad_(True), method)(lambda _: None)
    weight.requires_grad_(flag)


def replaced_parameter(passes: Passes) -> None:
    """By an equal one."""
    passes.linears[0].module.weight = torch.nn.Parameter(first(passes).detach().clone())


def dropped_out(passes: Passes) -> None:
    for part in passes.network.module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.25


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    for name, hooks in vars(torch.nn.modules.module).items():
        if name.startswith("_global_") and isinstance(hooks, dict):
            hooks.clear()
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)
    torch.set_float32_matmul_precision("highest")


ALL = "the hooks of all modules"


@pytest.mark.usefixtures("torch_as_it_was")
@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda _: register_module_forward_hook(lambda *_: None), ALL),
        (lambda _: register_module_forward_pre_hook(lambda *_: None), ALL),
        (lambda _: register_module_full_backward_hook(lambda *_: None), ALL),
        (lambda _: torch.set_default_dtype(torch.float64), "the default type"),
        (lambda _: torch.set_default_device("meta"), "the default device"),
        (lambda _: torch.set_grad_enabled(False), "whether torch keeps gradients"),
        (lambda _: torch.set_num_threads(torch.get_num_threads() + 1), "the number of threads"),
        (lambda _: torch.use_deterministic_algorithms(True), "whether algorithms are deterministic"),
        (lambda _: torch.autograd.set_detect_anomaly(True), "whether anomalies are detected"),
        (lambda _: torch.set_float32_matmul_precision("medium"), "the precision of products"),
        (lambda p: hooked(p, "register_post_accumulate_grad_hook"), "_parameters of layers.0"),
        (lambda p: p.linears[0].module.register_state_dict_post_hook(lambda *_: None), "_state_dict_hooks"),
        (
            lambda p: p.linears[0].module.register_load_state_dict_post_hook(lambda *_: None),
            "_load_state_dict_post_hooks of layers.0",
        ),
        (
            lambda p: p.linears[0].module.register_full_backward_pre_hook(lambda *_: None),
            "_backward_pre_hooks of layers.0",
        ),
        (replaced_parameter, "_parameters of layers.0"),
        (dropped_out, "p of "),
        (lambda p: p.network.layers[0].register_forward_hook(lambda *_: None), "_forward_hooks of layers.0"),
        (stood_in, "forward of layers.0"),
        (lambda p: first(p).data.view(-1)[0].add_(1e-7), "_parameters of layers.0"),
        (lambda p: setattr(first(p), "grad", torch.zeros_like(first(p))), "_parameters of layers.0"),
        (lambda p: first(p).requires_grad_(not first(p).requires_grad), "_parameters of layers.0"),
        (lambda p: hooked(p, "register_hook"), "_parameters of layers.0"),
        (lambda p: p.network.module.train(), "training of the network"),
        (lambda p: p.network.module.register_buffer("mine", torch.zeros(1)), "_buffers of the network"),
        (lambda _: torch.rand(1), "torch's random state"),
        (lambda _: random.random(), "Python's random state"),
        (lambda _: np.random.rand(), "numpy's random state"),
    ],
)
def test_what_a_proxy_leaves_behind(act: Callable[[Passes], object], what: str) -> None:
    with pytest.raises(AssertionError, match=f"must leave everything as it is; it changes {what}"):
        check_proxy(spoiling(act))


def test_one_that_draws_without_a_seed() -> None:
    def noisy(passes: Passes) -> float:
        state = torch.get_rng_state()
        drawn = torch.rand(1, generator=torch.Generator().manual_seed(random.SystemRandom().getrandbits(60)))
        torch.set_rng_state(state)
        return float(drawn)

    assert broken(made(noisy)) == ["deterministic", "declares_its_needs", "ignores_order"]


def test_one_that_looks_at_the_first_sample_or_the_last_micro_batch() -> None:
    """Found by an order of micro-batches, and by that within them."""

    def first_sample(passes: Passes) -> float:
        return float(next(iter(passes.activations.distances.values()))[0])

    def last_labels(passes: Passes) -> float:
        return float(passes.batch.micro(4)[-1].inputs.double().square().sum())

    assert broken(made(first_sample, ("distances",))) == broken(made(last_labels)) == ["ignores_order"]


def test_one_that_does_not_say_what_it_needs() -> None:
    def greedy(passes: Passes) -> float:
        return passes.loss.value

    def hungry(passes: Passes) -> float:
        return math.fsum(map(math.fsum, passes.activations.outputs.values()))

    def starving(passes: Passes) -> float:
        return float(passes.gradient(passes.linears[0]).norm())

    assert "declares_its_needs" in broken(made(greedy))
    assert broken(made(hungry, ("distances",))) == ["declares_its_needs"]
    with pytest.raises(AssertionError, match="alone it fails with KeyError"):
        declares_its_needs(made(starving, ("outputs",)), deepcopy(small_networks()))
    assert not broken(made(starving, ("gradients",)))


def test_one_that_writes_into_what_is_shared() -> None:
    def absolute(passes: Passes) -> float:
        return math.fsum(float(g.abs_().sum()) for g in passes.loss.gradients.values())

    assert broken(made(absolute, ("gradients",))) == ["only_reads"]


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf], []])
def test_one_without_a_finite_number(value: Value) -> None:
    assert broken(made(lambda _: value)) == ["finite"]


def test_one_that_is_left_out() -> None:
    def choosy(passes: Passes) -> float:
        if passes.network.task == "next":
            raise LeftOut("no decoders")
        return 1.0

    def never(passes: Passes) -> float:
        raise LeftOut("never")

    assert not broken(made(choosy))
    assert broken(made(never)) == ["finite"]


def test_one_that_finishes_badly() -> None:
    short: Finish = lambda pool: {"mine": [1.0] * (len(pool) - 1)}  # noqa: E731
    odd: Finish = lambda pool: {"mine": [math.nan] * len(pool)}  # noqa: E731
    fine: Finish = lambda pool: {"mine": [row[0] for row in pool], "more": [1.0] * len(pool)}  # noqa: E731
    found = [broken(made(lambda _: 1.0, finish=each)) for each in (short, odd, fine)]
    assert found == [["finite"], ["finite"], []]


def test_networks_of_ones_own() -> None:
    seen: list[Network] = []

    def watching(passes: Passes) -> float:
        seen.append(passes.network)
        return 1.0

    network = small_networks()[0]
    before = state(network)
    check_proxy(made(watching), [network])
    assert {each.linears[0].parameter.shape for each in seen} == {network.linears[0].parameter.shape}
    assert all(each is not network for each in seen)
    assert state(network) == before


@pytest.mark.parametrize("name", proxy_names())
def test_built_in(name: str) -> None:
    check_proxy(name)
