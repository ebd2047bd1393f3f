"""``zerolm eval``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.checkpoints import Checkpoint
from zerolm.cli.progress import patient


def evaluate(
    child: Annotated[Path, typer.Argument(help="The folder of a checkpoint.")],
    parent: Annotated[Path, typer.Option(metavar="DIR", help="What it is compared with.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text that neither has been fitted to.")],
    sequences: Annotated[int, typer.Option(min=1, help="Sequences taken from the text.")] = 256,
    length: Annotated[int, typer.Option(min=2, help="Tokens of each.")] = 256,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What a child has lost: perplexity and divergence from its parent, or the cosine of embeddings."""
    from zerolm.carving.judge import fidelity, perplexity_and_kl, pooling_of
    from zerolm.carving.material import is_decoder, open_model, tokens_of

    progress = patient()
    checkpoints = [Checkpoint.open(child), Checkpoint.open(parent)]
    if len({is_decoder(checkpoint) for checkpoint in checkpoints}) > 1:
        kinds = " and ".join(checkpoint.family.name for checkpoint in checkpoints)
        raise ValueError(f"a decoder and an encoder cannot be compared: {kinds}")
    if len({checkpoint.layout.vocab for checkpoint in checkpoints}) > 1:
        sizes = " and ".join(str(checkpoint.layout.vocab) for checkpoint in checkpoints)
        raise ValueError(f"vocabularies of {sizes} tokens cannot be compared")
    tokens = tokens_of(checkpoints[1], str(text), sequences=sequences, length=length)
    progress("opening both")
    ours, theirs = (open_model(checkpoint) for checkpoint in checkpoints)
    found: dict[str, Any] = {"sequences": len(tokens), "tokens": tokens.count}
    progress("running the text through both")
    if is_decoder(checkpoints[0]):
        judged, own = perplexity_and_kl(ours, theirs, tokens), perplexity_and_kl(theirs, theirs, tokens)
        found |= {
            "perplexity": judged.perplexity,
            "parent_perplexity": own.perplexity,
            "kl": judged.kl,
        }
    else:
        found["cosine"] = fidelity(ours, theirs, tokens, pooling=pooling_of(checkpoints[1].folder))
    if json_output:
        print(json.dumps(found))
        return
    print(f"{found['sequences']} sequences, {found['tokens']:,} tokens")
    if "cosine" in found:
        print(f"mean cosine to the parent's embeddings {found['cosine']:.4f}")
        return
    print(f"perplexity {found['perplexity']:.2f} (parent {found['parent_perplexity']:.2f})")
    print(f"divergence from the parent (KL) {found['kl']:.4f} nats a token")
