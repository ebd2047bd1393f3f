"""What the measurements in ``benchmarks/`` state, read from their files: no number is typed by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MEASUREMENTS = Path(__file__).parents[1] / "benchmarks"


@dataclass(frozen=True)
class Row:
    """A score on one benchmark: tau-b and its gain over body parameters, each with its interval."""

    score: str
    kind: str
    tau: float
    interval: tuple[float, float]
    gain: tuple[float, float] | None
    in_budgets: float
    mark: str


@dataclass(frozen=True)
class RatioWorth:
    """What a ratio of FFN to attention weights is worth beside a ratio of three."""

    ratio: float
    geo: float
    trained: float
    interval: tuple[float, float]


@cache
def read(name: str) -> str:
    """Return the text of one file of measurements."""
    return (MEASUREMENTS / f"{name}.md").read_text("utf-8")


@cache
def views() -> dict[str, dict[str, Row]]:
    """Return the scores of every view of the leaderboard by name, best first."""
    tables: dict[str, dict[str, Row]] = {}
    part = read("leaderboard").split("## Calibrations")[0]
    for section in part.split("\n### ")[1:]:
        cells = [row for row in _table(section) if len(row) == 8]
        tables[section.splitlines()[0].replace(", view", "")] = {
            row[0]: Row(row[0], "", _tau(row[1]), _interval(row[1]), _gain(row[4]), _number(row[5]), row[7])
            for row in cells
            if row[1] != "- [-, -]"
        }
    return tables


@cache
def proxies() -> dict[str, list[Row]]:
    """Return scores and proxies of each benchmark on one batch of text, sane mode, best first."""
    part = read("proxies").split("## What papers print")[0]
    return {
        section.split(":")[0].replace(", view", ""): [
            Row(row[0], row[1], _tau(row[2]), _interval(row[2]), _gain(row[5]), _number(row[6]), row[9])
            for row in _table(section)
            if len(row) == 10
        ]
        for section in part.split("\n### ")[1:]
    }


@cache
def ratio_worth() -> list[RatioWorth]:
    """Return what ratios are worth by geo and in the llamas of ``llama_small``."""
    rows = _table(_part("llama_small", "What a ratio is worth"))
    shares = [
        [float(cell.replace("%", "")) / 100 for cell in (*row[1:3], *row[3].split(" to "))] for row in rows
    ]
    return [
        RatioWorth(float(row[0]), geo, trained, (low, high))
        for row, (geo, trained, low, high) in zip(rows, shares, strict=True)
    ]


def _part(name: str, head: str) -> str:
    """Return what a file has below a heading."""
    parts = read(name).split(f"\n## {head}\n")
    if len(parts) != 2:
        raise LookupError(f"benchmarks/{name}.md has no part {head!r}")
    return parts[1].split("\n## ")[0]


def _table(text: str) -> list[list[str]]:
    """Return the cells of all table rows but heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    bodies = [line for before, line in zip(["", *lines], lines, strict=False) if not _rule(line) and before]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in bodies]


def _rule(line: str) -> bool:
    return set(line) <= set("|-: ")


def _tau(cell: str) -> float:
    return float(cell.split()[0])


def _number(cell: str) -> float:
    return float(cell) if cell != "-" else float("nan")


def _interval(cell: str) -> tuple[float, float]:
    low, high = re.findall(r"-?[0-9]*\.[0-9]+", cell)[1:3]
    return float(low), float(high)


def _gain(cell: str) -> tuple[float, float] | None:
    return _interval(cell) if cell and "-, -" not in cell else None


def _find(name: str, pattern: str) -> tuple[str, ...]:
    """Return the groups of the one place where a file says something; an error where it no longer does."""
    match = re.search(pattern, read(name))
    if match is None:
        raise LookupError(f"benchmarks/{name}.md no longer says {pattern!r}")
    return tuple(group.replace("\\", "") for group in match.groups())


def plain(number: float) -> str:
    """Return three decimals as the field prints them: .454."""
    return f"{number:.3f}".replace("0.", ".", 1)


