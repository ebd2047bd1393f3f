"""The command line."""

from zerolm.cli.app import main

__all__ = ["main"]
