"""Search spaces: what may be chosen, and the layers that a choice gives."""

from zerolm.spaces import bert, flexibert, gpt2, gpt2_uniform, llama, subnetworks
from zerolm.spaces.base import (
    SPACES,
    Bound,
    SearchSpace,
    make_space,
    space,
    space_names,
    space_settings,
)
from zerolm.spaces.candidates import (
    Backbone,
    Candidates,
    CandidateTable,
    ChoiceBlock,
    ColumnCandidates,
    RepeatedTable,
)
from zerolm.spaces.words import shape_text

__all__ = [
    "SPACES",
    "Backbone",
    "Bound",
    "CandidateTable",
    "Candidates",
    "ChoiceBlock",
    "ColumnCandidates",
    "RepeatedTable",
    "SearchSpace",
    "bert",
    "flexibert",
    "gpt2",
    "gpt2_uniform",
    "llama",
    "make_space",
    "shape_text",
    "space",
    "space_names",
    "space_settings",
    "subnetworks",
]
