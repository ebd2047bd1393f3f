"""Quantisation types: their bytes, their losses, and joint plans of types and cuts within bytes."""
