"""Train the two small models that carving is measured on: ``python benchmarks/train_models.py OUT``.

``OUT/pydec`` is a llama-type decoder with grouped queries, ``OUT/pyenc`` a BERT-type sentence encoder; both see
Python's standard library and nothing else, but for the modules in ``corpus.UNSEEN``, on which they are judged.
With one Python and the same versions of all packages everything but the clock is determined by the seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from corpus import docstrings, seen_files, sources, unseen_files
from timing import note
from transformers import BertForMaskedLM, LlamaForCausalLM

from training.decoder import DecoderSettings, byte_tokenizer, perplexity, stream, train_decoder
from training.encoder import EncoderSettings, encoded, retrieval, train_encoder, word_tokenizer
from training.folder import card, refuse_existing, write_model
from training.loop import Curve


def pydec(
    folder: Path, seen: list[Path], unseen: list[Path], settings: DecoderSettings, seconds: float, seed: int
) -> None:
    """Train and judge a decoder, and write its folder."""
    torch.manual_seed(seed)
    texts = sources(seen)
    tokenizer = byte_tokenizer(texts, settings.vocab)
    ids, held_out = stream(texts, tokenizer), stream(sources(unseen), tokenizer)
    model = LlamaForCausalLM(settings.config())
    note(f"{folder.name}: {model.num_parameters():,} parameters, {len(ids):,} tokens")
    curve = train_decoder(model, ids, settings, seconds=seconds, seed=seed)
    reached = f"perplexity {perplexity(model, held_out, settings.length):.2f} a token"
    note(f"{folder.name}: {reached} on unseen modules")
    size = settings.batch * settings.length
    lines = {
        "type": f"llama, {model.num_parameters():,} parameters, byte-level BPE of {settings.vocab:,}",
        "trained on": f"the next token of {len(ids):,}, in sequences of {settings.length}",
        **_training(curve, seconds, seed, f"{size * curve.steps:,} tokens, {size:,} a step"),
        "unseen modules": f"{reached}, over {len(held_out):,} in sequences of {settings.length}",
    }
    write_model(folder, model, tokenizer, card(folder.name, lines), pooled=False)


def pyenc(
    folder: Path, seen: list[Path], unseen: list[Path], settings: EncoderSettings, seconds: float, seed: int
) -> None:
    """Train and judge a sentence encoder, and write its folder."""
    torch.manual_seed(seed)
    pairs, held_out = docstrings(seen), docstrings(unseen)
    sides = [pair.summary for pair in pairs], [pair.source for pair in pairs]
    tokenizer = word_tokenizer([*sides[0], *sides[1]], settings.vocab, settings.length)
    summaries, bodies = (encoded(tokenizer, side) for side in sides)
    whole = BertForMaskedLM(settings.config())
    model = whole.bert
    note(f"{folder.name}: {model.num_parameters():,} parameters, {len(pairs):,} pairs")
    curve = train_encoder(whole, summaries, bodies, settings, seconds=seconds, seed=seed)
    reached = f"retrieval@1 {retrieval(model, tokenizer, held_out):.3f}"
    note(f"{folder.name}: {reached} among {len(held_out)} unseen pairs")
    lines = {
        "type": f"bert, {model.num_parameters():,} parameters, lower-case WordPiece of {settings.vocab:,}, mean pooling",
        "trained on": f"{len(pairs):,} pairs of a docstring's first sentence and the source without the docstring: "
        f"the others of a batch are wrong answers; and masked words. Texts are cut at {settings.length} tokens",
        **_training(curve, seconds, seed, f"{settings.batch * curve.steps:,} pairs, {settings.batch} a step"),
        "unseen modules": f"{reached} among {len(held_out)} pairs",
    }
    write_model(folder, model, tokenizer, card(folder.name, lines), pooled=True)


MODELS: Final[dict[str, Callable[[Path, float, int], None]]] = {
    "pydec": lambda folder, seconds, seed: pydec(
        folder, seen_files(), unseen_files(), DecoderSettings(), seconds, seed
    ),
    "pyenc": lambda folder, seconds, seed: pyenc(
        folder, seen_files(), unseen_files(), EncoderSettings(), seconds, seed
    ),
}


def _training(curve: Curve, seconds: float, seed: int, amount: str) -> dict[str, str]:
    losses = " ".join(f"{loss:.2f}" for loss in curve.losses)
    return {
        "training": f"{seconds / 60:g} minutes with {torch.get_num_threads()} threads: {curve.steps:,} steps, {amount}; "
        f"seed {seed}",
        "mean loss of each twentieth of the time": losses,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, for each model")
    parser.add_argument("--only", choices=tuple(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = [asked.only] if asked.only else list(MODELS)
    try:
        for name in names:
            refuse_existing(asked.out / name)
        for name in names:
            MODELS[name](asked.out / name, 60.0 * asked.minutes, asked.seed)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