@cache
def facts() -> dict[str, str]:
    """Return every fact by its name."""
    geo = [scores["geo"] for scores in views().values()]
    counted = [scores["body_params"] for scores in views().values()]
    said = {
        "views": str(len(geo)),
        "geo_beats_counting": str(sum(row.gain is not None and row.gain[0] > 0 for row in geo)),
        "geo_above_in_budgets": str(
            sum(a.in_budgets > b.in_budgets for a, b in zip(geo, counted, strict=True))
        ),
    }
    said["geo_gpt2_wt103"] = plain(views()["gpt2_wt103"]["geo"].tau)
    said["counting_ties"] = str(len(geo) - int(said["geo_beats_counting"]))
    for score in ("geo", "body_params"):
        row = rf"\n\| `{score}` \|(?:[^|]*\|)+? ([0-9.]+) \| ([0-9.]+) \|\n"
        said[f"regret_{score}"], said[f"budgets_{score}"] = (
            plain(float(number)) for number in _find("label_free", row)
        )
    (said["formulas"],) = _find("label_free", r"\n([0-9,]+) formulas,")
    tau = next(row.tau for row in proxies()["flexibert_glue declared"] if row.score == "lpzero_gpt2")
    said["lpzero_gpt2_flexibert"] = plain(tau)
    for name, rows in proxies().items():
        benchmark = name.split()[0].split("_")[0]
        measured = [row for row in rows if row.kind == "proxy" and row.score != "params"]
        said["proxies"] = str(len(measured))
        said[f"proxies_beat_counting_{benchmark}"] = str(
            sum(row.gain is not None and row.gain[0] > 0 for row in measured)
        )
        for kind in ("proxy", "closed form"):
            best = next(row for row in rows if row.kind == kind and "best" not in row.score)
            key = f"{kind.split()[0]}_{benchmark}"
            said[f"best_{key}"], said[f"best_{key}_tau"] = best.score, plain(best.tau)
            said[f"best_{key}_interval"] = f"[{plain(best.interval[0])}, {plain(best.interval[1])}]"
    said |= _calibration() | _carving() | _width() | _healing() | _llama_small() | _blocks()
    shown = {"evidence": table(said, "measurements"), "readme_evidence": table(said, "benchmarks")}
    return said | shown | {"leaderboard_summary": summary()}


def _calibration() -> dict[str, str]:
    names = ("gain", "worst", "where", "worse", "of", "beats_algorithm1")
    pattern = (
        r"20 labels, {} draws: .*gains \+0(\.\d+) on average and (-0\.\d+|\+0\.\d+) at worst \((\w+)\); "
        r"it is worse by more than \.003 in (\d) of (\d) rows.*beats Algorithm 1 in (\d)"
    )
    said = {}
    for draws in ("random", "larger"):
        values = _find("leaderboard", pattern.format(draws))
        said |= {f"{draws}_{name}": value for name, value in zip(names, values, strict=True)}
        said[f"{draws}_worst"] = said[f"{draws}_worst"].replace("0.", ".", 1)
    return said


def _carving() -> dict[str, str]:
    said = {}
    (said["parent_perplexity"],) = _find("carving", r"The parent's perplexity is ([0-9.]+);")
    said["kept_75"], said["kept_50"] = _find("carving", r"0\.75 kept \(([0-9.]+%) of.*0\.5 kept \(([0-9.]+%)")
    heads = {"carved": r"\*\*written by.*?least-squares", "random": r"random \| least-squares"}
    heads["capacity"], heads["magnitude"] = r"capacity \| none", r"magnitude \| none"
    for name, head in heads.items():
        values = _find("carving", rf"\| {head} \| ([0-9.]+) / [0-9.]+ \| ([0-9.]+) /")
        said[f"{name}_75"], said[f"{name}_50"] = values
    ffn = read("carving").split("FFN alone, all heads kept")[1]
    for name, head in (("ffn", r"output\\_energy"), ("rival_ffn", "Torch-Pruning, group magnitude")):
        match = re.search(rf"\| {head} \| least-squares \| ([0-9.]+) / [0-9.]+ \| ([0-9.]+) /", ffn)
        if match is None:
            raise LookupError(f"benchmarks/carving.md has no {head}")
        said[f"{name}_75"], said[f"{name}_50"] = match.groups()
    (said["embedding_cosine"],) = _find("carving", r"opened again\*\* \| least-squares \| (0\.\d+) \| 0")
    (said["random_embedding_cosine"],) = _find("carving", r"random \| least-squares \| (0\.\d+) \| 0")
    return said


def _width() -> dict[str, str]:
    ours = r"\| \*\*`zerolm carve`, its own plan, opened again\*\* \| "
    names, said = ("layers_75", "layers_50", "layers_40"), {}
    values = _find("width", ours + r"([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|")
    said |= {f"narrow_{name}": value for name, value in zip(names, values, strict=True)}
    before = _find("width", r"\| KV groups and FFN, least squares, per layer \| ([0-9.]+) \| ([0-9.]+) \|")
    said["whole_layers_75"], said["whole_layers_50"] = before
    return said


