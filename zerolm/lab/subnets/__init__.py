"""Sub-networks of one trained parent: sampled, cut in memory, evaluated, and stored as a benchmark."""
