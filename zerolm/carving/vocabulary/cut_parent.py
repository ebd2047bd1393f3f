"""The parent of a carving with the tokens that its request keeps: their description, and the proof.

No string is lost, and the network is the parent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Ints
from zerolm.carving.parent_and_request import Carving, ParentModel
from zerolm.carving.result import ChildVocabulary, CurveRow, StringsProof
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.fewer_tokens import can_lose_tokens, shaped, with_tokens
from zerolm.carving.vocabulary.planned_size import (
    BestByTokens,
    VocabularyLosses,
    best_of_sizes,
    size_in_limited_time,
    usual_sizes,
)
from zerolm.carving.vocabulary.text_use import TokenUse, use_of
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles, numbers
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.many_scripts import PAGE
from zerolm.children.verify import distance_of, output_of
from zerolm.costs import CostModel
from zerolm.networks.compute import compute, computed
from zerolm.networks.opener import is_decoder, mapped_model, stock_tokenizer
from zerolm.planning.size_request import AUTO, USED, VocabularyRequest
from zerolm.planning.sizes import costs_of
from zerolm.progress import Progress
from zerolm.settings.units import parse_amount, parse_share

LINES: Final = 400
READ: Final = 1 << 20
TOLERANCE: Final = 1e-5
LENGTH: Final = 32


def suggested(carving: Carving) -> Carving:
    """Return a carving of the whole parent, with the saving by the text's tokens alone if it can lose any."""
    checkpoint = carving.checkpoint
    if not can_lose_tokens(checkpoint):
        return carving
    use = use_of(checkpoint, carving.methods.text, progress=carving.progress).whole
    vocabulary = described(checkpoint, use, checkpoint.layout.vocab, carving.costs)
    return replace(carving, parent=replace(carving.parent, vocabulary=vocabulary))


def chosen(carving: Carving, best_by_tokens: BestByTokens) -> tuple[ParentModel, Ints]:
    """Return the parent with the description of its tokens, and the tokens that a request keeps.

    Losses are measured on the held-out part of the text, with tokens chosen on the rest; the child's are
    chosen on all of it.
    """
    parent, size, methods, costs = carving.parent, carving.size, carving.methods, carving.costs
    checkpoint, request, progress = carving.checkpoint, size.vocabulary, carving.progress
    if request.size == AUTO:  # before the text is read
        best_by_tokens.check(use_of(checkpoint, None, request.tokens, progress=progress).whole.least)
    use = use_of(checkpoint, methods.text, request.tokens, progress=progress)
    more: dict[str, Any] = {}
    losses = None
    if methods.text is not None:
        running = compute(carving.compute, checkpoint.layout.hidden)
        model = computed(mapped_model(checkpoint), running)
        pieces = use.text.held_pieces or use.text.fitted_pieces
        losses = TokenLosses.of_pieces(checkpoint, model, pieces, methods.length)
        if request.size != USED and methods.for_ is None and is_decoder(checkpoint):
            progress("finding tokens that the parent predicts")
            fitted = TokenLosses.of_pieces(checkpoint, model, use.text.fitted_pieces, methods.length)
            use = use.predicted(fitted.likely())
            del fitted  # with its states
    if request.size == AUTO and losses is not None:
        by_size, step = VocabularyLosses(use, losses), size.multiple_of or 1
        if methods.for_ is not None:
            rows = size_in_limited_time(by_size, best_by_tokens, step)
        else:
            tried, rows = best_of_sizes(by_size, best_by_tokens, step, progress)
            more = {"sizes": tried}
    else:
        rows = size_of(request, use.whole, size.multiple_of)
    is_used = request.size == USED
    kept = use.chosen(rows, used=is_used)
    if losses is not None and len(kept) < checkpoint.layout.vocab:
        progress("measuring the loss of fewer tokens")
        of_child = losses.loss(use.chosen(rows, used=is_used, whole=False))
        of_parent = losses.loss(None)
        more |= {"losses": {"parent": of_parent, "child": of_child}, "held_out": use.is_held_out}
        parent = replace(parent, loss_of_tokens=max(0.0, of_child - of_parent) / losses.bits_a_nat)
    if use.is_held_out:
        sizes = usual_sizes(use.whole, size.multiple_of or 1)
        counted = zip(sizes, use.curve(sizes), strict=True)
        more["curve"] = [
            CurveRow(rows, costs_of(shaped(checkpoint, rows), costs)["params"], share)
            for rows, share in counted
        ]
    vocabulary = replace(described(checkpoint, use.whole, rows, costs), **more)
    return replace(parent, vocabulary=vocabulary), kept