def _healing() -> dict[str, str]:
    row = r"\| 1/2, \.82 M \| ([0-9.]+) M \| [^|]* \| [^|]* \| [^|]* \| ([0-9.]+) \| [^|]* \| ([0-9,]+) \|"
    tokens, left, seconds = _find("healing", row)
    minutes = round(int(seconds.replace(",", "")) / 60)
    share = f"{100 * float(left):.0f}%"
    return {"healed_tokens": tokens, "healed_left": share, "healed_minutes": str(minutes)}


TOLD = ("law of depth", "width", "params", "geo", "depth_width2", "body_params", "depth", "ceiling")
"""The lines of scores on ``llama_small`` that the documentation shows."""


def _llama_small() -> dict[str, str]:
    said = dict(
        zip(
            ("llama_runs", "llama_shapes"),
            _find("llama_small", r"(\d+) of \d+ runs of (\d+) networks"),
            strict=True,
        )
    )
    part = _part("llama_small", "Scores at equal size")
    head, rule, *rows = [line for line in part.splitlines() if line.startswith("|")]
    by_name = {row.split(" | ")[0].removeprefix("| "): row for row in rows}
    shown = [by_name[name].replace(name, _code(name), 1) for name in TOLD]
    said["llama_scores"] = "\n".join([head, rule, *shown])
    for one in ratio_worth():
        key = f"{one.ratio:g}".replace(".", "_")
        said[f"worth_{key}"] = f"{one.trained:.0%}"
        said[f"worth_{key}_geo"] = f"{one.geo:.0%}"
        said[f"worth_{key}_interval"] = " to ".join(f"{end:.0%}" for end in one.interval)
    (noise,) = _find("llama_small", r"deviate from their mean by ([0-9.]+) nats")
    (doubling,) = _find("llama_small", r"A doubling of the body is worth ([0-9.]+) nats")
    said["llama_noise"] = plain(float(noise))
    said["llama_noise_size"] = f"{2 ** (float(noise) / float(doubling)) - 1:.0%}"
    for key, score in (("law", "law of depth"), ("geo", "geo")):
        (said[f"{key}_gemstones"],) = _find("llama_small", rf"\| gemstones \| {score} \| (\d+ of \d+) \|")
    row = next(row for row in _table(_part("llama_small", "With more tokens")) if row[0].startswith("1 x "))
    said["shallow_short"], said["shallow_long"] = (_signed(row[place]) for place in (2, -2))
    wishes = _table(_part("llama_small", "Whether geo's wish holds"))
    said["even_1M"] = next(_with_error(row[4]) for row in wishes if row[:2] == ["1M", "ratio at depth"])
    orders = next(row for row in _table(_part("llama_small", "Along one line")) if row[0] == "geo")
    for size, tau in zip((".1M", ".3M", "1M"), orders[1:4], strict=True):
        key = size.replace(".", "_")
        said[f"ratio_geo_{key}"] = tau.replace("0.", ".", 1)
        best = rf"\| law of depth \| {re.escape(size)} \| [^|]* \| ([0-9.]+) \(([0-9.]+) to ([0-9.]+)"
        said[f"best_ratio_{key}"] = "{:.2g} ({:.2g} to {:.2g})".format(
            *map(float, _find("llama_small", best))
        )
    return said


CLAIMS = {
    "two": "shared: two of q, k and v",
    "three": "shared: qkv",
    "no_ffn": "no FFN, wider",
    "deeper": "no FFN, deeper",
    "narrow": "narrow FFNs for one",
}
"""The claims of blocks whose mean difference the documentation tells, by the names of its facts."""


def _blocks() -> dict[str, str]:
    each, of_claims = _part("llama_small", "Blocks at equal parameters").split("\nThe same, over all ")
    verdicts = [row[-1] for row in _table(each)]
    said = {f"blocks_{word}": str(verdicts.count(word)) for word in ("better", "level", "worse")}
    said["blocks_trained"] = str(len(verdicts))
    differences = {row[0]: _with_error(row[2]) for row in _table(of_claims)}
    return said | {f"blocks_{key}": differences[claim] for key, claim in CLAIMS.items()}


def _signed(cell: str) -> str:
    return f"{float(cell):+.3f}".replace("0.", ".", 1)


