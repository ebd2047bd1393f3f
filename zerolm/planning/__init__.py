"""Planning: the possible sizes of layers, their costs, and the best choice of sizes."""
