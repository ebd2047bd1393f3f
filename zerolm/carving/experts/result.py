"""The kept experts of a child as a result: without torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class NeuronRow:
    """The kept neurons of a layer's experts, for each expert as hexadecimal digits, the first the highest
    bit.

    ``loss`` is the predicted loss of the pruned ones on the text, a squared length summed over its tokens. It
    is None where the criterion uses no tokens.
    """

    kept: list[str]
    loss: float | None = None


@dataclass(frozen=True)
class ChildWidth:
    """The neurons of an expert of the ``parent`` and of the ``child``."""

    parent: int
    child: int


@dataclass(frozen=True)
class ExpertRow:
    """A layer: the kept experts, and the share of tokens and of gates that were routed to them.

    ``tokens`` and ``gates`` are None where no tokens were read. By pairs, ``loss`` is that of the
    removed ones. By domains, another choice would be better by at most a share of ``gap``. ``left`` is the
    share of the layer's squared error on held-out sequences that remains after repair, None without.
    ``domains`` are the shares of the total score that the kept experts have, by domain, where the text has
    several. ``neurons`` are the kept ones, None where all are kept.
    """

    layer: int
    kept: list[int]
    tokens: float | None = None
    gates: float | None = None
    loss: float | None = None
    gap: float | None = None
    left: float | None = None
    domains: dict[str, float] = field(default_factory=dict)
    neurons: NeuronRow | None = None

    @property
    def lost_by_neurons(self) -> float | None:
        """The predicted loss of pruned neurons; None where none are pruned, or it is not estimated."""
        return None if self.neurons is None else self.neurons.loss


@dataclass(frozen=True)
class ChildExperts:
    """The experts of a layer of the ``parent`` and of the ``child``; a token meets ``active`` of them.

    ``criterion`` is what they were chosen by. ``ffn`` are their neurons, None where those are not asked for.
    """

    criterion: str
    parent: int
    child: int
    active: int
    groups: int = 1
    ffn: ChildWidth | None = None
    layers: list[ExpertRow] = field(default_factory=list)
