"""Other ways to spend bytes, for ``bits.py``: cuts alone, healing before types, types of the KV cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.nn import functional

from zerolm.carving.carve import carve
from zerolm.carving.request import Destination
from zerolm.checkpoints import Checkpoint
from zerolm.children.child_tensors import Child
from zerolm.children.gguf.check import OF_THE_FILE, embedding_of, open_encoder
from zerolm.children.gguf.network import network_in
from zerolm.children.gguf.write import write
from zerolm.healing.heal import heal
from zerolm.healing.held_out import HeldOut
from zerolm.healing.request import HealRequest, Texts
from zerolm.networks.opener import open_model
from zerolm.passes.outputs import embeddings
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import silent
from zerolm.settings.setting import CACHE_TYPES

if TYPE_CHECKING:
    from bits import Parent

CACHED: Final = 16
"""Sequences that judge types of the cache, a token at a time."""
FULL: Final = 1
"""The number of float16 among llama.cpp's types, to which its flash attention rounds a cache of float32."""
CACHES: Final = {"q8_0": 8, "q5_1": 7, "q4_0": 2}
KINDS: Final = ("layers", "hidden", "heads", "ffn")


def kl_of(parent: Parent, network: Any) -> float:
    """Return what a network loses beside its parent on unseen text: KL, of an encoder 1 - cosine."""
    reference = open_model(parent.checkpoint)
    tokens = parent.tokens(parent.scale.judged)
    pooling = parent.session.pooling if parent.encodes else None
    values = HeldOut(tokens, pooling).measured(network, reference, silent)[1]
    return 1.0 - values["cosine"] if parent.encodes else values["kl"]


def sent_by(parent: Parent, file: Path) -> float:
    """Return 1 - cosine of what llama.cpp sends of unseen sentences to the embeddings of the parent."""
    tokens = parent.tokens(parent.scale.judged)
    opened = open_encoder(file, tokens.ids.shape[1], pooling_type=OF_THE_FILE)
    reference, pooling, total = open_model(parent.checkpoint), parent.session.pooling, 0.0
    for inputs in tokens.batches(32):
        theirs = embeddings(reference, inputs, pooling)  # (b, d)
        pairs = zip(inputs["input_ids"], inputs["attention_mask"].bool(), strict=True)
        ours = torch.stack([embedding_of(opened, ids[mask].tolist()) for ids, mask in pairs])
        total += float((1.0 - functional.cosine_similarity(ours.double(), theirs.double())).sum())
    opened.close()
    return total / len(tokens)


def cut_alone(parent: Parent, share: float) -> dict[str, Any]:
    """Return what cuts alone lose at this share of the bytes that the parent has at 16 bits."""
    out = parent.work / f"{parent.name}-cut-{share}"
    size = SizeRequest.of(budgets={"max_params": int(share * parent.params)})
    carved = carve(parent.folder, size, parent.methods, Destination(out, "hf", force=True))
    network = open_model(Checkpoint.open(out))
    return {"bytes": 2 * carved.costs["child"]["params"], "kl": kl_of(parent, network)}


def shape_of(parent: Parent, joint: dict[str, Any]) -> dict[str, float]:
    """Return the shares that are kept by a plan of one size for all layers."""
    layout = parent.checkpoint.layout
    kept = joint["layers"], joint["hidden"], joint["kv_heads"][0], joint["ffn"][0]
    whole = layout.depth, layout.hidden, layout.kv_heads, layout.ffn
    return {kind: one / all_ for kind, one, all_ in zip(KINDS, kept, whole, strict=True)}


def healed(parent: Parent, joint: dict[str, Any], budget: int, name: str) -> dict[str, Any]:
    """Return what is lost by the cut of a plan, and with types within these bytes, healed and not.

    ``losses`` are of the cut, the healed cut, the healed with types, and with types what is not healed.
    """
    cut, whole = (parent.work / f"{parent.name}-{name}-{step}" for step in ("cut", "healed"))
    shape = shape_of(parent, joint)
    carve(parent.folder, SizeRequest.of(shape), parent.methods, Destination(cut, "hf", force=True))
    request = HealRequest(Texts((str(parent.seen),)), tokens=parent.scale.healed)
    with torch.enable_grad():
        heal(cut, parent.folder, request, Destination(whole, force=True))
    size = SizeRequest.of(dict.fromkeys(KINDS, 1.0), {"max_weight_bytes": budget})
    losses = [kl_of(parent, open_model(Checkpoint.open(folder))) for folder in (cut, whole)]
    for folder in (whole, cut):
        typed = parent.work / f"{folder.name}-types"
        result = carve(folder, size, parent.methods, Destination(typed, "gguf", force=True))
        losses.append(kl_of(parent, network_in(next(typed.glob("*.gguf")), Checkpoint.open(folder))))
    bytes_ = result.costs["child"]["weight_bytes"]
    return {"bytes": bytes_, "joint": joint, "tokens": parent.scale.healed, "losses": losses}


def plain_file(parent: Parent) -> Path:
    """Return the whole parent as a file of float32."""
    file = parent.work / f"{parent.name}-plain.gguf"
    if not file.exists():
        write(Child(parent.checkpoint, parent.weighed.cut), file)
    return file


def cache(parent: Parent, kind: str) -> dict[str, Any]:
    """Return what llama.cpp loses by a type of its KV cache beside one of float16, weights in float32.

    A token at a time: several crash some builds where anything is quantised.
    """
    from llama_cpp import Llama

    ids = parent.tokens(CACHED).ids.tolist()
    options = {"n_ctx": len(ids[0]), "n_batch": 1, "n_threads": 1, "logits_all": True, "verbose": False}
    files = [
        Llama(str(plain_file(parent)), type_k=number, type_v=number, flash_attn=True, **options)
        for number in (FULL, CACHES[kind])
    ]
    total, count = 0.0, 0
    for sequence in ids:
        ours, theirs = (log_probabilities(opened, sequence) for opened in reversed(files))
        total += float((np.exp(theirs) * (theirs - ours)).sum())
        count += len(sequence) - 1
    return {"bits": CACHE_TYPES[kind], "kl": total / count}


def log_probabilities(opened: Any, sequence: list[int]) -> Any:
    """Return the logarithms of what follows each token but the last, (t - 1, v)."""
    opened.reset()
    for token in sequence:
        opened.eval([token])
    logits = torch.from_numpy(opened.scores[: len(sequence) - 1].copy()).double()
    return logits.log_softmax(-1).numpy()
