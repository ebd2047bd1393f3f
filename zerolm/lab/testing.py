"""Rules that every proxy must satisfy, for authors of plug-ins: ``check_proxy``."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import is_dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from zerolm.lab.zero_cost import find_proxy
from zerolm.lab.zero_cost.job import numbers
from zerolm.lab.zero_cost.passes import NEEDS, Need, Passes
from zerolm.lab.zero_cost.registry import LeftOut, Proxy
from zerolm.lab.zero_cost.result import Mode
from zerolm.lab.zero_cost.settings import Settings, random_source
from zerolm.networks.batch import Batch
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.spaces import make_space

Numbers = tuple[float, ...]
ROUNDING: Final = 1e-6
"""Share of a value by which the order of a batch may change it, in float64."""
SETTINGS: Final = Settings(batch=16, length=8, parts=4)
WORDS: Final = 64
MODES: Final[tuple[Mode, ...]] = ("sane", "faithful")


def check_proxy(proxy: str | Proxy, networks: Sequence[Network] | None = None) -> None:
    """Raise ``AssertionError``, saying which rule is broken, unless a proxy satisfies them all.

    It takes a second or two on the usual networks, a small llama and a small FlexiBERT; ``networks`` take
    their place. They are copied.
    """
    chosen = find_proxy(proxy) if isinstance(proxy, str) else proxy
    for rule in RULES:
        rule(chosen, deepcopy(networks or small_networks()))


def leaves_the_network(proxy: Proxy, networks: Sequence[Network]) -> None:
    """The network and what torch keeps for all of them are as before, and so is all randomness.

    That is: weights, buffers and gradients, and which tensors they are; flags, modes, attributes and
    hooks of all kinds, of modules, of parameters and of the whole process; defaults of torch.
    """
    for network, mode in product(networks, MODES):
        passes = _passes(network, proxy.needs, mode)
        before = state(network)
        _value(proxy, passes)
        after = state(network)
        for part in before | after:
            is_same = before.get(part) == after.get(part)
            _demand(proxy, is_same, f"must leave everything as it is; it changes {part}")


def finite(proxy: Proxy, networks: Sequence[Network]) -> None:
    """Finite numbers, or ``LeftOut``, but not everywhere; and finite scores of all networks together."""
    values = [_value(proxy, _passes(network, proxy.needs)) for network in networks]
    pool = [value for value in values if value is not None]
    _demand(proxy, bool(pool), "is left out of every network: nothing of it can be checked")
    for value in pool:
        is_sound = bool(value) and all(map(math.isfinite, value))
        _demand(proxy, is_sound, f"must give finite numbers or raise LeftOut, and gave {value}")
    for name, column in proxy.scores(pool).items():
        if not isinstance(column, LeftOut):
            is_sound = len(column) == len(pool) and all(map(math.isfinite, column))
            _demand(proxy, is_sound, f"must finish with a finite score for each network; {name} is {column}")


def deterministic(proxy: Proxy, networks: Sequence[Network]) -> None:
    """The same numbers, bit by bit, whenever the seed is the same."""
    for network, mode in product(networks, MODES):
        first, second = (_value(proxy, _passes(network, proxy.needs, mode)) for _ in range(2))
        is_same = repr(first) == repr(second)
        _demand(proxy, is_same, f"must be determined by the seed; gave {first}, then {second}")


def declares_its_needs(proxy: Proxy, networks: Sequence[Network]) -> None:
    """Alone, with only the passes that it needs, its values are those that it has among all other proxies."""
    for network in networks:
        passes = _passes(network, proxy.needs)
        ran = set(passes.seconds)
        alone = _value(proxy, passes)
        more = ", ".join(sorted(set(passes.seconds) - ran))
        _demand(proxy, not more, f"must name all that it needs; it also uses {more}")
        together = _value(proxy, _passes(network, {*NEEDS, *proxy.needs}))
        rule = f"must name all that it needs; it gives {alone} alone, {together} with others"
        _demand(proxy, repr(alone) == repr(together), rule)


def only_reads(proxy: Proxy, networks: Sequence[Network]) -> None:
    """Tensors of the passes stay as they are: other proxies read them too."""
    for network, mode in product(networks, MODES):
        passes = _passes(network, proxy.needs, mode)
        before = frozen(vars(passes))
        _value(proxy, passes)
        is_same = before == frozen(vars(passes))
        _demand(proxy, is_same, "must only read what the passes hold: other proxies read it too")


def ignores_order(proxy: Proxy, networks: Sequence[Network]) -> None:
    """The order of micro-batches, and of samples within them, says nothing (sane mode; in float64)."""
    for network in networks:
        batch = small_batch(network)
        network.module.double()
        one, other = (
            _value(proxy, _passes(network, proxy.needs, batch=b)) for b in (batch, _shuffled(batch))
        )
        if one is None or other is None:
            is_close = one is other
        else:
            close = np.allclose(one, other, rtol=ROUNDING, atol=1e-12, equal_nan=True)
            is_close = len(one) == len(other) and close
        _demand(proxy, is_close, f"must not depend on the order of the batch; gave {one}, then {other}")


RULES: Final = (leaves_the_network, finite, deterministic, declares_its_needs, only_reads, ignores_order)


def _passes(
    network: Network, needs: Iterable[Need], mode: Mode = "sane", batch: Batch | None = None
) -> Passes:
    protocol = replace(SETTINGS, mode=mode).protocol(network.task)
    passes = Passes(network, batch or small_batch(network), protocol, frozenset(needs))
    passes.run()
    return passes


def _value(proxy: Proxy, passes: Passes) -> Numbers | None:
    """Return the numbers of a proxy, None where it is left out."""
    try:
        return numbers(proxy.compute(passes))
    except LeftOut:
        return None
    except (KeyError, AttributeError, TypeError) as error:
        message = f"must name all that it needs; alone it fails with {error!r}"
        raise AssertionError(f"proxy {proxy.name!r} {message}") from error


def _demand(proxy: Proxy, is_so: bool, rule: str) -> None:
    if not is_so:
        raise AssertionError(f"proxy {proxy.name!r} {rule}")


def state(network: Network) -> dict[str, Any]:
    """Return all that a network is, and what torch, numpy and Python keep, as it can be compared, by name."""
    modules = network.module.named_modules()
    parts = {
        f"{part} of {name or 'the network'}": frozen(value)
        for name, module in modules
        for part, value in vars(module).items()
    }
    hooks = vars(torch.nn.modules.module)
    return parts | {
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "Python's random state": random.getstate(),
        "numpy's random state": repr(np.random.get_state()),
        "whether torch keeps gradients": torch.is_grad_enabled(),
        "the inference mode": torch.is_inference_mode_enabled(),
        "the default type": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "the number of threads": torch.get_num_threads(),
        "whether algorithms are deterministic": torch.are_deterministic_algorithms_enabled(),
        "whether anomalies are detected": torch.is_anomaly_enabled(),
        "the precision of products": torch.get_float32_matmul_precision(),
        "the hooks of all modules": [frozen(hooks[name]) for name in sorted(hooks) if "_hooks" in name],
    }


def frozen(value: Any) -> Any:
    """Return a value as it is compared: all of a tensor, the identity of an object that is not known."""
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        hooks = (value._backward_hooks, getattr(value, "_post_accumulate_grad_hooks", None))
        gradient = value.grad if value.is_leaf else None
        about = (id(value), value.dtype, value.shape, value.requires_grad)
        return (*about, content, *map(frozen, hooks), frozen(gradient))
    if isinstance(value, nn.Module | Network):
        return id(value)
    if isinstance(value, Mapping):
        return [(key if isinstance(key, str) else None, frozen(each)) for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [frozen(each) for each in value]
    if is_dataclass(value):
        return frozen(vars(value))
    return repr(value) if isinstance(value, bool | int | float | str | None) else id(value)


@cache
def small_networks() -> tuple[Network, ...]:
    """Return a llama, and a FlexiBERT of different operations; a few thousand weights each.

    The FlexiBERT has few words, for its own 30 thousand would take most of the time.
    """
    sizes = {"depth": 2, "hidden": 16, "head_size": 8, "heads": 2, "kv_heads": 1, "ffn": 24}
    layers = [
        {
            "operation_type": kind,
            "operation_parameter": parameter,
            "num_operation_heads": 2,
            "feed_forward_dimension": 24,
            "num_feed_forward": stacks,
        }
        for kind, parameter, stacks in (("SA", "WMA", 1), ("LT", "DFT", 2), ("DSC", 5, 1))
    ]
    encoder = make_space("flexibert").read({"hidden_size": 16, "encoder_layers": layers})
    words, *others = encoder.ends.embedding_matrices
    ends = replace(encoder.ends, embedding_matrices=(replace(words, rows=WORDS), *others))
    return build(make_space("llama", vocab=WORDS).read(sizes)), build(replace(encoder, ends=ends))


def small_batch(network: Network) -> Batch:
    """Return random tokens or images for a network."""
    source = random_source(min(network.classes, 8192))
    return source.batch(network.task, network.classes, SETTINGS.batch, SETTINGS.length, SETTINGS.seed)


def _shuffled(batch: Batch) -> Batch:
    """Return the same micro-batches in another order, and their samples too."""
    generator = torch.Generator().manual_seed(1)
    parts = torch.arange(SETTINGS.batch).chunk(SETTINGS.parts)
    mixed = [parts[i] for i in torch.randperm(len(parts), generator=generator)]
    order = torch.cat([part[torch.randperm(len(part), generator=generator)] for part in mixed])
    return replace(batch, inputs=batch.inputs[order], labels=batch.labels[order])
