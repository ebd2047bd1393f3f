"""The proof of a GGUF file: llama.cpp opens it and agrees with torch and with the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf import GGMLQuantizationType
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.same_tokens import opened_by_llama_cpp, require
from zerolm.checkpoints.many_scripts import PAGE
from zerolm.checkpoints.weight_types import BY_NUMBER
from zerolm.children.gguf.tokenizer import compare_with
from zerolm.children.verify import Verified
from zerolm.networks.hooks import rounded_inputs
from zerolm.networks.pooling import MEAN, TokenPooling

CHECKED_LENGTH: Final = 32
ONE_THREAD: Final = {"n_threads": 1, "n_threads_batch": 1}
ROUNDING: Final = {"F32": 0.0, "F16": 4e-3, "BF16": 3e-2}
"""By the type of a matrix, the error of readers that multiply in that type, as a share of the largest
output."""
TOLERANCE: Final = 5e-3
CARVED: Final = "the carved parent's"
READ: Final = "those of the parent as zerolm reads it"
OF_THE_FILE: Final = -1
"""The pooling type that selects the file's own."""
COARSELY: Final = 6e-2
"""The same error of readers that round activations to blocks of 8 bits with quantised weights: .034 in
Qwen2.5-0.5B."""
NOISE: Final = 2.0
"""Allowed difference as a multiple of the change when activations of the reference are rounded to 8 bits."""
NOISIEST: Final = 0.3
"""Largest share of the largest output that such rounding may explain."""
REROUTED: Final = 8
"""Of a mixture of experts rounding may route at most one in ``REROUTED`` tokens to other experts: two are
nearly equal."""


def check(
    file: Path,
    reference: Callable[[Tensor], Tensor],
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    pooling: TokenPooling = MEAN,
    tolerance: float = TOLERANCE,
) -> Verified:
    """Open a file with llama.cpp; ``ValueError`` where its outputs or token ids differ from the reference's.

    ``reference`` returns logits (1, t, v) for token ids (1, t); for an encoder the states of its tokens (1,
    t, d). About thirty tokens are compared, real ones where there is a tokenizer. Outputs may differ by
    ``tolerance``, and with weights of 16 bits or fewer also by what rounding explains. Token ids are compared
    on a page in many scripts, and for each added token by itself. ``pooling`` makes an encoder's embedding.
    Raises ``ModuleNotFoundError`` without llama-cpp-python.
    """
    require()
    opened = _open(file)
    try:
        notes = () if tokenizer is None else compare_with(opened, tokenizer)
        ids = _some_tokens(opened, tokenizer)
        proof = _compare_outputs(opened, reference, ids, tolerance)
        proof = replace(proof, notes=(*proof.notes, *notes))
    finally:
        opened.close()
    return _with_embedding(proof, file, reference, pooling, ids, tolerance) if is_encoder(file) else proof


def compare_file(file: Path, reference: Callable[[Tensor], Tensor], ids: Tensor) -> Verified:
    """Open a file with llama.cpp; ``ValueError`` where its outputs for ids (b, t) are not the reference's.

    Only the first sequence is compared.
    """
    opened = _open(file)
    try:
        tokens = ids[0, :CHECKED_LENGTH].tolist()
        return _compare_outputs(opened, reference, tokens, TOLERANCE, READ)
    finally:
        opened.close()


def is_encoder(file: Path) -> bool:
    """Return whether a file's model attends in both directions."""
    header = read_gguf_header(file)
    return header.metadata.get(f"{header.architecture}.attention.causal") is False


def open_encoder(file: Path, **settings: Any) -> Any:
    """Return an encoder opened by llama.cpp, on one thread, for at most ``CHECKED_LENGTH`` tokens.

    It returns the states of tokens, or their pooled embedding by ``pooling_type``.
    """
    sizes = dict.fromkeys(("n_ctx", "n_batch", "n_ubatch"), CHECKED_LENGTH)
    usual = {"embedding": True, "pooling_type": 0, **sizes, **ONE_THREAD}
    return opened_by_llama_cpp(file, **usual | settings)


def states_of(opened: Any, ids: Sequence[int]) -> Tensor:
    """Return the states (t, d) of a text's tokens from an encoder that ``open_encoder`` opened."""
    from llama_cpp import llama_cpp as lib

    _encode(opened, ids)
    rows = [lib.llama_get_embeddings_ith(opened.ctx, place) for place in range(len(ids))]
    return torch.tensor([row[: opened.n_embd()] for row in rows])


def embedding_of(opened: Any, ids: Sequence[int]) -> Tensor:
    """Return the embedding (d,) of a text from an encoder that was opened with a pooling."""
    from llama_cpp import llama_cpp as lib

    _encode(opened, ids)
    return torch.tensor(lib.llama_get_embeddings_seq(opened.ctx, 0)[: opened.n_embd()])


def _encode(opened: Any, ids: Sequence[int]) -> None:
    from llama_cpp import llama_cpp as lib

    batch = lib.llama_batch_init(len(ids), 0, 1)
    try:
        batch.n_tokens = len(ids)
        for place, token in enumerate(ids):
            batch.token[place], batch.pos[place], batch.logits[place] = token, place, 1
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        if lib.llama_encode(opened.ctx, batch) != 0:
            raise ValueError("llama.cpp does not compute the states of a text")
    finally:
        lib.llama_batch_free(batch)


