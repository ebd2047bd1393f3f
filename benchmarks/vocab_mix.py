"""Bits a byte of a small decoder trained on four languages and code, cut to the tokens of one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from parts import Parts
from timing import note
from tokenizers import Tokenizer
from training.decoder import DecoderSettings, stream, train_decoder
from training.folder import card, write_model
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from vocab_languages import SIZE

from zerolm.architecture import Ints
from zerolm.carving.planning.part_costs import StoredCosts
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.cut_parent import use_of
from zerolm.carving.vocabulary.fewer_tokens import shaped
from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import open_model
from zerolm.progress import silent

SETTINGS: Final = DecoderSettings(layers=4, hidden=128, heads=4, kv_heads=2, ffn=384, vocab=SIZE)
DOCUMENT: Final = 20_000
"""Characters of a document, about: between two of them stands the token that ends a text."""
SHARES: Final = {"used": 1.0, "half of used": 0.5}
Split = dict[str, tuple[str, str]]


def trained(folder: Path, split: Split, tokenizer: Path, seconds: float) -> dict[str, Any]:
    """Train the model and write its folder; return its steps, and the loss of each twentieth of the time."""
    document = json.loads(tokenizer.read_text("utf-8"))
    stock = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(document)),
        bos_token="</s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )
    ids = stream([part for seen, _ in split.values() for part in _documents(seen)], stock)
    torch.manual_seed(0)
    end = stock.eos_token_id
    config = SETTINGS.config()
    config.bos_token_id, config.eos_token_id, config.pad_token_id = end, end, stock.pad_token_id
    model = LlamaForCausalLM(config)
    note(f"{model.num_parameters():,} parameters, {len(ids):,} tokens")
    curve = train_decoder(model, ids, SETTINGS, seconds=seconds, seed=0)
    lines = {"trained on": f"{len(ids):,} tokens of {', '.join(split)}"}
    write_model(folder, model, stock, card(folder.name, lines), pooled=False)
    return {
        "params": model.num_parameters(),
        "tokens": len(ids),
        "steps": curve.steps,
        "read": curve.steps * SETTINGS.batch * SETTINGS.length,
        "losses": curve.losses,
    }


def _documents(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + DOCUMENT) + 1 or len(text)
        yield text[start:end]
        start = end


def judged(folder: Path, kept: Ints | None, texts: dict[str, Path]) -> dict[str, Any]:
    """Return the parameters and bits a byte of all texts with the kept tokens alone, None for all."""
    parent = Checkpoint.open(folder)
    model = open_model(parent)
    size = parent.layout.vocab if kept is None else len(kept)
    bits = {
        name: TokenLosses.on(parent, model, str(file), SETTINGS.length).bits(kept)
        for name, file in texts.items()
    }
    return {"size": size, "params": costs_of(shaped(parent, size), StoredCosts())["params"], "bits": bits}


def measure(parts: Parts, split: Split, tokenizers: Path, work: Path, seconds: float) -> None:
    """Train the model, and measure it cut to English, to French and to code."""
    folder = work / "mix"
    parts.measured("mix trained", lambda: trained(folder, split, tokenizers / "byte-level BPE.json", seconds))
    held = {name: work / f"held-{name}.txt" for name in split}
    for name, (seen, unseen) in split.items():
        held[name].write_text(unseen, "utf-8")
        (work / f"seen-{name}.txt").write_text(seen, "utf-8")
    parts.measured("mix whole", partial(judged, folder, None, held))
    for language in ("English", "French", "code"):
        use = use_of(Checkpoint.open(folder), str(work / f"seen-{language}.txt"), progress=silent)
        for name, share in SHARES.items():
            kept = use.kept(max(use.least, round(share * use.used)))
            parts.measured(f"mix {language}, {name}", partial(judged, folder, kept, held))
