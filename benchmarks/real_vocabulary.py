"""COMPACT with its vocabulary: tokens that a text never needs are dropped, then neurons by the others."""

from __future__ import annotations

from typing import Any, Final

import torch
from real_judging import identity
from real_models import Parent, Sizes, text_file
from real_peers import width_cut

from zerolm.architecture import Floats, Ints
from zerolm.carving.vocabulary.byte_losses import TokenLosses, stretches_of
from zerolm.carving.vocabulary.text_use import use_of
from zerolm.networks.blocks import Blocks
from zerolm.networks.compute import compute_of, computed
from zerolm.networks.mapped import in_memory
from zerolm.networks.opener import open_model
from zerolm.networks.roles import layer_list, layer_of, places_of
from zerolm.networks.stream import Stream
from zerolm.passes.walk import writers
from zerolm.progress import silent
from zerolm.units.importance.peers import CommonActivations
from zerolm.units.pruning import apply_in_memory

VOCABULARY: Final = "compact vocabulary"
STRETCHES, LENGTH = 16, 512
CHARACTERS: Final = 4
"""Characters that a token has, about."""


def vocabulary_row(parent: Parent, share: float, text: str) -> dict[str, Any]:
    """Return bits a byte of a text, of the parent and of a child with this share of all parameters.

    Tokens that the calibration text does not need are dropped first; where that is not enough, all FFNs get
    the width that is. Calibration tokens that were dropped weigh nothing.
    """
    sizes, table = Sizes.of(parent), parent.model.get_input_embeddings().weight
    use = use_of(parent.checkpoint, str(text_file(text, "cal")), progress=silent).whole
    kept = use.kept(use.used)
    tied = parent.checkpoint.layout.tied
    saved = (table.shape[0] - len(kept)) * table.shape[1] * (1 if tied else 2)
    width = min(parent.sizes.ffn, sizes.width(parent, (1.0 - share) * sizes.params - saved))
    if width < 1:
        raise ValueError(f"{parent.name}: no width leaves {share:.0%} of all parameters")
    cut = width_cut(parent, width, compact_scores(parent, text, kept))
    model = open_model(parent.checkpoint)
    child = computed(apply_in_memory(model, cut), compute_of(parent.model))
    parts = tuple(stretches_of(str(text_file(text, "unseen")), STRETCHES, CHARACTERS * LENGTH))
    theirs = TokenLosses(parent.checkpoint, computed(model, compute_of(parent.model)), parts, LENGTH)
    ours = TokenLosses(parent.checkpoint, child, parts, LENGTH)
    gone = saved + (parent.sizes.ffn - width) * sizes.neuron
    return {
        "bits": ours.bits(kept),
        "parent_bits": theirs.bits(None),
        "tokens": len(kept),
        "width": width,
        "params": sizes.params - gone,
        "body": sizes.body - (parent.sizes.ffn - width) * sizes.neuron,
        "bytes": ours.bytes,
        "dtype": parent.dtype,
        "text": identity(parent.unseen(text)),
    }


def compact_scores(parent: Parent, text: str, kept: Ints) -> list[Floats]:
    """Return COMPACT's scores of the neurons of all layers, (f,) each, by tokens that are kept."""
    tokens, stays = parent.calibration(text), torch.zeros(parent.checkpoint.layout.vocab)
    stays[torch.from_numpy(kept)] = 1.0
    stream, scores = Stream(Blocks(parent.model, tokens.batches(4))), list[Floats]()
    for number in range(parent.sizes.depth):
        layer = layer_of(places_of(parent.model), in_memory(layer_list(parent.model)[number]).float())
        compact = CommonActivations(parent.sizes, layer)
        for index, _, seen in stream.through(number, writers):
            counted = stays[stream.blocks.batches[index]["input_ids"]].flatten()
            compact.add({role: seen.inputs[role].flatten(0, 1) for role in layer.writers}, {}, counted)
        scores.append(compact.importance()["down"])
    return scores
