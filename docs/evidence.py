"""What the measurements in ``benchmarks/`` state, read from their files: no number is typed by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import zerolm

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


METHODS = {
    "carve": "**`zerolm carve`, its own plan, opened again**",
    "units": "KV groups and FFN, least squares, per layer",
    "slicegpt": "SliceGPT",
}
"""The methods that cut one parent to equal sizes, as ``width`` names them."""

RIVALS = {
    "units": "KV groups and FFN, least squares, per layer",
    "minitron_repaired": "Minitron, our least squares",
    "slicegpt": "SliceGPT",
    "minitron": "Minitron",
    "flap": "FLAP, uniform",
}
"""The methods whose loss stands beside that of ``carve``, as ``width`` names them."""


@cache
def carved() -> dict[str, list[tuple[float, float]]]:
    """Return the shares of the layers' parameters that methods keep, and the perplexity; the parent first."""
    (parent,) = _find("width", r"the parent's is ([0-9.]+)\)")
    curves = {method: [(1.0, float(parent))] for method in METHODS}
    for share in ("75%", "50%", "40%"):
        rows = {row[0]: row for row in _table(_part("width", f"{share} of the layers", "###"))}
        for method, name in METHODS.items():
            _, _, size, _, perplexity = rows[name]
            curves[method].append((float(size.strip("%")) / 100, float(perplexity)))
    return curves


def by_bytes() -> dict[str, list[tuple[float, float]]]:
    """Return megabytes and KL of types alone, of cuts alone and of both, of the first model, by bytes."""
    model = read("bits").split("\n## ")[1]
    parts = {part.partition("\n")[0]: _table(part) for part in model.split("\n### ")[1:]}
    curves = {
        "types": [(float(row[3]), float(row[8])) for row in parts["Types alone"] if row[8]],
        "cuts": [(float(row[1]), float(row[2])) for row in parts["Cuts alone"]],
        "both": [
            (float(row[1]), float(row[3]))
            for row in parts["Cuts and types together"]
            if row[0] == "per-layer"
        ],
    }
    return {name: sorted(points) for name, points in curves.items()}


def _part(name: str, head: str, level: str = "##") -> str:
    """Return what a file has below a heading."""
    parts = read(name).split(f"\n{level} {head}\n")
    if len(parts) != 2:
        raise LookupError(f"benchmarks/{name}.md has no part {head!r}")
    return parts[1].split(f"\n{level} ")[0]


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


DECODERS = ("gemstones",)
"""Benchmarks of the leaderboard that the means of ``label_free`` are not over."""


@cache
def facts() -> dict[str, str]:
    """Return every fact by its name."""
    geo = [scores["geo"] for scores in views().values()]
    numbers = {
        "views": str(len(geo)),
        "geo_beats_counting": str(sum(row.gain is not None and row.gain[0] > 0 for row in geo)),
    }
    averaged = [scores for name, scores in views().items() if name not in DECODERS]
    numbers["budget_views"] = str(len(averaged))
    numbers["geo_above_in_budgets"] = str(
        sum(scores["geo"].in_budgets > scores["body_params"].in_budgets for scores in averaged)
    )
    numbers["geo_gpt2_wt103"] = plain(views()["gpt2_wt103"]["geo"].tau)
    numbers["counting_ties"] = str(len(geo) - int(numbers["geo_beats_counting"]))
    for score in ("geo", "body_params"):
        row = rf"\n\| `{score}` \|(?:[^|]*\|)+? ([0-9.]+) \| ([0-9.]+) \|\n"
        numbers[f"regret_{score}"], numbers[f"budgets_{score}"] = (
            plain(float(number)) for number in _find("label_free", row)
        )
    (numbers["formulas"],) = _find("label_free", r"\n([0-9,]+) formulas,")
    tau = next(row.tau for row in proxies()["flexibert_glue declared"] if row.score == "lpzero_gpt2")
    numbers["lpzero_gpt2_flexibert"] = plain(tau)
    for name, rows in proxies().items():
        benchmark = name.split()[0].split("_")[0]
        measured = [row for row in rows if row.kind == "proxy" and row.score != "params"]
        numbers["proxies"] = str(len(measured))
        numbers[f"proxies_beat_counting_{benchmark}"] = str(
            sum(row.gain is not None and row.gain[0] > 0 for row in measured)
        )
        for kind in ("proxy", "closed form"):
            best = next(row for row in rows if row.kind == kind and "best" not in row.score)
            key = f"{kind.split()[0]}_{benchmark}"
            numbers[f"best_{key}"], numbers[f"best_{key}_tau"] = best.score, plain(best.tau)
            numbers[f"best_{key}_interval"] = f"[{plain(best.interval[0])}, {plain(best.interval[1])}]"
    numbers |= (
        _calibration()
        | _carving()
        | _width()
        | _bits()
        | _depth_rules()
        | _healing()
        | _real()
        | _vocabulary()
        | _experts()
    )
    return numbers | _llama_small() | _llama_pairs() | _blocks() | _subnets()


