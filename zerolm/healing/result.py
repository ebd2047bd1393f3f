"""The result of a healing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Healed:
    """The outcome of a healing: the losses on held-out text ``before``, ``after`` and of the ``parent``.

    They are ``perplexity`` and ``kl`` to the parent in nats a token, or ``cosine``; ``curve`` has them by
    ``tokens``. ``texts`` say what was trained on, ``training`` how; ``verified`` how far the written child
    differs from the trained network.
    """

    names: dict[str, str]
    texts: list[dict[str, Any]]
    training: dict[str, Any]
    losses: dict[str, dict[str, float]]
    curve: list[dict[str, float]]
    note: str = ""
    verified: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object."""
        own = asdict(self)
        return {**own.pop("names"), **own}
