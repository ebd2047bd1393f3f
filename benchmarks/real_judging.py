"""Children of a parent judged together on an unseen text, with one set of the parent's predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from real_models import Parent
from real_peers import PeerCut, PeerNetwork
from torch import Tensor

from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.networks.blocks import Blocks
from zerolm.networks.stream import Stream
from zerolm.passes.divergence import kl, surprises
from zerolm.text.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Ran:
    """A network that has run: states behind its last layer, (b, t, d) of each batch, and what ends it.

    ``end`` takes the number of a batch and states (b, n, d) of some of its tokens.
    """

    blocks: Blocks
    states: Sequence[Tensor]
    end: Callable[[int, Tensor], Any]


Network = Callable[[Tokens], Ran]
BATCH: Final = {True: 4, False: 32}
"""Sequences at a time, of decoders and of encoders."""
EVERY: Final = 2
"""Predictions of one in so many positions are compared; all positions run."""
AT_ONCE: Final = 32
"""Columns of a batch whose logits are made at a time."""
NEAREST: Final = 10


def whole(parent: Parent) -> Network:
    """Return the parent itself, which runs once on the same tokens."""

    def run(tokens: Tokens) -> Ran:
        blocks = Blocks(parent.model, tokens.batches(BATCH[parent.is_decoder]))
        cache = ArrayCache.of("real states", parent.name, parent.dtype, parent.sizes, tokens.digest())
        states = cache.get("states")
        if states is None:
            last = Stream(blocks).before(parent.sizes.depth)
            states = {str(index): each.numpy() for index, each in enumerate(last)}
            cache.put("states", states)
        return Ran(blocks, [torch.from_numpy(states[str(i)]) for i in range(len(states))], blocks.finish)

    return run


def written(parent: Parent, checkpoint: Checkpoint) -> Network:
    """Return a child of the same vocabulary that was written to a folder."""

    def run(tokens: Tokens) -> Ran:
        blocks = Blocks(parent.opened(checkpoint), tokens.batches(BATCH[parent.is_decoder]))
        return Ran(blocks, Stream(blocks).before(checkpoint.layout.depth), blocks.finish)

    return run


def of_peer(parent: Parent, cut: PeerCut) -> Network:
    """Return a cut of the parent in memory."""

    def run(tokens: Tokens) -> Ran:
        blocks = Blocks(parent.model, tokens.batches(BATCH[parent.is_decoder]))
        network = PeerNetwork(blocks, cut)
        return Ran(blocks, network.states(), network.finish)

    return run


def judged(parent: Parent, tokens: Tokens, children: Sequence[Network]) -> list[dict[str, Any]]:
    """Return what children lose on unseen tokens, with the parent's own figures.

    Decoders: ``kl`` in nats a token, ``perplexity`` and ``parent``. Encoders: ``distance`` (1 - cosine) and
    ``nearest``, the mean share of the ten nearest sentences that are the parent's. ``text`` identifies the
    tokens.
    """
    with torch.no_grad():
        networks = [whole(parent)(tokens), *(child(tokens) for child in children)]
        rows = _predicted(networks) if parent.is_decoder else _embedded(parent, networks)
        return [{**row, "text": identity(tokens)} for row in rows]


def identity(tokens: Tokens) -> str:
    """Return what tells a text from others: other releases of manuals make other texts."""
    return tokens.digest()[:16]


def is_of(row: dict[str, Any] | None, tokens: Tokens) -> bool:
    """Return whether a row was judged on these tokens."""
    return row is not None and row.get("text") == identity(tokens)


def _predicted(networks: Sequence[Ran]) -> list[dict[str, float]]:
    sums, count = np.zeros((len(networks), 2)), 0
    for index, batch in enumerate(networks[0].blocks.batches):
        ids = batch["input_ids"]
        for columns in torch.split(torch.arange(0, ids.shape[1] - 1, EVERY), AT_ONCE):
            wanted = ids[:, columns + 1]
            count += wanted.numel()
            theirs: Tensor | None = None
            for place, one in enumerate(networks):
                logits = one.end(index, one.states[index][:, columns]).logits
                theirs = logits if theirs is None else theirs
                nats = surprises(logits, wanted), kl(theirs, logits)
                sums[place] += [float(each.double().sum()) for each in nats]
    means = sums / count
    parent = float(np.exp(means[0, 0]))
    return [
        {"kl": float(apart), "perplexity": float(np.exp(nll)), "parent": parent, "positions": count}
        for nll, apart in means[1:]
    ]


def surprise(parent: Parent, tokens: Tokens, cut: PeerCut) -> float:
    """Return the mean negative log-likelihood of a cut on tokens, in nats."""
    with torch.no_grad():
        one = of_peer(parent, cut)(tokens)
        ids = one.blocks.batches[0]["input_ids"]
        logits = one.end(0, one.states[0][:, :-1]).logits.float()
        wanted = logits.gather(-1, ids[:, 1:, None])[..., 0]
        return float((logits.logsumexp(-1) - wanted).double().mean())


def _embedded(parent: Parent, networks: Sequence[Ran]) -> list[dict[str, float]]:
    embeddings = []
    for one in networks:
        parts = [
            parent.pooling(one.end(index, each).last_hidden_state, one.blocks.tokens(index))
            for index, each in enumerate(one.states)
        ]
        every = torch.cat(parts).double()
        embeddings.append(every / every.norm(dim=1, keepdim=True))
    theirs = _nearest(embeddings[0])
    rows = []
    for ours in embeddings[1:]:
        distance = float((ours - embeddings[0]).square().sum(1).mean() / 2)
        same = (_nearest(ours)[:, :, None] == theirs[:, None, :]).any(2)
        rows.append({"distance": distance, "nearest": float(same.double().mean())})
    return rows


def _nearest(embedding: Tensor) -> Tensor:
    """Return the nearest others of each, (n, 10), of embeddings (n, d) of length 1."""
    similar = embedding @ embedding.T
    similar.fill_diagonal_(-2.0)
    return similar.topk(NEAREST, dim=1).indices
