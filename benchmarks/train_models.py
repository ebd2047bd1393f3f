"""Train the small models that carving is measured on: ``python benchmarks/train_models.py OUT``.

``OUT/pydec`` is a llama-type decoder with grouped queries, ``OUT/pyenc`` a BERT-type sentence encoder, and
``OUT/pydeep``, which only ``--only`` trains, a decoder twice as deep and narrower. They
see Python's standard library and nothing else, without the modules in ``corpus.UNSEEN``, which judge them.
``OUT/moe``, which only ``--only`` trains, is a mixture of sixteen experts, four a token, and a shared one, on
Python and English (``small_text``); documents of both are held out. ``OUT/moe_plain`` is one that a GGUF
file can hold.
With the same Python, packages and threads the seed determines everything but how many steps the time allows.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from corpus import docstrings, seen_files, sources, unseen_files
from small_text import divided
from timing import note
from training.decoder import DecoderSettings, byte_tokenizer, perplexity, stream, train_decoder
from training.encoder import EncoderSettings, encoded, retrieval, train_encoder, word_tokenizer
from training.folder import card, refuse_existing, write_model
from training.loop import Curve
from training.mixture import MixtureSettings, mixture, train_mixture
from transformers import BertForMaskedLM, LlamaForCausalLM

MODELS: Final = ("pydec", "pyenc", "pydeep", "moe", "moe_plain")
JUDGED: Final = 32_768
"""Tokens of each kind of document that a mixture is judged on."""
DECODERS: Final = {
    "pydec": DecoderSettings(),
    "pydeep": DecoderSettings(layers=16, hidden=192, heads=6, kv_heads=3, ffn=576),
}


@dataclass(frozen=True)
class Split:
    """The files that are trained on, and those that are judged on."""

    seen: list[Path]
    unseen: list[Path]


@dataclass(frozen=True)
class Sides:
    """The files of Python and of English that are trained on, and by name those that are judged on."""

    seen: tuple[list[Path], ...]
    unseen: dict[str, list[Path]]

    @classmethod
    def divided(cls) -> Sides:
        """Return those of this machine."""
        seen, unseen = ([[file for _, file in side] for side in part] for part in divided())
        return cls(tuple(seen), dict(zip(("code", "English"), unseen, strict=True)))


def decoder(folder: Path, files: Split, settings: DecoderSettings, *, seconds: float, seed: int) -> None:
    """Train and judge a decoder, and write its folder."""
    torch.manual_seed(seed)
    texts = sources(files.seen)
    tokenizer = byte_tokenizer(texts, settings.vocab)
    ids, held_out = stream(texts, tokenizer), stream(sources(files.unseen), tokenizer)
    model = LlamaForCausalLM(settings.config())
    note(f"{folder.name}: {model.num_parameters():,} parameters, {len(ids):,} tokens")
    curve = train_decoder(model, ids, settings, seconds=seconds, seed=seed)
    reached = f"perplexity {perplexity(model, held_out, settings.length):.2f} a token"
    note(f"{folder.name}: {reached} on unseen modules")
    step = settings.batch * settings.length
    lines = {
        "type": f"llama, {model.num_parameters():,} parameters, byte-level BPE of {len(tokenizer):,}",
        "trained on": f"the next token of {len(ids):,}, in sequences of {settings.length}",
        **_training(curve, seconds, seed, f"{step * curve.steps:,} tokens, {step:,} a step"),
        "unseen modules": f"{reached}, over {len(held_out):,} in sequences of {settings.length}",
    }
    write_model(folder, model, tokenizer, card(folder.name, lines), pooled=False)


def moe(folder: Path, files: Sides, settings: MixtureSettings, *, seconds: float, seed: int) -> None:
    """Train and judge a mixture of experts, and write its folder."""
    torch.manual_seed(seed)
    texts = [text for side in files.seen for text in sources(side)]
    tokenizer = byte_tokenizer(texts, settings.vocab)
    held_out = {name: stream(sources(side), tokenizer)[:JUDGED] for name, side in files.unseen.items()}
    shuffled = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    ids = stream([texts[place] for place in shuffled], tokenizer)
    model = mixture(settings)
    note(f"{folder.name}: {model.num_parameters():,} parameters, {len(ids):,} tokens")
    curve = train_mixture(model, ids, settings, seconds=seconds, seed=seed)
    reached = ", ".join(
        f"perplexity {perplexity(model, unseen, settings.length):.2f} a token of {name} ({len(unseen):,})"
        for name, unseen in held_out.items()
    )
    note(f"{folder.name}: {reached}")
    step = settings.batch * settings.length
    lines = {
        "type": f"qwen2_moe, {model.num_parameters():,} parameters, {settings.experts} experts, 4 active, "
        f"one shared; byte-level BPE of {len(tokenizer):,}",
        "trained on": f"the next token of {len(ids):,} of Python's standard library and of English "
        f"documentation, in sequences of {settings.length}",
        **_training(curve, seconds, seed, f"{step * curve.steps:,} tokens, {step:,} a step"),
        "unseen documents": reached,
    }
    write_model(folder, model, tokenizer, card(folder.name, lines), pooled=False)


def pyenc(folder: Path, files: Split, settings: EncoderSettings, *, seconds: float, seed: int) -> None:
    """Train and judge a sentence encoder, and write its folder."""
    torch.manual_seed(seed)
    pairs, held_out = docstrings(files.seen), docstrings(files.unseen)
    sides = [pair.summary for pair in pairs], [pair.source for pair in pairs]
    tokenizer = word_tokenizer([*sides[0], *sides[1]], settings.vocab, settings.length)
    summaries, bodies = (encoded(tokenizer, side) for side in sides)
    whole = BertForMaskedLM(settings.config())
    model = whole.bert
    note(f"{folder.name}: {model.num_parameters():,} parameters, {len(pairs):,} pairs")
    curve = train_encoder(whole, summaries, bodies, settings, seconds=seconds, seed=seed)
    reached = f"retrieval@1 {retrieval(model, tokenizer, held_out):.3f} among {len(held_out)} pairs"
    note(f"{folder.name}: {reached} of unseen modules")
    parameters, vocab = (
        f"{model.num_parameters():,} parameters",
        f"lower-case WordPiece of {len(tokenizer):,}",
    )
    lines = {
        "type": f"bert, {parameters}, {vocab}, mean pooling",
        "trained on": f"{len(pairs):,} pairs: a docstring's first sentence against the source around it, "
        f"the others of a batch being wrong; and masked words. At most {settings.length} tokens each",
        **_training(curve, seconds, seed, f"{settings.batch * curve.steps:,} pairs, {settings.batch} a step"),
        "unseen modules": reached,
    }
    write_model(folder, model, tokenizer, card(folder.name, lines), pooled=True)


def _training(curve: Curve, seconds: float, seed: int, amount: str) -> dict[str, str]:
    losses = " ".join(f"{loss:.2f}" for loss in curve.losses)
    time = f"{seconds / 60:g} minutes, threads: {torch.get_num_threads()}"
    return {
        "training": f"{time}; {curve.steps:,} steps, {amount}; seed {seed}",
        "mean loss of each twentieth of the time": losses,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, for each model")
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    pace = {"seconds": 60.0 * asked.minutes, "seed": asked.seed}
    names = ("pydec", "pyenc") if asked.only is None else (asked.only,)
    try:
        for name in names:
            refuse_existing(asked.out / name)
        files = Split(seen_files(), unseen_files())
        for name in names:
            if name.startswith("moe"):
                settings = MixtureSettings(plain=name == "moe_plain")
                moe(asked.out / name, Sides.divided(), settings, **pace)
            elif name in DECODERS:
                decoder(asked.out / name, files, DECODERS[name], **pace)
            else:
                pyenc(asked.out / name, files, EncoderSettings(), **pace)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
