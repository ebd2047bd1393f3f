"""The proof of a sentence-transformers child: its ``encode`` returns the embeddings of the carved parent."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.util import find_spec
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.children.verify import Verified, distance_of, within_rounding
from zerolm.io.brief import one_line
from zerolm.networks.opener import stock_tokenizer
from zerolm.networks.pooling import TokenPooling, prompt_tokens
from zerolm.passes.outputs import embeddings
from zerolm.text.calibration import longest_line
from zerolm.text.tokens import padded_lines

SENTENCES: Final = 8
LONGEST: Final = 32
UNTRIED: Final = "sentence-transformers is not installed, so its encode was not compared"


def with_encoded(proof: Verified, child: Checkpoint, reference: PreTrainedModel) -> Verified:
    """Return the proof with the distance of ``encode`` from the written network with its states pooled.

    The proof is unchanged where the child is no sentence-transformers folder. Raises ``ValueError`` where
    they differ by more than rounding.
    """
    if child.sentences is None:
        return proof
    if find_spec("sentence_transformers") is None:
        return replace(proof, notes=(UNTRIED,))
    lines = _sentences(child)
    length = longest_line(child, LONGEST + prompt_tokens(child))
    tokens = padded_lines(lines, stock_tokenizer(child.folder), length, prompt=child.prompt)
    wanted = [embeddings(reference, inputs, TokenPooling.of(child)) for inputs in tokens.batches(SENTENCES)]
    far = within_rounding(distance_of(_encoded(child, lines, length), torch.cat(wanted)))
    return replace(proof, embeddings=far.difference)


def _sentences(child: Checkpoint) -> list[str]:
    """Return texts of random tokens, each longer than the one before."""
    tokenizer, generator = stock_tokenizer(child.folder), torch.Generator().manual_seed(0)
    sizes = [1 + place * LONGEST // SENTENCES for place in range(SENTENCES)]
    drawn = (torch.randint(child.layout.vocab, (size,), generator=generator).tolist() for size in sizes)
    return [str(tokenizer.decode(ids, skip_special_tokens=True)) or "a" for ids in drawn]


def _encoded(child: Checkpoint, lines: list[str], length: int) -> Tensor:
    """Return sentence-transformers' embeddings (n, d) of sentences, truncated to a number of tokens."""
    with one_line(f"what sentence-transformers makes of {str(child.root)!r}"):
        from sentence_transformers import SentenceTransformer

        logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # it announces default prompts
        model = SentenceTransformer(
            str(child.root),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": torch.float32},
        )
        model.max_seq_length = length
        encoded = model.encode(lines, convert_to_tensor=True, show_progress_bar=False)
        return encoded.float().cpu()
