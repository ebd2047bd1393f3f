"""How byte-level tokenizers cut a text into words, by llama.cpp's names of it (``tokenizer.ggml.pre``).

Source: llama.cpp, ``src/llama-vocab.cpp``, and the tokenizers as they are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SPACE: Final = "▁"
ENDINGS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SPACES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
REST: Final = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
CASED: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
"""Words that a capital letter ends, and those of capital letters."""
CASED_REST: Final = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The expression of the step ``ByteLevel`` itself."""
DIGIT: Final = r"\p{N}"
NUMBER: Final = r"\p{N}+"
PUNCTUATION: Final = r"[\p{P}\$\+<=>\^~\|`]+"
THREE_DIGITS: Final = "[0-9][0-9][0-9]"
NEWLINE: Final = "[\r\n]"
HAN: Final = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
ALPHABETS: Final = (
    "\\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
    "]+"
)
"""Letters that have a case."""
MARKS: Final = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
HAN_KANA: Final = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
OF_DEEPSEEK_V3: Final = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


@dataclass(frozen=True)
class Words:
    """A way to cut a text into words: each of ``steps``, expressions, cuts what those before it left.

    ``name`` is llama.cpp's, ``also`` are further names of the same. ``whole``: a word that is a token is
    taken whole. ``bos``: readers put a BOS before a text where the file does not say. ``coarse``: llama.cpp
    splits words at combining marks here, and takes letters beyond ASCII for small and capital at once.
    """

    name: str
    steps: tuple[str, ...]
    whole: bool = False
    bos: bool = False
    coarse: bool = False
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)


WORDS: Final = (
    Words("gpt-2", (GPT2,), also=("phi-2", "olmo", "mpt", "jais", "exaone4", "modern-bert", "gigachat",
                                  "mellum", "a.x-4.0", "trillion", "granite-docling")),
    Words("smollm", (DIGIT, GPT2), also=("starcoder", "refact", "command-r", "codeshell", "exaone",
                                         "minerva-7b", "mellum2")),
    Words("llama-bpe", (rf"{ENDINGS}|{WORD}|\p{{N}}{{1,3}}|{REST}",), whole=True, bos=True,
          also=("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")),
    Words("glm4", (rf"{ENDINGS}|{WORD}|\p{{N}}{{1,3}}|{REST}",), whole=True, also=("glm5",)),
    Words("dbrx", (rf"{ENDINGS}|{WORD}|\p{{N}}{{1,3}}|{REST}",), also=("smaug-bpe", "chatglm-bpe")),
    Words("qwen2", (rf"{ENDINGS}|{WORD}|\p{{N}}|{REST}",),
          also=("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "solar-open", "kormo", "f2llmv2",
                "grok-2")),
    Words("qwen35", (rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
                     rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}",)),
    Words("seed-coder", (rf"{ENDINGS}|{WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}",)),
    Words("bailingmoe", (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                         r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",),
          also=("bailingmoe2", "llada-moe")),
    Words("exaone-moe", (rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
                         r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",)),
    Words("jais-2", (rf"{ENDINGS}|{WORD}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
                     + "|".join(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4))
                     + r"|\s{1,2}(?!\S)|\s{1}",)),
    Words("deepseek-v3", (r"\p{N}{1,3}", HAN_KANA, OF_DEEPSEEK_V3),
          also=("hunyuan-dense", "joyai-llm", "hy_v4")),
    Words("deepseek-llm", (NEWLINE, ALPHABETS, MARKS, r"\s+$", HAN, DIGIT)),
    Words("deepseek-coder", (NEWLINE, r"\s?\p{L}+", r"\s?\p{P}+", HAN, DIGIT)),
    Words("falcon", (PUNCTUATION, GPT2, NUMBER, THREE_DIGITS)),
    Words("tekken", (rf"{CASED[0]}|{CASED[1]}|\p{{N}}|{CASED_REST}",), whole=True, bos=True, coarse=True),
    Words("gpt-4o", (rf"{CASED[0]}{ENDINGS}?|{CASED[1]}{ENDINGS}?|\p{{N}}{{1,3}}|{CASED_REST}",), coarse=True,
          also=("llama4", "kanana2", "talkie", "minimax-m2")),
)  # fmt: skip
BY_NAME: Final = {name: words for words in WORDS for name in words.names}


def words_of(splitting: Any) -> tuple[str, ...] | None:
    """Return the expressions of a pre-tokenizer of ``tokenizer.json``; None where it is of another kind.

    It has to turn the text into bytes at its end, or in the middle as Falcon does.
    """
    steps: list[str] = []
    has_bytes = False
    for step in parts_of(splitting, "pretokenizers"):
        match step:
            case {"type": "Split", "pattern": {"Regex": str(text)}, "behavior": "Isolated", "invert": False}:
                steps.append(text)
            case {"type": "Digits", "individual_digits": bool(singly)}:
                steps.append(DIGIT if singly else NUMBER)
            case {"type": "Punctuation", "behavior": "Contiguous"}:
                steps.append(PUNCTUATION)
            case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(cuts)} if not has_bytes:
                has_bytes = True
                steps += [GPT2] if cuts else []
            case _:
                return None
    return tuple(steps) if has_bytes else None


def splitting_of(words: Words) -> dict[str, Any]:
    """Return the pre-tokenizer of ``tokenizer.json`` that cuts a text so."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    steps = [_step(expression) for expression in words.steps]
    if words.steps[-1] == GPT2:
        steps[-1] = level | {"use_regex": True}
    elif GPT2 in words.steps:
        steps[words.steps.index(GPT2)] = level | {"use_regex": True}
    else:
        steps.append(level)
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


def _step(expression: str) -> dict[str, Any]:
    if expression in (DIGIT, NUMBER):
        return {"type": "Digits", "individual_digits": expression == DIGIT}
    if expression == PUNCTUATION:
        return {"type": "Punctuation", "behavior": "Contiguous"}
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def parts_of(part: Mapping[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Return the parts of a sequence, also of one in another, or the one that stands alone."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [dict(part)]
    return [step for each in part[name] for step in parts_of(each, name)]
