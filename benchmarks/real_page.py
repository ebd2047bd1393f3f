"""The page of ``real``, from the rows that were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from parts import Parts
from real_commands import COMMANDS, name_of, printed_losses
from real_models import CALIBRATED, JUDGED, LENGTH, REAL, SENTENCES, TOYS
from real_ours import OURS
from real_peers import METHODS
from real_vocabulary import VOCABULARY
from scipy.stats import rankdata
from timing import machine, number

Rows = Mapping[str, Any]
NAMES: Final = {
    "minilm": "all-MiniLM-L6-v2",
    "mpnet": "all-mpnet-base-v2",
    "gemma270": "Gemma 3 270M",
    "qwen05": "Qwen2.5-Coder-0.5B-Instruct",
    "qwen15": "Qwen2.5-Coder-1.5B-Instruct",
    "pydec": "toy decoder, 7 M",
    "pyenc": "toy encoder, 7 M",
}
TEXTS: Final = {
    "python": "unseen Python",
    "english": "unseen English",
    "chat": "unseen chat turns",
    "sentences": "unseen sentences",
}
WHOLES: Final = {"": "the layers' parameters", "of params ": "all parameters"}
"""What shares are of, by the names of rows."""
SIDE_METHODS: Final = (
    *METHODS,
    VOCABULARY,
    *(method for method in OURS if not method.startswith("of params")),
)
TITLES: Final = {**METHODS, **OURS, VOCABULARY: "COMPACT with its vocabulary"}
APART: Final = 0.01
SIDE: Final = (0.8, 0.5)
"""Shares of the first tables."""
SHARES: Final = (0.9, 0.8, 0.7, 0.5)
RANKED: Final = (
    "capacity",
    "max_weight",
    "random",
    "flap",
    "two_ssp",
    "compact",
    "minitron",
    "amp",
    "output_energy",
)
"""Methods that choose the neurons of the same widths and add nothing."""


def page(folder: Path) -> str:
    """Return the whole page."""
    every = {name: of_last_texts(Parts(folder / f"{name}.jsonl").every()) for name in (*REAL, *TOYS)}
    lines = [
        "# Real models: published ways to prune, and ours",
        "",
        f"`ZEROLM_REAL=FOLDER python benchmarks/real.py`, written on {machine()}. One thread.",
        "",
        "Each method prunes the same parent to a share of the parameters of its layers (embeddings and "
        "head apart). Unless a row says otherwise, all FFNs get the same width, all attention is kept, and "
        f"nothing is refitted. Units are scored by one forward pass over {CALIBRATED:,} tokens of "
        "Python's standard library and its packages (encoders: sentences). Children are judged on files that "
        f"nothing was chosen by: {JUDGED:,} tokens of each text in windows of {LENGTH}, the predictions of "
        f"every other position; {SENTENCES:,} sentences. Matrix products of layers are in bfloat16, the head "
        "in float32.",
        "",
        "KL is KL(parent || child) in nats a token. 1 - cosine is between the parent's and the child's "
        "embeddings. Nearest is the share of the ten nearest sentences that are the parent's, too. A method "
        "that cannot keep a share stands there with the nearest that it can.",
        "",
    ]
    lines += ["## Commands", "", *commands(every)]
    lines += ["## Side by side", "", *side_by_side(every)]
    for name in REAL:
        rows = every[name]
        tables = [*model_tables(rows), *within_shares(rows, name)] if rows else []
        if tables:
            lines += [f"## {NAMES[name]}", "", *tables]
    lines += ["## Real models and toys", "", *ranking(every)]
    lines += ["## Chat", "", *chat(every)]
    lines += ["## Products in bfloat16", "", *agreement(every)]
    lines += ["## Tokens a second", "", *speed(every)]
    lines += ["## What it takes", "", *effort(every)]
    return "\n".join(lines).rstrip() + "\n"


def of_last_texts(rows: Rows) -> Rows:
    """Return rows without those that were judged on another text than the last row of the same kind."""
    kinds = {name: kind for name, row in rows.items() if (kind := judged_on(name, row))}
    last = {kind: rows[name].get("text") for name, kind in kinds.items()}
    return {
        name: row for name, row in rows.items() if name not in kinds or row.get("text") == last[kinds[name]]
    }


def judged_on(name: str, row: Any) -> str | None:
    """Return the kind of unseen text that a row was judged on; None for a row that was not judged."""
    if name.startswith("command "):
        return None if name.endswith((" took", " unread")) else "sentences" if "distance" in row else "python"
    return name.rpartition(" on ")[2].removesuffix(" in float32") if " on " in name else None


def commands(every: Mapping[str, Rows]) -> Iterator[str]:
    """Children by commands of ``zerolm``: what they print, what unseen files say, and what they take."""
    cells = []
    for name, several in COMMANDS.items():
        earlier = ""
        for command in several:
            row = every[name].get(name_of(command))
            if row is not None:
                kind, text = ("1 - cosine", "sentences.txt") if "distance" in row else ("KL", "python.txt")
                unseen = f"{kind} {small(loss_of(row))}"
                if "nearest" in row:
                    unseen += f", nearest {row['nearest']:.2f}"
                elif "perplexity" in row:
                    unseen += f", perplexity {row['parent']:.2f} to {row['perplexity']:.2f}"
                cells.append(
                    [
                        NAMES[name],
                        f"`{command.shown(name, text, earlier)}`",
                        f"{number(every[name]['sizes']['params'] / 1e6)} to {number(row['params'] / 1e6)}",
                        f"{', '.join(map(small, losses))} ({kind})"
                        if (losses := printed_losses(row))
                        else "",
                        small(loss_of(unread))
                        if (unread := every[name].get(f"{name_of(command)} unread"))
                        else "",
                        unseen,
                        f"{row['minutes']:.1f}, {row['processor_minutes']:.1f}"
                        + (" (resumed)" if row.get("resumed") else ""),
                        f"{row['peak_gb']:.1f}",
                    ]
                )
            earlier = command.name.replace(" ", "-")
    yield (
        "Children as a user makes them. *Printed* are losses on held-out text: as cut, then repaired; of "
        "`heal` before and after; *unread* is the same loss on parts of that text that the command did not "
        "read. Minutes are those of the clock and of the processor; of a row that was *resumed*, of the run "
        "after the kill:"
    )
    yield ""
    head = ["parent", "command", "M parameters", "printed", "unread", "unseen files", "minutes", "GB"]
    yield from table(head, cells)


def small(loss: float | None) -> str:
    """Return a loss with three digits, as ``.0486``."""
    assert loss is not None
    return f"{loss:#.3g}".removeprefix("0")


def side_by_side(every: Mapping[str, Rows]) -> Iterator[str]:
    """The first text of each model, by shares of its layers and of all parameters, a column a model."""
    for kind, whole in WHOLES.items():
        for share in SIDE:
            columns = {name: first_text(every[name], share, kind) for name in REAL}
            columns = {name: column for name, column in columns.items() if any(column.values())}
            if not columns:
                continue
            yield (
                f"{share:.0%} of {whole}: KL (perplexity) on unseen Python; 1 - cosine (nearest) on unseen "
                "sentences:"
            )
            yield ""
            yield from table(
                ["method", *(NAMES[name] for name in columns)],
                [
                    [
                        titled(kind, method),
                        *(
                            shown(column[method], None if kind else every[name]["sizes"]["body"], share)
                            for name, column in columns.items()
                        ),
                    ]
                    for method in SIDE_METHODS
                    if any(column[method] for column in columns.values())
                ],
            )


def titled(kind: str, method: str) -> str:
    """Return the title of a method, which may be another where shares are of all parameters."""
    return TITLES.get(f"{kind}{method}", TITLES[method])


def first_text(rows: Rows, share: float, kind: str = "") -> dict[str, Any]:
    """Return the rows of a share by method: on Python, or of an encoder on sentences."""
    return {
        method: rows.get(f"{share} {kind}{method} by python on python")
        or rows.get(f"{share} {kind}{method} by sentences on sentences")
        for method in SIDE_METHODS
    }


def model_tables(rows: Rows) -> Iterator[str]:
    for kind, text in ((kind, text) for kind in ("", "of params ") for text in TEXTS):
        by = "sentences" if text == "sentences" else "python"
        title, what = TEXTS[text], WHOLES[kind]
        cells = {
            method: [
                shown(
                    rows.get(f"{share} {kind}{method} by {by} on {text}"),
                    None if kind else rows["sizes"]["body"],
                    share,
                )
                or shown(rows.get(f"{share} {kind}{method} by {text} on {text}"))
                for share in SHARES
            ]
            for method in (*METHODS, VOCABULARY, *(name.removeprefix("of params ") for name in OURS))
        }
        present = {method: each for method, each in cells.items() if any(each)}
        if not present or text == "chat":
            continue
        parents = [
            one["parent"] for name, one in rows.items() if name.endswith(f" on {text}") and "parent" in one
        ]
        unit = "1 - cosine (nearest)" if text == "sentences" else "KL (perplexity)"
        yield f"{unit} on {title}, by share of {what}" + (
            f"; the parent's perplexity is {parents[0]:.2f}:" if parents else ":"
        )
        yield ""
        yield from table(
            ["method", *(f"{share:.0%}" for share in SHARES)],
            [[titled(kind, method), *each] for method, each in present.items()],
        )


def shown(row: Any, whole: int | None = None, share: float = 1.0) -> str:
    """Return a cell; with the share of the ``whole`` layers that is kept where it cannot be this one."""
    if row is None:
        return ""
    if whole and abs(row["body"] / whole - share) > APART:
        return f"{shown(row)} at {row['body'] / whole:.0%}"
    if "bits" in row:
        return f"{row['bits']:.3f} bits a byte (parent's {row['parent_bits']:.3f})"
    if "distance" in row:
        return f"{row['distance']:.3f} ({row['nearest']:.2f})"
    if "kl" in row:
        return f"{number(row['kl'])} ({number(row['perplexity'])})"
    child, parent = row["eval"]["rows"][:2]
    kl = f"{number(child['kl'])}, " if child.get("kl") is not None else ""
    return f"{kl}{child['bits']:.3f} bits a byte (parent's {parent['bits']:.3f})"


def loss_of(row: Any) -> float | None:
    return None if row is None else row.get("kl", row.get("distance"))


def within_shares(rows: Rows, name: str) -> Iterator[str]:
    """Children that ``zerolm`` made within shares of all parameters, on unseen Python."""
    made = {share: rows.get(f"{share} of params ours by python on python") for share in SHARES}
    cells = [
        [
            f"`{share}x`",
            f"{row['params'] / 1e6:.0f}M",
            f"{row['body'] / rows['sizes']['body']:.0%}",
            number(child["kl"]),
            f"{child['bits']:.3f} ({parent['bits']:.3f})",
            f"{row['processor_minutes']:.0f}",
            f"{row['peak_gb']:.1f}",
        ]
        for share, row in made.items()
        if row is not None
        for child, parent in [row["eval"]["rows"][:2]]
    ]
    if cells:
        yield f"{NAMES[name]} by `zerolm carve --max-params`, on unseen Python:"
        yield ""
        head = ["share", "parameters", "of the layers", "KL", "bits a byte (parent's)", "minutes", "GB"]
        yield from table(head, cells)


def ranking(every: Mapping[str, Rows]) -> Iterator[str]:
    """The ranks of criteria, 1 the best, mean over the shares that all of a model's criteria have."""
    columns: dict[str, dict[str, float]] = {}
    for name, rows in every.items():
        text = by = "sentences" if any(" on sentences" in part for part in rows) else "python"
        ranks = []
        for share in SHARES:
            losses = [loss_of(rows.get(f"{share} {method} by {by} on {text}")) for method in RANKED]
            if None not in losses:
                ranks.append(rankdata([loss for loss in losses if loss is not None]))
        if ranks:
            columns[name] = dict(zip(RANKED, sum(ranks) / len(ranks), strict=True))
    yield "Rank of each criterion among these nine, 1 the best, the mean over the shares that were measured:"
    yield ""
    yield from table(
        ["criterion", *(NAMES[name] for name in columns)],
        [[METHODS[method], *(f"{column[method]:.1f}" for column in columns.values())] for method in RANKED],
    )


