"""Pretrained checkpoints: read, summed up in a ledger, and written, one block of bytes at a time."""

from zerolm.checkpoints.checkpoint import Checkpoint
from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.layout import Layout, Part, Slot
from zerolm.checkpoints.ledger import Ledger, Sums, Totals, ledger_of
from zerolm.checkpoints.slicing import sliced
from zerolm.checkpoints.writer import Outgoing, Span, write_shards
from zerolm.families.family import Cuttable, Family
from zerolm.families.known import family_of

__all__ = [
    "Checkpoint",
    "Cuttable",
    "Family",
    "Layout",
    "Ledger",
    "Outgoing",
    "Part",
    "Slot",
    "Span",
    "Sums",
    "TensorInfo",
    "Totals",
    "family_of",
    "ledger_of",
    "sliced",
    "write_shards",
]
