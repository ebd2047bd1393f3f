"""Healing: the parent distilled into its carved child."""
