"""How byte-level tokenizers of GGUF files cut a text into words, by llama.cpp's names."""

from __future__ import annotations

from typing import Final

CONTRACTIONS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD_PATTERN: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLIT_PATTERNS: Final = {
    (rf"{CONTRACTIONS}|{WORD_PATTERN}|\p{{N}}{{1,3}}|{REST}", True): "llama-bpe",
    (rf"{CONTRACTIONS}|{WORD_PATTERN}|\p{{N}}|{REST}", False): "qwen2",
}
"""By the expression and whether a word that is a token is taken whole."""
GPT2: Final = "gpt-2"
DIGITS: Final = "smollm"
SPACE: Final = "▁"
