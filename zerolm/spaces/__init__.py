"""Search spaces: what may be chosen, and the layers that a choice gives."""

from zerolm.spaces import autoformer, bert, flexibert, gpt2, gpt2_uniform, llama, pit
from zerolm.spaces.base import (
    Backbone,
    Bound,
    Candidates,
    CandidateTable,
    ChoiceBlock,
    SearchSpace,
    make_space,
    space,
    space_class,
    space_names,
    space_settings,
)

__all__ = [
    "Backbone",
    "Bound",
    "CandidateTable",
    "Candidates",
    "ChoiceBlock",
    "SearchSpace",
    "autoformer",
    "bert",
    "flexibert",
    "gpt2",
    "gpt2_uniform",
    "llama",
    "make_space",
    "pit",
    "space",
    "space_class",
    "space_names",
    "space_settings",
]