def chat(every: Mapping[str, Rows]) -> Iterator[str]:
    rows = [
        [NAMES[name], f"{share:.0%}", METHODS[method], *cells]
        for name, parts in every.items()
        for share in SHARES
        for method in METHODS
        if any(
            cells := [
                shown(parts.get(f"{share} {method} by {by} on {text}"))
                for by in ("python", "chat")
                for text in ("python", "chat")
            ]
        )
        and cells[1] + cells[3]
    ]
    yield (
        "KL (perplexity) on text and on turns of the model's own template, where a user asks for a function "
        "and the assistant answers with its code; scored by plain text, and by such turns:"
    )
    yield ""
    yield from table(
        [
            "model",
            "share",
            "method",
            "by text, on text",
            "by text, on chat",
            "by chat, on text",
            "by chat, on chat",
        ],
        rows,
    )


def agreement(every: Mapping[str, Rows]) -> Iterator[str]:
    rows = []
    for name, parts in every.items():
        for part, row in parts.items():
            other = parts.get(part.removesuffix(" in float32"))
            if part.endswith(" in float32") and other is not None:
                a, b = loss_of(row), loss_of(other)
                assert a is not None
                assert b is not None
                rows.append(
                    [NAMES[name], part.removesuffix(" in float32"), number(a), number(b), f"{b / a - 1:+.2%}"]
                )
    yield "The same rows with all products in float32:"
    yield ""
    yield from table(["model", "row", "float32", "bfloat16", "apart"], rows)


