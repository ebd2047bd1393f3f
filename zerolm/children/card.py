"""The model card of a child: front matter for the hub, its parent, its cuts and the methods used."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import yaml

from zerolm.checkpoints.origin import LICENCES
from zerolm.families.family import Task

LOADING: Final = """```python
from transformers import {auto}

model = {auto}.from_pretrained(".")
```"""
SENTENCES: Final = "SentenceTransformer"
"""The class that opens a folder of sentence-transformers."""
LOADING_SENTENCES: Final = """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")
```"""
LOADING_GGUF: Final = {
    "next": """```
llama-cli -m {place}
```""",
    "masked": """```
llama-embedding -m {place} -p "A text."
```""",
}
"""How llama.cpp runs a file, by the task of its family."""
LOSS: Final[Mapping[Task, str]] = {"next": "KL in nats a token", "masked": "1 - cosine of embeddings"}

SIZES: Final = {
    "prices": "planned by the losses of single cuts, which were estimated by one backward pass",
    "weights": "as requested, or planned by the criterion alone",
    "heuristic": "those of the space's heuristic",
}
"""How the sizes of a child are planned, by the name of the plan."""


def card(recipe: Mapping[str, Any], kind: str, auto: str, task: Task = "next") -> str:
    """Return the card of a child from its recipe.

    ``kind`` is the model type that it is written as, ``auto`` the class of transformers that opens it (the
    file's name for a GGUF), ``task`` that of its family.
    """
    parent, tokens = plain(recipe["parent"]), recipe["calibration"]
    healing = recipe.get("healing", [])
    is_gguf = recipe["written_as"] == "gguf"
    text = "no calibration text"
    if tokens:
        drawn = "sampled from the parent" if "generated" in tokens else "random"
        source = f"{drawn}, seed {tokens['seed']}" if tokens["text"] is None else f"SHA-256 {tokens['text']}"
        size = f"{tokens['sequences']} sequences of at most {tokens['length']} tokens"
        text = f"calibration text: {size} ({source})"
    lines = [
        f"criterion: {recipe['criterion']}",
        f"repair: {recipe['repair']}",
        f"sizes: {SIZES[recipe['plan']]}",
        f"shape: {recipe['shape']}, written as {recipe['written_as']}",
        text,
    ]
    if recipe["stream"]:
        lines += [_stream(recipe["stream"])]
    if recipe.get("experts"):
        lines += [f"experts: {len(recipe['experts'][0]['kept'])} of each layer are kept, as they were"]
        for text in recipe["experts"][0].get("neurons", [])[:1]:
            lines += [f"neurons: {int(text, 16).bit_count()} of each expert are kept"]
    if kind != recipe["family"] and not is_gguf:
        lines += [f"a {recipe['family']} whose heads do not divide the hidden size, so its type is {kind}"]
    losses = ", ".join(f"{name.replace('_', ' ')} {loss:.4g}" for name, loss in recipe["losses"].items())
    if losses:
        lines += [f"loss on held-out text, {LOSS[task]}: {losses}"]
    lines += ["made with " + ", ".join(f"{name} {number}" for name, number in recipe["versions"].items())]
    embeds = auto == SENTENCES
    loading = LOADING_SENTENCES if embeds else LOADING.format(auto=auto)
    if is_gguf:
        loading = LOADING_GGUF[task].format(place=shlex.quote(_printable(auto)))
    front = yaml.safe_dump(_front_matter(recipe, embeds=embeds), allow_unicode=True, sort_keys=False)
    return "\n\n".join(
        [
            f"---\n{front}---",
            f"# Carved from {parent}",
            _sizes(recipe) + f" Carved by zerolm {'and healed' if healing else 'without training'}.",
            "\n".join(f"- {line}" for line in lines),
            *(_healing(stage) for stage in healing),
            _origin(recipe),
            "In this folder:\n\n" + loading,
            "`recipe.json` lists what was kept of each layer; `zerolm carve PARENT --recipe recipe.json` "
            f"builds the same {'cut again, not healed' if healing else 'again'}.\n",
        ]
    )


def _healing(stage: Mapping[str, Any]) -> str:
    texts = ", ".join(
        f"{plain(text['source'])} ({text['trained_on']:,} tokens, SHA-256 {text['sha256']})"
        for text in stage["texts"]
    )
    how = f"adapters of rank {stage['lora']}, merged" if stage["lora"] else "all weights"
    how = "the rows of routers" if stage.get("only") else how
    losses = stage["losses_on_held_out"]
    measures = "; ".join(
        f"{name} {before:.4g} before, {losses['after'][name]:.4g} after, "
        f"{losses['parent'][name]:.4g} of the parent"
        for name, before in losses["before"].items()
    )
    return (
        f"Healed by {plain(stage['teacher'])}: {stage['tokens']:,} tokens by "
        f"{' and '.join(stage['losses'])}, {how}, rate {stage['rate']:.3g}, batches of {stage['batch']} "
        f"x {stage['length']}, seed {stage['seed']}.\n\n"
        f"- trained on: {texts}\n"
        f"- on {stage['held_out']} sequences of them that were not trained on: {measures}"
    )


def _front_matter(recipe: Mapping[str, Any], *, embeds: bool) -> dict[str, Any]:
    """Return the front matter for the hub; with ``embeds`` of a folder of sentence-transformers."""
    licence = {name: recipe[name] for name in LICENCES if name in recipe}
    library = "sentence-transformers" if embeds else "transformers"
    return {
        "base_model": recipe["parent"],
        **licence,
        **({"pipeline_tag": "sentence-similarity"} if embeds else {}),
        "library_name": "gguf" if recipe["written_as"] == "gguf" else library,
        "tags": ["zerolm", "pruned", recipe["family"], *(["sentence-transformers"] if embeds else [])],
    }


def _sizes(recipe: Mapping[str, Any]) -> str:
    child, parent = (recipe["costs"][name] for name in ("child", "parent"))
    bits = f"{' and '.join(map(str, recipe['weight_bits']))}-bit "
    share = child["params"] / parent["params"]
    return (
        f"{child['params']:,} of {parent['params']:,} parameters ({share:.1%}), "
        f"{child['weight_bytes']:,} of {parent['weight_bytes']:,} bytes of "
        f"{'' if recipe.get('types') else bits}weights."
    )


def _stream(stream: Mapping[str, Any]) -> str:
    head = "the head is the embedding" if stream["tied"] else "the head is a matrix of its own"
    return (
        f"hidden size {stream['hidden']}: the residual stream in one basis by the {stream['basis']}, "
        f"of whose energy {stream['kept_energy']:.1%} is kept; {head}"
    )


def _origin(recipe: Mapping[str, Any]) -> str:
    if recipe["revision"] is None:
        place = "The parent is a local folder: `base_model` is its name, to be replaced by that on the hub."
    else:
        place = f"The parent is revision {plain(recipe['revision'])} on the hub."
    licence = plain(recipe.get("license_name") or recipe.get("license") or "")
    named = f" ({licence})" if licence else ""
    return f"{place} The licence of the parent applies{named}."


def plain(text: str) -> str:
    """Return a text in one line, with the special characters of Markdown escaped."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(_printable(text).split()))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