def _with_error(cell: str) -> str:
    difference, error = cell.split(" ± ")
    return f"{_signed(difference)} ± {plain(float(error))}"


def _code(name: str) -> str:
    return name if " " in name or name == "ceiling" else f"`{name}`"


def table(said: dict[str, str], place: str) -> str:
    """Return what is measured, losses included, with links to its files in ``place``."""
    rows = [
        (
            "Does `geo` rank networks better than counting their parameters?",
            "In **{geo_beats_counting} of {views}** published views, with an interval above 0. In the others "
            "that is not shown.",
            "leaderboard",
        ),
        (
            "Among networks of about equal size, where counting is blind?",
            "tau-b above counting's in **{geo_above_in_budgets} of {views}**; {budgets_geo} against "
            "{budgets_body_params} on average. Far from 1.",
            "label_free",
        ),
        (
            "In llamas of one size and depth, is the ratio of FFN to attention worth what `geo` says?",
            "FFNs as large as attention **{worth_1}** of FFNs three times as large, `geo` says "
            "{worth_1_geo}; six times as large {worth_6} and {worth_6_geo}. How deep is best it cannot say.",
            "llama_small",
        ),
        (
            "What does its pick under a parameter budget lose?",
            "**{regret_geo}** of what a random choice loses; counting's pick {regret_body_params}.",
            "label_free",
        ),
        (
            "Is there a better formula?",
            "{formulas} tried. **None** holds up on benchmarks that its choice did not see.",
            "label_free",
        ),
        (
            "Do proxies that run the network do better?",
            "Of {proxies}, {proxies_beat_counting_flexibert} beat counting on FlexiBERT and "
            "{proxies_beat_counting_gpt2} on GPT-2. **None** is shown to beat the best closed form.",
            "proxies",
        ),
        (
            "Do 20 trained models of your own help?",
            "**+{random_gain}** tau-b over the better of `geo` and counting, {random_worst} at worst. Beyond "
            "the labels' sizes {larger_worst} at worst, and worse in {larger_worse} of {larger_of}.",
            "leaderboard",
        ),
        (
            "What does a carved child lose, untrained?",
            "Perplexity {parent_perplexity} becomes **{carved_75}** with {kept_75} of the parameters, "
            "{carved_50} with {kept_50}. Units by chance, with the same repair: {random_75} and {random_50}.",
            "carving",
        ),
        (
            "What does a plan lose that may narrow the hidden size, too?",
            "KL to the parent **{narrow_layers_75}** nats a token with 75% of the layers' parameters, "
            "{narrow_layers_50} with 50%. With the whole hidden size {whole_layers_75} and "
            "{whole_layers_50}.",
            "width",
        ),
        (
            "What does healing give back?",
            "Of the KL of a child with half of the heads and the FFN, **{healed_left}** is left after "
            "{healed_tokens} M tokens, {healed_minutes} minutes on one thread.",
            "healing",
        ),
        (
            "And beside Torch-Pruning's group magnitude, FFN alone, the same repair for both?",
            "{ffn_75} against {rival_ffn_75} with 0.75 of the FFN, {ffn_50} against {rival_ffn_50} with 0.5.",
            "carving",
        ),
        (
            "Do weights alone say what to cut?",
            "Poorly: `capacity` gives {capacity_50} at half, plain magnitude {magnitude_50}. On an encoder "
            "the repair does all: units by chance reach cosine {random_embedding_cosine}, chosen ones "
            "{embedding_cosine}.",
            "carving",
        ),
    ]
    lines = ["| question | measured | where |", "|---|---|---|"]
    lines += [
        f"| {ask} | {answer.format(**said)} | [{file}]({place}/{file}.md) |" for ask, answer, file in rows
    ]
    return "\n".join(lines)


def summary() -> str:
    """Return ``geo`` beside counting on every view, as a table."""
    lines = [
        "| view | `geo` | counting | gain [95 %] | `geo`, equal size | counting, equal size | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, scores in views().items():
        geo, counted = scores["geo"], scores["body_params"]
        low, high = geo.gain or (float("nan"), float("nan"))
        lines.append(
            f"| {name} | {plain(geo.tau)} | {plain(counted.tau)} | [{plain(low)}, {plain(high)}] | "
            f"{plain(geo.in_budgets)} | {plain(counted.in_budgets)} | {geo.mark or 'shown'} |"
        )
    return "\n".join(lines)
