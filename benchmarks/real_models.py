"""The models and texts of ``real``, in the folder that ``ZEROLM_REAL`` names, and two toys beside them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
from transformers import PreTrainedModel

from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.networks.compute import compute, computed
from zerolm.networks.opener import is_decoder, mapped_model, stock_tokenizer
from zerolm.networks.pooling import TokenPooling
from zerolm.settings.compute import ComputeRequest
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens
from zerolm.units.kept_units import Dimensions, dimensions

REAL: Final = ("minilm", "mpnet", "gemma270", "qwen05", "qwen15")
TOYS: Final = ("pydec", "pyenc")
CHATTY: Final = ("qwen05", "qwen15")
"""Instruct models, which are also judged on turns of their own template."""
LENGTH: Final = 512
CALIBRATED: Final = 8192
"""Tokens of the pass that scores units."""
JUDGED: Final = 8192
"""Tokens of each text that models are judged on, in windows of ``LENGTH``."""
SENTENCES: Final = 1000
FUNCTION: Final = re.compile(
    r'^def (?P<name>\w+)\([^\n]*\):\n    """(?P<what>[^"\n]{20,200})[^"]*"""\n(?:    [^\n]*\n|\n){3,40}',
    re.MULTILINE,
)


def root() -> Path:
    """Return the folder of the real models; ``SystemExit`` where ``ZEROLM_REAL`` names none."""
    folder = os.environ.get("ZEROLM_REAL")
    if folder is None:
        raise SystemExit("ZEROLM_REAL names no folder: give one with minilm, gemma270, qwen05 and texts")
    return Path(folder)


def text_file(name: str, part: str) -> Path:
    """Return the file of ``python``, ``english`` or ``sentences``; ``part`` is ``cal`` or ``unseen``."""
    short = {"python": "py", "english": "en"}.get(name, name)
    return root() / "texts" / f"{short}_{part}.txt"


@dataclass(frozen=True)
class Parent:
    """A model by its name, computed with products in ``dtype``."""

    name: str
    dtype: str = "float32"

    @property
    def folder(self) -> Path:
        if self.name in TOYS:
            return Path(os.environ["ZEROLM_MODELS"]) / self.name
        return root() / self.name

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.open(self.folder)

    @cached_property
    def is_decoder(self) -> bool:
        return is_decoder(self.checkpoint)

    @cached_property
    def model(self) -> PreTrainedModel:
        return self.opened(self.checkpoint)

    def opened(self, checkpoint: Checkpoint) -> PreTrainedModel:
        """Return a model over its files, computed as this parent is."""
        return computed(mapped_model(checkpoint), compute(ComputeRequest(dtype=self.dtype)))

    @cached_property
    def sizes(self) -> Dimensions:
        return dimensions(self.checkpoint)

    @cached_property
    def pooling(self) -> TokenPooling:
        return TokenPooling.of(self.checkpoint)

    @property
    def calibrated(self) -> str:
        """The text that it is calibrated by, unless chat is asked for."""
        return "python" if self.is_decoder or self.name in TOYS else "sentences"

    @property
    def texts(self) -> tuple[str, ...]:
        """The unseen texts that it is judged on."""
        if self.name in TOYS:
            return ("python",)  # all that they were trained on
        if not self.is_decoder:
            return ("sentences",)
        return ("python", "english", *(("chat",) if self.name in CHATTY else ()))

    def calibration(self, text: str) -> Tokens:
        """Return the tokens that units are scored by: of ``python``, ``chat`` or ``sentences``."""
        return self._tokens(text, "cal", CALIBRATED)

    def unseen(self, text: str) -> Tokens:
        """Return the tokens of a text that nothing was chosen by."""
        return self._tokens(text, "unseen", JUDGED)

    def unread(self, read: int, length: int) -> Tokens:
        """Return tokens of the calibration text between ``read`` sequences, spread evenly over it."""
        file, count = str(text_file(self.calibrated, "cal")), 2 * read - self.is_decoder
        tokens = tokens_of(self.checkpoint, file, sequences=count, length=length)
        if len(tokens) < count:
            raise SystemExit(f"{file} is too short: {read} sequences of {length} tokens leave little between")
        return tokens.rows(range(1, count, 2)).most(2 * JUDGED)

    def _tokens(self, text: str, part: str, count: int) -> Tokens:
        """Return tokens of a file, which is tokenized once: it has millions."""
        file = text_file("python" if text == "chat" else text, part)
        cache = ArrayCache.of("real tokens", self.name, text, part, count, file.stat().st_size)
        row = cache.get("tokens")
        if row is None:
            tokens = self._tokenized(text, part, count)
            row = {"ids": tokens.ids.numpy()} | ({} if tokens.mask is None else {"mask": tokens.mask.numpy()})
            cache.put("tokens", row)
        mask = torch.from_numpy(row["mask"]) if "mask" in row else None
        return Tokens(torch.from_numpy(row["ids"]), mask)

    def _tokenized(self, text: str, part: str, count: int) -> Tokens:
        if text == "chat":
            return self._chat(text_file("python", part), count // LENGTH)
        file = str(text_file(text, part))
        if self.is_decoder:
            length = min(LENGTH, self.checkpoint.layout.sizes.get("positions", LENGTH))
            return tokens_of(self.checkpoint, file, sequences=count // length, length=length)
        tokens = tokens_of(self.checkpoint, file, sequences=SENTENCES, length=128)
        if part == "cal":
            return tokens.most(count)
        assert tokens.mask is not None
        return tokens.rows(tokens.mask.sum(1).argsort(stable=True).tolist())  # little padding

    def _chat(self, file: Path, windows: int) -> Tokens:
        """Return windows of turns: a user asks for a function, the assistant's answer is its code."""
        tokenizer = stock_tokenizer(self.folder)
        functions = list(FUNCTION.finditer(file.read_text("utf-8", errors="replace")))
        ids: list[int] = []
        for step in np.linspace(0, len(functions) - 1, min(len(functions), 40 * windows)).astype(int):
            one = functions[step]
            turns = [
                {
                    "role": "user",
                    "content": f"Write a Python function `{one['name']}`. {one['what'].strip()}",
                },
                {"role": "assistant", "content": f"```python\n{one[0].strip()}\n```"},
            ]
            ids += tokenizer(str(tokenizer.apply_chat_template(turns, tokenize=False)))["input_ids"]
        starts = np.linspace(0, len(ids) - LENGTH, windows).astype(int)
        if len(ids) < windows * LENGTH:
            raise SystemExit(f"{file} holds {len(functions)} functions with a docstring: too few for chat")
        return Tokens(torch.tensor([ids[start : start + LENGTH] for start in starts]))


@dataclass(frozen=True)
class Sizes:
    """Parameters of a parent: of all, of its layers, of a neuron in all layers, of attention in one layer."""

    params: int
    body: int
    neuron: int
    attention: int

    @classmethod
    def of(cls, parent: Parent) -> Sizes:
        checkpoint, layers, neuron, attention = parent.checkpoint, 0, 0, 0
        for name, slot in checkpoint.layout.slots.items():
            count = checkpoint.tensors[name].count
            layers += count if slot.layer is not None else 0
            if slot.layer is not None and "ffn" in slot.axes:
                neuron += count // parent.sizes.ffn
            elif slot.layer == 0 and len(slot.axes) == 2:
                attention += count
        every = sum(checkpoint.tensors[name].count for name in checkpoint.layout.slots)
        return cls(every, layers, neuron, attention)

    def width(self, parent: Parent, fewer: float) -> int:
        """Return the width of all FFNs that leaves out so many parameters; 0 or less where it cannot."""
        return round(parent.sizes.ffn - fewer / self.neuron)
