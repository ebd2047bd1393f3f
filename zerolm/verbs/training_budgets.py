"""Settings of how long and on what a network is to be trained, and the budgets that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerolm.cost_columns import TRAINING
from zerolm.settings.request import setting

if TYPE_CHECKING:
    from zerolm.costs import CostModel
    from zerolm.pretraining import TrainingPlan


@dataclass(frozen=True)
class TrainingBudgets:
    """How long a network is to be trained, within how many operations, and in how much memory."""

    train_tokens: int | None = setting(
        "integer",
        None,
        "training tokens; with --max-train-flops default: the compute-optimal number",
        low=1,
        high=1 << 60,
    )
    max_train_flops: float | None = setting(
        "number",
        None,
        "training compute at most, in FLOPs (6 x MACs per token x tokens): 1e21",
        low=1,
        high=1e40,
    )
    max_train_bytes: int | None = setting(
        "integer",
        None,
        "training memory at most, on one device: AdamW, bfloat16, no gradient checkpointing",
        low=1,
        high=1 << 60,
        metavar="AMOUNT",
    )
    train_batch: int = setting(
        "integer", 1, "sequences per device and step, for training memory", low=1, high=1 << 20
    )

    @property
    def is_bounded(self) -> bool:
        """Return whether something of training is a budget."""
        return self.max_train_flops is not None or self.max_train_bytes is not None

    def plan(self) -> TrainingPlan | None:
        """Return the planned training length; None where none is given."""
        from zerolm.pretraining import TrainingPlan, chinchilla

        if self.train_tokens is not None:
            return TrainingPlan(self.train_tokens, self.max_train_flops)
        if self.max_train_flops is None:
            return None
        best = chinchilla(self.max_train_flops)
        return TrainingPlan(max(1, round(best.tokens)), self.max_train_flops, best.law)

    def budgets(self, limits: dict[str, int]) -> dict[str, int]:
        """Return budgets of costs with those of training; ``ValueError`` where no MACs are left."""
        from zerolm.pretraining import OPERATIONS, most_macs

        plan = self.plan()
        if self.max_train_bytes is not None:
            limits = {**limits, f"max_{TRAINING}": self.max_train_bytes}
        if plan is None or plan.max_flops is None:
            return limits
        most = most_macs(plan.max_flops, plan.tokens)
        if most == 0:
            raise ValueError(
                f"max_train_flops {plan.max_flops:.4g} are fewer than {OPERATIONS} for each of "
                f"{plan.tokens:,} tokens; give at least {float(OPERATIONS * plan.tokens):.4g}, or fewer "
                "train_tokens"
            )
        return {**limits, "max_macs": min(most, limits.get("max_macs", most))}

    def costs(self, costs: CostModel, space: str, vocab: Any) -> CostModel:
        """Return costs with the memory of training where that has a budget."""
        from zerolm.pretraining import HELD, TrainedCosts

        if self.max_train_bytes is None:
            return costs
        if space not in HELD:
            raise ValueError(
                f"memory of training is known of {', '.join(HELD)}, not of {space}; leave max_train_bytes out"
            )
        return TrainedCosts(
            **costs.conditions, sequences=self.train_batch, vocab=int(vocab), held=HELD[space]
        )
