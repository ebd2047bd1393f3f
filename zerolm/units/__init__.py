"""Units in layers and of the residual stream: which ones a cut keeps, and the score of each."""
