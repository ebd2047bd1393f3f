"""The families that a test runs on: a few that use all that documents can say, and those that changed.

``--all-families`` (``make test-all``) takes all of them. A change of the package's code is tested on the few,
for it acts by what documents say; a change of a document on its family and all that are like it.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from zerolm.families.known import families

FOLDER: Final = Path(__file__).parents[1] / "zerolm" / "families"
WORDS: Final = ("task", "norm", "values", "gain", "returns")
"""Fields with a word of a list: each word is a feature."""
RULES: Final = ("when", "parts", "token", "state", "products", "default", "null", "axes")
"""Fields with a rule on others: each operator is a feature, and the names in it are none."""
OPERATORS: Final = re.compile(r" and |no | != | = |[+*/-]")


@dataclass
class Asked:
    """What the command line asks for: conftest sets it before tests are collected."""

    all: bool = False


ASKED: Final = Asked()


def features(part: Any, place: str = "family") -> Iterator[str]:
    """Yield what a part of a document says otherwise than by default: its fields, words and operators."""
    name = place.rpartition(".")[2]
    if is_dataclass(part):
        for each in fields(part):
            usual = each.default if each.default_factory is MISSING else each.default_factory()
            if (value := getattr(part, each.name)) != usual:
                yield from features(value, f"{place}.{each.name}")
        return
    yield place
    if isinstance(part, dict | tuple):
        for value in part.values() if isinstance(part, dict) else part:
            yield from features(value, place)
    elif isinstance(part, bool) or name in WORDS or (name == "role" and "+" in part):
        yield f"{place} {part}"
    elif name in RULES and isinstance(part, str):
        yield from (f"{place} {operator}" for operator in OPERATORS.findall(part))


@cache
def used_features() -> dict[str, frozenset[str]]:
    return {name: frozenset(features(family)) for name, family in families().items()}


def with_tensors() -> list[str]:
    return [name for name, x in families().items() if x.tensors.body and x.config.at is None]


@cache
def covering() -> frozenset[str]:
    """Return few families that use every feature; those with tensors use all that such families do."""
    built = covering_of(with_tensors(), ())
    return built | covering_of(families(), built)


def covering_of(
    names: Iterable[str], given: Iterable[str], matters: Callable[[str], bool] = bool
) -> frozenset[str]:
    """Return few of the families that use, beside those given, every feature that matters and one uses."""
    used = {name: frozenset(filter(matters, used_features()[name])) for name in names}
    covered = frozenset[str]().union(*(used_features()[name] for name in given))
    missing, few = frozenset[str]().union(*used.values()) - covered, list[str]()
    while missing:
        few.append(max(used, key=lambda name: len(used[name] & missing)))
        missing -= used[few[-1]]
    for name in tuple(few):  # those that came first may be covered by those that had to come
        if used[name] <= covered.union(*(used[other] for other in few if other != name)):
            few.remove(name)
    return frozenset(few)


def in_folders(feature: str) -> bool:
    """Return whether a folder of a stock model shows a feature: all but what is of GGUF alone."""
    return ".gguf" not in feature


def in_gguf(feature: str) -> bool:
    """Return whether a GGUF file shows a feature: what tensors are, and what the file has of them."""
    return ".gguf" in feature or ".tensors" in feature


def in_networks(feature: str) -> bool:
    """Return whether passes layer by layer show a feature: modules and norms, fused matrices, cuts."""
    parts = ("module_names", "norm", "tensors.body.role", "cut")
    return feature.startswith(tuple(f"family.{part}" for part in parts))


def in_orders(feature: str) -> bool:
    """Return whether a feature is an order in which something lies in a fused matrix."""
    return feature.startswith(("family.tensors.body.role", "family.config.axes"))


@cache
def changed() -> frozenset[str]:
    """Return the families whose documents differ from the previous commit's, or are like one that does."""
    told: set[str] = set()
    for words in (("diff", "--name-only", "--relative", "HEAD~1", "--", "."), ("ls-files", "--others")):
        git = subprocess.run(["git", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
        told |= {Path(line).stem for line in git.stdout.splitlines() if line.endswith(".json")}
    documents = {file.stem: json.loads(file.read_text("utf-8")) for file in FOLDER.glob("*.json")}
    bases = {name: document.get("like") for name, document in documents.items()}
    while more := {name for name, base in bases.items() if base in told} - told:
        told |= more
    return frozenset(told)


def chosen(names: Iterable[str], matters: Callable[[str], bool] | None = None) -> list[str]:
    """Return those of the families that a test runs on; all if none of the few is among them.

    They use all features, or, of these families, all that matter to the test.
    """
    every = list(names)
    if ASKED.all:
        return every
    few = covering() if matters is None else covering_of(every, (), matters)
    return [name for name in every if name in few | changed()] or every
