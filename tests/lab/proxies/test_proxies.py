"""A twin for every proxy that keeps everything and takes the long way; and what proxies do not depend on."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from networks_small import MADE, Record, batch_for, by_weights, made, record
from torch import Tensor

from zerolm.lab.zero_cost import LeftOut, find_proxy, proxy_names
from zerolm.lab.zero_cost.job import compute
from zerolm.lab.zero_cost.passes import Passes, Protocol
from zerolm.networks.batch import Batch
from zerolm.networks.build import build
from zerolm.networks.network import Linear, Network
from zerolm.spaces import make_space

FORWARD = ["flexibert", "transformer_xl", "llama", "bert", "stock gpt2"]
PARTS = 4


class Seen:
    """A network of a family in float64 away from its start, its batch, and all that passes through it."""

    def __init__(self, name: str, samples: int = 8) -> None:
        self.network = made(name, wide=True, random=0.1)
        self.batch = batch_for(self.network, samples)
        self.record: Record = record(self.network, self.batch)
        self.weights = {each: each.matrix(each.parameter.detach()) for each in self.network.linears}
        self.gradients = by_weights(self.network, self.batch)
        self.parts = [by_weights(self.network, part) for part in self.batch.micro(PARTS)]

    def role(self, role: str) -> list[Linear]:
        return [linear for linear in self.network.linears if linear.role == role]

    def named(self, *names: str) -> list[Linear]:
        return [linear for linear in self.network.linears if linear.name in names]

    def active(self) -> list[Tensor]:
        """Which units are active, (n, t, f) bool, of each layer that is activated."""
        return [self.record.outputs[linear] > 0 for linear in self.network.linears if linear.activated]

    def value(self, name: str) -> tuple[float, ...]:
        found = compute(self.network, [find_proxy(name)], self.batch, Protocol(parts=PARTS))[name]
        assert found.left_out is None, found.left_out
        return found.value


@cache
def seen(name: str, samples: int = 8) -> Seen:
    return Seen(name, samples)


def nuclear(matrix: Tensor) -> float:
    return float(torch.linalg.svdvals(matrix).sum())


def cosines(rows: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)


def of_outputs(it: Seen) -> Tensor:
    """The gradients of the sum of each sample's outputs by what enters the first layer, (n, t d)."""
    (rows,) = torch.autograd.grad(it.record.total, it.record.entry, retain_graph=True)
    return rows.flatten(1)


def of_loss(it: Seen) -> Tensor:
    return it.record.gradients(it.record.entry)[0].flatten(1)


def jacobian_covariance(rows: Tensor) -> float:
    v = np.linalg.eigvalsh(np.corrcoef(rows.numpy())).clip(0) + 1e-5
    return -float(np.sum(np.log(v) + 1 / v))


def jacobian_cosine(rows: Tensor) -> float:
    c = cosines(rows)
    pairs = [abs(c[i, j].item()) ** 0.05 for i in range(len(c)) for j in range(len(c)) if i != j]
    return 1 - math.fsum(pairs) / 2 / len(pairs)


def fisher(it: Seen) -> float:
    grads = it.record.gradients(list(it.record.outputs.values()))
    terms = (
        (y * g).detach().sum(1) for y, g in zip(it.record.outputs.values(), grads, strict=True)
    )  # (n, c)
    return sum(float(each.square().mean(0).sum()) / 2 for each in terms)


def head_confidence(it: Seen) -> float:
    leading = it.named("q", "k", "v", "mix", "weight")
    return sum(it.record.outputs[linear].max(dim=1).values.mean().item() for linear in leading)


def softmax_confidence(it: Seen) -> float:
    return sum(p.max(dim=-1).values.mean().item() for p in it.record.probabilities)


def lpzero_bert(it: Seen) -> float:
    first = it.named("q", "mix")
    assert len(first) == len(it.network.layers)
    return sum((it.record.outputs[linear] ** 2).mean().item() for linear in first) / len(first)


def lpzero_gpt2(it: Seen) -> float:
    """softmax(G)_ij = exp(G_ij) / sum_j exp(G_ij)."""
    terms = []
    for linear, w in it.weights.items():
        e = it.gradients[linear].exp()
        terms.append(float((w**2).mean() + ((e / e.sum(1, keepdim=True)) ** 2).mean()))
    return sum(terms) / len(terms)


def lpzero_surrogate(it: Seen) -> float:
    return sum(float((w**2).mean()) + 1 / w.shape[1] ** 2 for w in it.weights.values()) / len(it.weights)


