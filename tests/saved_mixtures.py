"""Tiny mixtures on the disk, biases of their routers among what is random."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_families import random_model
from transformers import AutoModelForCausalLM

from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.experts.masked_parent import masked
from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import open_model
from zerolm.networks.roles import layer_list


def mixture(folder: Path, kind: str, dtype: str = "float32", **changes: Any) -> Path:
    """Return the folder with a tiny mixture; what routers add to choose by alone is random as well."""
    network, generator = random_model(kind, dtype, **changes), torch.Generator().manual_seed(1)
    for name, buffer in network.named_buffers():
        if name.endswith("bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.3)
    network.save_pretrained(folder)
    return folder


@torch.no_grad()
def louder(folder: Path) -> Path:
    """Return the folder of a mixture with experts that matter: they send 30 times as much."""
    network = open_model(Checkpoint.open(folder))
    for name, weight in network.named_parameters():
        if name.endswith("down_proj"):
            weight.mul_(30.0)
    network.save_pretrained(folder)
    return folder


@torch.no_grad()
def experts_called(folder: Path, ids: torch.Tensor) -> dict[int, tuple[Any, ...]]:
    """Return by layer the stock class's module of experts, and what it is called with for these tokens."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    seen: dict[int, tuple[Any, ...]] = {}
    for name, module in model.named_modules():
        if name.endswith(".experts") and hasattr(module, "down_proj"):
            layer = int(name.split("layers.")[1].split(".")[0])
            module.register_forward_pre_hook(lambda m, a, layer=layer: seen.update({layer: (m, *a)}))
    model(input_ids=ids, use_cache=False)
    return seen


def kept_in(child: Path) -> dict[int, np.ndarray[Any, Any]]:
    """Return the experts that stay by layer, as the recipe says."""
    recipe = json.loads((child / "recipe.json").read_text())
    return {row["layer"]: np.array(row["kept"]) for row in recipe["experts"]}


@torch.no_grad()
def logits_of_stock(folder: Path, ids: torch.Tensor, kept: dict[int, Any] | None = None) -> torch.Tensor:
    """Return the output of the stock class; with ``kept`` its routers cannot choose other experts."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    modules = {layer: layer_list(model)[layer] for layer in kept or {}}
    with masked(modules, FewerExperts(Checkpoint.open(folder), kept or {})):
        return model(input_ids=ids, use_cache=False).logits


@torch.no_grad()
def sums_by_hooks(folder: Path, ids: torch.Tensor) -> dict[int, dict[str, Any]]:
    """Return the sums of ``expert_use`` by layer, of all tokens at once, in the stock model with hooks.

    Those of neurons are the squared lengths of what each adds, vector by vector.
    """
    sums = {}
    for layer, (experts, x, index, gates) in experts_called(folder, ids).items():
        norms, neurons = [], []
        for expert, (up, down) in enumerate(zip(experts.gate_up_proj, experts.down_proj, strict=True)):
            if hasattr(experts, "gate_up_proj_bias"):
                h = experts._apply_gate(x @ up + experts.gate_up_proj_bias[expert])
                columns, bias = down, experts.down_proj_bias[expert]
            else:
                gate, rest = (x @ up.T).chunk(2, -1)
                h, columns, bias = experts.act_fn(gate) * rest, down.T, 0.0
            norms.append((h @ columns + bias).norm(dim=-1).double())
            g = (gates * (index == expert)).sum(1)
            added = g[:, None, None] * h[:, :, None] * columns  # (t, m, d)
            neurons.append(added.double().square().sum((0, 2)))
        by_token = torch.stack(norms, 1)  # (t, e)
        g = torch.zeros_like(by_token).scatter(1, index, gates.double())
        met = torch.zeros_like(by_token).scatter(1, index, 1.0)
        s, sent = g / g.sum(1, keepdim=True), g * by_token
        sums[layer] = {
            "count": met.sum(0), "gate": g.sum(0), "share_norm": (s * by_token).sum(0),
            "product": sent.T @ sent, "neurons": torch.stack(neurons),
        }  # fmt: skip
    return sums
