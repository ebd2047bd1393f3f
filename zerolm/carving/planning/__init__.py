"""Planning: the sizes that layers may have, what they cost, and the best of them."""

from zerolm.carving.planning import lonas as lonas  # registers its spaces
