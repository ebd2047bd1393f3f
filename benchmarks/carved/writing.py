"""Lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from carved.judging import Quality

Line = str


def heading(text: str) -> Iterator[Line]:
    yield f"### {text}"
    yield ""


def row(*cells: str) -> Line:
    return f"| {' | '.join(cells)} |"


def kl(value: float) -> str:
    """A loss: three decimals, four where it is small."""
    return f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def shown(quality: Quality) -> str:
    """Perplexity and KL, or the mean cosine."""
    if quality.perplexity is None:
        return f"{1.0 - quality.loss:.4f}"
    return f"{quality.perplexity:.2f} / {kl(quality.loss)}"


def compared(value: float, asked: float | None, *, more: bool = False) -> str:
    """What was asked for, and whether it was reached; empty where nothing was."""
    if asked is None:
        return ""
    reached = value >= asked if more else value <= asked
    return f"{'at least' if more else 'at most'} {asked:g}: {'reached' if reached else 'missed'}"


def escaped(name: str) -> str:
    """A name in which Markdown sees no marks."""
    return name.replace("_", "\\_")