def _calibration() -> dict[str, str]:
    names = ("gain", "worst", "where", "worse", "of", "beats_algorithm1")
    pattern = (
        r"20 labels, {} draws: .*gains \+0(\.\d+) on average and (-0\.\d+|\+0\.\d+) at worst \((\w+)\); "
        r"it is worse by more than \.003 in (\d) of (\d) rows.*beats Algorithm 1 in (\d)"
    )
    numbers = {}
    for draws in ("random", "larger"):
        values = _find("leaderboard", pattern.format(draws))
        numbers |= {f"{draws}_{name}": value for name, value in zip(names, values, strict=True)}
        numbers[f"{draws}_worst"] = numbers[f"{draws}_worst"].replace("0.", ".", 1)
    return numbers


def _carving() -> dict[str, str]:
    numbers = {}
    (numbers["parent_perplexity"],) = _find("carving", r"The parent's perplexity is ([0-9.]+);")
    sizes = _find("carving", r"0\.75 kept \(([0-9.]+%) of.*0\.5 kept \(([0-9.]+%)")
    numbers["kept_75"], numbers["kept_50"] = sizes
    heads = {"carved": r"\*\*written by.*?least-squares", "random": r"random \| least-squares"}
    heads["capacity"], heads["magnitude"] = r"capacity \| none", r"magnitude \| none"
    for name, head in heads.items():
        values = _find("carving", rf"\| {head} \| ([0-9.]+) / [0-9.]+ \| ([0-9.]+) /")
        numbers[f"{name}_75"], numbers[f"{name}_50"] = values
    ffn = read("carving").split("FFN alone, all heads kept")[1]
    for name, head in (("ffn", r"output\\_energy"), ("rival_ffn", "Torch-Pruning, group magnitude")):
        match = re.search(rf"\| {head} \| least-squares \| ([0-9.]+) / [0-9.]+ \| ([0-9.]+) /", ffn)
        if match is None:
            raise LookupError(f"benchmarks/carving.md has no {head}")
        numbers[f"{name}_75"], numbers[f"{name}_50"] = match.groups()
    (numbers["embedding_cosine"],) = _find("carving", r"opened again\*\* \| least-squares \| (0\.\d+) \| 0")
    (numbers["random_embedding_cosine"],) = _find("carving", r"random \| least-squares \| (0\.\d+) \| 0")
    return numbers


