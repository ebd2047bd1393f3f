"""Networks small enough to be looked at from all sides, batches for them, and a record of all that passes."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Final

import torch
from tiny import model
from torch import Tensor, nn

from zerolm.networks.batch import NOTHING, Batch, loss
from zerolm.networks.build import build
from zerolm.networks.huggingface import stock_network
from zerolm.networks.network import Linear, Network, Tap
from zerolm.spaces import make_space

WORDS: Final = 40
"""Tokens that batches are made of."""
UNIFORM: Final = {"depth": 2, "hidden": 16, "heads": 4, "head_size": 4, "ffn": [12, 24]}
LTS: Final = {"n_layer": 2, "d_model": 8, "d_inner": [7, 16], "n_head": [1, 2], "div_val": 1, "d_embed": -1}
SHAPES: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "gpt2": ({"corpus": "wt103"}, LTS),
    "transformer_xl": ({"corpus": "wt103"}, LTS),
    "llama": ({"vocab": WORDS, "positions": 20}, UNIFORM | {"kv_heads": [1, 2]}),
    "bert": ({"vocab": WORDS, "positions": 20}, UNIFORM),
    "gpt2-uniform": ({"vocab": WORDS, "positions": 20}, UNIFORM),
    **{
        name: (
            {"hidden": 16, "heads": 2, "embedding": 32, "vocab": WORDS, "positions": 20},
            {
                "layers": [
                    {"block": block, "share": share, "ffn": 24}
                    for block, share in zip(blocks, shares, strict=True)
                ]
            },
        )
        for name, blocks, shares in (
            ("elastic", ("bert", "mobile"), ("kv", "none")),
            ("elastic-causal", ("bert", "mobile", "llama"), ("none", "qv", "kv")),
        )
    },
    "autoformer": ({"classes": 7}, {"depth": 2, "hidden_dim": 8, "num_heads": [1, 2], "mlp_ratio": [1, 2]}),
    "pit": ({"classes": 7}, {"base_dim": 4, "mlp_ratio": 1.5, "depth": [1, 1, 1], "num_heads": [1, 1, 2]}),
}
"""The settings of a space, and the choices within it."""


def flexibert(*operations: tuple[str, str | int], stacks: int = 2) -> Network:
    layers = [
        {"operation_type": kind, "operation_parameter": parameter, "num_operation_heads": 2}
        | {"feed_forward_dimension": 12, "num_feed_forward": stacks}
        for kind, parameter in operations
    ]
    return build(make_space("flexibert").read({"hidden_size": 8, "encoder_layers": layers}))


def of_space(name: str) -> Network:
    settings, choices = SHAPES[name]
    return build(make_space(name, **settings).read(choices))


MADE: Final[dict[str, Callable[[], Network]]] = {
    "flexibert": lambda: flexibert(("SA", "WMA"), ("LT", "DFT"), ("DSC", 5)),
    **{name: partial(of_space, name) for name in SHAPES},
    **{f"stock {name}": partial(lambda n: stock_network(model(n)), name) for name in ("llama", "gpt2")},
}
"""Every family, and stock models: GPT-2 stores its matrices transposed."""


def made(name: str, *, wide: bool = False, random: float = 0.0) -> Network:
    """A network, in float64 if ``wide``; ``random`` moves every parameter away from where it starts."""
    network = MADE[name]()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=random)
    network.module.to(torch.float64 if wide else torch.float32)
    return network


def batch_for(network: Network, samples: int = 8, length: int = 6, seed: int = 0) -> Batch:
    """Random samples; of masked ones two positions each are predicted."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next(network.module.parameters()).dtype
    if network.task == "image":
        images = torch.randn((samples, 3, 224, 224), generator=generator, dtype=dtype)
        return Batch(images, torch.randint(network.classes, (samples,), generator=generator), None, "noise")
    ids = torch.randint(WORDS, (samples, length), generator=generator)
    labels = torch.randint(WORDS, (samples, length), generator=generator)
    if network.task == "masked":
        order = torch.rand((samples, length), generator=generator).argsort(1)
        labels = labels.scatter(1, order[:, 2:], NOTHING)
    return Batch(ids, labels, WORDS, "noise")


class Chain(nn.Module):
    """Matrices one after the other between an embedding and a head, without biases."""

    def __init__(self, widths: Sequence[int], activation: nn.Module) -> None:
        super().__init__()
        self.tokens, self.activation = nn.Embedding(WORDS, widths[0]), activation
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in zip(widths, widths[1:]))  # noqa: B905, RUF007
        self.head = nn.Linear(widths[-1], WORDS, bias=False)

    def forward(self, inputs: Tensor, classes: int | None = None) -> Tensor:
        hidden = self.tokens(inputs)
        for layer in self.layers:
            hidden = self.activation(layer(hidden))
        logits: Tensor = self.head(hidden)
        return logits[..., :classes]


def chain(*widths: int, activation: nn.Module | None = None, seed: int = 0) -> Network:
    """A network whose layers are matrices: attention and FFN in turn; ``activation`` after every one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = Chain(widths, activation or nn.Identity())
    layers = tuple(module.layers)
    return Network(
        module=module,
        task="next",
        layers=layers,
        linears=tuple(
            Linear(m, i, "ffn", "up", True) if i % 2 else Linear(m, i, "attention", "q")
            for i, m in enumerate(layers)
        ),
        attentions=(),
        stream=tuple(Tap(m) for m in layers),
        final=Tap(module.head, "input"),
        norms=(),
        classes=WORDS,
    )


@dataclass
class Record:
    outputs: dict[Linear, Tensor] = field(default_factory=dict)
    inputs: dict[Linear, Tensor] = field(default_factory=dict)
    probabilities: list[Tensor] = field(default_factory=list)
    entry: list[Tensor] = field(default_factory=list)
    value: Tensor = field(default_factory=lambda: torch.zeros(()))
    total: Tensor = field(default_factory=lambda: torch.zeros(()))
    """The sum of the logits."""

    def gradients(self, of: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The loss's gradients."""
        return torch.autograd.grad(self.value, of, retain_graph=True)


def record(network: Network, batch: Batch) -> Record:
    """Everything at once: no micro-batches, nothing reduced on the way."""
    found = Record()

    def note(linears: list[Linear], given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        """A fused module's outputs go on in parts, each of which the loss can be derived by."""
        found.inputs |= dict.fromkeys(linears, given[0])
        parts = [linear.outputs(out) for linear in linears]
        found.outputs |= dict(zip(linears, parts, strict=True))
        return out if len(parts) == 1 else torch.cat(parts, dim=-1)

    with ExitStack() as stack:
        for module, group in groupby(network.linears, key=lambda linear: linear.module):
            hook: Any = lambda _, given, out, linears=list(group): note(linears, given, out)  # noqa: E731
            stack.callback(module.register_forward_hook(hook).remove)
        for tap in network.attentions:
            show: Any = lambda _, __, out: found.probabilities.append(out)  # noqa: E731
            stack.callback(tap.module.register_forward_hook(show).remove)
        enter: Any = lambda _, given: found.entry.append(given[0])  # noqa: E731
        stack.callback(network.layers[0].register_forward_pre_hook(enter).remove)
        logits = network.module(batch.inputs, batch.classes)
        found.value, found.total = loss(logits, batch), logits.sum()
    return found


def by_weights(network: Network, batch: Batch) -> dict[Linear, Tensor]:
    grads = record(network, batch).gradients(network.weights)
    by_parameter = {id(weight): g for weight, g in zip(network.weights, grads, strict=True)}
    return {linear: linear.matrix(by_parameter[id(linear.parameter)]) for linear in network.linears}
