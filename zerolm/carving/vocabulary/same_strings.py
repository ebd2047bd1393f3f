"""The proof of a parent with fewer tokens: no string is lost, and its network is the parent's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Ints
from zerolm.carving.result import StringsProof
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles
from zerolm.carving.vocabulary.tokenizer_json import numbers
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.many_scripts import PAGE
from zerolm.children.verify import distance_of, output_of
from zerolm.networks.opener import stock_tokenizer

LINES: Final = 400
READ: Final = 1 << 20
TOLERANCE: Final = 1e-5
LENGTH: Final = 32


def proven(child: Checkpoint, text: str | None) -> StringsProof:
    """Return the comparison of a parent with fewer tokens and the whole one; ``ValueError`` if they differ.

    Every string is decoded as by the whole one, strings of kept tokens have the same tokens, and on those the
    outputs for kept tokens agree to 1e-5.
    """
    assert child.fewer is not None
    whole, kept = child.fewer.of, child.fewer.tokens
    assert kept is not None
    whole_tokenizer, child_tokenizer = (stock_tokenizer(one.folder) for one in (whole, child))
    check_rows(whole_tokenizer.get_vocab(), child_tokenizer.get_vocab(), kept)
    strings = [*some_strings(text), *whole_tokenizer.get_added_vocab(), *TokenizerFiles(whole).prompts]
    same = same_strings(whole_tokenizer, child_tokenizer, kept, strings)
    rows = _rows(whole_tokenizer, kept, strings)
    return StringsProof(len(strings), same, *_compared(whole, child, rows, kept))


def check_rows(whole_ids: Mapping[str, int], child_ids: Mapping[str, int], kept: Ints) -> None:
    """Raise ``ValueError`` where a token's row is not that of its id in the whole vocabulary."""
    for token, row in child_ids.items():
        if token in whole_ids and (row >= len(kept) or kept[row] != whole_ids[token]):
            raise ValueError(f"token {token[:40]!r} has row {row}, not that of its id {whole_ids[token]}")


def some_strings(text: str | None) -> list[str]:
    """Return a page in many scripts, its lines, and lines from the beginning of a text where there is one."""
    strings = [PAGE, *PAGE.splitlines()]
    if text is not None and Path(text).is_file():
        with Path(text).open("rb") as opened:
            lines = opened.read(READ).decode("utf-8", "ignore").splitlines()
        step = max(1, len(lines) // LINES)
        strings += lines[::step]
    return [string for string in strings if string.strip()]


def same_strings(
    whole: PreTrainedTokenizerBase, child: PreTrainedTokenizerBase, kept: Ints, strings: Iterable[str]
) -> int:
    """Return the number of strings that two tokenizers encode alike; ``ValueError`` where one is lost.

    Each has to be decoded alike, and one that has only kept tokens has to be encoded alike.
    """
    new, same = numbers(kept), 0
    for string in strings:
        before, after = (_ids(tokenizer, string) for tokenizer in (whole, child))
        if all(token in new for token in before):
            if [new[token] for token in before] != after:
                raise ValueError(f"{string[:40]!r} is of kept tokens alone, and would be read otherwise")
            same += 1
        elif written(whole, before) != written(child, after):
            raise ValueError(f"{string[:40]!r} would be decoded differently than by the parent")
    return same


def written(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Return the decoded text of tokens; pieces are joined where a tokenizer has no decoder."""
    if tokenizer.backend_tokenizer.decoder is None:
        text = " ".join(tokenizer.convert_ids_to_tokens(list(ids)))
        return text.replace(" ##", "")
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _ids(tokenizer: PreTrainedTokenizerBase, string: str) -> list[int]:
    ids: list[int] = tokenizer(string, verbose=False)["input_ids"]
    return ids


def _rows(tokenizer: PreTrainedTokenizerBase, kept: Ints, strings: Iterable[str]) -> Tensor:
    """Return two sequences of kept tokens, (2, t): one from the strings if possible, one random."""
    kept_ids, ids = set(kept.tolist()), list[int]()
    for string in strings:
        ids += [token for token in _ids(tokenizer, string) if token in kept_ids]
    drawn = np.random.default_rng(0).choice(kept, LENGTH)
    read = np.resize(np.array(ids or kept.tolist(), np.int64), LENGTH)
    return torch.from_numpy(np.stack([read, drawn]).astype(np.int64))


@torch.no_grad()
def _compared(whole: Checkpoint, child: Checkpoint, rows: Tensor, kept: Ints) -> tuple[float, float]:
    """Return the largest difference of the outputs for kept tokens, absolute and relative to the largest."""
    longest = whole.layout.sizes.get("positions", rows.shape[1] + 2)
    rows = rows[:, : max(1, longest - 2)]  # some classes count positions from behind padding
    new = torch.from_numpy(np.searchsorted(kept, rows.numpy()))
    expected, outputs = (output_of(one, ids) for one, ids in ((whole, rows), (child, new)))
    if expected.shape[-1] != outputs.shape[-1]:
        expected = expected[..., torch.from_numpy(kept)]
    far = distance_of(outputs, expected)
    if not far.relative <= TOLERANCE:
        raise ValueError(
            f"with fewer tokens the parent's outputs differ by {far.difference:.3g} "
            f"({far.relative:.2g} of the largest)"
        )
    return far.difference, far.relative
