"""Published ways to prune, as cuts: units by scores of one forward pass, or layers; nothing is refitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from real_models import Parent, Sizes
from torch import Tensor

import zerolm
from zerolm.architecture import Floats, Ints
from zerolm.checkpoints import ledger_of
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.mapped import in_memory
from zerolm.networks.roles import StockLayer, bias, layer_list, layer_of, matrix, norm_gain, places_of
from zerolm.networks.stream import Stream
from zerolm.passes.walk import input_norms, normalised, writers
from zerolm.units.importance.activations import OfSequences
from zerolm.units.importance.criteria import CRITERIA, criterion_of
from zerolm.units.importance.peers import Flap
from zerolm.units.kept_units import Cut, best
from zerolm.units.pruning import CarvedNetwork
from zerolm.units.stream.narrowing import Basis, Width, energies

BY_WEIGHTS: Final = ("capacity", "max_weight", "random")
BY_TOKENS: Final = ("flap", "two_ssp", "compact", "minitron", "amp", "output_energy")
FLAP: Final = "flap adaptive"
TWO_SSP: Final = "two_ssp attention"
PCA: Final = "pca"
SHORT: Final = "shortgpt"
METHODS: Final[Mapping[str, str]] = {
    "capacity": "magnitude: group norm, as Torch-Pruning's default (2301.12900)",
    "max_weight": "max-weight (2512.22671)",
    "random": "random",
    "flap": "FLAP's score alone (2312.11983)",
    FLAP: "FLAP: sizes by layer, with its bias",
    "two_ssp": "2SSP, neurons alone (2501.17771)",
    TWO_SSP: "2SSP with attention sublayers",
    "compact": "COMPACT (2509.06836)",
    "minitron": "Minitron's activations (2407.14679)",
    "amp": "AMP (2504.21174)",
    "output_energy": "output energy (ours, before `surgeon`)",
    PCA: "hidden size by PCA, one basis (as SliceGPT, 2401.15024)",
    SHORT: "ShortGPT: whole layers (2403.03853)",
}
"""The methods in the order of the page."""
GREEDY: Final = 512
"""Tokens that choose attention sublayers to remove."""


@dataclass(frozen=True, eq=False)
class PeerCut:
    """A cut, what is added to the outputs of FFNs by layer (d,), and layers without attention."""

    cut: Cut
    biases: Mapping[int, Tensor] = field(default_factory=dict)
    without_attention: frozenset[int] = frozenset()


class PeerNetwork(CarvedNetwork):
    """The network of a ``PeerCut``."""

    def __init__(self, blocks: Blocks, peer: PeerCut) -> None:
        super().__init__(blocks, peer.cut)
        self.peer = peer

    def layer(self, number: int) -> StockLayer:
        """Return a kept layer as this cut leaves it."""
        layer = super().layer(number)
        with torch.no_grad():
            if number in self.peer.biases:
                down: Any = layer.writers["down"]
                added = self.peer.biases[number].float()
                before = bias(down)
                down.bias = torch.nn.Parameter(added if before is None else before + added, False)
            if number in self.peer.without_attention:
                for parameter in layer.writers["o"].parameters():
                    parameter.zero_()
        return layer


@dataclass(frozen=True, eq=False)
class Scores:
    """What one pass yields: ``ffn[method][layer]`` (f,), mean inputs of ``down`` (f,), block influences.

    ``energy`` and ``last`` (d, d) are second moments of what norms read, of all and of the last, where the
    stream can be narrowed.
    """

    ffn: Mapping[str, list[Floats]]
    means: list[Floats]
    influence: Floats
    energy: Floats | None = None
    last: Floats | None = None


def scores_of(parent: Parent, text: str) -> Scores:
    """Return the scores of all methods by tokens of a text, from one pass, layer after layer."""
    tokens = parent.calibration(text)
    cache = ArrayCache.of(
        "real peers", parent.name, parent.dtype, tokens.digest(), BY_TOKENS, zerolm.__version__
    )
    stream, rows = Stream(Blocks(parent.model, tokens.batches(4))), list[Arrays]()
    for number in range(parent.sizes.depth):
        row = cache.get(f"layer-{number}")
        if row is None:
            row = _layer_scores(parent, stream, number)
            cache.put(f"layer-{number}", row)
        rows.append(row)
    ffn = {name: [row[name] for row in rows] for name in BY_TOKENS}
    influence = np.array([float(row["influence"]) for row in rows])
    means = [row["means"] for row in rows]
    if not narrows(parent):
        return Scores(ffn, means, influence)
    energy = np.sum([row["energy"] for row in rows], axis=0, dtype=np.float64)
    return Scores(ffn, means, influence, energy, rows[-1]["last"].astype(np.float64))


def narrows(parent: Parent) -> bool:
    """Return whether the stream of a parent can be narrowed."""
    return parent.is_decoder and parent.checkpoint.family.cut.hidden


def _layer_scores(parent: Parent, stream: Stream, number: int) -> Arrays:
    stream.before(number)
    stored = layer_list(parent.model)[number]
    layer = layer_of(places_of(parent.model), in_memory(stored).float())
    statistics = {name: CRITERIA[name](parent.sizes, layer) for name in BY_TOKENS}
    cosines, moments = [], {name: np.zeros(2 * [parent.sizes.hidden]) for name in ("energy", "last")}
    for index, hidden, seen in stream.through(
        number, lambda layer: {**(input_norms(layer) if narrows(parent) else {}), **writers(layer)}
    ):
        mask = stream.blocks.tokens(index)
        inputs = {role: seen.inputs[role][mask].float() for role in layer.writers}
        weights = hidden[mask].float().square().mean(-1).reciprocal()
        lengths = mask.sum(1).tolist()
        for each in statistics.values():
            parts = lengths if isinstance(each, OfSequences) else [len(weights)]
            split = [torch.split(tokens, parts) for tokens in inputs.values()]
            for *part, behind in zip(*split, torch.split(weights, parts), strict=True):
                each.add(dict(zip(inputs, part, strict=True)), dict.fromkeys(inputs, behind))
        after = stream.hidden[index]
        if narrows(parent):
            moments["energy"] += sum(_moments(seen.inputs[norm]) for norm in ("attention_norm", "ffn_norm"))
            moments["last"] += _moments(after)
        cosines.append(torch.cosine_similarity(hidden[mask].double(), after[mask].double(), dim=-1))
    flap = statistics["flap"]
    assert isinstance(flap, Flap)
    row = {name: each.importance()["down"] for name, each in statistics.items()}
    row["means"] = (flap.sums["down"] / flap.count).numpy()
    row["influence"] = np.array(1.0 - float(torch.cat(cosines).mean()))
    if narrows(parent):
        row["energy"] = moments["energy"].astype(np.float32)
        if number == parent.sizes.depth - 1:
            row["last"] = moments["last"].astype(np.float32)
    return row


def _moments(stream: Tensor) -> Floats:
    """Return second moments (d, d) of the normalised stream (b, t, d), summed over tokens."""
    tokens = normalised(stream.float()).flatten(0, 1)
    moments: Floats = (tokens.T @ tokens).double().numpy()
    return moments


def peer_cut(parent: Parent, method: str, fewer: float, scores: Scores) -> PeerCut:
    """Return the cut by a method that leaves out so many parameters of the layers."""
    sizes, whole = Sizes.of(parent), parent.sizes
    layers, width = range(whole.depth), sizes.width(parent, fewer)
    if method == SHORT:
        gone = round(fewer / (sizes.body / whole.depth))
        kept = sorted(np.argsort(-scores.influence, kind="stable")[: whole.depth - gone].tolist())
        return PeerCut(Cut.of(whole, kept, lambda layer: (whole.kv_heads, whole.ffn)))
    if method == PCA:
        return PeerCut(_narrower(parent, 1.0 - fewer / sizes.body, scores))
    if method == TWO_SSP:
        return _two_ssp(parent, fewer, sizes, scores)
    if method == FLAP:
        return _flap(parent, width, scores)
    if method in BY_WEIGHTS:
        choose = criterion_of(method, parent.checkpoint, ledger_of(parent.checkpoint)).choose
        return PeerCut(Cut.of(whole, layers, lambda layer: (whole.kv_heads, width), choose))
    return PeerCut(width_cut(parent, width, scores.ffn[method]))


def width_cut(parent: Parent, width: int, ffn: list[Floats]) -> Cut:
    """Return the cut of all FFNs to a width, by the scores of their neurons (f,)."""
    whole = parent.sizes

    def choose(layer: int, kind: str, count: int) -> Ints:
        return best(ffn[layer], count) if kind == "ffn" else np.arange(count)

    return Cut.of(whole, range(whole.depth), lambda layer: (whole.kv_heads, width), choose)


def _narrower(parent: Parent, share: float, scores: Scores) -> Cut:
    """Return the cut to the first principal components of the stream, with a head of its own.

    SliceGPT has another basis for each sublayer; this one has one for all.
    """
    assert scores.energy is not None
    assert scores.last is not None
    gain = norm_gain(parent.model, "final_norm", None).double().numpy()
    vectors = np.linalg.eigh(scores.energy)[1][:, ::-1].copy()
    last = scores.last / np.trace(scores.last)
    basis = Basis("pca", vectors, energies(vectors, scores.energy), last, gain)
    width = Width(round(share * parent.sizes.hidden), tied=False)
    return replace(Cut.whole(parent.sizes), narrowing=basis.narrowing(width))


def _flap(parent: Parent, width: int, scores: Scores) -> PeerCut:
    """Return FLAP's cut: scores standardised in each layer choose widths; means of what goes are a bias."""
    whole, ffn = parent.sizes, scores.ffn["flap"]
    every = np.concatenate([(one - one.mean()) / one.std(ddof=1) for one in ffn])
    kept = best(every, width * whole.depth)
    widths = [max(1, int((kept // whole.ffn == layer).sum())) for layer in range(whole.depth)]
    cut = Cut.of(
        whole,
        range(whole.depth),
        lambda layer: (whole.kv_heads, widths[layer]),
        lambda layer, kind, count: best(ffn[layer], count) if kind == "ffn" else np.arange(count),
    )
    biases = {}
    for layer in cut.layers:
        mean = torch.from_numpy(scores.means[layer.layer]).clone()
        mean[torch.from_numpy(layer["ffn"])] = 0.0
        down = matrix(Blocks(parent.model, []).layer(layer.layer).writers["down"])
        biases[layer.layer] = (down.double() @ mean).float()
    return PeerCut(cut, biases)


def _two_ssp(parent: Parent, fewer: float, sizes: Sizes, scores: Scores) -> PeerCut:
    """Return 2SSP's cut: neurons, then whole attention sublayers, greedily by perplexity on one window.

    round(L s^(FFN / attention / 1.5)) sublayers of L go, where s is the share of parameters that goes.
    """
    depth = parent.sizes.depth
    ratio = sizes.neuron * parent.sizes.ffn / depth / sizes.attention
    count = round(depth * (fewer / sizes.body) ** (ratio / 1.5))
    width = sizes.width(parent, fewer - count * sizes.attention)
    chosen = PeerCut(width_cut(parent, width, scores.ffn["two_ssp"]))
    if not count:
        return chosen
    from real_judging import surprise

    tokens = parent.calibration("python").rows([0])
    for _ in range(count):
        tried = [
            replace(chosen, without_attention=chosen.without_attention | {layer})
            for layer in range(depth)
            if layer not in chosen.without_attention
        ]
        chosen = min(tried, key=lambda one: surprise(parent, tokens, one))
    return chosen


def params_of(parent: Parent, cut: PeerCut) -> tuple[int, int]:
    """Return the parameters of a cut, of all and of its layers."""
    sizes, whole = Sizes.of(parent), parent.sizes
    if cut.cut.narrowing:
        body = round(sizes.body * cut.cut.hidden / whole.hidden)
        return body + 2 * parent.checkpoint.layout.vocab * cut.cut.hidden, body
    gone = (whole.depth - len(cut.cut.layers)) * (sizes.body / whole.depth)
    gone += sum(whole.ffn - len(layer["ffn"]) for layer in cut.cut.layers) * sizes.neuron / whole.depth
    gone += len(cut.without_attention) * sizes.attention
    return round(sizes.params - gone), round(sizes.body - gone)
