"""Solvers: exact front, programmes with several budgets, enumeration, NSGA-II and random sampling."""

from zerolm.solvers.result import SearchResult
from zerolm.solvers.search import METHODS, Infeasible, search

__all__ = ["METHODS", "Infeasible", "SearchResult", "search"]
