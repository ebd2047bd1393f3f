"""Settings that several spaces share; each space gives them defaults of its own."""

from __future__ import annotations

from typing import Final

from zerolm.architecture import MAX_DEPTH, MAX_VOCAB, MAX_WIDTH
from zerolm.settings import REQUIRED, Setting

DEPTH: Final = Setting("depth", "integers", REQUIRED, "numbers of layers", low=1, high=MAX_DEPTH)
HIDDEN: Final = Setting("hidden", "integers", REQUIRED, "hidden sizes", low=1, high=MAX_WIDTH)
HEADS: Final = Setting("heads", "integers", REQUIRED, "numbers of heads", low=1, high=MAX_WIDTH)
FFN: Final = Setting("ffn", "integers", REQUIRED, "FFN widths", low=1, high=MAX_WIDTH)
FFN_PER_HIDDEN: Final = Setting("ffn_per_hidden", "interval", REQUIRED, "FFN width over hidden size", low=0)
MLP_RATIO: Final = Setting(
    "mlp_ratio", "numbers", REQUIRED, "FFN widths over hidden size", low=0, high=MAX_WIDTH
)
CLASSES: Final = Setting(
    "classes", "integer", 100, "classes that images are sorted into", low=1, high=MAX_VOCAB
)
