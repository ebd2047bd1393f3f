"""What another package would keep."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from transformers import PreTrainedModel

from zerolm.networks.roles import layers_of
from zerolm.units.importance.criterion import Additive
from zerolm.units.pruning import dimensions_of


def group_magnitude(model: PreTrainedModel) -> Additive:
    """Neurons by the group magnitude of Torch-Pruning as it comes (L2 norms, averaged over its group).

    It does not say what KV groups are worth: all are, the same. ``ImportError`` where it is not installed.
    """
    import torch_pruning  # type: ignore[import-not-found]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of norms, which no FFN width touches
        graph = torch_pruning.DependencyGraph().build_dependency(
            model,
            example_inputs={"input_ids": torch.arange(8)[None], "use_cache": False},
            output_transform=lambda out: out[0].sum(),
        )
    importance, ffn = torch_pruning.importance.GroupMagnitudeImportance(), []
    for layer in layers_of(model):
        units = list(range(dimensions_of(model).ffn))
        group = graph.get_pruning_group(layer.ffn_in[-1], torch_pruning.prune_linear_out_channels, idxs=units)
        ffn.append(importance(group).double().numpy())
    groups = [np.ones(dimensions_of(model).kv_heads) for _ in ffn]
    return Additive({"groups": groups, "ffn": ffn})