def _width() -> dict[str, str]:
    ours = r"\| \*\*`zerolm carve`, its own plan, opened again\*\* \| "
    names, numbers = ("layers_75", "layers_50", "layers_40"), {}
    values = _find("width", ours + r"([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|")
    numbers |= {f"narrow_{name}": value for name, value in zip(names, values, strict=True)}
    before = _find("width", r"\| KV groups and FFN, least squares, per layer \| ([0-9.]+) \| ([0-9.]+) \|")
    numbers["whole_layers_75"], numbers["whole_layers_50"] = before
    numbers["width_parent"] = f"{carved()['carve'][0][1]:.2f}"
    half = {row[0]: row[3] for row in _table(_part("width", "50% of the layers", "###"))}
    for key, name in RIVALS.items():
        numbers[f"half_{key}_kl"] = half[name]
    return numbers | {f"half_{method}": f"{points[2][1]:.2f}" for method, points in carved().items()}


def _bits() -> dict[str, str]:
    """Return what types alone lose beside one type of as many bytes, of the first model."""
    numbers = {}
    for name in ("Q6_K", "Q4_K", "Q3_K", "Q4_K_M"):
        head = re.escape(name).replace("_", r"\\?_")
        other = "llama.cpp's mix" if name.endswith("_M") else "everywhere"
        row = rf"\| {head} {other} \| ([0-9.]+) \| ([0-9.]+) \| [0-9.]+ \| [^|]*\| ([0-9.]+) \|"
        size, single, alone, repaired = _find("bits", rf"{row} [^|]* \| [^|]* \| ([0-9.]+) \|")
        key = name.lower()
        numbers |= {f"{key}_mb": f"{float(size):.2f}", f"{key}_single": f"{float(single):.4f}"}
        numbers[f"{key}_alone"] = f"{float(alone):.4f}"
        numbers[f"{key}_repaired"] = f"{float(repaired):.4f}"
    healed = _table(_part("bits", "Healed, then quantised", "###"))[-1]
    numbers["healed_types"], numbers["cut_types"] = healed[-2:]
    encoder = next(part for part in read("bits").split("\n## ") if part.startswith("`pyenc`"))
    rows = {row[0]: row for row in _table(encoder.split("\n### ")[1])}
    for name, key in (("Q4_K everywhere", "q4_k"), ("Q4_K_M llama.cpp's mix", "q4_k_m")):
        whole, alone = (f"{float(rows[name][column]):.4f}" for column in (3, 6))
        numbers |= {f"encoder_{key}": whole, f"encoder_{key}_alone": alone}
    return numbers | _bits_large()


def _bits_large() -> dict[str, str]:
    """Return what types of a large checkpoint take, and llama.cpp's quantiser beside it."""
    numbers = {}
    for row, key in (("zerolm carve", "large_types"), ("llama_model_quantize", "large_quantiser")):
        seconds, memory = _find("bits_large", rf"\| `{row}` \| ([0-9.]+) \| [^|]* \| ([0-9,]+) MB \|")
        numbers |= {f"{key}_seconds": seconds, f"{key}_gb": f"{int(memory.replace(',', '')) / 1000:.1f}"}
    return numbers


def _depth_rules() -> dict[str, str]:
    """Return what the deepest of llama_small lose to the base by a rule of depth, at their best rates."""
    rows = _table(_part("aspect", "Whether the deep penalty is the recipe's"))
    return {
        f"deepest_{row[0].split()[0].strip('.').lower()}_{row[2]}{seed}": row[column]
        for row in rows
        if len(row) == 8 and row[2] in ("none", "linear")
        for column, seed in ((6, ""), (7, "_again"))
    }


def _healing() -> dict[str, str]:
    row = r"\| 1/2, \.82 M \| ([0-9.]+) M \| [^|]* \| [^|]* \| [^|]* \| ([0-9.]+) \| [^|]* \| ([0-9,]+) \|"
    tokens, left, seconds = _find("healing", row)
    minutes = round(int(seconds.replace(",", "")) / 60)
    share = f"{100 * float(left):.0f}%"
    return {"healed_tokens": tokens, "healed_left": share, "healed_minutes": str(minutes)}


