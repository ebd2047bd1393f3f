"""Rules by which a size follows from others: ``heads``, ``4*hidden``, ``hidden/heads``, ``nope+rope``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Final

TERM: Final = r"(?:\d{1,9}|[a-z_]+)(?:\*(?:\d{1,9}|[a-z_]+))*(?:/[a-z_]+)?"
RULE: Final = re.compile(rf"{TERM}(?:\+{TERM})*")
"""A sum of products, each over a size by which it divides."""


def is_rule(text: object) -> bool:
    """Return whether this is the text of a rule, whatever its sizes are called."""
    return isinstance(text, str) and len(text) <= 200 and RULE.fullmatch(text) is not None


@cache
def _terms(rule: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the factors and the divisor, if any, of each term."""
    parts = (term.partition("/") for term in rule.split("+"))
    return tuple((tuple(factors.split("*")), divisor) for factors, _, divisor in parts)


def needed(rule: str) -> set[str]:
    """Return the labels of the sizes that a rule refers to."""
    labels = {label for factors, divisor in _terms(rule) for label in (*factors, divisor) if label}
    return {label for label in labels if not label.isdigit()}


def value(rule: str, size: Callable[[str], int], name: Callable[[str], str] = str) -> int:
    """Return the value of a rule; ``ValueError`` where a term does not divide, with ``name(label)`` in it."""
    total = 0
    for factors, divisor in _terms(rule):
        product = prod(int(part) if part.isdigit() else size(part) for part in factors)
        by = size(divisor) if divisor else 1
        if product % by:
            label = next(part for part in factors if not part.isdigit())
            raise ValueError(f"{name(label)} {product} is not divisible by {name(divisor)} {by}")
        total += product // by
    return total
