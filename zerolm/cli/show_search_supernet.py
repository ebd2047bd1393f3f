"""The terminal's view of a supernet's search: that of any search."""

from zerolm.cli.show_search import show

__all__ = ["show"]