def _real() -> dict[str, str]:
    """Return the figures of real models in README's first table."""
    rows = {
        (row[0], row[1].strip("`").partition(" --text")[0]): row for row in _table(_part("real", "Commands"))
    }
    qwen = rows["Qwen2.5-Coder-0.5B-Instruct", "carve qwen05 --keep-ffn .75"]
    minilm = rows["all-MiniLM-L6-v2", "carve minilm --keep-ffn .5"]
    healed = rows["all-MiniLM-L6-v2", "heal half --parent minilm --for 10m"]
    small = rows["all-MiniLM-L6-v2", "carve minilm --format gguf --max-weight-bytes 12MB"]
    side = {row[0]: row[2] for row in _table(_part("real", "Side by side").split("\n50% of")[0])}
    published = min(float(cell.split()[0]) for name, cell in side.items() if "zerolm" not in name and cell)
    bytes_of = {
        (model, row[0]): row[4].replace("0.", ".").replace("%", " %")
        for model, limit in (("gemma270", 120), ("qwen05", 250))
        for row in _table(_part("real_bytes", f"{model} within {limit} MB"))
    }
    products = [abs(float(row[4].strip("%"))) for row in _table(_part("real", "Products in bfloat16"))]
    ours, q2_k = "zerolm: tokens, types and cuts together", "llama.cpp: Q2_K, all tokens"
    effort = {tuple(row[:2]): row[2] for row in _table(_part("real", "What it takes"))}
    return {
        "bytes_gemma": bytes_of["gemma270", ours],
        "bytes_gemma_q2_k": bytes_of["gemma270", q2_k],
        "bytes_qwen": bytes_of["qwen05", ours],
        "bytes_qwen_q2_k": bytes_of["qwen05", q2_k],
        "bfloat16_children": str(len(products)),
        "bfloat16_apart": f"{max(products):.1f} %".removeprefix("0"),
        "real_qwen": qwen[5].replace("KL ", "", 1).replace(", perplexity", " nats a token, perplexity"),
        "real_qwen_minutes": _rounded(qwen[6]),
        "real_minilm": _distance(minilm),
        "real_minilm_minutes": _rounded(minilm[6]),
        "real_healed": _distance(healed),
        "real_small": _distance(small),
        "real_small_minutes": _rounded(small[6]),
        "real_mpnet": plain(float(side["zerolm, refitted"].split()[0])),
        "real_mpnet_published": plain(published),
        "real_mpnet_minutes": _rounded(effort["all-mpnet-base-v2", "80% of the layers: zerolm, refitted"]),
    }


def _distance(row: Sequence[str]) -> str:
    """Return 1 - cosine on unseen sentences of a row of commands."""
    return row[5].split()[3].rstrip(",")


def _rounded(minutes: str) -> str:
    """Return the last of some minutes, of the processor, as ``8 min``."""
    return f"{max(1, round(float(minutes.split()[-1])))} min"


def _experts() -> dict[str, str]:
    """Return what half of the experts of a trained mixture lose, on unseen code and English, by method."""
    names = {
        "random": ("random", ""),
        "reap": ("reap", "both"),
        "frequency": ("frequency", "both"),
        "moments": ("hope_moments", "both"),
        "repaired": ("reap, repaired", "both"),
        "frequency_repaired": ("frequency, repaired", "both"),
        "hope_repaired": ("hope, repaired", "both"),
        "moments_repaired": ("hope_moments, repaired", "both"),
        "one_sided": ("hope_moments, repaired", "code"),
        "by_chance": ("hope_moments, repaired", "random"),
        "routers_healed": ("hope, repaired, routers healed", "both"),
        "healed": ("hope, repaired, healed", "both"),
        "in_q4_k": ("hope_moments, repaired, in Q4_K", "both"),
        "narrow_drawn": ("neurons alone, drawn", ""),
        "narrow_by_weights": ("neurons alone, by weights", ""),
        "narrow_plain": ("neurons alone", "both"),
        "narrow": ("neurons alone, repaired", "both"),
        "narrow_one_sided": ("neurons alone, repaired", "code"),
        "together": ("hope_moments and neurons, repaired", "both"),
        "none_leave": ("none leave, quantised to the bytes of Q4_K children", ""),
    }
    numbers = {}
    for count, key in ((8, ""), (12, "_12")):
        head = f"{count} of 16 experts stay"
        table = _table(_part("experts_quality", head))
        rows = {(row[0].partition(":")[0], row[1]): row[2:] for row in table}
        joint = next(row[0] for row in table if (row[0].partition(":")[0], row[1]) == names["together"])
        sizes = re.findall(r"\d+", joint.partition(":")[2])
        numbers |= dict(
            zip((f"experts_together{key}_count", f"experts_together{key}_width"), sizes, strict=True)
        )
        for name, row in names.items():
            for text, value in zip(("code", "english"), rows[row], strict=True):
                if value != "-":
                    numbers[f"experts_{name}{key}_{text}"] = f"{float(value):.3f}"
    return numbers


