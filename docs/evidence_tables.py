"""The tables of measurements in the documentation."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from evidence import facts, plain, read, views

QUESTIONS = (
    (
        "Does `geo` rank networks better than counting their parameters?",
        "In **{geo_beats_counting} of {views}** published views, with the 95 % interval of the gain above 0. "
        "No gain is shown in the other views.",
        "leaderboard",
    ),
    (
        "Does it among networks of about equal size, which counting hardly distinguishes?",
        "tau-b is higher in **{geo_above_in_budgets} of {budget_views}** views; on average {budgets_geo} "
        "against {budgets_body_params}, where 1 is perfect. On three surrogate benchmarks measured elsewhere "
        "the difference is +.001, +.014 and +.023; no gain is shown.",
        "label_free",
    ),
    (
        "Is `geo` right about the ratio of FFN to attention, in llamas of one size and depth?",
        "It depends on the tokens per parameter. An FFN as large as attention has an equivalent size of "
        "**{worth_at_30}** at 30, **{worth_at_10}** at 10 and **{worth_at_3}** at 3, relative to an FFN "
        "three times as large. `geo` predicts {worth_1_geo} at any. It cannot choose a depth.",
        "llama_small",
    ),
    (
        "How far is its pick under a parameter budget from the best network?",
        "**{regret_geo}** of the distance of a random choice; the pick by counting {regret_body_params}.",
        "label_free",
    ),
    (
        "Is there a better formula?",
        "{formulas} were tried. **None** is reliably better on benchmarks hidden from its selection.",
        "label_free",
    ),
    (
        "Are proxies that run the network better?",
        "Of {proxies}, {proxies_beat_counting_flexibert} beat counting on FlexiBERT and "
        "{proxies_beat_counting_gpt2} on GPT-2. **None** is shown to beat the best closed form.",
        "proxies",
    ),
    (
        "Do 20 trained models of your own improve the ranking?",
        "By **+{random_gain}** tau-b over the better of `geo` and counting; at worst {random_worst}. For "
        "larger models than the labels: at worst {larger_worst}, and worse in {larger_worse} of {larger_of} "
        "views.",
        "leaderboard",
    ),
    (
        "How much quality does a carved child lose without training?",
        "Perplexity rises from {parent_perplexity} to **{carved_75}** with {kept_75} of the parameters, and "
        "to {carved_50} with {kept_50}. Random units, with the same repair: {random_75} and {random_50}.",
        "carving",
    ),
    (
        "How much if the plan may reduce the hidden size?",
        "KL to the parent is **{narrow_layers_75}** nats a token with 75% of the layers' parameters, "
        "{narrow_layers_50} with 50%. With the full hidden size: {whole_layers_75} and {whole_layers_50}.",
        "width",
    ),
    (
        "How much does healing recover?",
        "**{healed_left}** of the KL remains after {healed_tokens} M tokens ({healed_minutes} minutes on one "
        "thread), for a child with half of the heads and the FFN.",
        "healing",
    ),
    (
        "Is a quantisation type per matrix better than one type, at equal bytes?",
        "KL in nats a token: **{q4_k_alone}** against {q4_k_single} for `Q4_K`, {q3_k_alone} against "
        "{q3_k_single} for `Q3_K`, {q4_k_m_alone} against {q4_k_m_single} for llama.cpp's mix `Q4_K_M`.",
        "bits",
    ),
    (
        "Is it for a sentence encoder in llama.cpp?",
        "1 - cosine of embeddings: {encoder_q4_k_alone} against {encoder_q4_k} for `Q4_K`, "
        "{encoder_q4_k_m_alone} against {encoder_q4_k_m} for `Q4_K_M`.",
        "bits",
    ),
    (
        "What ranks 300 sub-networks of one trained model by KL?",
        "The sum of losses of single cuts: tau-b **{subnets_measured}** if each is measured, "
        "{subnets_prices} if estimated from one backward pass, as for plans. Best other score: "
        "{subnets_other}; counting: {subnets_counting}.",
        "subnets",
    ),
    (
        "Does their accuracy on clean texts predict accuracy under attack?",
        "Not on texts attacked against the parent: tau-b {subnets_attacked}.",
        "subnets",
    ),
    (
        "How much does a mixture of experts lose without half of its experts?",
        "KL on unseen code, one MoE of 16 experts trained here, repaired: "
        "**{experts_moments_repaired_code}** with `hope_moments`, {experts_repaired_code} with REAP. Without "
        "repair: REAP {experts_reap_code}, random {experts_random_code}.",
        "experts_quality",
    ),
    (
        "How much does the calibration text matter there?",
        "KL on English is {experts_one_sided_english} if calibrated and repaired on code alone, "
        "{experts_moments_repaired_english} on both.",
        "experts_quality",
    ),
    (
        "Are narrower experts better than fewer ones?",
        "Yes, on that MoE: **{experts_narrow_code}** with all experts, half of the neurons each, repaired. "
        "The parameters are equal.",
        "experts_quality",
    ),
    (
        "Is quantising the whole MoE better than removing half of its experts?",
        "No, at the bytes of that child in `Q4_K`: the whole parent in fewer bits has a KL of "
        "{experts_none_leave_code}, the child {experts_in_q4_k_code}.",
        "experts_quality",
    ),
    (
        "How does carving compare with Torch-Pruning (group magnitude; FFN alone, same repair)?",
        "Perplexity {ffn_75} against {rival_ffn_75} with 0.75 of the FFN, {ffn_50} against {rival_ffn_50} "
        "with 0.5.",
        "carving",
    ),
    (
        "Can weights alone select the units?",
        "Poorly: without repair, perplexity at half is {capacity_50} with `capacity` and {magnitude_50} with "
        "plain magnitude. For an encoder the repair matters, not the selection: cosine "
        "{random_embedding_cosine} with random units, {embedding_cosine} with selected ones.",
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
        "real_commands": real_table("Children as a user makes them"),
        "real_80": real_table("80% of the layers' parameters"),
        "real_all_80": real_table("80% of all parameters"),
        "worked": real_table("Qwen2.5-Coder-0.5B-Instruct by `zerolm carve"),
        "real_ranks": real_table("Rank of each criterion"),
        "bytes_gemma270": real_table("## gemma270 within", "real_bytes"),
        "bytes_qwen05": real_table("## qwen05 within", "real_bytes"),
        "joint": real_table("What is lost compared with the parent", "joint"),
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
        "chance": "random", "`reap`": "reap", "`frequency`": "frequency",
        "`hope_moments`": "moments", "`reap`, repaired": "repaired",
        "`frequency`, repaired": "frequency_repaired",
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


def real_table(first: str, name: str = "real") -> str:
    """Return the table below the line that begins so, of the real models or of another file."""
    below = read(name).partition(f"\n{first}")[2].splitlines()[2:]
    if not below or not below[0].startswith("|"):
        raise LookupError(f"benchmarks/{name}.md has no table below {first!r}")
    return "\n".join(itertools.takewhile(lambda line: line.startswith("|"), below))
