"""Planning: the sizes that layers may have, what they cost, and the best of them."""

from zerolm.carving.planning import heads_ffn as heads_ffn  # they register their spaces
from zerolm.carving.planning import lonas as lonas
