"""A child beside a parent that reads text by other tokens: bits a byte, and KL where both read alike."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.carving.evaluation.divergence import embeddings
from zerolm.carving.evaluation.evaluated import Evaluated, TextMeasures, evaluated_row
from zerolm.carving.kept_units import Cut
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.recipe import read_recipe
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.fewer_tokens import with_tokens
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.identity import fingerprint
from zerolm.costs import CostModel
from zerolm.networks.compute import Compute, as_noted, put_on
from zerolm.networks.opener import is_decoder, open_model, stock_tokenizer
from zerolm.networks.pooling import TokenPooling, settings_note
from zerolm.progress import Progress
from zerolm.text.calibration import longest_line
from zerolm.text.defaults import RANDOM
from zerolm.text.encoding import separator
from zerolm.text.tokens import padded_lines

BATCH: Final = 32
RECIPE: Final = "recipe.json"


@dataclass(frozen=True, eq=False)
class Reader:
    """A model with its checkpoint and its tokenizer, which tells where in a text each token lies."""

    checkpoint: Checkpoint
    model: PreTrainedModel

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer as transformers has it, without padding and truncation."""
        stock = stock_tokenizer(self.checkpoint.folder)
        document = json.loads(stock.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
        return Tokenizer.from_str(json.dumps(document))

    @cached_property
    def start(self) -> list[int]:
        """The token that stands before a text, or none."""
        return separator(stock_tokenizer(self.checkpoint.folder), self.checkpoint.layout.vocab)[:1]


@dataclass(frozen=True)
class Compared:
    """Measures of the ``parent`` and of the ``child`` on stretches of a text; ``tokens`` are the parent's.

    The ``note`` says what they are of.
    """

    parent: dict[str, float]
    child: dict[str, float]
    stretches: int
    tokens: int
    note: str


def of_other_tokens(
    ours: Checkpoint, theirs: Checkpoint, text: str, length: int, running: Compute, progress: Progress
) -> Evaluated:
    """Return what a child of another vocabulary has lost, in bits a byte; of an encoder by embeddings."""
    if text == RANDOM:
        raise ValueError("random tokens tell nothing of what a model is worth: give a text")
    for one in (ours, theirs):
        try:
            stock_tokenizer(one.folder)
        except ValueError as error:
            sizes = f"{ours.layout.vocab} and {theirs.layout.vocab}"
            raise ValueError(
                f"vocabularies of {sizes} tokens cannot be compared without both tokenizers: {error}"
            ) from None
    progress("opening both")
    child, parent = (Reader(one, put_on(open_model(one), running)) for one in (ours, theirs))
    return _beside(child, parent, None, text, length, progress)


def of_file_of_other_tokens(
    file: Path, parent: Checkpoint, text: str, length: int, running: Compute, progress: Progress
) -> Evaluated:
    """Return what a GGUF child with fewer tokens has lost, in bits a byte.

    Text is read as by the parent with these tokens alone. The recipe beside the file tells which they are;
    ``ValueError`` without one.
    """
    from zerolm.carving.export.gguf.network import cut_in, network_in, rows_in

    recipe = file.parent / RECIPE
    kept = read_recipe(recipe, parent, fingerprint(parent)).kept if recipe.is_file() else None
    if kept is None:
        raise ValueError(
            f"{str(file)!r} has {rows_in(file)} tokens and its parent {parent.layout.vocab}: which they are "
            f"is told by the {RECIPE} of its folder, which is not there"
        )
    with TemporaryDirectory(prefix="zerolm-tokens-") as folder:
        fewer = with_tokens(parent, kept, Path(folder) / "tokens", progress=progress)
        cut = cut_in(file, fewer)
        progress("opening both")
        ours = Reader(fewer, put_on(network_in(file, fewer), running))
        return _beside(ours, Reader(parent, put_on(open_model(parent), running)), cut, text, length, progress)


def _beside(
    ours: Reader, theirs: Reader, cut: Cut | None, text: str, length: int, progress: Progress
) -> Evaluated:
    both = compared(ours, theirs, text, length, progress)
    params = costs_of(ours.checkpoint, CostModel(), cut), costs_of(theirs.checkpoint, CostModel())
    rows = (
        evaluated_row("child", params[0]["params"], [TextMeasures(both.child)]),
        evaluated_row("parent", params[1]["params"], [TextMeasures(both.parent)]),
    )
    return Evaluated(rows, both.stretches, both.tokens, both.note)


def compared(ours: Reader, theirs: Reader, text: str, length: int, progress: Progress) -> Compared:
    """Return what a child makes of a text beside a parent of another vocabulary.

    Decoders: bits a byte of the same stretches, each by its own tokens, and KL(parent || child) over the
    tokens that both have, behind places where both have read the same pieces and read the same one next. Of
    encoders the cosine of embeddings, of which each is of its own tokens.
    """
    progress("running the text through both")
    losses = TokenLosses.on(theirs.checkpoint, theirs.model, text, length)
    if not is_decoder(theirs.checkpoint):
        return _embedded(ours, theirs, losses.stretches, length)
    mine = replace(losses, checkpoint=ours.checkpoint, model=ours.model)
    bits = [one.bits(None) for one in (losses, mine)]
    divergence, share = _aligned(ours, theirs, losses.stretches, losses.length)
    sizes = f"{ours.checkpoint.layout.vocab:,} and {theirs.checkpoint.layout.vocab:,}"
    note = (
        f"vocabularies of {sizes} tokens: bits a byte of {losses.bytes:,} bytes, each by its own tokens; KL "
        f"over the tokens that both have, at the {share:.1%} of the parent's tokens where both read alike"
    )
    measures = [{"bits": value, "kl": kl} for value, kl in zip(bits, (0.0, divergence), strict=True)]
    return Compared(measures[0], measures[1], len(losses.stretches), losses.tokens, note)


@torch.no_grad()
def _aligned(ours: Reader, theirs: Reader, stretches: Sequence[str], length: int) -> tuple[float, float]:
    """Return the mean KL over aligned places, and their share of the parent's tokens; 0 without any."""
    tokenizers = [one.tokenizer for one in (ours, theirs)]
    names = [tokenizer.get_vocab() for tokenizer in tokenizers]
    both = sorted(names[0].keys() & names[1].keys())
    columns = [torch.tensor([vocab[token] for token in both]) for vocab in names]
    sums, count, whole = 0.0, 0, 0
    for stretch in stretches:
        read = [tokenizer.encode(stretch, add_special_tokens=False) for tokenizer in tokenizers]
        places = _places(read[0].offsets, read[1].offsets, read[0].tokens, read[1].tokens)
        logs = []
        for side, (reader, encoded) in enumerate(zip((ours, theirs), read, strict=True)):
            ids = [*reader.start, *encoded.ids][:length]
            at = [pair[side] + len(reader.start) - 1 for pair in places]
            logs.append((_logits(reader.model, ids), at))
        usual = [
            (mine, other)
            for mine, other in zip(logs[0][1], logs[1][1], strict=True)
            if 0 <= mine < len(logs[0][0]) and 0 <= other < len(logs[1][0])
        ]
        whole += min(length, len(read[1].ids))
        if not usual:
            continue
        rows = [
            functional.log_softmax(logits[torch.tensor([pair[side] for pair in usual])][:, columns[side]], -1)
            for side, (logits, _) in enumerate(logs)
        ]
        sums += float((rows[1].exp() * (rows[1] - rows[0])).sum(-1).double().sum())
        count += len(usual)
    return (sums / count, count / whole) if count else (0.0, 0.0)


def _places(
    ours: Sequence[tuple[int, int]],
    theirs: Sequence[tuple[int, int]],
    mine: Sequence[str],
    other: Sequence[str],
) -> list[tuple[int, int]]:
    """Return pairs of places of the same piece of a text, behind which both have read as far."""
    at = {key: place for place, key in enumerate(_keys(ours))}
    return [
        (at[key], place)
        for place, key in enumerate(_keys(theirs))
        if key in at and mine[at[key]] == other[place]
    ]


def _keys(spans: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
    """Return spans, each with its number among equal ones: bytes of a character have all its span."""
    seen, keys = Counter[tuple[int, int]](), []
    for span in spans:
        keys.append((span, seen[span]))
        seen[span] += 1
    return keys


def _logits(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """Return the logits behind each token of one sequence, (t, v)."""
    with as_noted(model):
        inputs = torch.tensor([list(ids)], device=model.device)
        logits: Tensor = model.train(False)(input_ids=inputs, use_cache=False).logits
    return logits[0].float().cpu()


def _embedded(ours: Reader, theirs: Reader, lines: Sequence[str], length: int) -> Compared:
    apart, tokens = list[float](), 0
    stocks = [stock_tokenizer(reader.checkpoint.folder) for reader in (ours, theirs)]
    for first in range(0, len(lines), BATCH):
        vectors = []
        for reader, stock in zip((ours, theirs), stocks, strict=True):
            most = longest_line(reader.checkpoint, length)
            rows = padded_lines(lines[first : first + BATCH], stock, most, prompt=reader.checkpoint.prompt)
            pooling = TokenPooling.of(reader.checkpoint)
            vectors.append(torch.cat([embeddings(reader.model, batch, pooling) for batch in rows.batches(8)]))
            tokens += rows.count
        apart += functional.cosine_similarity(vectors[0], vectors[1], dim=-1).double().tolist()
    cosine = math.fsum(apart) / len(apart)
    note = (
        f"vocabularies of {ours.checkpoint.layout.vocab:,} and {theirs.checkpoint.layout.vocab:,} tokens: "
        "embeddings of the same lines, each by its own tokens"
    )
    note = "; ".join(filter(None, [note, settings_note(theirs.checkpoint)]))
    same = {"cosine": 1.0, "distance": 0.0}
    return Compared(same, {"cosine": cosine, "distance": 1 - cosine}, len(lines), tokens // 2, note)