def _subnets() -> dict[str, str]:
    """Return how sub-networks of one model are ordered, by KL, and how the order holds under attack."""
    row = r"\n\| pydec \| prefix \| kl \| ([0-9.]+) \| ([0-9.]+) \([^|]*\| ([0-9.]+) \| ([0-9.]+) \|"
    values = (*_find("subnets", row), *_find("subnets", r"\n\| first set \| first set \| (-?[0-9.]+) "))
    values += _find("subnets", r"\n\| one word changed at most \|[^|]*\|[^|]*\| (-?[0-9.]+) ")
    names = ("counting", "other", "prices", "measured", "attacked", "own_attack")
    return {f"subnets_{name}": plain(float(value)) for name, value in zip(names, values, strict=True)}


def _vocabulary() -> dict[str, str]:
    """Return what fewer tokens lose and save."""
    (half,) = _find("vocab", r"\n\| 2,048 \|[^|]*\|[^|]*\| \+([0-9.]+)% \|")
    kept = sorted(map(int, re.findall(r"\| English \| [0-9,]+ \((\d+)%\)", read("vocab"))))
    shape = (
        r"\| gemma-3-270m \|[^|]*\|[^|]*\| ([0-9.]+) → ([0-9.]+) \| (\d+)% \| (\d+) \|[^|]*\| ([0-9.]+) \|"
    )
    before, after, _, seconds, memory = _find("vocab", shape)
    (used,) = _find("vocab", r"which need ([0-9,]+) of them")
    (auto,) = _find("vocab", r"\| 93% \| ([0-9,]+) \|[^|]*\|[^|]*\| [0-9.]+ chosen \|")
    return {
        "vocab_used": used,
        "vocab_auto": auto,
        "vocab_half": half,
        "vocab_english_least": str(kept[0]),
        "vocab_english_most": str(kept[-1]),
        "vocab_gemma_before": before,
        "vocab_gemma_after": after,
        "vocab_gemma_seconds": seconds,
        "vocab_gemma_memory": memory,
    }


LLAMA_SCORES = ("law of depth", "width", "params", "geo", "depth_width2", "body_params", "depth", "ceiling")
"""The lines of scores on ``llama_small`` that the documentation shows."""


