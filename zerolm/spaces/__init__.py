"""Search spaces: what may be chosen, and the layers that a choice gives."""

from zerolm.spaces import (
    autoformer,
    bert,
    blocks,
    elastic,
    flexibert,
    gpt2,
    gpt2_uniform,
    llama,
    pit,
    subnetworks,
)
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
    "autoformer",
    "bert",
    "blocks",
    "elastic",
    "flexibert",
    "gpt2",
    "gpt2_uniform",
    "llama",
    "make_space",
    "pit",
    "shape_text",
    "space",
    "space_names",
    "space_settings",
    "subnetworks",
]
