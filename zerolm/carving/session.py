"""What a carving runs through the network: the loaded parent, its calibration tokens, and what they tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from torch import Tensor
from transformers import PreTrainedModel

import zerolm
from zerolm.carving.evaluation.divergence import pooling_of
from zerolm.carving.importance.activations import importances
from zerolm.carving.importance.weights import Additive, Criterion
from zerolm.carving.kept_units import Cut
from zerolm.carving.methods import Method
from zerolm.carving.parent import mapped_model, open_model, tokens_of
from zerolm.carving.planning.sensitivity import BATCH, SEQUENCES, SHARES, Loss, Measured, measured
from zerolm.carving.pruning import Place, Repaired, apply_in_memory, carved_layer
from zerolm.carving.recipe import to_layers
from zerolm.carving.repair.least_squares import repair
from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import Kept, identity
from zerolm.networks.blocks import Blocks
from zerolm.text.tokens import Tokens

Progress = Callable[[str], None]


class Running:
    """A parent with the tokens of a method; everything long is kept, so that a killed run goes on from it."""

    def __init__(self, checkpoint: Checkpoint, method: Method, progress: Progress) -> None:
        self.checkpoint, self.method, self.progress = checkpoint, method, progress
        self._spent: list[Kept] = []

    @cached_property
    def tokens(self) -> Tokens:
        """The calibration tokens of the method's text."""
        method = self.method
        assert method.text is not None
        self.progress("tokenizing")
        return tokens_of(
            self.checkpoint,
            method.text,
            sequences=method.sequences,
            length=method.length,
            seed=method.seed,
        )

    @property
    def calibration(self) -> dict[str, object] | None:
        """What the recipe says of the tokens, None without."""
        method = self.method
        if method.text is None:
            return None
        tokens = self.tokens
        return {
            "text": tokens.text,
            "seed": tokens.seed,
            "sequences": method.sequences,
            "length": method.length,
        }

    @cached_property
    def model(self) -> PreTrainedModel:
        """The parent, whose weights stay in their files."""
        self.progress("opening the parent")
        return mapped_model(self.checkpoint)

    @cached_property
    def pooling(self) -> str:
        """How an encoder's tokens become one embedding."""
        return pooling_of(self.checkpoint.folder)

    def _kept(self, kind: str, *key: object) -> Kept:
        return Kept.of(
            kind,
            zerolm.__version__,
            identity(self.checkpoint),
            self.tokens.digest(),
            self.method.criterion,
            *key,
        )

    def importance(self) -> Criterion:
        """The criterion by what the tokens make units send."""
        name = self.method.criterion
        return Additive(
            importances(self.model, self.tokens, name, kept=self._kept("importances"), progress=self.progress)
        )

    def table(self, by: Criterion, kinds: list[str]) -> Measured:
        """The measured losses of cutting one layer alone."""
        seed = self.method.seed if self.method.criterion == "random" else None
        kept = self._kept("sensitivity", SHARES, kinds, seed, self.pooling)
        return measured(
            self.model,
            self.tokens,
            by,
            kinds,
            batch=BATCH,
            pooling=self.pooling,
            kept=kept,
            progress=self.progress,
        )

    def repaired(self, cut: Cut, ridges: Mapping[Place, float] | None = None) -> Repaired:
        """New output matrices for the cut, with these ridges or chosen ones."""
        if self.method.repair == "none":
            return Repaired()
        kept = self._kept("repair", self.method.repair, to_layers(cut), sorted((ridges or {}).items()))
        self._spent.append(kept)
        return repair(
            self.model,
            cut,
            self.tokens,
            self.method.repair,  # type: ignore[arg-type]
            ridges=ridges,
            kept=kept,
            progress=self.progress,
        )

    def done(self) -> None:
        """Forget what only a run that is not finished needs."""
        for kept in self._spent:
            kept.forget()

    def loss(self, cut: Cut, repaired: Repaired | None = None) -> float:
        """The loss of the whole cut on the tokens that the table was measured on, in its units."""
        self.progress("measuring the plan")
        blocks = Blocks(self.model, self.tokens.spread(SEQUENCES).batches(BATCH))
        return Loss(blocks, cut.parent.depth, self.pooling).of_cut(cut, repaired)

    def carved_layers(self, cut: Cut, repaired: Repaired | None = None) -> Callable[[Tensor], Tensor]:
        """The carved parent as a function from token ids (b, t) to logits (b, t, v), a layer at a time."""

        def logits(ids: Tensor) -> Tensor:
            blocks = Blocks(self.model, [{"input_ids": ids}])
            hidden = blocks.embed(0)
            for kept in cut.layers:
                hidden = blocks.call(
                    0, kept.layer, hidden, carved_layer(self.model, cut, kept, repaired).module
                )
            found: Tensor = blocks.finish(0, hidden).logits
            return found

        return logits

    def carved(self, cut: Cut, repaired: Repaired | None = None) -> PreTrainedModel:
        """The carved parent, in memory and in float32."""
        return apply_in_memory(open_model(self.checkpoint), cut, repaired)
