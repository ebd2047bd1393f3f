"""Sentences about how long a pick is trained: operations, tokens a parameter, and what published laws say."""

from __future__ import annotations

from collections.abc import Iterator

from zerolm.pretraining import (
    STEP_LAW_PARAMS,
    STEP_LAW_TOKENS,
    Allocation,
    TrainingPlan,
    chinchilla,
    deepseek,
    train_flops,
)
from zerolm.show.sheet import PAGE, Row, Sheet
from zerolm.show.text import show_amount
from zerolm.solvers.result import SearchResult


def training_lines(result: SearchResult) -> Iterator[str]:
    """Yield what training the pick takes, and how its operations would be divided best; else nothing."""
    plan = result.question.training
    if plan is None:
        return
    each, flops = plan.tokens / result.pick.costs["params"], _flops(result, plan)
    text = f"training on {show_amount(plan.tokens)} tokens ({each:.3g} a parameter): {flops:.3g} operations"
    if plan.law:
        yield f"{text}; as many tokens as are best for {plan.max_flops:.3g} by the law of {plan.law}"
        return
    best = chinchilla(flops)
    yield (
        f"{text}; by the law of {best.law} the same buy least loss with {show_amount(round(best.macs))} MACs "
        f"a token on {show_amount(round(best.tokens))} tokens"
    )


def training_sheet(result: SearchResult, plan: TrainingPlan) -> Sheet:
    """Return how published laws divide the operations of training the pick into MACs and tokens."""
    flops, macs = _flops(result, plan), result.pick.costs["macs"]
    here = Allocation("the pick", "6 x MACs a token x tokens", macs, plan.tokens)
    rows: list[Row] = [
        [one.law, show_amount(round(one.macs)), show_amount(round(one.tokens)), one.source]
        for one in (here, chinchilla(flops), deepseek(flops))
    ]
    note = (
        f"{flops:.3g} operations at a context of {result.question.conditions['context']:,}. What is served "
        "often is trained for longer than that: its operations of use are not counted here."
    )
    head: Row = ["divided by", "MACs a token", "tokens", "source"]
    return Sheet("How long to train", head, rows, [note], on=(PAGE,))


def _flops(result: SearchResult, plan: TrainingPlan) -> int:
    return train_flops(result.pick.costs["macs"], plan.tokens)


def beyond_step_law(body_params: int, tokens: int) -> Iterator[str]:
    """Yield which of parameters and tokens lie beyond the runs that Step Law was fitted to."""
    for name, value, (low, high) in (
        ("body parameters", body_params, STEP_LAW_PARAMS),
        ("tokens", tokens, STEP_LAW_TOKENS),
    ):
        if not low <= value <= high:
            span = f"{show_amount(low)} to {show_amount(high)}"
            yield f"{show_amount(value)} {name} are beyond {span}, which Step Law's rate and batch come from"
