"""Planning: the sizes that layers may have, what they cost, and the best of them."""
