"""How many of a model's units stay, as people type it: a number, or a share."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from zerolm.settings.units import parse_amount, parse_share


@dataclass(frozen=True)
class KeptUnits:
    """A setting that says how many units stay, by its flag: their name, and a share to give as an example."""

    flag: str
    units: str
    example: str

    def wanted(self, text: str, whole: int) -> tuple[Decimal, bool]:
        """Return the number of ``whole`` units for ``8``, ``0.5`` or ``0.5x``, and whether that is a share.

        A share need not come to a whole number. ``ValueError`` for what is neither.
        """
        share = parse_share(text) or parse_share(f"{text}x" if "." in text else None)
        try:
            part = Decimal(share[:-1]) if share else None
            exact = Decimal(parse_amount(self.flag, text)) if part is None else part * whole
        except ValueError:
            raise ValueError(
                f"{self.flag} takes a number of {self.units}, a share such as {self.example}, or auto, not "
                f"{text[:40]!r}"
            ) from None
        if part is not None and not 0 < part <= 1:
            raise ValueError(f"{self.flag} {text} is no share of the {self.units}: it must lie in 0 to 1")
        return exact, part is not None
