"""Training small models within a given time: what both kinds share, and each of them."""
