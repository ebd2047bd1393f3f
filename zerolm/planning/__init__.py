"""Planning: the sizes that layers may have, what they cost, and the best of them."""

from zerolm.planning import heads_ffn as heads_ffn  # they register their spaces
from zerolm.planning import lonas as lonas
