"""The commands: what each takes, declared without importing what runs it."""

from typing import Final

from zerolm.commands.calibrate import CALIBRATE
from zerolm.commands.carve import CARVE
from zerolm.commands.command import OUTPUT, Command
from zerolm.commands.doctor import DOCTOR
from zerolm.commands.evaluate import EVAL
from zerolm.commands.ledger import LEDGER
from zerolm.commands.listings import BENCH_DOWNLOAD, BENCH_LS, SPACES
from zerolm.commands.score import SCORE
from zerolm.commands.search import SEARCH

COMMANDS: Final = {
    command.name: command
    for command in (
        SEARCH,
        CARVE,
        EVAL,
        LEDGER,
        DOCTOR,
        SCORE,
        CALIBRATE,
        SPACES,
        BENCH_LS,
        BENCH_DOWNLOAD,
    )
}
"""All commands by name, in the order of the help."""
GROUPS: Final = {"bench": "Compare scores with published results."}
"""The first words of commands of two."""

__all__ = ["COMMANDS", "GROUPS", "OUTPUT", "Command"]
