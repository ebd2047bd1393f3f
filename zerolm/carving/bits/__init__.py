"""Types of weights: their bytes, what they lose, and plans of types and cuts together within bytes."""
