"""What the tables of ``width.py`` share: a parent, what every method learns of it, and its judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from timing import note
from transformers import PreTrainedModel

from carved.flap import Fluctuations, flap
from carved.judging import Judge, Quality
from carved.minitron import Activations, minitron
from carved.network import Network
from carved.ours import Calibrated, Shape, carved, ours
from carved.parent import Parent
from carved.slicegpt import slicegpt
from zerolm.text.tokens import Tokens
from zerolm.units.pruning import apply_in_memory

EXACT: Final = 1e-5
"""KL of a method that keeps everything, at most."""


@dataclass(eq=False)
class Learnt:
    """What the methods learn from tokens, each when it is first needed."""

    parent: Parent
    tokens: Tokens

    @cached_property
    def calibrated(self) -> Calibrated:
        return Calibrated(self.parent.model, self.tokens, self.parent.criterion("surgeon"))

    @cached_property
    def activations(self) -> Activations:
        return Activations.of(self.calibrated.network, self.tokens)

    @cached_property
    def fluctuations(self) -> Fluctuations:
        return Fluctuations.of(self.calibrated.network, self.tokens)


@dataclass(eq=False)
class Bench:
    """A parent with what is learnt of all calibration tokens, and of few, on which shapes are tried."""

    parent: Parent
    tried: int
    """Sequences that shapes are tried with; as many again, halved, judge them."""

    @cached_property
    def learnt(self) -> Learnt:
        return Learnt(self.parent, self.parent.calibration["text"])

    @cached_property
    def network(self) -> Network:
        return self.learnt.calibrated.network

    @cached_property
    def whole(self) -> Shape:
        """The parent's own sizes."""
        sizes = self.parent.sizes
        return Shape(sizes.hidden, sizes.ffn, sizes.kv_heads)

    @cached_property
    def few(self) -> Learnt:
        """The methods with few tokens."""
        tokens = self.parent.calibration["text"]
        return Learnt(self.parent, Tokens(tokens.ids[::2]).spread(self.tried))

    @cached_property
    def trial(self) -> Judge:
        """A judge by calibration tokens that the few are none of."""
        tokens = self.parent.calibration["text"]
        return self.parent.judge_on(Tokens(tokens.ids[1::2]).spread(max(1, self.tried // 2)))

    def best(self, shapes: Iterable[Shape], make: Callable[[Learnt, Shape], Network]) -> Shape:
        """Return the shape with the least KL on calibration tokens."""
        losses = {shape: self.trial.of(make(self.few, shape)).loss for shape in shapes}
        note(", ".join(f"{shape}: {loss:.4f}" for shape, loss in losses.items()))
        return min(losses, key=losses.__getitem__)

    def judged(self, name: str, child: Network | PreTrainedModel) -> Quality:
        """Return what a child is worth on unseen text."""
        quality = self.parent.judge.of(child)  # type: ignore[arg-type]
        note(f"{name}: {quality.loss:.4f} {quality.perplexity:.2f}")
        return quality

    def check(self) -> float:
        """Return the largest KL of any method that keeps everything; an ``AssertionError`` above 1e-5."""
        learnt, shape = Learnt(self.parent, self.parent.calibration["text"].spread(8)), self.whole
        judge = self.parent.judge_on(self.parent.unseen.spread(4))
        seen, cut = learnt.calibrated.seen, learnt.calibrated.cut(shape)
        children = {
            "the parent in memory": apply_in_memory(self.parent.model, cut),
            "SliceGPT": slicegpt(seen, cut, shape.hidden),
            "SliceGPT, repaired": slicegpt(seen, cut, shape.hidden, "outputs"),
            "Minitron": minitron(learnt.activations, shape),
            "Minitron, repaired": minitron(learnt.activations, shape, "outputs"),
            "FLAP": flap(learnt.fluctuations, self.network.body + 4 * shape.hidden * self.parent.sizes.depth),
            "ours": ours(learnt.calibrated, shape, False, "none"),
            "ours, repaired": ours(learnt.calibrated, shape, False, "outputs and reads"),
            "ours, tied, repaired": ours(learnt.calibrated, shape, True, "outputs and reads"),
            "zerolm": carved(learnt.calibrated, shape, False),
            "zerolm, tied": carved(learnt.calibrated, shape, True),
        }
        losses = {name: abs(judge.of(child).loss) for name, child in children.items()}  # type: ignore[arg-type]
        for name, loss in losses.items():
            assert loss <= EXACT, f"{name} keeps everything and is {loss} from the parent"
        return max(losses.values())
