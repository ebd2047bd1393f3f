"""The tables of measurements in the documentation."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from evidence import MEASUREMENTS, facts, plain, read, views

QUESTIONS = (
    (
        "Does `geo` rank networks better than counting their parameters?",
        "In **{geo_beats_counting} of {views}** published views, with an interval above 0. In the others "
        "that is not shown.",
        "leaderboard",
    ),
    (
        "Among networks of about equal size, where counting is blind?",
        "tau-b above counting's in **{geo_above_in_budgets} of {budget_views}**; {budgets_geo} against "
        "{budgets_body_params} on average. Far from 1; on three surrogates measured elsewhere +.001, +.014 "
        "and +.023, which is not shown to be a gain.",
        "label_free",
    ),
    (
        "In llamas of one size and depth, is the ratio of FFN to attention worth what `geo` says?",
        "It goes by the tokens a parameter sees: FFNs as large as attention are worth **{worth_at_30}** of "
        "FFNs three times as large at 30, **{worth_at_10}** at 10 and **{worth_at_3}** at 3; `geo` says "
        "{worth_1_geo} at any. It cannot tell how deep to go.",
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
        "**+{random_gain}** tau-b over the better of `geo` and counting; at worst {random_worst}. Beyond "
        "the labels' sizes: at worst {larger_worst}, and worse in {larger_worse} of {larger_of}.",
        "leaderboard",
    ),
    (
        "What does a carved child lose, untrained?",
        "Perplexity {parent_perplexity} becomes **{carved_75}** with {kept_75} of the parameters, "
        "{carved_50} with {kept_50}. Units by chance, with the same repair: {random_75} and {random_50}.",
        "carving",
    ),
    (
        "What does a plan lose that may narrow the hidden size?",
        "KL to the parent **{narrow_layers_75}** nats a token with 75% of the layers' parameters, "
        "{narrow_layers_50} with 50%. With the whole hidden size {whole_layers_75} and "
        "{whole_layers_50}.",
        "width",
    ),
    (
        "What does healing give back?",
        "**{healed_left}** of the KL is left, for a child with half of the heads and the FFN, after "
        "{healed_tokens} M tokens: {healed_minutes} minutes on one thread.",
        "healing",
    ),
    (
        "What does a plan of types of weights save, in as many bytes?",
        "A type for each matrix loses **{q4_k_alone}** nats a token where `Q4_K` everywhere loses "
        "{q4_k_single}, {q3_k_alone} where `Q3_K` loses {q3_k_single}; llama.cpp's mix `Q4_K_M` loses "
        "{q4_k_m_single}, planned {q4_k_m_alone}. Embeddings that llama.cpp sends of an encoder are "
        "{encoder_q4_k} off in cosine in `Q4_K`, planned {encoder_q4_k_alone}; in the mix {encoder_q4_k_m}, "
        "planned {encoder_q4_k_m_alone}.",
        "bits",
    ),
    (
        "What orders 300 sub-networks of one trained model, by KL?",
        "A plan's predicted loss, measured cut by cut: tau-b **{subnets_measured}**; foretold from one pass "
        "back {subnets_prices}, the best other score {subnets_other}, counting {subnets_counting}. Accuracy "
        "on clean texts does not tell accuracy on texts that fooled the parent: {subnets_attacked}.",
        "subnets",
    ),
    (
        "What is lost when half of the experts of a mixture leave, and is that worth it?",
        "KL on unseen code of a mixture of 16 trained here: **{experts_moments_repaired_code}** by "
        "moments of pairs, repaired; by REAP {experts_repaired_code}, not repaired {experts_reap_code}, by "
        "chance {experts_random_code}. "
        "Neurons of all experts in as many parameters, repaired: **{experts_narrow_code}**. "
        "Chosen and repaired on code alone it loses {experts_one_sided_english} on English. Where all stay "
        "and half of the neurons of each leave in their place, **{experts_narrow_code}**. In as many bytes "
        "as such a child has in `Q4_K`, which loses {experts_in_q4_k_code}, the whole parent in fewer bits "
        "loses {experts_none_leave_code}.",
        "experts_quality",
    ),
    (
        "How does carving compare with Torch-Pruning (group magnitude; FFN alone, same repair)?",
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
)
"""What is asked, what was measured with the names of facts, and the file that holds it."""


def tables() -> dict[str, str]:
    """Return every table by its name."""
    return {
        "evidence": evidence(),
        "best_proxies": best_proxies(),
        "leaderboard_summary": summary(),
        "experts_criteria": by_criteria(),
        "real_80": real_table("80% of the layers' parameters"),
        "real_all_80": real_table("80% of all parameters"),
        "worked": worked(),
        "real_ranks": real_table("Rank of each criterion"),
    }


def evidence() -> str:
    """Return what is measured, losses included, with links to its files."""
    lines = ["| question | measured | where |", "|---|---|---|"]
    for question, answer, file in QUESTIONS:
        lines.append(f"| {question} | {answer.format(**facts())} | [{file}](../benchmarks/{file}.md) |")
    return "\n".join(lines)


def best_proxies() -> str:
    """Return the best proxy and the best closed form of each benchmark."""
    lines = [
        "| benchmark | best proxy | tau-b [95 %] | best closed form | tau-b [95 %] |",
        "|---|---|---|---|---|",
    ]
    for key, benchmark in (("flexibert", "FlexiBERT"), ("gpt2", "GPT-2")):
        row = (
            "| {benchmark} | `{best_proxy_KEY}` | {best_proxy_KEY_tau} {best_proxy_KEY_interval} "
            "| `{best_closed_KEY}` | {best_closed_KEY_tau} {best_closed_KEY_interval} |"
        )
        lines.append(row.replace("KEY", key).format(benchmark=benchmark, **facts()))
    return "\n".join(lines)


def summary() -> str:
    """Return ``geo`` beside counting on every view."""
    lines = [
        "| view | `geo` | counting | gain [95 %] | `geo`, equal size | counting, equal size | gain |",
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


def by_criteria() -> str:
    """Return what a mixture loses with fewer experts, on code and English, by what chose them."""
    rows = {
        "chance": "random", "`reap`": "reap", "`frequency`": "frequency", "`hope`": "hope",
        "`hope_moments`": "moments", "`reap`, repaired": "repaired",
        "`frequency`, repaired": "frequency_repaired", "`hope`, repaired": "hope_repaired",
        "`hope_moments`, repaired": "moments_repaired",
    }  # fmt: skip
    lines = ["| by | 12 stay | 8 stay |", "|---|---|---|"]
    for text, name in rows.items():
        cells = (
            ", ".join(facts()[f"experts_{name}{key}_{side}"] for side in ("code", "english"))
            for key in ("_12", "")
        )
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def worked() -> str:
    """Return what was made of Qwen2.5-Coder-0.5B within shares of all its parameters."""
    rows: dict[str, Any] = {}
    for line in (MEASUREMENTS / "real" / "qwen05.jsonl").read_text("utf-8").splitlines():
        part = json.loads(line)
        rows[part["part"]] = part["result"]
    lines = [
        "| `carve qwen --max-params` | parameters | of the layers | KL to the parent | bits a byte "
        "(parent's) | minutes | GB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for share in ("0.8", "0.5"):
        row = rows.get(f"{share} of params ours by python on python")
        if row is None:
            continue
        child, parent = row["eval"]["rows"][:2]
        lines.append(
            f"| `{share}x` | {child['params'] / 1e6:.0f}M | {row['body'] / rows['sizes']['body']:.0%} "
            f"| {child['kl']:.3g} | {child['bits']:.3f} ({parent['bits']:.3f}) "
            f"| {row['processor_minutes']:.0f} | {row['peak_gb']:.1f} |"
        )
    return "\n".join(lines)


def real_table(first: str) -> str:
    """Return the table of the real models below the line that begins so."""
    below = read("real").partition(f"\n{first}")[2].splitlines()[2:]
    if not below or not below[0].startswith("|"):
        raise LookupError(f"benchmarks/real.md has no table below {first!r}")
    return "\n".join(itertools.takewhile(lambda line: line.startswith("|"), below))
