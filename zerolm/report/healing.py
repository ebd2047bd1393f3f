"""The page of a healing: how the loss on held-out text fell, and what was trained on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from zerolm.report.chart import Frame, Pair, Plot, axis, legend, linked
from zerolm.report.page import Heading, note, page, pairs, section, table
from zerolm.report.phrases import show_amount

NAMES: Final = {
    "kl": "KL to the parent in nats a token (lower is better)",
    "cosine": "cosine of embeddings to the parent's (higher is better)",
}
FORMS: Final = {"perplexity": ",.2f", "kl": ".4f", "cosine": ".4f"}
LEGEND: Final = (("dot", "blue", "held-out text"), ("dashes", "grey", "before healing"))


def measure_of(document: Mapping[str, Any]) -> str:
    """Return by what a healing is judged: ``kl`` of decoders, ``cosine`` of encoders."""
    return next(name for name in NAMES if name in document["losses"]["before"])


def shown_loss(name: str, value: float) -> str:
    """Return a measure with its digits."""
    return f"{value:{FORMS.get(name, '.4g')}}"


def healing_line(document: Mapping[str, Any]) -> str:
    """Return the measures before and after in a line."""
    losses = document["losses"]
    parts = (
        f"{name} {shown_loss(name, before)} to {shown_loss(name, losses['after'][name])}"
        for name, before in losses["before"].items()
    )
    return f"{', '.join(parts)} on text held out, {show_amount(document['training']['tokens'])} tokens"


def healing_section(document: Mapping[str, Any]) -> str:
    """Return a section for the page of a carving: the curve of its last healing, and its losses."""
    return section("How healing went", _curve(document), _losses(document))


def healing_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of what ``zerolm heal --json`` prints; ``configuration`` is that of ``run.yaml``."""
    training = document["training"]
    how = f"adapters of rank {training['lora']}" if training["lora"] else "all weights"
    heading = Heading(
        "zerolm heal",
        _title(document),
        f"{show_amount(training['tokens'])} tokens, {how}, by {' and '.join(training['losses'])}.",
        _told(document),
        _baseline(document),
        _trust(document),
    )
    body = [
        section("The loss on the way", _curve(document)),
        section("Before and after", _losses(document)),
        section("What it was trained on", _texts(document)),
        section("How it was trained", pairs(_making(document), "pairs wide")),
    ]
    return page(heading, body, configuration)


def healing_fragment(document: Mapping[str, Any]) -> str:
    """Return the losses and their curve, without style or script."""
    parts = f"<p>{escape(_told(document))}</p>{_losses(document)}{_curve(document, narrow=True)}"
    return f'<div style="max-width:640px">{parts}</div>'


def _title(document: Mapping[str, Any]) -> str:
    name, losses = measure_of(document), document["losses"]
    before, after = (shown_loss(name, losses[who][name]) for who in ("before", "after"))
    return f"{name.upper() if name == 'kl' else name.capitalize()} {before} before, {after} after"


def _told(document: Mapping[str, Any]) -> str:
    name, losses = measure_of(document), document["losses"]
    before, after = (losses[who][name] for who in ("before", "after"))
    if name == "kl":
        share = f"{after / before:.0%} of the divergence is left" if before else "there was no divergence"
        perplexities = ", ".join(
            f"{shown_loss('perplexity', losses[who]['perplexity'])} {words}"
            for who, words in (("before", "before"), ("after", "after"), ("parent", "of the parent"))
        )
        return f"On text that was not trained on {share}. Perplexity: {perplexities}."
    lost = f"{(1 - after) / (1 - before):.0%}" if before < 1 else "nothing"
    return f"On text that was not trained on {lost} of the distance to the parent's embeddings is left."


def _baseline(document: Mapping[str, Any]) -> str:
    name, losses = measure_of(document), document["losses"]
    before, after = (losses[who][name] for who in ("before", "after"))
    is_better = after < before if name == "kl" else after > before
    return (
        "The baseline is the child before training, which is carved and, where it was asked for, repaired. "
        + ("Healing is better than it." if is_better else "Healing is no better than it: keep that child.")
    )


def _trust(document: Mapping[str, Any]) -> str:
    training, proof = document["training"], document["verified"]
    said = [
        f"Judged on {training['held_out']} sequences of {training['length']} tokens at the end of the texts, "
        "one run, no interval: on text of another kind it may be otherwise."
    ]
    if proof:
        difference = f"{proof['difference']:.2g}"
        said.append(f"The child was opened again; its outputs are the trained network's within {difference}.")
    remark = document["note"]
    return " ".join([*said, *([f"{remark[0].upper()}{remark[1:]}."] if remark else [])])


def _points(document: Mapping[str, Any]) -> list[Pair]:
    name = measure_of(document)
    return [(row["tokens"], row[name]) for row in document["curve"] if name in row]


def _curve(document: Mapping[str, Any], narrow: bool = False) -> str:
    points, name = _points(document), measure_of(document)
    if len(points) < 2:
        return note("The run was too short for a curve.")
    first = points[0][1]
    frame = Frame(
        axis([x for x, _ in points], "tokens trained on", wide=float("inf"), pad=0.02),
        axis([y for _, y in points], NAMES[name], wide=float("inf")),
    )
    marks = [*_marks(frame, points, first)]
    label = f"{NAMES[name]} against tokens, from {points[0][1]:.4f} to {points[-1][1]:.4f}"
    drawn = frame.html(marks, label, narrow=narrow)
    if narrow:
        return drawn
    plot = Plot(frame, points, [(name, [shown_loss(name, y) for _, y in points])])
    names = [f"{show_amount(int(x))} tokens" for x, _ in points]
    return linked(legend(*LEGEND) + drawn, [plot], names, "measure")


def _marks(frame: Frame, points: Sequence[Pair], first: float) -> Iterator[str]:
    yield frame.level(first, "grey", "6 4")
    yield frame.line(points, "blue")
    yield frame.dots(points, "blue", size=9)


def loss_rows(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the measures, and a row of them before, after, and of the parent."""
    losses = document["losses"]
    names = list(losses["before"])
    networks = (("before", "child, before"), ("after", "child, after"), ("parent", "parent"))
    return names, [[who, *(shown_loss(name, losses[key][name]) for name in names)] for key, who in networks]


def _losses(document: Mapping[str, Any]) -> str:
    names, rows = loss_rows(document)
    return table(["network", *names], rows, "losses")


def _texts(document: Mapping[str, Any]) -> str:
    rows = [
        [
            str(text["source"]).rstrip("/").rsplit("/", 1)[-1],
            f"{text['tokens']:,}",
            f"{text['trained_on']:,}",
            f"{text['held_out']:,}",
            text["sha256"][:12],
        ]
        for text in document["texts"]
    ]
    return table(["text", "tokens", "trained on", "held out", "SHA-256"], rows, "texts")


def _making(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    training = document["training"]
    teacher = str(document["teacher"]).rstrip("/").rsplit("/", 1)[-1]
    source = (
        f"its {training['top']} likeliest tokens, from the disk" if training["top"] else "beside the child"
    )
    return [
        ("teacher", f"{teacher}, {source}"),
        ("losses", ", ".join(training["losses"])),
        ("learning rate", f"{training['rate']:.3g}"),
        ("batch", f"{training['batch']} sequences of {training['length']} tokens"),
        ("steps", f"{training['steps']:,}"),
        ("precision", "bfloat16 products" if training["bfloat16"] else "float32"),
        ("time", f"{training['seconds']:,.0f} s"),
        ("seed", str(training["seed"])),
    ]