def _open(file: Path) -> Any:
    """Open a file in llama.cpp, on one thread; a decoder with keys and values in float32."""
    if is_encoder(file):
        return open_encoder(file)
    full = dict.fromkeys(("type_k", "type_v"), GGMLQuantizationType.F32)
    sizes = dict.fromkeys(("n_ctx", "n_batch"), CHECKED_LENGTH)
    return opened_by_llama_cpp(file, logits_all=True, **sizes, **full, **ONE_THREAD)


def _compare_outputs(
    opened: Any,
    reference: Callable[[Tensor], Tensor],
    ids: Sequence[int],
    tolerance: float,
    whose: str = CARVED,
) -> Verified:
    """Return the distance of logits, or states, from the reference's; ``whose`` names the reference."""
    kind = "states" if opened.context_params.embeddings else "logits"
    if kind == "states":
        output = states_of(opened, ids)  # (length, d)
    else:
        for token in ids:  # several at a time crash some builds, where weights are quantised
            opened.eval([token])
        output = torch.from_numpy(opened.scores[: len(ids)].copy())  # (length, vocab)

    def expected() -> Tensor:
        with torch.no_grad():
            return reference(torch.tensor([list(ids)]))[0].float()

    return _within(opened, kind, output, expected, tolerance, whose)


def _with_embedding(
    proof: Verified,
    file: Path,
    reference: Callable[[Tensor], Tensor],
    pooling: TokenPooling,
    ids: Sequence[int],
    tolerance: float,
) -> Verified:
    """Return the proof with the distance of an encoder's embedding of tokens, normalised to length 1."""
    opened = open_encoder(file, pooling_type=OF_THE_FILE)
    try:
        embedding = functional.normalize(embedding_of(opened, ids), dim=0)

        def expected() -> Tensor:
            with torch.no_grad():
                states = reference(torch.tensor([list(ids)])).float()
            return functional.normalize(pooling.uncut(states, torch.ones(states.shape[:2]))[0], dim=0)

        far = _within(opened, "embeddings", embedding, expected, tolerance).difference
        return replace(proof, embeddings=far, by="llama.cpp")
    finally:
        opened.close()


def _some_tokens(opened: Any, tokenizer: PreTrainedTokenizerBase | None) -> list[int]:
    """Return the first tokens of a page; random ones without a tokenizer, or where the page is too short."""
    metadata = opened.metadata
    length = min(CHECKED_LENGTH, int(metadata[f"{metadata['general.architecture']}.context_length"]))
    page = [] if tokenizer is None else [int(token) for token in tokenizer(PAGE)["input_ids"][:length]]
    if len(page) == length:
        return page
    ids: list[int] = np.random.default_rng(0).integers(opened.n_vocab(), size=length).tolist()
    return ids


def _within(
    opened: Any,
    kind: str,
    output: Tensor,
    reference: Callable[[], Tensor],
    tolerance: float,
    whose: str = CARVED,
) -> Verified:
    expected = reference()
    difference, largest = float((output - expected).abs().max()), float(expected.abs().max())
    types = {BY_NUMBER[number].name for number in read_gguf_header(Path(opened.model_path)).types.values()}
    rounding, spare = max(ROUNDING.get(kind, COARSELY) for kind in types), 0
    experts = opened.metadata.get(f"{opened.metadata['general.architecture']}.expert_count", 0)
    if output.dim() > 1 and rounding > 0.0 and int(experts) > 0:
        spare = len(output) // REROUTED
    allowed = steadily = max(tolerance, rounding * largest)
    if rounding == COARSELY and not difference <= allowed:
        with rounded_inputs():
            noise = (reference() - expected).abs()
        explained = min(NOISE * float(noise.max()), NOISIEST * largest)
        allowed, steadily = max(allowed, explained), max(tolerance, NOISE * _all_but(spare, noise))
    if not bool(output.isfinite().all()) and bool(expected.isfinite().all()):
        raise ValueError(
            f"llama.cpp's {kind} are not finite, the carved parent's are: with F16 matrices it computes in "
            f"float16, which ends at 65,504; save the parent in bfloat16"
        )
    notes: tuple[str, ...] = ()
    if spare and not difference <= allowed and _all_but(spare, output - expected) <= steadily:
        others = int(((output - expected).abs().flatten(1).max(1).values > steadily).sum())
        difference = _all_but(others, output - expected)
        notes = (f"by rounding llama.cpp routes {others} of {len(output)} tokens to other experts",)
    elif not difference <= allowed:
        raise ValueError(f"llama.cpp's {kind} differ from {whose} by {difference:.3g}")
    return Verified(difference, difference / max(largest, 1e-12), notes=notes)


def _all_but(spare: int, differences: Tensor) -> float:
    """Return the largest of differences (t, v), without the ``spare`` tokens that differ most."""
    if not spare:
        return float(differences.abs().max())
    return float(differences.abs().flatten(1).max(1).values.sort().values[-1 - spare])
