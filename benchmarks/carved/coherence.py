"""Whether a criterion knows good units from bad ones: the best kept, units by chance, the worst kept."""

from __future__ import annotations

from collections.abc import Iterator

from carved.parent import Parent, Trial
from carved.uniform import CRITERIA
from carved.writing import Line, escaped, heading, kl, row


def coherence(parent: Parent) -> Iterator[Line]:
    """The losses of each at one half, nothing repaired; less is better."""
    groups = 0.5 if parent.decoder else 1.0
    what, loss = ("KV groups and FFN", "KL") if parent.decoder else ("the FFN", "1 - mean cosine")
    chance = parent.average(Trial("random", groups, 0.5)).loss
    yield from heading(f"Coherence: half of {what}, nothing repaired")
    yield f"{loss} to the parent; of units by chance {kl(chance)}, the mean of {parent.scale.seeds} seeds."
    yield ""
    yield row("criterion", "best kept", "worst kept", "best < chance < worst")
    yield row("---", "---:", "---:", "---")
    failed = []
    for name in CRITERIA:
        if name == "random":
            continue
        best, worst = (parent.result(Trial(name, groups, 0.5, worst=last)).loss for last in (False, True))
        wrong = {"best no better than chance": best >= chance, "worst no worse than chance": worst <= chance}
        said = "; ".join(text for text, holds in wrong.items() if holds)
        yield row(escaped(name), kl(best), kl(worst), said or "yes")
        failed += [name] if said else []
    yield ""
    yield f"Incoherent here: {', '.join(map(escaped, failed)) or 'none'}."
