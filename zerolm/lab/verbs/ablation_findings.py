"""Sentences about the ablation of one benchmark: one a table, every word from a number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean

from zerolm.lab.ablation.ablation import Ablation, AblationSection, BorrowedAlpha, Draws, Effect
from zerolm.lab.ablation.variants import ATTENTION, EMBEDDED, FFN, FUSED, SPLIT, WITHOUT

EVEN, ALL, BEST = "zerolm 0.5", "zerolm 1", "zerolm best"
"""The columns of ``zerolm``: both kinds of matrices alike, attention alone, and the best alpha."""


def sentences(ablation: Ablation, section: AblationSection) -> dict[str, str]:
    """One sentence for each table of a section, and one on what others' alphas are worth on it."""
    return {
        "matrices": matrices_sentence(section),
        "initialisation": initialisation_sentence(section),
        "seed": seed_sentence(section),
        "transfer": transfer_sentence(ablation, section),
    }


def matrices_sentence(section: AblationSection) -> str:
    effects = {each.variant: each for each in column(section.matrices, EVEN)}
    best = {each.variant: each for each in column(section.matrices, BEST)}
    full = next(iter(effects))
    parts = []
    singles, tuned = singled(effects.values()), singled(best.values())
    if singles and tuned:
        (worst, low), (kindest, high) = singles[0], singles[-1]
        parts.append(
            f"dropping one matrix moves the tau of zerolm 0.5 ({plain(effects[full].tau)}) by {moved(low)} "
            f"({worst}) to {moved(high)} ({kindest}), at the best alpha by {signed(tuned[0][1].change)} to "
            f"{signed(tuned[-1][1].change)}"
        )
    for name, verb in ((SPLIT, "splitting"), (FUSED, "fusing")):
        if name in effects:
            parts.append(f"{verb} q, k, v by {moved(effects[name])}")
    if ATTENTION in effects and FFN in effects:
        tau = plain(best[full].tau)
        parts.append(
            f"attention alone reaches {plain(effects[ATTENTION].tau)} and FFN alone "
            f"{plain(effects[FFN].tau)}, both at the best alpha ({best[full].alpha:g}) {tau}"
        )
    parts.append(f"embeddings move zerolm 0.5 by {moved(effects[EMBEDDED])}")
    return f"{section.title}: {'; '.join(parts)}."


def initialisation_sentence(section: AblationSection) -> str:
    parts = []
    for name, at in ((EVEN, "alpha 0.5"), (ALL, "alpha 1"), (BEST, "the best alpha")):
        first, *others = column(section.initialisations, name)
        taus = sorted((each.tau, each.variant) for each in others if each.tau is not None)
        if taus:
            (low, worst), (high, best) = taus[0], taus[-1]
            range_ = f"{plain(low)} ({worst}) to {plain(high)} ({best})" if high - low > 1e-3 else plain(low)
            parts.append(f"at {at} tau is {plain(first.tau)} with {first.variant} and {range_} with others")
    return f"{section.title}: {'; '.join(parts) or 'undefined'}."


def seed_sentence(section: AblationSection) -> str:
    parts = []
    for draws in draws_of_space(section):
        if draws.mean is None:
            continue
        parts.append(
            f"ten draws at alpha {draws.alpha:g}{' (best)' if draws.saw_labels else ''} reach tau "
            f"{plain(draws.low)} to {plain(draws.high)}, the closed form {plain(draws.closed)} "
            f"({plain(draws.closed_random_ties)} with its ties broken at random), and agree with it at "
            f"{plain(draws.agreement)}"
        )
    return f"{section.title}: {'; '.join(parts) or 'undefined'}."


def transfer_sentence(ablation: Ablation, section: AblationSection) -> str:
    arrived = borrowed(each for row in ablation.transfers for each in row if each.used_on == section.title)
    start = f"{section.title}: its own best alpha is {section.best_alpha:g}"
    if not arrived:
        return f"{start}; there is no other benchmark to borrow from."
    losses = [each.loss or 0.0 for each in arrived]
    worst = max(arrived, key=lambda each: each.loss or 0.0)
    return (
        f"{start}; those of the other benchmarks lose {plain(min(losses))} to {plain(max(losses))} tau "
        f"({plain(fmean(losses))} on average), the most with the {worst.alpha:g} of {worst.alpha_of}."
    )


def column(effects: Sequence[Effect], name: str) -> list[Effect]:
    """The effects on one score, the first variant first."""
    return [each for each in effects if each.column == name]


def draws_of_space(section: AblationSection) -> list[Draws]:
    """Draws from the space's own initialisation at alpha 0.5 and at the best."""
    init = section.draws[0].init
    return [each for each in section.draws if each.init == init and (each.alpha == 0.5 or each.saw_labels)]


def singled(effects: Iterable[Effect]) -> list[tuple[str, Effect]]:
    """Single matrices dropped, those that do the same named together, by what the drop changes."""
    dropped = [each for each in effects if each.variant.startswith(WITHOUT) and each.change is not None]
    ordered = sorted(dropped, key=lambda each: each.change or 0.0)
    groups = [list(group) for _, group in groupby(ordered, key=lambda each: each.change)]
    return [(listed([each.variant.removeprefix(WITHOUT) for each in group]), group[0]) for group in groups]


def borrowed(transfers: Iterable[BorrowedAlpha]) -> list[BorrowedAlpha]:
    """Those between benchmarks, not between views of one."""
    return [each for each in transfers if not each.same_data and each.loss is not None]


def listed(names: Sequence[str], last: str = "or") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def plain(value: float | None, digits: int = 3) -> str:
    """.720; - where it is not defined."""
    if value is None:
        return "-"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("0.", ".", 1)


def signed(value: float | None) -> str:
    """+.012."""
    return "-" if value is None else f"{round(value, 3) + 0.0:+.3f}".replace("0.", ".", 1)


def moved(effect: Effect) -> str:
    """+.012 [-.001, +.024]; 0 where no resample changes."""
    if effect.change == effect.low == effect.high == 0.0:
        return "0"
    if effect.low is None:
        return signed(effect.change)
    return f"{signed(effect.change)} [{signed(effect.low)}, {signed(effect.high)}]"
