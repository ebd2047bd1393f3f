"""The page of a trained supernet: its widths over the epochs, what they grew by, and how alike blocks are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zerolm.report.chart import Pair
from zerolm.report.heat import heat
from zerolm.report.loss_curve import loss_curve
from zerolm.report.page import Heading, note, page, pairs, section
from zerolm.report.phrases import show_amount

LOSS: Final = "loss on text held out, mean of a few paths, nats"
ALIKE: Final = "mean cosine of two blocks' outputs"
MAPS: Final = 6
"""So many of the epochs are drawn."""
Document = Mapping[str, Any]


def supernet_page(document: Document, configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm elastic train --json`` prints, with how to repeat the run."""
    training = document["training"]
    heading = Heading(
        "zerolm elastic train",
        f"A supernet of {document['depth']} layers by {len(document['kinds'])} blocks",
        f"{show_amount(training['tokens'])} tokens in {training['epochs']} epochs, "
        + (f"{document['distillation']} distillation." if document["distillation"] else "without a teacher."),
        loss_sentence(document),
        growth_sentence(document),
        "One run, one seed; the loss is that of a few random paths with weights that all paths share, not "
        "of networks that are trained alone.",
        ("What was found", "How it grew", "How far to trust it"),
    )
    body = [
        section("The loss on the way", _curve(document)),
        section("FFN widths in each epoch", *_maps(document, "widths")),
        section("Principal components that the widths grew by", *_maps(document, "scores")),
        section("How alike the blocks of a layer are", _diversity(document)),
        section("How it was trained", pairs(_making(document), "pairs wide")),
    ]
    return page(heading, body, configuration)


def supernet_fragment(document: Document) -> str:
    """Return the last widths and the curve, without style or script."""
    return (
        f'<div style="max-width:640px"><p>{loss_sentence(document)}</p>{_curve(document, narrow=True)}</div>'
    )


def loss_sentence(document: Document) -> str:
    """Return how the loss fell."""
    points = _points(document)
    if not points:
        return "The run was too short to be measured on the way."
    return f"The loss on text held out fell from {points[0][1]:.4f} to {points[-1][1]:.4f} nats."


def growth_sentence(document: Document) -> str:
    """Return by how much widths and paths grew."""
    history = document["history"]
    first, last = (row["mean_params"] for row in (history[0], history[-1]))
    grew = sum(
        after > before
        for ours, theirs in zip(history[-1]["widths"], history[0]["widths"], strict=True)
        for after, before in zip(ours, theirs, strict=True)
    )
    blocks = len(document["kinds"]) * document["depth"]
    return (
        f"{grew} of {blocks} FFNs are wider than they began; a random path has {show_amount(round(last))} "
        f"parameters on average, {show_amount(round(first))} at first."
    )


def kind_name(block: str, share: str) -> str:
    """Return the name of a kind: its block, and what that shares."""
    return block if share == "none" else f"{block} {share}"


def _names(document: Document) -> tuple[list[str], list[str]]:
    kinds = [kind_name(*kind) for kind in document["kinds"]]
    return kinds, [f"layer {place}" for place in range(1, document["depth"] + 1)]


def _maps(document: Document, name: str) -> Iterator[str]:
    """Yield a map of layers by blocks for some of the epochs, the last one large."""
    history, (kinds, layers) = document["history"], _names(document)
    every = [value for row in history for line in row[name] for value in line]
    ends = (min(every), max(every))
    if ends[0] == ends[1]:
        yield note("All are alike: nothing grew." if name == "widths" else "Nothing was counted.")
        return
    places = sorted({round(i * (len(history) - 1) / (MAPS - 1)) for i in range(MAPS)})
    drawn = []
    for place in places:
        values = history[place][name]
        texts = [[f"{value:.0f}" for value in line] for line in values]
        drawn.append(heat(f"epoch {history[place]['epoch']}", kinds, layers, values, texts, ends))
    yield f'<div class="pair">{"".join(drawn)}</div>'
    if name == "scores":
        yield note("Mean number of principal components that hold the share of the variance; 0: never drawn.")


def _points(document: Document) -> list[Pair]:
    return [(row["tokens"], row["held_out"]) for row in document["log"] if "held_out" in row]


def _curve(document: Document, narrow: bool = False) -> str:
    return loss_curve(_points(document), LOSS, narrow=narrow)


def _diversity(document: Document) -> str:
    """Return a map of layers by epochs."""
    history, (_, layers) = document["history"], _names(document)
    values = [[row["diversity"][place] for row in history] for place in range(document["depth"])]
    texts = [[f"{value:.2f}" for value in line] for line in values]
    columns = [f"epoch {row['epoch']}" for row in history]
    said = note(f"{ALIKE.capitalize()} for the same input; less is more diverse.")
    return heat("", columns, layers, values, texts, (0.0, 1.0)) + said


def _making(document: Document) -> list[tuple[str, str]]:
    told: Sequence[tuple[str, Any]] = [
        ("text", str(document["text"]["source"]).rstrip("/").rsplit("/", 1)[-1]),
        ("teacher", str(document["teacher"] or "none").rstrip("/").rsplit("/", 1)[-1]),
        *((name.replace("_", " "), value) for name, value in document["training"].items()),
    ]
    return [(name, str(value)) for name, value in told if value is not None]
