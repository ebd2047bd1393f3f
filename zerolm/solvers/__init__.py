"""Solvers: exact front, programmes with several budgets, enumeration, NSGA-II and random sampling."""

from zerolm.solvers.methods import METHOD_NAMES
from zerolm.solvers.result import SearchResult
from zerolm.solvers.search import search
from zerolm.solvers.solver import Infeasible

__all__ = ["METHOD_NAMES", "Infeasible", "SearchResult", "search"]
