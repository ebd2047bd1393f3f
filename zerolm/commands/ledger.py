"""``zerolm ledger``."""

from __future__ import annotations

from typing import Final

from zerolm.commands.checkpoints import PARENT
from zerolm.commands.command import Command
from zerolm.settings import Setting

LEDGER: Final = Command(
    name="ledger",
    summary="Show the energies of the weights of each layer, from one pass over the files.",
    verb="zerolm.api.ledger:ledger",
    arguments=(PARENT,),
    groups={
        "Reading": (
            Setting("verify", "flag", False, "compare the SHA-256 of the content of the files, too"),
        ),
    },
    examples=(
        ("zerolm ledger PARENT", "a line for each layer; the pass is kept for later commands"),
        ("zerolm ledger PARENT --verify --out energies", "with the content compared, as a page and JSON"),
    ),
    notes="energy: the sum of squares. strongest half: its share in the energy of all FFN neurons, .5 if all "
    "were even. strongest group: its share in the energy of all KV groups.",
)
