"""Pretrained checkpoints: read, summed up in a ledger, and written, one block of bytes at a time."""

from zerolm.checkpoints.checkpoint import Checkpoint as Checkpoint
from zerolm.checkpoints.headers import TensorInfo as TensorInfo
from zerolm.checkpoints.layout import Layout as Layout
from zerolm.checkpoints.layout import Part as Part
from zerolm.checkpoints.layout import Slot as Slot
from zerolm.checkpoints.ledger import Ledger as Ledger
from zerolm.checkpoints.ledger import ledger_of as ledger_of
from zerolm.checkpoints.matrix_sums import Sums as Sums
from zerolm.checkpoints.matrix_sums import Totals as Totals
from zerolm.checkpoints.slicing import sliced as sliced
from zerolm.checkpoints.writer import Outgoing as Outgoing
from zerolm.checkpoints.writer import Span as Span
from zerolm.checkpoints.writer import write_shards as write_shards
