"""A page in many scripts, on which two readers of a tokenizer are compared."""

from __future__ import annotations

import random
import unicodedata
from typing import Final

PAGE: Final = """def mean(values: list[float]) -> float:
    \"\"\"What 12345 numbers have in common; it's 3.14159, isn't it?\"\"\"

    total  =   sum(values)\t# tabs,  two  spaces
    if not values: raise ValueError(f"{values!r} won't do: {1_000_000:,}")
    return total/len(values)   \n\n\n
They'll say WE'RE done; I'd've said so. 1 22 333 4444 55555 ... !!! ??? -- -> <= >= != && || :: //
Straße, naïve café, Ærøskøbing, Übergröße; Привет, мир! Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم
你好，世界。今天是2024年3月15日。こんにちは世界、안녕하세요. नमस्ते दुनिया ١٢٣ ½ ² Ⅷ
🙂 👩‍👩‍👧 🇪🇺 e\u0301 a\u0308 \u200b zero\u00a0width … “quotes” ‘single’ — dash
\t\tindented\r\nwith carriage returns\r\n\r\n     five spaces        eight        \n   \n end"""  # noqa: RUF001

HANGUL: Final = range(0xAC00, 0xD7A4)
SPACING_MARK: Final = "Mc"


DRAWN: Final = 200
RUNS: Final = (1, 2, 3, 5, 8, 13, 17, 31, 32, 33, 64)


def strings() -> list[str]:
    """Return the page, its lines, runs of white space, and strings of characters sampled from the page."""
    drawn = random.Random(0)
    characters = PAGE + " \n\t" * 20
    runs = [f"{before}{one * count}{after}" for one in " \n\t" for count in RUNS
            for before, after in (("", ""), ("x", "y"))]  # fmt: skip
    mixed = ["".join(drawn.choices(characters, k=drawn.randint(1, 40))) for _ in range(DRAWN)]
    return [PAGE, *PAGE.splitlines(), *runs, *mixed]


def plain_letters(text: str) -> str:
    """Return a text without combining marks, all letters beyond ASCII small."""
    letters = (each for each in text if not unicodedata.category(each).startswith("M"))
    return "".join(each if each.isascii() else each.lower()[:1] for each in letters)


def without_marks(page: str) -> str:
    """Return a page without what takers of accents do not agree on: Hangul, and vowel signs with a width."""
    return "".join(
        each for each in page if ord(each) not in HANGUL and unicodedata.category(each) != SPACING_MARK
    )
