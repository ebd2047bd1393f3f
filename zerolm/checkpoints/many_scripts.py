"""A page in many scripts, on which two readers of a tokenizer are compared."""

from __future__ import annotations

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


def without_marks(page: str) -> str:
    """Return a page without what takers of accents do not agree on: Hangul, and vowel signs with a width."""
    return "".join(
        each for each in page if ord(each) not in HANGUL and unicodedata.category(each) != SPACING_MARK
    )
