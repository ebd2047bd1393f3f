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
from torch import Tensor
from training.decoder import DecoderSettings, batches, stream
from training.folder import card, write_model
from training.loop import train
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from vocab_languages import SIZE, texts

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.fewer_tokens import shaped
from zerolm.carving.vocabulary.text_use import use_of
from zerolm.checkpoints import Checkpoint
from zerolm.networks.opener import open_model
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.sizes import costs_of
from zerolm.progress import silent

SETTINGS: Final = DecoderSettings(layers=4, hidden=128, heads=4, kv_heads=2, ffn=384, vocab=SIZE)
DRAWN: Final = 4096
"""Tokens among which each is told from the others in training."""
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
    generator = torch.Generator().manual_seed(0)
    feed = batches(ids, SETTINGS.length, SETTINGS.batch, generator)
    shares = torch.bincount(ids, minlength=SIZE).float() / len(ids)
    curve = train(
        model,
        lambda: sampled_surprise(model, next(feed), shares, generator),
        seconds=seconds,
        rate=SETTINGS.rate,
    )
    lines = {"trained on": f"{len(ids):,} tokens of {', '.join(split)}"}
    write_model(folder, model, stock, card(folder.name, lines), pooled=False)
    return {
        "params": model.num_parameters(),
        "tokens": len(ids),
        "steps": curve.steps,
        "read": curve.steps * SETTINGS.batch * SETTINGS.length,
        "losses": curve.losses,
    }


def sampled_surprise(
    model: LlamaForCausalLM, rows: Tensor, shares: Tensor, generator: torch.Generator
) -> Tensor:
    """Return the mean -ln p of each token of ``rows`` (n, t + 1) but the first, p among some tokens drawn.

    They are drawn by their ``shares`` of the text, for which logits are corrected (Bengio and Senecal, 2008):
    with all 32,000 in each softmax a step takes five times as long.
    """
    hidden = model.model(input_ids=rows[:, :-1], use_cache=False).last_hidden_state.flatten(0, 1)  # (m, d)
    targets = rows[:, 1:].flatten()
    drawn = torch.multinomial(shares, DRAWN, replacement=True, generator=generator)
    head = model.get_output_embeddings().weight
    expected = (DRAWN * shares).log()  # of how often each is drawn
    others = (hidden @ head[drawn].T).float() - expected[drawn]
    others = others.masked_fill(drawn == targets[:, None], -torch.inf)
    right = (hidden * head[targets]).sum(-1, keepdim=True).float() - expected[targets][:, None]
    return (torch.cat([right, others], 1).logsumexp(1) - right[:, 0]).mean()


def _documents(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + DOCUMENT) + 1 or len(text)
        yield text[start:end]
        start = end


def judged(folder: Path, kept: Ints | None, held: dict[str, Path]) -> dict[str, Any]:
    """Return the parameters and bits a byte of all texts with the kept tokens alone, None for all."""
    parent = Checkpoint.open(folder)
    model = open_model(parent)
    size = parent.layout.vocab if kept is None else len(kept)
    bits = {
        name: TokenLosses.on(parent, model, str(file), SETTINGS.length).bits(kept)
        for name, file in held.items()
    }
    return {"size": size, "params": costs_of(shaped(parent, size), StoredCosts())["params"], "bits": bits}


def measure(parts: Parts, pages: Path, code: Path, work: Path, seconds: float) -> None:
    """Train the model, and measure it cut to English, to French and to code."""
    folder, split = work / "mix", texts(pages, code.read_text("utf-8"))
    tokenizer = work / "tok" / "byte-level BPE.json"
    parts.measured("mix trained", lambda: trained(folder, split, tokenizer, seconds))
    held = {name: work / f"held-{name}.txt" for name in split}
    for name, (seen, unseen) in split.items():
        held[name].write_text(unseen, "utf-8")
        (work / f"seen-{name}.txt").write_text(seen, "utf-8")
    parts.measured("mix whole", partial(judged, folder, None, held))
    for language in ("English", "French", "code"):
        use = use_of(Checkpoint.open(folder), str(work / f"seen-{language}.txt"), progress=silent).whole
        for name, share in SHARES.items():
            kept = use.kept(max(use.least, round(share * use.used)))
            parts.measured(f"mix {language}, {name}", partial(judged, folder, kept, held))
