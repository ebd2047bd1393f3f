"""Carving: a smaller checkpoint cut out of a larger one, and the proof that it works."""
