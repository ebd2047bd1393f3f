"""The commands: what each takes, declared without importing what runs it."""

from typing import Final

from zerolm.commands.command import OUTPUT, Command
from zerolm.commands.doctor import DOCTOR
from zerolm.commands.ledger import LEDGER
from zerolm.commands.search import SEARCH

COMMANDS: Final = {command.name: command for command in (SEARCH, LEDGER, DOCTOR)}
"""All commands by name, in the order of the help."""

__all__ = ["COMMANDS", "OUTPUT", "Command"]