def _llama_small() -> dict[str, str]:
    numbers = dict(
        zip(
            ("llama_runs", "llama_shapes"),
            _find("llama_small", r"(\d+) of \d+ runs of (\d+) networks"),
            strict=True,
        )
    )
    part = _part("llama_small", "Scores at equal size")
    head, rule, *rows = [line for line in part.splitlines() if line.startswith("|")]
    by_name = {row.split(" | ")[0].removeprefix("| "): row for row in rows}
    chosen = [by_name[name].replace(name, _code(name), 1) for name in LLAMA_SCORES]
    numbers["llama_scores"] = "\n".join([head, rule, *chosen])
    for one in ratio_worth():
        key = f"{one.ratio:g}".replace(".", "_")
        numbers[f"worth_{key}"] = f"{one.trained:.0%}"
        numbers[f"worth_{key}_geo"] = f"{one.geo:.0%}"
        numbers[f"worth_{key}_interval"] = " to ".join(f"{end:.0%}" for end in one.interval)
    for _, tokens, worth, interval in _table(_part("llama_small", "What a ratio is worth at each size")):
        numbers[f"worth_at_{tokens}"], numbers[f"worth_at_{tokens}_interval"] = worth, interval
    (noise,) = _find("llama_small", r"deviate from their mean by ([0-9.]+) nats")
    (doubling,) = _find("llama_small", r"A doubling of the body is worth ([0-9.]+) nats")
    numbers["llama_noise"] = plain(float(noise))
    numbers["llama_noise_size"] = f"{2 ** (float(noise) / float(doubling)) - 1:.0%}"
    for key, score in (("law", "law of depth"), ("geo", "geo")):
        (numbers[f"{key}_gemstones"],) = _find("llama_small", rf"\| gemstones \| {score} \| (\d+ of \d+) \|")
    row = next(row for row in _table(_part("llama_small", "With more tokens")) if row[0].startswith("1 x "))
    numbers["shallow_short"], numbers["shallow_long"] = (_signed(row[place]) for place in (2, -2))
    wishes = _table(_part("llama_small", "Whether geo's wish holds"))
    numbers["even_1M"] = next(_with_error(row[4]) for row in wishes if row[:2] == ["1M", "ratio at depth"])
    orders = next(row for row in _table(_part("llama_small", "Along one line")) if row[0] == "geo")
    for size, tau in zip((".1M", ".3M", "1M"), orders[1:4], strict=True):
        key = size.replace(".", "_")
        numbers[f"ratio_geo_{key}"] = tau.replace("0.", ".", 1)
        best = rf"\| law of depth \| {re.escape(size)} \| [^|]* \| ([0-9.]+) \(([0-9.]+) to ([0-9.]+)"
        numbers[f"best_ratio_{key}"] = "{:.2g} ({:.2g} to {:.2g})".format(
            *map(float, _find("llama_small", best))
        )
    return numbers


def _llama_pairs() -> dict[str, str]:
    """Return how many pairs of llamas of one size scores order rightly, as ``bench run`` prints it."""
    rows = zerolm.bench.run(["llama_small"]).to_json()["rows"]
    shares = {row["score"]: f"{row['pairs_right']:.0%}" for row in rows}
    return {f"llama_pairs_{score}": shares[score] for score in ("geo", "params", "width")}


CLAIMS = {
    "two": "shared: two of q, k and v",
    "three": "shared: qkv",
    "no_ffn": "no FFN, wider",
    "deeper": "no FFN, deeper",
    "narrow": "narrow FFNs for one",
}
"""The claims of blocks whose mean difference the documentation tells, by the names of its values."""


def _blocks() -> dict[str, str]:
    each, of_claims = _part("llama_small", "Blocks at equal parameters").split("\nThe same, over all ")
    verdicts = [row[-1] for row in _table(each)]
    numbers = {f"blocks_{word}": str(verdicts.count(word)) for word in ("better", "level", "worse")}
    numbers["blocks_trained"] = str(len(verdicts))
    differences = {row[0]: _with_error(row[2]) for row in _table(of_claims)}
    return numbers | {f"blocks_{key}": differences[claim] for key, claim in CLAIMS.items()}


def _signed(cell: str) -> str:
    return f"{float(cell):+.3f}".replace("0.", ".", 1)


def _with_error(cell: str) -> str:
    difference, error = cell.split(" ± ")
    return f"{_signed(difference)} ± {plain(float(error))}"


def _code(name: str) -> str:
    return name if " " in name or name == "ceiling" else f"`{name}`"
