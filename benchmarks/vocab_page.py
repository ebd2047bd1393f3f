"""The page of ``vocab.py``: what tokens that leave save, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timing import machine, table
from vocab_languages import BYTES_EACH, LANGUAGES, SIZE

INTRODUCTION = """# Vocabulary

Written by `python benchmarks/vocab.py`. {machine}, one thread, other work on the machine.

Tokens leave a tokenizer with their rows of embedding and head, by `zerolm carve --keep-vocab`.
"""


def page(parts: Mapping[str, Any]) -> None:
    """Print the page of all parts that were measured."""
    print(INTRODUCTION.format(machine=machine()))
    if "curve whole" in parts:
        curve(parts)
        beside(parts)
        planned(parts)
        repaired(parts)
    if any(name.startswith("cut ") for name in parts):
        languages(parts)
    if "mix whole" in parts:
        mixed(parts)
    if any(name.startswith("shape ") for name in parts):
        shapes(parts)


def curve(parts: Mapping[str, Any]) -> None:
    """Print bits a byte against the size of the vocabulary."""
    whole = parts["curve whole"]
    print("## The curve of pydec\n")
    print(
        f"A llama of {whole['params']:,} parameters and {whole['rows']:,} tokens, trained on Python sources. "
        f"Tokens are counted on sources that it has seen, which need {whole['used']:,} of them; bits a "
        f"byte are of {whole['bytes']:,} bytes of modules that nobody has seen, in windows of 256 tokens. "
        "Nothing is repaired.\n"
    )
    rows: list[list[str | float]] = [_curve_row(whole["rows"], whole, whole)]
    rows += [
        _curve_row(part["size"], part, whole) for name, part in parts.items() if name.startswith("curve 0")
    ]
    table(["tokens", "parameters", "bits a byte", "more bits", "text longer by"], rows)


def _curve_row(size: int, part: Mapping[str, Any], whole: Mapping[str, Any]) -> list[str | float]:
    return [
        f"{size:,}",
        f"{part['params'] / whole['params']:.1%}",
        f"{part['bits']:.4f}",
        f"{part['bits'] / whole['bits'] - 1:+.1%}",
        f"{part['tokens'] / whole['tokens'] - 1:.1%}",
    ]


def beside(parts: Mapping[str, Any]) -> None:
    """Print what an FFN and a stream of as many parameters lose."""
    shares = [name.split()[1] for name in parts if name.startswith("hidden ")]
    if not shares:
        return
    whole = parts["curve whole"]["bits"]
    print("### Beside cuts of equal size\n")
    print(
        "More bits a byte where as many parameters leave as tokens, as FFN neurons of all layers or as "
        "directions of the stream; those two as cut, and repaired by least squares on 16,384 tokens.\n"
    )
    rows: list[list[str | float]] = []
    for share in shares:
        tokens, ffn, hidden = (parts[f"{kind} {share}"] for kind in ("curve", "ffn", "hidden"))
        rows.append(
            [f"{tokens['params'] / parts['curve whole']['params']:.1%}", f"{tokens['bits'] / whole - 1:+.2%}"]
        )
        for part, size in ((ffn, "ffn"), (hidden, "hidden")):
            both = " / ".join(f"{part[key] / whole - 1:+.2%}" for key in ("bits", "repaired"))
            rows[-1].append(f"{both} ({part[size]})")
    table(["parameters", "tokens", "FFN, cut / repaired", "hidden, cut / repaired"], rows)


def planned(parts: Mapping[str, Any]) -> None:
    """Print where a plan stops taking tokens."""
    plans = {
        name.split()[1]: part
        for name, part in sorted(parts.items(), reverse=True)
        if name.startswith("planned ")
    }
    if not plans:
        return
    print("### Where a plan stops\n")
    print(
        "`--keep-vocab auto` within a share of the parameters, all layers of one size, by 16 sequences of "
        "the text that tokens are counted on: what fewer tokens and all other cuts beside them are foretold "
        "to lose, in bits a byte. Smaller vocabularies are not tried once tokens alone lose more than the "
        "best size does in all.\n"
    )
    rows: list[list[str | float]] = []
    for share, part in plans.items():
        for size in part["sizes"]:
            chosen = " chosen" if size["size"] == part["child"] else ""
            both = f"{size['tokens'] + size['rest']:.4f}{chosen}"
            rows.append(
                [f"{float(share):.0%}", f"{size['size']:,}", f"{size['tokens']:.4f}", f"{size['rest']:.4f}"]
            )
            rows[-1].append(both)
    table(["parameters", "tokens", "fewer tokens", "all other cuts", "both"], rows)


def repaired(parts: Mapping[str, Any]) -> None:
    """Print whether repairing rows pays."""
    rows: list[list[str | float]] = []
    for share in ("0.88", "0.5"):
        plain = parts.get(f"curve {share}")
        if plain is None or f"averaged {share}" not in parts:
            continue
        texts = [f"{plain['bits']:.4f}", f"{parts[f'averaged {share}']['bits']:.4f}"]
        solved = parts.get(f"solved {share}")
        texts += [f"{solved[step]:.4f}" if solved else "" for step in ("whole step", "half a step")]
        healed = parts.get(f"healed {share}")
        texts.append(f"{healed['bits']:.4f}" if healed else "")
        rows.append([f"{plain['size']:,}", *texts])
    if not rows:
        return
    tokens = next((part["tokens"] for name, part in parts.items() if name.startswith("healed")), 0)
    print("### Repair of rows\n")
    print(
        "Bits a byte. Averaged: a row becomes the mean of itself and the gone rows that end with its token, "
        "by use. Solved: rows of the head are fitted, so that a token is as probable as itself and all gone "
        "ones that begin with it. Healed: the embedding alone, which is the head, is trained on "
        f"{tokens:,} tokens.\n"
    )
    table(["tokens", "as cut", "averaged", "solved", "solved, half a step", "healed"], rows)
    if "healed 1.0" in parts:
        print(f"The same training of the parent, with all tokens: {parts['healed 1.0']['bits']:.4f}.\n")


def languages(parts: Mapping[str, Any]) -> None:
    """Print what tokenizers keep that are cut to one language."""
    print("## Tokenizers of four languages and code\n")
    print(
        f"Each kind trained to {SIZE:,} tokens on {BYTES_EACH >> 20} MiB each of manual pages in "
        f"{', '.join(LANGUAGES)} and of Python sources, and cut to what one of them uses. Bytes a token of "
        "text that is held out, before and after. Of strings, a line in forty of that, all are written back "
        "as before, and those of kept tokens alone are the same tokens.\n"
    )
    names = [*LANGUAGES, "code"]
    rows: list[list[str | float]] = []
    for name, part in parts.items():
        if not name.startswith("cut "):
            continue
        kind, language = name.removeprefix("cut ").rsplit(" ", 1)
        lengths = [" → ".join(f"{size:.2f}" for size in part["bytes_a_token"][each]) for each in names]
        kept = f"{part['kept']:,} ({part['kept'] / part['rows']:.0%})"
        rows.append([kind, language, kept, *lengths, f"{part['same']} of {part['strings']}"])
    table(["kind", "cut to", "tokens kept", *names, "same tokens"], rows)


def mixed(parts: Mapping[str, Any]) -> None:
    """Print bits a byte of the model of all languages, cut to one of them."""
    training = parts["mix trained"]
    names = [*LANGUAGES, "code"]
    print("## A model of four languages and code\n")
    print(
        f"A llama of {training['params']:,} parameters, four layers, with the byte-level BPE of all, that "
        f"has read {training['read']:,} tokens of the mix ({training['steps']:,} steps), cut to the tokens "
        "of one of them, and to half of these. Bits a byte of text that is held out. Nothing is repaired.\n"
    )
    rows: list[list[str | float]] = []
    for name, part in parts.items():
        if name.startswith("mix ") and name != "mix trained":
            bits = [f"{part['bits'][each]:.3f}" for each in names]
            rows.append(
                [name.removeprefix("mix "), f"{part['size']:,}", f"{part['params'] / 1e6:.2f}", *bits]
            )
    table(["cut to", "tokens", "M parameters", *names], rows)


def shapes(parts: Mapping[str, Any]) -> None:
    """Print what the vocabulary of models of published sizes saves, and what taking it costs."""
    print("## Sizes of known models\n")
    print(
        "Random weights in BF16 at published sizes. Tokenizers of these kinds are trained here and have "
        "fewer tokens than the published ones: rows beyond them have none, and leave first. Text: manual "
        "pages in English.\n"
    )
    rows: list[list[str | float]] = []
    for name, part in parts.items():
        if not name.startswith("shape "):
            continue
        vocabulary, costs = part["vocabulary"], part["costs"]
        before, after = costs["parent"]["params"], costs["child"]["params"]
        rows.append(
            [
                name.removeprefix("shape "),
                f"{vocabulary['parent']:,} / {part['tokens']:,}",
                f"{vocabulary['used']:,}",
                f"{before / 1e6:.1f} → {after / 1e6:.1f}",
                f"{1 - after / before:.0%}",
                f"{part['processor']:.0f}",
                f"{part['seconds']:.0f}",
                f"{part['memory'] / 1e9:.2f}",
                f"{part['text'] / 1e6:.1f}",
            ]
        )
    head = ["sizes of", "rows / tokens", "used", "M parameters", "saved"]
    table([*head, "s of processor", "s", "GB", "MB of text"], rows)
