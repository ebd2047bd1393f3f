"""A text of drawn words, long enough to train tokenizers of a few hundred ids and to tell them apart."""

import random
from pathlib import Path


def words_in(folder: Path) -> str:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 7))) for _ in range(300)]
    file = folder / "text.txt"
    file.write_text(" ".join(draw.choices(words, k=8000)))
    return str(file)