def cut_parent(
    parent: ParentModel, kept: Ints, folder: Path, text: str | None, is_written: bool, *, progress: Progress
) -> ParentModel:
    """Return a parent with only the kept tokens, with files below a folder; proven if a child is written."""
    checkpoint = parent.checkpoint
    progress(f"cutting the vocabulary to {len(kept):,} of {checkpoint.layout.vocab:,} tokens")
    child = with_tokens(checkpoint, kept, folder / "tokens", progress=progress)
    vocabulary = parent.vocabulary or ChildVocabulary(checkpoint.layout.vocab, len(kept), unit_of(checkpoint))
    if is_written:
        progress("comparing the tokenizers")
        vocabulary = replace(vocabulary, proof=proven(child, text))
    return replace(parent, checkpoint=child, vocabulary=vocabulary)


def unit_of(checkpoint: Checkpoint) -> str:
    """Return the unit of the losses of fewer tokens."""
    return "bits a byte" if is_decoder(checkpoint) else "1 - cosine"


def described(checkpoint: Checkpoint, use: TokenUse, size: int, costs: CostModel) -> ChildVocabulary:
    """Return the description of a vocabulary of ``size`` tokens, by the text and without losses."""
    whole, of_used = (costs_of(one, costs)["params"] for one in (checkpoint, shaped(checkpoint, use.used)))
    used, saves = (use.used, whole - of_used) if use.counts.any() else (None, None)
    return ChildVocabulary(
        parent=checkpoint.layout.vocab,
        child=size,
        unit=unit_of(checkpoint),
        used=used,
        saves=saves,
        least=use.least,
        tokens=int(use.counts.sum()),
        grows=use.growth(size),
    )


def size_of(request: VocabularyRequest, use: TokenUse, multiple_of: int | None) -> int:
    """Return the number of kept rows in a request, rounded up to a multiple; ``ValueError`` if impossible."""
    rows, value = use.table.rows, request.size
    if value is None:
        size = use.least
    elif value == USED:
        size = use.used
    else:
        size = _size(value, rows)
    if size > rows:
        raise ValueError(f"--keep-vocab {value} is more than the {rows} tokens of the parent")
    if size < use.least:
        raise ValueError(
            f"--keep-vocab {value} is {size} of {rows} tokens, but bytes or characters, special tokens and "
            f"their parts must be kept; --keep-vocab {use.least} is the least"
        )
    step = multiple_of or 1
    return min(rows, -(-size // step) * step)


def _size(value: str, rows: int) -> int:
    """Return the size for 64k, 0.5 or 0.5x."""
    share = parse_share(value) or parse_share(f"{value}x" if "." in value else None)
    if share is not None:
        if not 0 < Decimal(share[:-1]) <= 1:
            raise ValueError(f"--keep-vocab {value} is no share of the tokens: it must lie in 0 to 1")
        return round(Decimal(share[:-1]) * rows)
    try:
        return parse_amount("--keep-vocab", value)
    except ValueError:
        raise ValueError(
            f"--keep-vocab takes a number of tokens such as 64k, a share such as 0.5, {USED} or {AUTO}, not "
            f"{value[:40]!r}"
        ) from None


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
