"""The proof that a parent's stream can be rotated: gains, factors and norms are folded correctly.

A narrower child has no reference with the same outputs. But the parent with its stream reflected, at full
width, has one: any folding error shows there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.children.verify import ROUNDED, distance_of, outputs
from zerolm.networks.blocks import Blocks
from zerolm.networks.mapped import in_memory
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import layer_list
from zerolm.text.calibration import page_tokens
from zerolm.units.stream.in_memory import entered, maps_of, narrow_layer, narrow_output
from zerolm.units.stream.narrowing import Narrowing


def reflection(width: int) -> Narrowing:
    """Return a narrowing that reflects the stream at a random plane and keeps all directions."""
    normal = np.random.default_rng(0).standard_normal(width)
    normal /= np.linalg.norm(normal)
    basis = np.eye(width) - 2 * np.outer(normal, normal)
    return Narrowing("reflection", basis, 1.0, basis, basis, None, 1.0)


def check_rotation(parent: Checkpoint) -> None:
    """Raise ``ValueError`` where the first layers of each kind have other outputs when reflected."""
    model, ids, kinds = mapped_model(parent), page_tokens(parent), parent.layout.kinds
    firsts = sorted(kinds.index(kind) for kind in set(kinds))
    reflected = _output(model, ids, firsts, reflection(parent.layout.hidden))
    proof = distance_of(reflected, _output(model, ids, firsts, None))
    if not proof.relative <= ROUNDED:
        raise ValueError(
            "the hidden size of this parent cannot be reduced: with its stream only reflected, the output "
            f"differs by {proof.difference:.3g} ({proof.relative:.2g} of the largest); keep it"
        )


@torch.no_grad()
def _output(
    model: PreTrainedModel, ids: Tensor, layers: Sequence[int], narrowing: Narrowing | None
) -> Tensor:
    """Return the output of some layers for ids (b, t), in float32, one layer in memory at a time."""
    blocks = Blocks(model, [{"input_ids": ids}])
    hidden = blocks.embed(0)
    if narrowing is None:
        for number in layers:
            hidden = blocks.call(0, number, hidden)
        return outputs(blocks.finish(0, hidden))
    maps = maps_of(model, narrowing, {})
    hidden = entered(narrowing, hidden)
    for number in layers:
        module = nn.Module.float(in_memory(layer_list(model)[number]))
        narrow_layer(model, module, number, maps)
        hidden = blocks.call(0, number, hidden, module)
    return outputs(narrow_output(blocks, 0, hidden, maps))