def eznas(it: Seen) -> float:
    total = 0.0
    for linear in it.role("attention"):
        signs = np.sign(it.gradients[linear].numpy())
        if np.linalg.matrix_rank(signs) == len(signs):
            det = np.linalg.det(signs @ signs.T).round()
            total += det / (1 + det)
    return total


def activation_distance(it: Seen) -> float:
    """The sums of T x T kernels, a sample at a time."""
    total = 0.0
    for codes in it.active():
        for x in codes.double():
            total += float((x @ x.T + (1 - x) @ (1 - x).T).sum()) / len(codes)
    return total


def naswot(it: Seen) -> float:
    codes = torch.cat([each.flatten(1) for each in it.active()], dim=1)  # (n, units)
    kernel = (codes[:, None] == codes[None]).sum(-1)
    assert (kernel.diagonal() == codes.shape[1]).all()
    return float(np.linalg.slogdet(kernel.double().numpy())[1])


def columns(it: Seen) -> list[set[bytes]]:
    """The patterns of samples that activate the units of each activated module."""
    return [{column.tobytes() for column in each.flatten(1).numpy().T} for each in it.active()]


def swap(it: Seen) -> float:
    return float(len(set().union(*columns(it))))


def zico(it: Seen) -> float:
    total = 0.0
    for linear in it.network.linears:
        g = torch.stack([grads[linear] for grads in it.parts])
        sd = g.std(0, correction=0)
        total += math.log(float((g.abs().mean(0)[sd > 0] / sd[sd > 0]).sum()))
    return total


def v_pca(it: Seen) -> float:
    """Eigenvalues of the covariance of what the first matrix of each FFN gives."""
    found, layers = 0, set()
    for linear in it.role("ffn"):
        if linear.layer in layers:
            continue
        layers.add(linear.layer)
        values = torch.linalg.eigvalsh(torch.cov(it.record.outputs[linear].flatten(0, 1).T)).flip(0)
        found += next(k for k in range(1, len(values) + 1) if values[:k].sum() > 0.99 * values.sum())
    return float(found)


def az_complexity(it: Seen) -> float:
    """Each matrix for each token of an input, and scores and means of values for each pair of tokens."""
    tokens = it.batch.inputs.shape[1]
    queries = sum(len(it.weights[linear]) for linear in it.named("q"))
    return float(sum(tokens * w.numel() for w in it.weights.values()) + 2 * tokens**2 * queries)


TWINS: dict[str, Callable[[Seen], float]] = {
    "params": lambda it: float(len(torch.cat([p.flatten() for p in it.network.module.parameters()]))),
    "spectral_capacity_weights": lambda it: sum(
        float(torch.linalg.svdvals(part).square().log1p().sum()) for part in it.weights.values()
    ),
    "log_complexity_weights": lambda it: sum(
        math.log(float(w.square().sum())) / 2 for w in it.weights.values()
    ),
    "lpzero_surrogate": lpzero_surrogate,
    "grad_norm": lambda it: sum(float(torch.linalg.matrix_norm(g)) for g in it.gradients.values()),
    "plain": lambda it: sum(float((it.weights[each] * g).sum()) for each, g in it.gradients.items()),
    "fisher": fisher,
    "synaptic_diversity": lambda it: sum(
        nuclear(it.weights[each]) * nuclear(it.gradients[each]) for each in it.role("attention")
    ),
    "eznas": eznas,
    "lpzero_gpt2": lpzero_gpt2,
    "jacobian_covariance": lambda it: jacobian_covariance(of_outputs(it)),
    "jacobian_cosine": lambda it: jacobian_cosine(of_outputs(it)),
    "loss_jacobian_covariance": lambda it: jacobian_covariance(of_loss(it)),
    "loss_jacobian_cosine": lambda it: jacobian_cosine(of_loss(it)),
    "head_confidence": head_confidence,
    "softmax_confidence": softmax_confidence,
    "lpzero_bert": lpzero_bert,
    "activation_distance": activation_distance,
    "naswot": naswot,
    "zico": zico,
}


@pytest.mark.parametrize("family", FORWARD)
@pytest.mark.parametrize("name", TWINS)
def test_a_proxy_is_its_twin(name: str, family: str) -> None:
    it = seen(family)
    assert it.value(name) == pytest.approx((TWINS[name](it),), rel=1e-6)


@pytest.mark.parametrize("family", FORWARD)
@pytest.mark.parametrize("name", ["v_pca", "w_pca"])
def test_components_are_those_of_the_output(name: str, family: str) -> None:
    """With enough tokens for the widest matrix; else it is left out."""
    it = seen(family, 32)
    expected = v_pca(it) * (it.network.params if name == "w_pca" else 1)
    assert it.value(name) == (expected,)
    few = compute(it.network, [find_proxy(name)], batch_for(it.network, 4, 1), Protocol(parts=1))[name]
    assert not few.value
    assert "4 tokens are too few" in few.left_out