def speed(every: Mapping[str, Rows]) -> Iterator[str]:
    rows = []
    for name, parts in every.items():
        for runtime in ("transformers", "llama.cpp"):
            for share in (1.0, 0.8, 0.5):
                row = parts.get(f"{share} speed in {runtime}")
                if row is not None:
                    what = "parent" if share == 1 else f"{share:.0%} of the layers"
                    cells = [row.get(kind) for kind in ("prompt", "decode")]
                    rows.append([NAMES[name], what, runtime, *(number(x) if x else "refused" for x in cells)])
    yield "One thread; a prompt of 512 tokens, then 32 decoded; the best of three:"
    yield ""
    yield from table(["model", "", "runtime", "prompt, tokens/s", "decode, tokens/s"], rows)


def effort(every: Mapping[str, Rows]) -> Iterator[str]:
    rows = []
    for name, parts in every.items():
        peers = [row for row in parts.values() if "score_seconds" in row]
        if peers:
            seconds = max(row["score_seconds"] for row in peers)
            peak = max(row["peak_gb"] for row in peers)
            rows.append(
                [NAMES[name], "all published criteria, one pass", f"{seconds / 60:.1f}", "", f"{peak:.1f}"]
            )
        for part, row in parts.items():
            if " made " in part:
                share, _, what = part.partition(" made ")[0].partition(" ")
                of = "all parameters" if what.startswith("of params") else "the layers"
                predicted = row.get("predicted_minutes")
                rows.append(
                    [
                        NAMES[name],
                        f"{float(share):.0%} of {of}: {TITLES[what]}",
                        f"{row['processor_minutes']:.1f}",
                        "" if predicted is None else f"{predicted:.0f}",
                        f"{row['peak_gb']:.1f}",
                    ]
                )
    yield (
        "Minutes of one core and gigabytes at the peak to make a child; minutes that the command predicted "
        "before it started, where it takes a minute or more. Some rows took passes from the cache of an "
        "earlier one, which their predictions did not know:"
    )
    yield ""
    yield from table(["model", "what", "minutes", "predicted", "GB"], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        yield "Not measured yet."
        yield ""
        return
    yield "| " + " | ".join(header) + " |"
    yield "|---|" + "---:|" * (len(header) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""
