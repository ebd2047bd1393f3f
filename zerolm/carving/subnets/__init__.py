"""Sub-networks of one trained parent: drawn, cut in memory, judged, and kept as a benchmark."""