def test_components_count_the_tokens_of_each_layer() -> None:
    """Stages of a PiT have fewer tokens each: 2 images are enough for the first FFNs, not for the last."""
    space = make_space("pit", classes=7)
    network = build(space.read({"base_dim": 16, "mlp_ratio": 2, "depth": [1, 1, 1], "num_heads": [1, 2, 4]}))
    found = compute(network, [find_proxy("v_pca")], batch_for(network, 2), Protocol(parts=1))["v_pca"]
    assert "100 tokens are too few" in found.left_out


@pytest.mark.parametrize("samples", [12, 64, 68, 132])
@pytest.mark.parametrize("family", ["transformer_xl", "llama"])
def test_codes_of_many_samples(family: str, samples: int) -> None:
    """In one word, exactly one, and several."""
    it = seen(family, samples)
    assert it.value("swap") == (swap(it),)
    assert it.value("naswot") == pytest.approx((naswot(it),), rel=1e-9)


def test_too_few_samples_make_all_patterns() -> None:
    network = made("stock gpt2")
    for name in ("swap", "l_swag"):
        found = compute(network, [find_proxy(name)], batch_for(network), Protocol(parts=2))[name]
        assert found.left_out == "8 samples make 256 patterns, too few for 3456 units"


@pytest.mark.parametrize("family", ["transformer_xl", "llama", "bert"])
def test_l_swag(family: str) -> None:
    """Lambda and Psi of every interval of layers, from columns and gradients of micro-batches."""
    it = seen(family, 16)
    row = it.value("l_swag")
    depth = len(it.network.layers)
    inverse, sigma = row[:depth], row[depth : 2 * depth]
    fresh = np.reshape(row[2 * depth :], (depth + 1, depth))
    patterns = columns(it)
    assert len(patterns) == depth
    for layer in range(depth):
        own = [linear for linear in it.network.linears if linear.layer == layer]
        sd = torch.cat(
            [torch.stack([g[x].abs() for g in it.parts]).std(0, correction=0).flatten() for x in own]
        )
        sd = sd[sd > 0]
        assert inverse[layer] == pytest.approx(math.log(float((1 / sd).sum())), rel=1e-6)
        assert sigma[layer] == pytest.approx(float(sd.log().mean()), rel=1e-6)
        for last in range(layer, depth):
            different = set().union(*patterns[layer : last + 1])
            assert fresh[: layer + 1, layer : last + 1].sum() == len(different)
    (score,), (everywhere,) = find_proxy("l_swag").scores([row]).values()
    assert everywhere == pytest.approx(sum(inverse) * len(set().union(*patterns)))
    chosen = [layers for f in range(depth) for layers in [range(f, j + 1) for j in range(f, depth)]]
    psi = [
        sum(inverse[layers[0] : layers[-1] + 1]) * len(set().union(*(patterns[x] for x in layers)))
        for layers in chosen
    ]
    assert any(score == pytest.approx(each) for each in psi)


def test_az_nas_from_its_statistics() -> None:
    it = seen("llama")
    transfer = Passes(it.network, it.batch, Protocol(parts=PARTS), ["transfer"]).transfer
    expressive, progressive, trainable, complexity = it.value("az_nas")
    entropies, gains = np.array(transfer.entropies), np.array(transfer.gains, np.float64)
    assert expressive == pytest.approx(entropies.sum())
    assert progressive == pytest.approx(np.diff(entropies).min())
    assert trainable == pytest.approx(np.mean(-gains - 1 / (gains + 1e-6) + 2))
    assert trainable <= 0
    assert complexity == az_complexity(it)


