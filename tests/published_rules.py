"""Tokenizers with the rules of published ones, and small vocabularies trained for them.

The folder ``rules`` holds normalizers, pre-tokenizers, post-processors, decoders and a few added tokens with
their flags as they are published; no vocabulary. ``plain_tokens`` are none of the added ones, but named by
the class of the tokenizer.
"""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from made_tokenizers import BYTES, CORPUS
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

RULES = Path(__file__).parent / "rules"
PUBLISHED = sorted(file.stem for file in RULES.glob("*.json"))
SIZE = 900
LETTERS = 90
LONGEST_RUN = 8
"""Characters of white space that are one token, of tokenizers that have such."""


def rules_of(name: str) -> dict[str, Any]:
    rules: dict[str, Any] = json.loads((RULES / f"{name}.json").read_text("utf-8"))
    return rules


@cache
def published(name: str, *, size: int = SIZE) -> str:
    """The ``tokenizer.json`` of published rules with a vocabulary of at most ``size`` tokens."""
    rules = rules_of(name)
    model = (_sentence_piece if rules["model"]["byte_fallback"] else _byte_level)(rules, size)
    added = [{"id": model["vocab"][row["content"]], **row} for row in rules["added_tokens"]]
    document: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    document |= {part: rules[part] for part in ("normalizer", "pre_tokenizer", "decoder")}
    document |= {"post_processor": _renumbered(rules["post_processor"], model["vocab"]), "model": model}
    return Tokenizer.from_str(json.dumps(document)).to_str()


def save_published(name: str, folder: Path, size: int = SIZE, **settings: Any) -> Path:
    """Write the tokenizer into the folder of a model as it is published: two files."""
    (folder / "tokenizer.json").write_text(published(name, size=size), "utf-8")
    config = json.dumps(rules_of(name)["settings"] | settings)
    (folder / "tokenizer_config.json").write_text(config, "utf-8")
    return folder


def stock(name: str, size: int = SIZE) -> PreTrainedTokenizerFast:
    """The tokenizer without the class that its settings name."""
    named = {key: value for key, value in rules_of(name)["settings"].items() if key.endswith("_token")}
    named = {key: value for key, value in named.items() if isinstance(value, str)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(published(name, size=size)), **named)


def _byte_level(rules: dict[str, Any], size: int) -> dict[str, Any]:
    added = [*(row["content"] for row in rules["added_tokens"]), *rules.get("plain_tokens", [])]
    empty = Tokenizer(models.BPE())
    document = json.loads(empty.to_str()) | {part: rules[part] for part in ("normalizer", "pre_tokenizer")}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())["model"] | rules["model"]


def _sentence_piece(rules: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the model of a BPE over pieces: every pair that makes a token is a merge, runs of white space
    before all others where they are tokens of their own."""
    contents = [row["content"] for row in rules["added_tokens"]]
    white = [one for one in "\n▁\t" if one * 2 in contents]
    runs = [one * length for one in white for length in range(1, LONGEST_RUN + 1)]
    added = list(dict.fromkeys([*contents, *rules.get("plain_tokens", []), *runs]))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    words = [word for text in CORPUS for word in text.replace(" ", "\n ").split("\n")]
    counts = Counter("".join(words).replace(" ", "▁"))
    letters = sorted(counts, key=lambda letter: (-counts[letter], letter))[:LETTERS]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        limit_alphabet=LETTERS,
        initial_alphabet=letters,  # else ties are broken otherwise each time
        special_tokens=[*added, *BYTES],
        show_progress=False,
    )
    tokenizer.train_from_iterator(words, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab, order = model["vocab"], dict[str, int]()
    for left, right in model["merges"]:
        order.setdefault(left + right, len(order))
    of_runs = [(one * left, one * right) for one in white for left in range(1, LONGEST_RUN)
               for right in range(1, LONGEST_RUN + 1 - left)]  # fmt: skip
    of_runs.sort(key=lambda pair: (-len(pair[0]), -len(pair[1])))
    halves = [(token[:cut], token[cut:]) for token in order for cut in range(1, len(token))]
    merges = dict.fromkeys([*of_runs, *(pair for pair in halves if vocab.keys() >= set(pair))])
    return model | rules["model"] | {"merges": [list(pair) for pair in merges]}


def _renumbered(processor: Any, vocab: dict[str, int]) -> Any:
    """Return a post-processor with the ids of this vocabulary."""
    if isinstance(processor, list):
        return [_renumbered(part, vocab) for part in processor]
    if not isinstance(processor, dict):
        return processor
    if "ids" in processor:
        return processor | {"ids": [vocab[token] for token in processor["tokens"]]}
    return {name: _renumbered(part, vocab) for name, part in processor.items()}
