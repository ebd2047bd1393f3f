"""The proof: the written child, opened by stock software, does what the carved parent does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import transformers
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

TOLERANCE: Final = (1e-4, 3e-2)
"""Largest difference of outputs, relative to their largest magnitude, that rounding may explain: of float32,
and of repaired weights that are stored in 16 bits."""


@dataclass(frozen=True)
class Verified:
    """How far the outputs of the child lie from those of the carved parent, at most; relative too."""

    difference: float
    relative: float


def load(folder: Path, decoder: bool) -> PreTrainedModel:
    """A model of a local folder in float32, from safetensors, running no code of the folder.

    Raises ``ValueError`` where weights are missing or left over.
    """
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    kind = AutoModelForCausalLM if decoder else AutoModel
    model, found = kind.from_pretrained(  # type: ignore[misc]
        folder,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        dtype=torch.float32,
        output_loading_info=True,
    )
    odd = [name for name in (*found["missing_keys"], *found["mismatched_keys"]) if "pooler" not in str(name)]
    if odd:
        raise ValueError(f"{str(folder)!r} lacks {odd[0]!r}, or has it in another shape")
    return model.eval()  # type: ignore[no-any-return]


@torch.no_grad()
def compare(
    child: PreTrainedModel, reference: PreTrainedModel, *, exact: bool = True, length: int = 64, seed: int = 0
) -> Verified:
    """Run both on the same random tokens; ``ValueError`` where they differ by more than rounding.

    ``exact``: no weight was rounded on its way to the disk.
    """
    generator = torch.Generator().manual_seed(seed)
    size = int(child.config.vocab_size)
    length = min(length, int(getattr(child.config, "max_position_embeddings", None) or length))
    ids = torch.randint(size, (2, length), generator=generator)  # (2, length)
    ours, theirs = (_outputs(model(input_ids=ids)) for model in (child, reference))
    difference = float((ours - theirs).abs().max())
    relative = difference / max(float(theirs.abs().max()), 1e-12)
    if not relative <= TOLERANCE[not exact]:
        raise ValueError(
            f"the written child differs from the carved parent by {difference:.3g} ({relative:.2g} of the "
            f"largest output)"
        )
    return Verified(difference, relative)


def _outputs(found: object) -> Tensor:
    """Logits, or the last hidden states of a model without a head."""
    logits = getattr(found, "logits", None)
    value = logits if logits is not None else getattr(found, "last_hidden_state")  # noqa: B009
    assert isinstance(value, Tensor)
    return value
