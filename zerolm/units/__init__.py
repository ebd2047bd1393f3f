"""Units in layers and of the stream: what a cut keeps of them, and what each is worth."""
