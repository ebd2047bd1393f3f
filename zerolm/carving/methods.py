"""By what units are chosen, how sizes are planned, and how what is left is repaired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zerolm.carving.importance.weights import REPAIRS, WEIGHTS_ONLY, WITH_TOKENS
from zerolm.carving.recipe import MAX_TOKENS, Recipe

PLANS: Final = ("weights", "measured", "heuristic")
RANDOM: Final = "random"
SEQUENCES: Final = 256
LENGTH: Final = 256


@dataclass(frozen=True)
class Method:
    """``text`` is a file, ``random``, or None; ``sequences`` of ``length`` tokens are taken from it.

    ``seed`` draws random tokens, and is that of the criterion ``random``.
    """

    text: str | None
    criterion: str
    repair: str
    plan: str
    sequences: int = SEQUENCES
    length: int = LENGTH
    seed: int = 0

    @classmethod
    def of(
        cls,
        text: str | None,
        criterion: str | None,
        repair: str | None,
        plan: str | None,
        *,
        fixed: bool,
        sequences: int,
        length: int,
        seed: int,
    ) -> Method:
        """What was asked for, with the defaults; ``ValueError`` for what does not go together.

        Where all sizes are ``fixed`` there is nothing to plan, and nothing is measured for it.
        """
        method = cls(
            text,
            criterion or ("capacity" if text is None else "output_energy"),
            repair or ("none" if text is None else "least-squares"),
            plan or ("weights" if text is None or fixed else "measured"),
            sequences,
            length,
            seed,
        )
        method._check()
        return method

    @classmethod
    def again(cls, recipe: Recipe, text: str | None) -> Method:
        """The method of a recipe; ``ValueError`` where it needs the text that it was made with."""
        tokens = recipe.calibration
        if recipe.repair == "none" or tokens is None:
            return cls(None, recipe.criterion, "none", recipe.plan)
        if tokens["text"] is not None and text in (None, RANDOM):
            raise ValueError(
                f"the recipe was repaired with a text of SHA-256 {tokens['text']}: give it by --text FILE"
            )
        return cls(
            RANDOM if tokens["text"] is None else text,
            recipe.criterion,
            recipe.repair,
            recipe.plan,
            tokens["sequences"],
            tokens["length"],
            tokens["seed"] or 0,
        )

    def _check(self) -> None:
        if not (self.sequences >= 1 and self.length >= 2 and self.sequences * self.length <= MAX_TOKENS):
            raise ValueError(
                f"{self.sequences} sequences of {self.length} tokens cannot be: at least one of two tokens, "
                f"at most {MAX_TOKENS} tokens in all"
            )
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"the seed must lie in 0 to 2^63 - 1, not {self.seed}")
        known = {"plan": PLANS, "criterion": (*WEIGHTS_ONLY, *WITH_TOKENS), "repair": REPAIRS}
        for what, names in known.items():
            if getattr(self, what) not in names:
                raise ValueError(f"{what} {getattr(self, what)!r} is not known; there are {', '.join(names)}")
        needing = [self.criterion] if self.criterion in WITH_TOKENS else []
        needing += [f"repair {self.repair}"] if self.repair != "none" else []
        needing += ["plan measured"] if self.plan == "measured" else []
        if self.text is None and needing:
            raise ValueError(
                f"{needing[0]} needs tokens: give --text FILE, or --text random, which needs no data"
            )


def check_text(sha256: str | None, recipe: Recipe) -> None:
    """Refuse a text other than that of the recipe."""
    wanted = recipe.calibration["text"] if recipe.calibration else None
    if wanted is not None and sha256 != wanted:
        raise ValueError(f"the text has SHA-256 {sha256}, but the recipe was repaired with {wanted}")
