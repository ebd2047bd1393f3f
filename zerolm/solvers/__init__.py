"""Solvers: exact front, programmes with several budgets, enumeration, NSGA-II and random sampling."""

from zerolm.solvers.infeasible import Infeasible
from zerolm.solvers.methods import METHOD_NAMES
from zerolm.solvers.result import SearchResult
from zerolm.solvers.search import search

__all__ = ["METHOD_NAMES", "Infeasible", "SearchResult", "search"]
