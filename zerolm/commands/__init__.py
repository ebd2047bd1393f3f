"""The commands: what each takes, declared without importing what runs it."""

from typing import Final

from zerolm.commands.bench import ABLATE, BENCH
from zerolm.commands.bench_train import BENCH_TRAIN
from zerolm.commands.calibrate import CALIBRATE
from zerolm.commands.carve import CARVE
from zerolm.commands.command import LISTING, OUTPUT, Command
from zerolm.commands.doctor import DOCTOR
from zerolm.commands.elastic import ELASTIC_EXPORT, ELASTIC_SEARCH, ELASTIC_TRAIN
from zerolm.commands.evaluate import EVAL
from zerolm.commands.heal import HEAL
from zerolm.commands.ledger import LEDGER
from zerolm.commands.listings import BENCH_LS, SPACES
from zerolm.commands.proxies import PROXIES, PROXIES_LS
from zerolm.commands.score import SCORE
from zerolm.commands.search import SEARCH

COMMANDS: Final = {
    command.name: command
    for command in (
        SEARCH,
        CARVE,
        HEAL,
        EVAL,
        LEDGER,
        DOCTOR,
        PROXIES,
        PROXIES_LS,
        SCORE,
        CALIBRATE,
        BENCH,
        ABLATE,
        BENCH_TRAIN,
        ELASTIC_TRAIN,
        ELASTIC_SEARCH,
        ELASTIC_EXPORT,
        SPACES,
        BENCH_LS,
    )
}
"""All commands by name."""
PANELS: Final = {
    "Choose": ("search", "score", "calibrate"),
    "Shrink": ("carve", "heal"),
    "Grow": ("elastic train", "elastic search", "elastic export"),
    "Judge": ("eval", "doctor", "proxies", "bench run", "bench ablate", "bench train"),
    "Look": ("spaces", "ledger", "proxies ls", "bench ls"),
}
"""The names of all commands as the help shows them."""
SUMMARY: Final = "Choose and shrink transformer language models without training them."

__all__ = ["COMMANDS", "LISTING", "OUTPUT", "PANELS", "SUMMARY", "Command"]
