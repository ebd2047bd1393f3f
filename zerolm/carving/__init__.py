"""Carving: a smaller checkpoint cut from a larger one, and the proof that it works."""