@pytest.mark.parametrize("family", ["llama", "stock gpt2", "bert"])
def test_faithful_choices(family: str) -> None:
    """Without dropout, faithful mode differs by documented choices alone."""
    network = made(family, wide=True, random=0.1)
    for part in network.module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    network = network.with_attention_fused()  # released code goes by modules
    batch = batch_for(network)
    names = ["activation_distance", "softmax_confidence", "fisher", "head_confidence", "synaptic_saliency"]
    names += ["zico", "head_importance", "synaptic_diversity"]
    found = compute(network, [find_proxy(n) for n in names], batch, Protocol("faithful", parts=PARTS))
    full, grads = record(network, batch), by_weights(network, batch)
    linears, decoder = network.linears, network.task == "next"
    weights = {each: each.matrix(each.parameter.detach()) for each in linears}
    salient = {each: float((weights[each] * grads[each]).abs().sum()) for each in linears}
    chosen = {role: [x for x in linears if decoder or x.role == role] for role in ("attention", "ffn")}
    first = [(full.outputs[x][0] > 0).double() for x in linears if x.activated]
    by_outputs = zip(linears, full.gradients([full.outputs[x] for x in linears]), strict=True)
    expected = {
        "activation_distance": sum(float((x @ x.T + (1 - x) @ (1 - x).T).sum()) for x in first),
        "softmax_confidence": sum(p.max(1).values.mean().item() for p in full.probabilities),
        "fisher": sum(
            (full.outputs[x] * g).square().flatten(0, 1).mean(0).sum().item()
            / 2
            * weights[x].shape[0 if decoder else 1]
            for x, g in by_outputs
        ),
        "head_confidence": sum(
            full.outputs[x].max(1).values.mean().item()
            for x in chosen["attention"]
            if decoder or x.name != "o"
        ),
        "synaptic_saliency": sum(salient[x] for x in chosen["ffn"]),
        "synaptic_diversity": sum(nuclear(weights[x]) * nuclear(grads[x]) for x in chosen["attention"]),
        "head_importance": sum(salient[x] for x in linears if decoder and weights[x].shape[1] >= 128),
        "zico": 0.0,
    }
    sums: dict[Linear, list[Tensor]] = {x: [] for x in linears}
    for micro in batch.micro(PARTS):
        for x, g in by_weights(network, micro).items():
            sums[x].append(g + sums[x][-1] if sums[x] else g)
    for each in sums.values():
        g = torch.stack(each)
        sd = g.std(0, correction=0)
        expected["zico"] += math.log(float((g.abs().mean(0)[sd > 0] / sd[sd > 0]).sum()))
    for name in names:
        assert found[name].value == pytest.approx((expected[name],), rel=1e-6), name


def everything(network: Network, batch: Batch, protocol: Protocol) -> dict[str, tuple[float, ...]]:
    chosen = [find_proxy(name) for name in proxy_names()]
    return {name: one.value for name, one in compute(network, chosen, batch, protocol).items()}


def test_the_seed_draws_what_is_random() -> None:
    network = made("llama")
    batch = batch_for(network)
    one, other = (everything(network, batch, Protocol(parts=2, seed=seed)) for seed in (0, 1))
    assert {name for name in one if one[name] != other[name]} == {"az_nas"}
    network = made("gpt2-uniform")
    one, other = (everything(network, batch, Protocol("faithful", parts=2, seed=seed)) for seed in (0, 1))
    assert one["snip"] != other["snip"], "dropout"


@pytest.mark.parametrize("family", MADE)
@pytest.mark.parametrize("mode", ["sane", "faithful"])
def test_every_proxy_of_every_family(family: str, mode: Any) -> None:
    """It gives finite numbers, or says in a line why not."""
    network = made(family)
    image = network.task == "image"
    upstream: Any = "ones" if mode == "faithful" and network.task == "masked" else "task"
    batch = batch_for(network, 2 if image else 16)
    found = compute(network, [find_proxy(n) for n in proxy_names()], batch, Protocol(mode, upstream, parts=2))
    for name, one in found.items():
        assert bool(one.value) != bool(one.left_out), name
        assert all(map(math.isfinite, one.value)), name
        assert one.seconds >= 0
        assert "\n" not in (one.left_out or "")
        if one.value:
            scores = find_proxy(name).scores([one.value] * 3)
            assert all(len(column) == 3 for column in scores.values())
            assert all(math.isfinite(x) for column in scores.values() for x in column)
    assert {name for name, one in found.items() if one.left_out} <= {"swap", "l_swag", "v_pca", "w_pca"}


@pytest.mark.parametrize(
    ("name", "samples", "parts", "reason"),
    [
        ("zico", 4, 1, "it compares micro-batches: there must be two at least"),
        ("l_swag", 4, 1, "it compares micro-batches: there must be two at least"),
        ("jacobian_cosine", 1, 1, "it compares samples: the batch must have two at least"),
        ("jacobian_covariance", 1, 1, "it compares samples: the batch must have two at least"),
    ],
)
def test_too_little_to_compare(name: str, samples: int, parts: int, reason: str) -> None:
    network = made("llama")
    found = compute(network, [find_proxy(name)], batch_for(network, samples), Protocol(parts=parts))[name]
    assert (found.value, found.left_out) == ((), reason)
    assert issubclass(LeftOut, ValueError)
